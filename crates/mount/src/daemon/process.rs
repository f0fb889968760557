//! The process itself: its signals, its limits, and its chance to survive when memory runs out.

use super::{Wake, error::Context, error::Error};
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGXCPU, SIGXFSZ},
    flag,
    iterator::Signals,
};
use std::sync::{Arc, atomic::AtomicBool, mpsc::Sender};
use std::{fs, thread};
use tracing::warn;

/// From now on signals are read instead of ending the process. The thread lives as long as it does.
///
/// To be called before any other thread starts.
pub(super) fn read_signals(wake: &Sender<Wake>) -> Result<(), Error> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("signals")?;
    let wake = wake.clone();
    thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            if wake.send(Wake::Signal(signal)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

/// Files that the daemon creates for itself are for their owner alone. Those of users get the modes
/// that they ask for all the same.
pub(super) fn keep_files_private() {
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}

/// When memory runs out, the kernel ends other processes first: the files in RAM would be lost.
pub(super) fn survive_out_of_memory(root: bool) {
    if root && let Err(why) = fs::write("/proc/self/oom_score_adj", "-900") {
        warn!(
            "/proc/self/oom_score_adj: {why}; if memory runs out, this process may be ended first"
        );
    }
}

/// The limits of the shell that mounts are not those of the programs that use the mount: a write
/// beyond `ulimit -f` ended the daemon, and with it the files in RAM.
pub(super) fn outlive_limits(root: bool) -> Result<(), Error> {
    for signal in [SIGXCPU, SIGXFSZ] {
        flag::register(signal, Arc::new(AtomicBool::new(false))).context("signals")?;
    }
    for resource in [Resource::Fsize, Resource::Cpu, Resource::As, Resource::Data] {
        let own = getrlimit(resource).maximum;
        let to = |most| setrlimit(resource, Rlimit { current: most, maximum: most });
        if !root || to(None).is_err() {
            let _ = to(own);
        }
    }
    Ok(())
}

/// Each file that applications have open takes a descriptor.
pub(super) fn raise_descriptor_limit(root: bool) {
    let limit = getrlimit(Resource::Nofile);
    let most =
        fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|text| text.trim().parse().ok());
    let to = |most| setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
    if !root || to(most).is_err() {
        // A process may always raise its soft limit to its hard limit.
        let _ = to(limit.maximum);
    }
}
