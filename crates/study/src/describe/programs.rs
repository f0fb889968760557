//! Programs that processes run. A process before its first name counts for that name; after it runs
//! another program, it counts for that one.

use flashsift_events::event::{Action, Event};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// A process while it runs one program.
pub(super) struct Program {
    pub(super) pid: u32,
    pub(super) name: Option<Box<str>>,
    /// Number of its control group, if the trace tells it.
    pub(super) group: Option<u32>,
}

impl Program {
    /// Returns the name, or the number of a process that was never named.
    pub(super) fn key(&self) -> Result<&str, u32> {
        self.name.as_deref().ok_or(self.pid)
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
    /// Control groups numbered in order of appearance, and that of each process.
    groups: Vec<Box<str>>,
    group_numbers: HashMap<Box<str>, u32, FixedState>,
    group_of: HashMap<u32, u32, FixedState>,
    name_bytes: usize,
}

impl Programs {
    /// Returns the paths of the control groups by number; none if the trace tells none.
    pub(super) fn groups(&self) -> &[Box<str>] {
        &self.groups
    }

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
            Action::ControlGroup { path } => {
                self.last = None;
                self.in_group(event.pid, path);
                None
            }
            _ => None,
        }
    }

    /// Enters the control group of a process. Its present program counts for it as a whole: the
    /// event comes behind the first one of the process.
    fn in_group(&mut self, pid: u32, path: &str) {
        let number = match self.group_numbers.get(path) {
            Some(number) => *number,
            None => {
                let number = self.groups.len() as u32;
                self.groups.push(path.into());
                self.group_numbers.insert(path.into(), number);
                self.name_bytes += 2 * path.len();
                number
            }
        };
        self.group_of.insert(pid, number);
        let now = self.now(pid);
        self.programs[now as usize].group = Some(number);
    }

    /// Returns the number of the program that a process runs now, if that is known.
    pub(super) fn get(&self, pid: u32) -> Option<u32> {
        match self.last {
            Some((last, program)) if last == pid => Some(program),
            _ => self.now.get(&pid).copied(),
        }
    }

    /// Returns the number of the program that the process runs now.
    fn now(&mut self, pid: u32) -> u32 {
        *self.now.entry(pid).or_insert_with(|| {
            let group = self.group_of.get(&pid).copied();
            self.programs.push(Program { pid, name: None, group });
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
            + self.group_numbers.allocation_size()
            + self.group_of.allocation_size()
            + self.name_bytes
    }
}
