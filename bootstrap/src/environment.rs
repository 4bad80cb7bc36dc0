//! [`Config`] from environment variables.

use std::ffi::OsString;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use transport::Rank;

use crate::config::split_host_port;
use crate::{Config, DEFAULT_TIMEOUT, Error, Method, Secret};

type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

pub(crate) fn read(lookup: Lookup<'_>) -> Result<Option<Config>, Error> {
    let (rank, size) = (text(lookup, "RANK")?, text(lookup, "WORLD_SIZE")?);
    let (rank, size) = match (rank, size) {
        (None, None) => return Ok(None),
        (Some(rank), Some(size)) => (rank, size),
        (Some(rank), None) => return Err(missing("WORLD_SIZE", format!("but RANK={rank} is"))),
        (None, Some(size)) => return Err(missing("RANK", format!("but WORLD_SIZE={size} is"))),
    };
    let world_size = number::<u32>("WORLD_SIZE", &size)? as usize;
    if world_size == 0 {
        return Err(wrong("WORLD_SIZE", &size, "a world has at least one rank"));
    }
    let index = number::<u32>("RANK", &rank)?;
    if index as usize >= world_size {
        return Err(wrong("RANK", &rank, format!("ranks go from 0 to {} here", world_size - 1)));
    }
    Ok(Some(Config {
        rank: Rank(index),
        world_size,
        method: method(lookup, index, world_size)?,
        timeout: timeout(lookup)?,
        bind: bind(lookup)?,
        secret: secret(lookup)?,
    }))
}

fn method(lookup: Lookup<'_>, rank: u32, world_size: usize) -> Result<Method, Error> {
    if let Some(list) = text(lookup, "THINWIRE_PEERS")? {
        let peers: Vec<String> = list.split(',').map(|peer| peer.trim().to_owned()).collect();
        if peers.len() != world_size {
            let problem = format!("{} entries for a world of {world_size}", peers.len());
            return Err(wrong("THINWIRE_PEERS", &list, problem));
        }
        if let Some(bad) = peers.iter().find(|peer| split_host_port(peer).is_none()) {
            return Err(wrong("THINWIRE_PEERS", &list, format!("{bad:?} is not host:port")));
        }
        return Ok(Method::Peers(peers));
    }
    if let Some(source) = text(lookup, "THINWIRE_LISTENER")? {
        if source != "stdin" {
            return Err(wrong("THINWIRE_LISTENER", &source, "the only known source is stdin"));
        }
        if rank != 0 {
            return Err(wrong("THINWIRE_LISTENER", &source, format!("for rank 0 only, this is rank {rank}")));
        }
        return Ok(Method::Listener(Arc::new(inherited_listener()?)));
    }
    let Some(host) = text(lookup, "MASTER_ADDR")?.filter(|host| !host.is_empty()) else {
        return Err(missing("MASTER_ADDR", "it names rank 0's machine"));
    };
    Ok(Method::Master { host, port: port(lookup)? })
}

fn port(lookup: Lookup<'_>) -> Result<u16, Error> {
    if let Some(own) = text(lookup, "THINWIRE_MASTER_PORT")? {
        return number_of_port("THINWIRE_MASTER_PORT", &own);
    }
    let Some(value) = text(lookup, "MASTER_PORT")? else {
        return Err(missing("MASTER_PORT", "it is the port where rank 0 listens"));
    };
    let port = number_of_port("MASTER_PORT", &value)?;
    if text(lookup, "TORCHELASTIC_USE_AGENT_STORE")?.as_deref() != Some("True") {
        return Ok(port);
    }
    let problem =
        "torchrun's own store listens there and there is no port after it; set THINWIRE_MASTER_PORT";
    port.checked_add(1).ok_or_else(|| wrong("MASTER_PORT", &value, problem))
}

fn timeout(lookup: Lookup<'_>) -> Result<Duration, Error> {
    let Some(value) = text(lookup, "THINWIRE_TIMEOUT")? else { return Ok(DEFAULT_TIMEOUT) };
    let seconds = value.trim().parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| wrong("THINWIRE_TIMEOUT", &value, "not a positive number of seconds"))
}

