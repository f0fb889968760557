//! Processes of the threads that ask: found in /proc while they wait for an answer.
//!
//! An event names the process and the thread; the kernel gives only the thread. A process is an
//! application's, so its name is that of the thread group leader, not of the thread that asked.

use flashsift_events::event::Micros;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs;

/// A thread's number may pass to another process: what is older than this is looked up again, µs.
const FRESH_US: Micros = 1_000_000;
/// Threads that are remembered.
const THREADS: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Processes(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    threads: HashMap<u32, Thread>,
    names: HashMap<u32, String>,
}

#[derive(Clone, Copy, Debug)]
struct Thread {
    pid: u32,
    checked_us: Micros,
}

/// A process that has not been seen under this name before.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) pid: u32,
    pub(crate) name: String,
}

/// The process of a thread, and its name.
fn process(tid: u32) -> Option<Named> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let pid = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(Named { pid, name: name.trim_end_matches('\n').to_owned() })
}

impl Processes {
    /// Looks up the process of a waiting thread, outside all locks, and returns what has to be
    /// reported first.
    pub(crate) fn look_up(&self, tid: u32, now: Micros) -> Option<Named> {
        if tid == 0 {
            return None;
        }
        let fresh = |thread: &Thread| now.saturating_sub(thread.checked_us) < FRESH_US;
        if self.0.lock().threads.get(&tid).is_some_and(fresh) {
            return None;
        }
        let found = process(tid);
        let mut known = self.0.lock();
        if known.threads.len() >= THREADS {
            known.threads.clear();
            known.names.clear();
        }
        // A thread that cannot be seen (of another pid namespace) stands for its process.
        let pid = found.as_ref().map_or(tid, |found| found.pid);
        known.threads.insert(tid, Thread { pid, checked_us: now });
        let found = found?;
        if known.names.get(&pid) == Some(&found.name) {
            return None;
        }
        known.names.insert(pid, found.name.clone());
        Some(found)
    }

    /// Keeps others out.
    #[cfg(test)]
    pub(crate) fn lock(&self) -> impl Sized + '_ {
        self.0.lock()
    }

    /// The process of a thread, as it was last seen; the thread itself where it never was.
    pub(crate) fn get(&self, tid: u32) -> u32 {
        self.0.lock().threads.get(&tid).map_or(tid, |thread| thread.pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// A thread with a name of its own was recorded as a program: `mount --record` listed
    /// `ThreadPoolForeg` where the application was the browser.
    // Promises: Mount 51.
    #[test]
    fn a_thread_is_of_its_process() {
        let (sender, receiver) = mpsc::channel();
        let (done, wait) = mpsc::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("ThreadPoolForeg".into())
            .spawn(move || {
                sender.send(rustix::thread::gettid().as_raw_pid() as u32).unwrap();
                let _ = wait.recv();
            })
            .unwrap();
        let tid = receiver.recv().unwrap();
        let processes = Processes::default();
        let leader = fs::read_to_string("/proc/self/comm").unwrap();
        let expected = Named { pid: std::process::id(), name: leader.trim_end().to_owned() };
        assert_eq!(processes.look_up(tid, 0), Some(expected));
        assert_eq!(processes.get(tid), std::process::id());
        assert_eq!(processes.look_up(tid, 10), None, "it is known");
        assert_eq!(processes.look_up(tid, 2 * FRESH_US), None, "it has the same name");
        drop(done);
        thread.join().unwrap();
    }
}
