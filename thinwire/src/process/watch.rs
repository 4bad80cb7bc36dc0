use std::os::unix::process::parent_id;
use std::process::exit;
use std::thread;
use std::time::Duration;

/// The variable in which a process tells those that it starts its own number.
pub(crate) const STARTER: &str = "THINWIRE_STARTER";

const INTERVAL: Duration = Duration::from_millis(100);

/// Ends this process soon after the one that started it, if that was this program: a starter that is
/// killed cannot end its workers itself.
pub(crate) fn end_with_starter() {
    let starter = std::env::var(STARTER).ok().and_then(|number| number.parse().ok());
    // A process in between, a shell for example, has its own reasons to end.
    if starter == Some(parent_id()) {
        let watch = move || {
            while starter == Some(parent_id()) {
                thread::sleep(INTERVAL);
            }
            eprintln!("thinwire: error: the process that started this one is gone");
            exit(1);
        };
        // Without the thread the only loss is a late end.
        let _ = thread::Builder::new().name("watch".into()).spawn(watch);
    }
}
