//! What is asked of the mount, as the core's events: what a trace would have, and what will decide on each file.
//!
//! Of files that the kernel reads and writes itself only openings and closings are seen.

use super::Fs;
use super::table::Table;
use super::types::{Ino, ROOT};
use flashsift_core::event::{Action, Event, FileId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

type Sink = Box<dyn Fn(Event<'static>) + Send + Sync>;

/// Where events go, if anywhere.
#[derive(Default)]
pub(crate) struct Observer {
    sink: OnceLock<Sink>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Of a number, the file that has it now.
    files: HashMap<Ino, FileId>,
    next: u64,
    /// Of a thread, its process.
    processes: HashMap<u32, u32>,
}

/// Threads that are remembered.
const THREADS: usize = 4096;

impl std::fmt::Debug for Observer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Observer({})", self.sink.get().is_some())
    }
}

impl Observer {
    /// Nobody looks: nothing need be found out.
    fn is_off(&self) -> bool {
        self.sink.get().is_none()
    }
}

/// Process and name of a thread that waits for our answer.
fn process(tid: u32) -> Option<(u32, Box<str>)> {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let field = |name| status.lines().find_map(|line: &str| line.strip_prefix(name)).map(str::trim);
    Some((field("Tgid:")?.parse().ok()?, field("Name:")?.into()))
}

fn text(path: &[u8]) -> Box<str> {
    path.utf8_chunks()
        .flat_map(|chunk| {
            let escaped: String = chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")).collect();
            [chunk.valid().to_owned(), escaped]
        })
        .collect::<String>()
        .into()
}

impl Fs {
    /// From now on each access is told. To be called once, before the file system is used.
    pub fn observe(&self, sink: impl Fn(Event<'static>) + Send + Sync + 'static) {
        // A second sink would be a mistake of the caller's; the first stays.
        let _ = self.observer.sink.set(Box::new(sink));
    }

    /// Somebody did this with the file.
    pub(crate) fn saw(&self, tid: u32, ino: Ino, action: impl FnOnce(FileId) -> Action<'static>) {
        if self.observer.is_off() {
            return;
        }
        let file = self.file_id(ino);
        let pid = self.process_of(tid);
        self.tell(pid, tid, action(file));
    }

    /// What had the name `from`, if it is a file, is about to be called `to`, or to lose it. Told when that has happened.
    pub(crate) fn name_of(&self, table: &Table, dir: Ino, name: &OsStr) -> Option<Box<str>> {
        (!self.observer.is_off()).then(|| text(&path(table, dir, name)))
    }

    /// A name event, of no process in particular.
    pub(crate) fn saw_name(&self, ino: Ino, action: impl FnOnce(FileId) -> Action<'static>) {
        if self.observer.is_off() {
            return;
        }
        let known = self.observer.known.lock().files.get(&ino).copied();
        if let Some(file) = known {
            self.tell(0, 0, action(file));
        }
    }

    /// Nobody will ask for it again.
    pub(crate) fn saw_end(&self, ino: Ino) {
        if self.observer.is_off() {
            return;
        }
        let ended = self.observer.known.lock().files.remove(&ino);
        if let Some(file) = ended {
            self.tell(0, 0, Action::Gone { file });
        }
    }

    fn tell(&self, pid: u32, tid: u32, action: Action<'static>) {
        if let Some(sink) = self.observer.sink.get() {
            sink(Event { at_us: self.now_us(), pid, tid, action });
        }
    }

    /// The file's number in the trace; its name is told with its first.
    fn file_id(&self, ino: Ino) -> FileId {
        if let Some(file) = self.observer.known.lock().files.get(&ino) {
            return *file;
        }
        let name = {
            let table = self.table();
            table
                .node(ino)
                .and_then(|node| node.names.first())
                .map(|(dir, name)| text(&path(&table, *dir, name)))
        };
        let mut known = self.observer.known.lock();
        let file = FileId(known.next);
        known.next += 1;
        known.files.insert(ino, file);
        drop(known);
        if let Some(name) = name {
            self.tell(0, 0, Action::Bind { file, name: name.into() });
        }
        file
    }

    fn process_of(&self, tid: u32) -> u32 {
        if let Some(pid) = self.observer.known.lock().processes.get(&tid) {
            return *pid;
        }
        let Some((pid, name)) = process(tid) else { return tid };
        let mut known = self.observer.known.lock();
        if known.processes.len() >= THREADS {
            known.processes.clear();
        }
        known.processes.insert(tid, pid);
        drop(known);
        self.tell(pid, tid, Action::Process { name: name.into() });
        pid
    }
}

/// From the mounted directory on.
fn path(table: &Table, dir: Ino, name: &OsStr) -> Vec<u8> {
    let mut path = match dir {
        ROOT => Vec::new(),
        _ => match table.node(dir).and_then(|node| node.names.first()) {
            Some((parent, dir)) => self::path(table, *parent, dir),
            None => Vec::new(),
        },
    };
    path.push(b'/');
    path.extend(name.as_bytes());
    path
}