fn bind(lookup: Lookup<'_>) -> Result<Option<IpAddr>, Error> {
    let Some(value) = text(lookup, "THINWIRE_BIND")? else { return Ok(None) };
    let address = value.trim().trim_start_matches('[').trim_end_matches(']').parse();
    address.map(Some).map_err(|_| wrong("THINWIRE_BIND", &value, "not an IP address"))
}

fn secret(lookup: Lookup<'_>) -> Result<Option<Secret>, Error> {
    let Some(value) = text(lookup, "THINWIRE_SECRET")? else { return Ok(None) };
    // The value stays out of the message.
    Secret::new(value).map(Some).map_err(|error| wrong("THINWIRE_SECRET", "..", error.to_string()))
}

#[cfg(unix)]
fn inherited_listener() -> Result<TcpListener, Error> {
    use std::os::fd::AsFd;

    let what = "THINWIRE_LISTENER=stdin: taking the listening socket from standard input";
    let listener = std::io::stdin().as_fd().try_clone_to_owned().map(TcpListener::from);
    let listener = listener.map_err(Error::io(what))?;
    // Fails on anything but a socket.
    listener.local_addr().map_err(Error::io(what))?;
    Ok(listener)
}

#[cfg(not(unix))]
fn inherited_listener() -> Result<TcpListener, Error> {
    Err(wrong("THINWIRE_LISTENER", "stdin", "possible on Unix only"))
}

fn text(lookup: Lookup<'_>, name: &'static str) -> Result<Option<String>, Error> {
    let Some(value) = lookup(name) else { return Ok(None) };
    let text = value.into_string();
    text.map(Some).map_err(|value| wrong(name, &value.to_string_lossy(), "not UTF-8"))
}

fn number<T: std::str::FromStr>(name: &'static str, value: &str) -> Result<T, Error> {
    value.trim().parse().map_err(|_| wrong(name, value, "not a number, or too large"))
}

fn number_of_port(name: &'static str, value: &str) -> Result<u16, Error> {
    match value.trim().parse::<u16>() {
        Ok(port) if port != 0 => Ok(port),
        _ => Err(wrong(name, value, "not a port; ports go from 1 to 65535")),
    }
}

fn wrong(name: &'static str, value: &str, problem: impl Into<String>) -> Error {
    Error::Variable { name, value: Some(value.to_owned()), problem: problem.into() }
}

