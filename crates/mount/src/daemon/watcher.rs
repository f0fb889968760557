//! The thread that watches the machine: memory that is short shrinks the RAM for files, and the
//! sifter learns which application is in the foreground.
//!
//! It sleeps until the kernel reports a stall. Only with a limit of the control group, after a
//! stall, or with a source of the application in the foreground does it look again each second.

use crate::fs::Fs;
use flashsift_files::sift::live::ram_budget::{Headroom, RamBudget};
use flashsift_host::{foreground::Source, memory};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::{
    fs::File,
    io,
    os::fd::OwnedFd,
    sync::Arc,
    thread::{self, JoinHandle},
};
use tracing::{info, warn};

/// Time between two looks, s.
const LOOK_S: i64 = 1;

/// The thread that runs.
pub(super) struct Watcher {
    stop: Arc<OwnedFd>,
    thread: JoinHandle<()>,
}

impl Watcher {
    /// Starts the thread that watches.
    pub(super) fn start(fs: Arc<Fs>, foreground: Option<Source>) -> io::Result<Self> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let watched = Arc::clone(&stop);
        let thread = thread::Builder::new().name("machine".into()).spawn(move || {
            Watched::new(fs, foreground).run(&watched);
        })?;
        Ok(Self { stop, thread })
    }

    /// Ends the thread, and waits for its end.
    pub(super) fn stop(self) {
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        let _ = self.thread.join();
    }
}

/// The state of the machine, as it was last seen.
struct Watched {
    fs: Arc<Fs>,
    stalls: Option<File>,
    groups: Vec<memory::LimitedGroup>,
    budget: RamBudget,
    /// The RAM that files may take now, bytes.
    bytes: u64,
    stalled_ppm: Option<u32>,
    foreground: Option<Source>,
    program: String,
}

impl Watched {
    fn new(fs: Arc<Fs>, foreground: Option<Source>) -> Self {
        let stalls = memory::stalls();
        if let Err(why) = &stalls {
            info!("memory pressure is not seen, so the RAM for files stays as it is: {why}");
        }
        let whole_bytes = fs.budget_bytes;
        Self {
            stalls: stalls.ok(),
            groups: memory::limited_groups(),
            budget: RamBudget::new(whole_bytes),
            bytes: whole_bytes,
            stalled_ppm: None,
            foreground,
            program: String::new(),
            fs,
        }
    }

    fn run(mut self, stop: &OwnedFd) {
        loop {
            self.look();
            let looks_again =
                self.budget.is_short() || !self.groups.is_empty() || self.foreground.is_some();
            let timeout = Timespec { tv_sec: LOOK_S, tv_nsec: 0 };
            let timeout = looks_again.then_some(&timeout);
            let mut waits = vec![PollFd::new(stop, PollFlags::IN)];
            waits.extend(self.stalls.iter().map(|file| PollFd::new(file, PollFlags::PRI)));
            match poll(&mut waits, timeout) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(why) => {
                    warn!("waiting for memory pressure: {why}; it is not seen any more");
                    return;
                }
            }
            let came: Vec<PollFlags> = waits.iter().map(PollFd::revents).collect();
            if !came[0].is_empty() {
                return;
            }
            let of_stalls = came.get(1).copied().unwrap_or(PollFlags::empty());
            if of_stalls.contains(PollFlags::PRI) {
                self.budget.stalled(self.fs.now_us());
            } else if !of_stalls.is_empty() {
                warn!("the kernel reports no memory pressure any more");
                self.stalls = None;
            }
        }
    }

    fn look(&mut self) {
        let ppm = memory::stalled_ppm();
        if let Some(stalled_ppm) = ppm.filter(|_| ppm != self.stalled_ppm) {
            self.fs.decider.memory_is_stalled(stalled_ppm);
            self.stalled_ppm = ppm;
        }
        if let Some(source) = &self.foreground {
            let program = source.program();
            if program != self.program {
                self.fs.decider.set_foreground(&program);
                self.program = program;
            }
        }
        self.budget.handle_deadline(self.fs.now_us());
        let held_bytes = self.fs.held_bytes();
        let bytes = self.groups.iter().filter_map(memory::LimitedGroup::memory_bytes);
        let headrooms = bytes.map(|(limit_bytes, used_bytes)| Headroom { limit_bytes, used_bytes });
        let least = headrooms.map(|room| self.budget.bytes(held_bytes, Some(room))).min();
        let bytes = least.unwrap_or_else(|| self.budget.bytes(held_bytes, None));
        if bytes == self.bytes {
            return;
        }
        self.bytes = bytes;
        if let Err(why) = self.fs.set_budget(bytes) {
            warn!("memory is short, and files stay in RAM: {why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Caller, Config, ROOT, Store};
    use std::{ffi::OsStr, fs};

    const MIB: u64 = 1 << 20;

    /// Files of 1 MiB each in RAM, in a group with a limit: those above the limit go to flash, and
    /// when the group's other memory shrinks, files may take more again. The daemon had no idea of
    /// `MemoryHigh` before, and the kernel slowed a daemon above it down.
    // Promises: Mount 70.
    #[test]
    fn files_leave_ram_for_the_limit_of_a_control_group() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["backing", "group"] {
            fs::create_dir(at(name)).unwrap();
        }
        let Ok(store) = Store::detached_tmpfs(64 * MIB) else {
            println!("SKIPPED files_leave_ram_for_the_limit_of_a_control_group: it needs root");
            return;
        };
        let backing = OwnedFd::from(File::open(at("backing")).unwrap());
        let mount = Arc::new(Fs::new(backing, store, Config::default()).unwrap());
        for n in 0..12 {
            let caller = Caller { uid: 0, gid: 0, tid: 0, umask: 0 };
            let name = n.to_string();
            let (_, open, _) = mount.create(&caller, ROOT, OsStr::new(&name), 0o600, 0).unwrap();
            mount.write(Access::default(), open, 0, &vec![n as u8; MIB as usize]).unwrap();
        }
        let others = |bytes: u64| {
            let text = format!("anon {bytes}\nshmem {}\n", mount.held_bytes());
            fs::write(at("group/memory.stat"), text).unwrap();
        };
        fs::write(at("group/memory.high"), (32 * MIB).to_string()).unwrap();
        let mut watched = Watched::new(mount.clone(), None);
        watched.groups = vec![memory::LimitedGroup::at(at("group"))];
        others(4 * MIB);
        watched.look();
        assert_eq!(mount.status().allowed_bytes, Some(26 * MIB), "all files have space");
        assert!(mount.held_bytes() > 12 * MIB);
        others(22 * MIB);
        watched.look();
        assert_eq!(mount.status().allowed_bytes, Some(8 * MIB));
        assert!(mount.held_bytes() <= 8 * MIB, "{}", mount.held_bytes());
        others(5 * MIB);
        watched.look();
        assert_eq!(mount.status().allowed_bytes, Some(25 * MIB));
        for n in 0..12 {
            let name = n.to_string();
            let attr = mount.lookup(ROOT, OsStr::new(&name)).unwrap();
            assert_eq!(attr.size, MIB);
        }
        mount.check();
    }
}
