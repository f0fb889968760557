//! Programs that processes run. A process before its first name counts for that name; after it runs
//! another program, it counts for that one.

use crate::event::{Action, Event};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// A process while it runs one program.
pub(super) struct Program {
    pub(super) pid: u32,
    pub(super) name: Option<Box<str>>,
}

impl Program {
    /// Returns the name, or the number of a process that was never named.
    pub(super) fn key(&self) -> Result<&str, u32> {
        self.name.as_deref().ok_or(self.pid)
    }
}

/// Name of the programs of a trace without process numbers.
pub(super) const UNKNOWN_PROGRAM: &str = "(unknown)";

/// Returns the name for people of [`Program::key`].
pub(super) fn program_name(key: Result<&str, u32>) -> Box<str> {
    match key {
        Ok(name) => name.into(),
        Err(0) => UNKNOWN_PROGRAM.into(),
        Err(pid) => format!("(process {pid})").into(),
    }
}

/// Programs numbered in order of appearance.
#[derive(Default)]
pub(super) struct Programs {
    programs: Vec<Program>,
    /// The process of the last request and its program: most requests follow one of their own.
    last: Option<(u32, u32)>,
    /// Current program of each process.
    now: HashMap<u32, u32, FixedState>,
    /// All programs of each process, so that one that changes its name to and fro has only two.
    named: HashMap<(u32, Box<str>), u32, FixedState>,
    name_bytes: usize,
}

impl Programs {
    pub(super) fn all(&self) -> &[Program] {
        &self.programs
    }

    /// Takes an event, and returns the number of the program that reads or writes.
    #[inline]
    pub(super) fn take(&mut self, event: &Event<'_>) -> Option<u32> {
        match &event.action {
            Action::Read { .. } | Action::Write { .. } | Action::Direct { .. } => {
                let (pid, program) = match self.last {
                    Some(last) if last.0 == event.pid => last,
                    _ => (event.pid, self.now(event.pid)),
                };
                self.last = Some((pid, program));
                Some(program)
            }
            Action::Process { name } => {
                self.last = None;
                self.name(event.pid, name);
                None
            }
            _ => None,
        }
    }

    /// Returns the number of the program that the process runs now.
    fn now(&mut self, pid: u32) -> u32 {
        *self.now.entry(pid).or_insert_with(|| {
            self.programs.push(Program { pid, name: None });
            (self.programs.len() - 1) as u32
        })
    }

    /// Enters the program that a process runs from now on.
    fn name(&mut self, pid: u32, name: &str) {
        let now = self.now(pid);
        if self.programs[now as usize].name.as_deref() == Some(name) {
            return;
        }
        if let Some(known) = self.named.get(&(pid, name.into())) {
            self.now.insert(pid, *known);
            return;
        }
        let now = match self.programs[now as usize].name {
            Some(_) => {
                self.now.remove(&pid);
                self.now(pid)
            }
            None => now,
        };
        self.programs[now as usize].name = Some(name.into());
        self.named.insert((pid, name.into()), now);
        self.name_bytes += 2 * name.len();
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.programs.len() * size_of::<Program>()
            + self.now.allocation_size()
            + self.named.allocation_size()
            + self.name_bytes
    }
}