fn missing(name: &'static str, problem: impl Into<String>) -> Error {
    Error::Variable { name, value: None, problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_from(variables: &[(&str, &str)]) -> Result<Option<Config>, String> {
        let lookup = |name: &str| {
            variables.iter().rfind(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        };
        read(&lookup).map_err(|error| error.to_string())
    }

    const WORLD: [(&str, &str); 4] =
        [("RANK", "1"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "node0"), ("MASTER_PORT", "29500")];

    fn with(more: &[(&'static str, &'static str)]) -> Result<Option<Config>, String> {
        read_from(&[&WORLD, more].concat())
    }

    fn port_of(config: Result<Option<Config>, String>) -> u16 {
        match config.unwrap().unwrap().method {
            Method::Master { port, .. } => port,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn no_world_is_not_an_error() {
        assert!(matches!(read_from(&[]), Ok(None)));
        assert!(matches!(read_from(&[("MASTER_ADDR", "node0"), ("MASTER_PORT", "x")]), Ok(None)));
    }

    #[test]
    fn the_torchrun_variables_make_a_configuration() {
        let config = with(&[]).unwrap().unwrap();
        assert_eq!((config.rank, config.world_size, config.timeout), (Rank(1), 4, DEFAULT_TIMEOUT));
        assert!(matches!(config.method, Method::Master { host, port: 29_500 } if host == "node0"));
        assert!(config.bind.is_none() && config.secret.is_none());
    }

    #[test]
    fn our_own_variables_refine_it() {
        let config = with(&[
            ("THINWIRE_TIMEOUT", "2.5"),
            ("THINWIRE_BIND", "::1"),
            ("THINWIRE_SECRET", "hush"),
            ("THINWIRE_PEERS", "a:1, b:2,[::1]:3,d:4"),
        ]);
        let config = config.unwrap().unwrap();
        assert_eq!(config.timeout, Duration::from_millis(2_500));
        assert_eq!(config.bind, Some(IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])));
        assert_eq!(config.secret, Some(Secret::new("hush").unwrap()));
        assert!(matches!(config.method, Method::Peers(peers) if peers == ["a:1", "b:2", "[::1]:3", "d:4"]));
    }

    #[test]
    fn the_port_of_torchruns_own_store_is_avoided() {
        let agent = ("TORCHELASTIC_USE_AGENT_STORE", "True");
        assert_eq!(port_of(with(&[agent])), 29_501);
        assert_eq!(port_of(with(&[agent, ("THINWIRE_MASTER_PORT", "7000")])), 7_000);
        assert_eq!(port_of(with(&[("TORCHELASTIC_USE_AGENT_STORE", "False")])), 29_500);
        assert!(with(&[agent, ("MASTER_PORT", "65535")]).unwrap_err().contains("THINWIRE_MASTER_PORT"));
    }

    #[test]
    fn mistakes_are_named_with_their_value() {
        for (variables, says) in [
            (&[("RANK", "x")][..], "RANK=\"x\": not a number"),
            (&[("RANK", "-1")], "RANK=\"-1\": not a number"),
            (&[("RANK", "4")], "RANK=\"4\": ranks go from 0 to 3"),
            (&[("WORLD_SIZE", "0"), ("RANK", "0")], "WORLD_SIZE=\"0\": a world has at least one"),
            (&[("WORLD_SIZE", "99999999999")], "WORLD_SIZE=\"99999999999\": not a number, or too large"),
            (&[("MASTER_ADDR", "")], "MASTER_ADDR is not set"),
            (&[("MASTER_PORT", "0")], "MASTER_PORT=\"0\": not a port"),
            (&[("MASTER_PORT", "65536")], "MASTER_PORT=\"65536\": not a port"),
            (&[("MASTER_PORT", "http")], "MASTER_PORT=\"http\": not a port"),
            (&[("THINWIRE_MASTER_PORT", "0")], "THINWIRE_MASTER_PORT=\"0\": not a port"),
            (&[("THINWIRE_TIMEOUT", "0")], "THINWIRE_TIMEOUT=\"0\": not a positive"),
            (&[("THINWIRE_TIMEOUT", "NaN")], "THINWIRE_TIMEOUT=\"NaN\": not a positive"),
            (&[("THINWIRE_TIMEOUT", "inf")], "THINWIRE_TIMEOUT=\"inf\": not a positive"),
            (&[("THINWIRE_BIND", "eth0")], "THINWIRE_BIND=\"eth0\": not an IP address"),
            (&[("THINWIRE_SECRET", "")], "THINWIRE_SECRET=\"..\": the secret must have 1 to 64"),
            (&[("THINWIRE_PEERS", "a:1")], "1 entries for a world of 4"),
            (&[("THINWIRE_PEERS", "a:1,b:2,c,d:4")], "\"c\" is not host:port"),
            (&[("THINWIRE_LISTENER", "stdin")], "for rank 0 only"),
            (&[("THINWIRE_LISTENER", "fd3")], "the only known source is stdin"),
        ] {
            let error = with(variables).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        for (variables, says) in [
            (&[("RANK", "1")][..], "WORLD_SIZE is not set: but RANK=1 is"),
            (&[("WORLD_SIZE", "2")], "RANK is not set: but WORLD_SIZE=2 is"),
            (&[("RANK", "1"), ("WORLD_SIZE", "2")], "MASTER_ADDR is not set"),
            (&[("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "a")], "MASTER_PORT is not set"),
        ] {
            let error = read_from(variables).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
