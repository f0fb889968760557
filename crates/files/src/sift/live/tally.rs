//! The bytes of a mount's sifter, by directory and by program. The memory is fixed.

use super::FileBytes;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use std::{cmp::Reverse, collections::VecDeque, sync::Arc};

/// Names that are counted. When there are more, the half with the fewest bytes is forgotten.
const NAMES_MAX: usize = 512;
/// Names that are shown.
const SHOWN: usize = 20;
/// Processes whose names are remembered.
const PROCESSES_MAX: usize = 4096;

/// The files of the sifter in a directory, or of a program, since the mount began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiftedBy {
    /// The directory, from the mounted one on, or the program that created the files; empty if it
    /// is not known.
    pub name: String,
    /// Bytes of write requests to the files.
    pub requested_bytes: u64,
    /// In the sifter's RAM now.
    pub held: FileBytes,
    /// Dropped.
    pub dropped: FileBytes,
    /// Dropped files that were created again.
    pub created_again: FileBytes,
    /// Moved to flash.
    pub written: FileBytes,
}

impl SiftedBy {
    fn rank(&self) -> u64 {
        self.requested_bytes
    }
}

/// Counts by name.
#[derive(Debug, Default)]
pub(super) struct Tally {
    names: HashMap<Box<str>, SiftedBy, FixedState>,
}

impl Tally {
    pub(super) fn entry(&mut self, name: &str) -> &mut SiftedBy {
        if !self.names.contains_key(name) {
            if self.names.len() >= NAMES_MAX {
                self.forget_half();
            }
            let new = SiftedBy { name: name.to_owned(), ..SiftedBy::default() };
            self.names.insert(name.into(), new);
        }
        self.names.get_mut(name).expect("the name was inserted if it was missing")
    }

    fn forget_half(&mut self) {
        let mut ranks: Vec<u64> = self.names.values().map(SiftedBy::rank).collect();
        let middle = ranks.len() / 2;
        let median = *ranks.select_nth_unstable(middle).1;
        let mut equal = ranks[..middle].iter().filter(|rank| **rank == median).count();
        self.names.retain(|_, of| {
            let goes = of.rank() < median || (of.rank() == median && equal > 0);
            equal -= usize::from(goes && of.rank() == median);
            !goes
        });
    }

    /// Returns the names with the most bytes, with the files that are held now.
    pub(super) fn largest<'a>(&self, held: impl Iterator<Item = (&'a str, u64)>) -> Vec<SiftedBy> {
        let mut of_name: HashMap<&str, FileBytes, FixedState> = HashMap::default();
        held.for_each(|(name, bytes)| of_name.entry(name).or_default().add(bytes));
        let with_held = |of: &SiftedBy| SiftedBy {
            held: of_name.get(&*of.name).copied().unwrap_or_default(),
            ..of.clone()
        };
        let mut all: Vec<SiftedBy> = self.names.values().map(with_held).collect();
        all.sort_by(|one, other| {
            let key = |of: &SiftedBy| Reverse((of.dropped.bytes, of.rank()));
            key(one).cmp(&key(other)).then_with(|| one.name.cmp(&other.name))
        });
        all.truncate(SHOWN);
        all
    }

    pub(super) fn check(&self) {
        assert!(self.names.len() <= NAMES_MAX);
        assert!(self.names.iter().all(|(name, of)| **name == *of.name));
    }
}

/// Names of processes: those that were seen last.
#[derive(Debug)]
pub(super) struct Programs {
    names: HashMap<u32, Arc<str>, FixedState>,
    order: VecDeque<u32>,
    unknown: Arc<str>,
}

impl Default for Programs {
    fn default() -> Self {
        Self { names: HashMap::default(), order: VecDeque::new(), unknown: "".into() }
    }
}

impl Programs {
    pub(super) fn named(&mut self, pid: u32, name: &str) {
        if self.names.insert(pid, name.into()).is_none() {
            self.order.push_back(pid);
        }
        if self.order.len() > PROCESSES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.names.remove(&oldest);
        }
    }

    /// Returns the program of a process; an empty name if it is not known.
    pub(super) fn get(&self, pid: u32) -> Arc<str> {
        Arc::clone(self.names.get(&pid).unwrap_or(&self.unknown))
    }

    pub(super) fn check(&self) {
        assert!(self.names.len() == self.order.len() && self.order.len() <= PROCESSES_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_with_the_most_bytes_are_kept() {
        let mut tally = Tally::default();
        for n in 0..5000_u64 {
            let (name, bytes) = if n % 3 == 0 { ("big".into(), 10) } else { (format!("d{n}"), 5) };
            let of = tally.entry(&name);
            of.requested_bytes += bytes;
            of.dropped.add(bytes);
            tally.check();
        }
        let held = [("big", 3), ("gone", 9), ("big", 4)];
        let largest = tally.largest(held.into_iter());
        assert_eq!(largest.len(), SHOWN);
        let big = FileBytes { files: 1667, bytes: 16_670 };
        assert_eq!((largest[0].name.as_str(), largest[0].dropped), ("big", big));
        assert_eq!(largest[0].held, FileBytes { files: 2, bytes: 7 });
    }

    #[test]
    fn the_processes_that_came_last_are_known() {
        let mut programs = Programs::default();
        for pid in 0..3 * PROCESSES_MAX as u32 {
            programs.named(pid, &format!("p{pid}"));
            programs.named(pid, &format!("q{pid}"));
            programs.check();
        }
        assert_eq!(&*programs.get(3 * PROCESSES_MAX as u32 - 1), "q12287");
        assert_eq!(&*programs.get(0), "");
    }
}
