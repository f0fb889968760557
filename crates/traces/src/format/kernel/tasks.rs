//! Threads, their processes and their names, from lines or packets that name them.

use crate::tracepoint::What;
use std::collections::HashMap;

pub(super) const CLONE_THREAD: u64 = 0x1_0000;
/// Number of bytes of a name that the kernel keeps.
const COMM_BYTES: usize = 15;

/// New information about a thread.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// A thread from before the trace, its process, and its name if known.
    Found { tid: u32, pid: u32, name: Option<Box<str>> },
    /// A process has a new name from now on.
    Renamed { pid: u32, name: Box<str> },
}

struct Task {
    pid: u32,
    comm: Box<[u8]>,
}

#[derive(Default)]
pub(super) struct Tasks(HashMap<u32, Task, foldhash::fast::FixedState>);

impl Tasks {
    /// A thread hit a tracepoint under this name (empty if unknown).
    pub(super) fn seen(&mut self, tid: u32, tgid: Option<u32>, comm: &[u8]) -> Option<News> {
        let name = || (!comm.is_empty()).then(|| String::from_utf8_lossy(comm).into());
        match self.0.get_mut(&tid) {
            Some(task) if comm.is_empty() || *task.comm == *comm => None,
            Some(task) => {
                let first = task.comm.is_empty();
                task.comm = comm.into();
                let pid = task.pid;
                match name() {
                    name if first => Some(News::Found { tid, pid, name }),
                    Some(name) if pid == tid => Some(News::Renamed { pid, name }),
                    // The name of a thread other than the main one is not its process's name.
                    _ => None,
                }
            }
            None => {
                let pid = tgid.unwrap_or(tid);
                self.0.insert(tid, Task { pid, comm: comm.into() });
                Some(News::Found { tid, pid, name: name() })
            }
        }
    }

    /// Applies the tracepoints about threads themselves.
    pub(super) fn learn(&mut self, by: u32, what: &What) {
        match *what {
            What::NewTask { tid, flags, ref name } => {
                let parent = self.0.get(&by).map_or(by, |task| task.pid);
                let pid = if flags & CLONE_THREAD != 0 { parent } else { tid };
                self.0.insert(tid, Task { pid, comm: name.as_bytes().into() });
            }
            What::Exec { ref program, .. } => {
                let name = program.rsplit('/').next().unwrap_or(program).as_bytes();
                let comm = name[..name.len().min(COMM_BYTES)].into();
                self.0.insert(by, Task { pid: by, comm });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(tid: u32, pid: u32, name: &str) -> Option<News> {
        let name = (!name.is_empty()).then(|| name.into());
        Some(News::Found { tid, pid, name })
    }

    #[test]
    fn a_thread_is_news_once_and_a_process_when_its_name_changes() {
        let mut tasks = Tasks::default();
        assert_eq!(tasks.seen(5, Some(4), b"Binder:4_1"), found(5, 4, "Binder:4_1"));
        assert_eq!(tasks.seen(5, Some(4), b"Binder:4_1"), None);
        assert_eq!(tasks.seen(4, Some(4), b""), found(4, 4, ""), "its name is not known yet");
        assert_eq!(tasks.seen(4, Some(4), b"main"), found(4, 4, "main"));
        assert_eq!(
            tasks.seen(4, Some(4), b"com.example"),
            Some(News::Renamed { pid: 4, name: "com.example".into() })
        );
        assert_eq!(
            tasks.seen(4, Some(4), b""),
            None,
            "its name was forgotten by the kernel, not by us"
        );
    }

    #[test]
    fn a_thread_created_in_the_trace_is_not_announced_again() {
        let mut tasks = Tasks::default();
        tasks.seen(4, None, b"sh");
        tasks.learn(4, &What::NewTask { tid: 6, flags: 0, name: "sh".into() });
        tasks.learn(4, &What::NewTask { tid: 7, flags: CLONE_THREAD, name: "sh".into() });
        assert_eq!(tasks.seen(7, None, b"sh"), None);
        assert_eq!(tasks.seen(7, None, b"worker"), None, "a thread's name is not its process's");
        tasks.learn(
            6,
            &What::Exec { program: "/usr/bin/a-very-long-name-indeed".into(), old_tid: 6 },
        );
        assert_eq!(tasks.seen(6, None, b"a-very-long-nam"), None, "the kernel cuts it");
    }
}
