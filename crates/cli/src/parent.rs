//! Ends this process when the one that started it dies, if that asks for it.

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// Variable with the number of the process that wants that: a worker whose memory is full is
/// killed, and would leave a comparison behind.
const PARENT: &str = "FLASHSIFT_PARENT";

/// Reads the variable.
pub(crate) fn follow() {
    let Some(parent) = std::env::var(PARENT).ok().and_then(|text| text.parse().ok()) else {
        return;
    };
    // Without the call, the comparison merely runs to its end.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if getppid() != Pid::from_raw(parent) {
        // It died before the call.
        std::process::exit(1);
    }
}
