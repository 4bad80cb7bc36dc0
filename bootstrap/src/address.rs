//! Names to addresses, addresses to listeners.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::Error;

/// Pause between attempts to resolve a name that is not known yet.
const PAUSE: Duration = Duration::from_millis(200);

/// All addresses of a host, in the resolver's order. Tries until the deadline: the name of a machine
/// that is just being started may not be known yet.
pub(crate) fn resolve(
    host: &str,
    port: u16,
    start: Instant,
    deadline: Instant,
) -> Result<Vec<SocketAddr>, Error> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host).to_owned();
    let failed = |source| Error::Resolve { host: format!("{host}:{port}"), elapsed: start.elapsed(), source };
    loop {
        let outcome = look_up(bare.clone(), port, deadline);
        match outcome {
            Ok(addresses) if !addresses.is_empty() => return Ok(addresses),
            Ok(_) if Instant::now() >= deadline => return Err(failed(io::ErrorKind::NotFound.into())),
            Err(error) if Instant::now() >= deadline => return Err(failed(error)),
            _ => thread::sleep(PAUSE.min(deadline.saturating_duration_since(Instant::now()))),
        }
    }
}

/// The system's resolver has no deadline of its own, so it runs on a thread that we can leave behind.
fn look_up(host: String, port: u16, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new().name("resolver".into()).spawn(move || {
        let addresses = (host.as_str(), port).to_socket_addrs().map(Iterator::collect);
        // Nobody listens any more when it took too long.
        let _ = sender.send(addresses);
    })?;
    let patience = deadline.saturating_duration_since(Instant::now());
    receiver.recv_timeout(patience).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Listens at the first of these addresses that is this machine's.
pub(crate) fn listen(addresses: &[SocketAddr]) -> Result<TcpListener, Error> {
    let mut failure = Error::Config { detail: "there is no address to listen at".into() };
    for &address in addresses {
        match TcpListener::bind(address) {
            Ok(listener) => return Ok(listener),
            // Not the next one: whoever listens here gets the connections of those who try it first.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                return Err(Error::AddressInUse { address });
            }
            Err(source) => failure = Error::Bind { address, source },
        }
    }
    Err(failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> (Instant, Instant) {
        (Instant::now(), Instant::now() + Duration::from_millis(300))
    }

    #[test]
    fn literal_addresses_resolve_to_themselves() {
        let (start, deadline) = soon();
        for (host, address) in [("127.0.0.1", "127.0.0.1:80"), ("::1", "[::1]:80"), ("[::1]", "[::1]:80")] {
            assert_eq!(resolve(host, 80, start, deadline).unwrap(), [address.parse().unwrap()]);
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_in_time() {
        let (start, deadline) = soon();
        let error = resolve("no-such-host.invalid", 80, start, deadline).unwrap_err();
        assert!(error.to_string().starts_with("no-such-host.invalid:80 does not resolve"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn the_first_local_address_is_taken_and_a_used_one_is_not_skipped() {
        let elsewhere: SocketAddr = "192.0.2.1:0".parse().unwrap();
        let here: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let taken = listen(&[elsewhere, here]).unwrap();
        let used = taken.local_addr().unwrap();
        assert!(matches!(listen(&[used, here]), Err(Error::AddressInUse { address }) if address == used));
        assert!(matches!(listen(&[elsewhere]), Err(Error::Bind { address, .. }) if address == elsewhere));
    }
}
