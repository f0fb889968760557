//! The rules by which pages that were read into the cache are counted.
//!
//! - A page that is in the range of the read that brought it in was *demanded*: the reading thread
//!   adds pages to the cache first, and reports its range after that. So was the page of a fault.
//! - All other pages that a read or fault brings in were read *ahead*.
//! - Such a page is *used* by the first later read or fault of it. It is *mapped* if the kernel
//!   maps it together with a neighbour; later accesses to it are not visible. It is *dropped* if it
//!   leaves the cache before that, and *unused* if neither has happened when the watch ends.
//! - A page that becomes dirty before any read is not counted: it was made for a write, or
//!   overwritten.
//!
//! Memory is bounded: pages beyond the bounds are counted as untracked.

use foldhash::fast::FixedState;
use std::collections::{BTreeMap, HashMap};

/// A record of the kernel about the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachePoint {
    /// Time of the record.
    pub at_ns: u64,
    /// The thread.
    pub tid: u32,
    /// The file.
    pub ino: u64,
    /// The kind of record, with its pages.
    pub seen: Seen,
}

/// Kinds of records. Ranges include `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A folio entered the cache.
    Added {
        /// Its first page.
        first: u64,
        /// Its pages.
        pages: u64,
    },
    /// A folio left the cache.
    Deleted {
        /// Its first page.
        first: u64,
        /// Its pages.
        pages: u64,
    },
    /// A thread reads pages, which are in the cache now.
    Read {
        /// The first page.
        first: u64,
        /// The last page.
        last: u64,
    },
    /// A thread accesses a page of a mapping; it enters the cache after this, if it is not there.
    Faulted {
        /// The page.
        page: u64,
    },
    /// The kernel maps those pages of the range that are cached.
    Mapped {
        /// The first page.
        first: u64,
        /// The last page.
        last: u64,
    },
    /// The folio that begins at this page becomes dirty.
    Dirtied {
        /// The page.
        page: u64,
    },
}

/// Pages by their fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadAheadTally {
    /// Read because they were asked for.
    pub demanded_pages: u64,
    /// Read ahead and used later.
    pub used_pages: u64,
    /// Read ahead and mapped with a neighbour: whether they were used is not visible.
    pub mapped_pages: u64,
    /// Read ahead, and dropped from the cache before any use.
    pub dropped_pages: u64,
    /// Read ahead, and not used until the end of the watch; they are still cached.
    pub unused_pages: u64,
}

impl ReadAheadTally {
    /// Pages that were read ahead.
    pub fn ahead_pages(&self) -> u64 {
        self.used_pages + self.mapped_pages + self.dropped_pages + self.unused_pages
    }

    /// Share of the used pages among those whose use is visible; `None` if there are none.
    pub fn efficiency(&self) -> Option<f64> {
        let visible = self.used_pages + self.dropped_pages + self.unused_pages;
        (visible > 0).then(|| self.used_pages as f64 / visible as f64)
    }

    fn get_mut(&mut self, fate: Fate) -> &mut u64 {
        match fate {
            Fate::Demanded => &mut self.demanded_pages,
            Fate::Used => &mut self.used_pages,
            Fate::Mapped => &mut self.mapped_pages,
            Fate::Dropped => &mut self.dropped_pages,
            Fate::Unused => &mut self.unused_pages,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Demanded,
    Used,
    Mapped,
    Dropped,
    Unused,
}

/// Neighbouring pages that one thread brought in and that no thread has used yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    end: u64,
    program: u32,
    tid: u32,
    /// Number of the last read of that thread when it added the pages.
    read: u64,
}

#[derive(Default)]
struct WatchedFile {
    tally: ReadAheadTally,
    /// By first page; ranges do not overlap.
    waiting: BTreeMap<u64, Waiting>,
}

#[derive(Clone, Copy, Default)]
struct Task {
    program: u32,
    /// Time at which its name was looked up; 0: never. A number is given to another thread later.
    named_ns: u64,
    /// Number of its last read or fault.
    read: u64,
    /// File and page of its last fault.
    fault: Option<(u64, u64)>,
    /// File, first page and pages of the folio that it added last, since its last read.
    added: Option<(u64, u64, u64)>,
}

/// Bounds of memory: some 100 MB in all.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    files: usize,
    ranges: usize,
    tasks: usize,
    programs: usize,
}

const BOUNDS: Bounds =
    Bounds { files: 1 << 16, ranges: 1 << 20, tasks: 1 << 16, programs: 1 << 12 };
const NAME_AGAIN_NS: u64 = 10_000_000_000;

/// Counts pages by their fate.
pub struct Counter {
    bounds: Bounds,
    files: HashMap<u64, WatchedFile, FixedState>,
    tasks: HashMap<u32, Task, FixedState>,
    programs: Vec<(String, ReadAheadTally)>,
    by_name: HashMap<String, u32>,
    reads: u64,
    ranges: usize,
    untracked_pages: u64,
}

impl Default for Counter {
    fn default() -> Self {
        Self::within(BOUNDS)
    }
}

/// Programs beyond the bound.
const OTHERS: &str = "other programs";

impl Counter {
    fn within(bounds: Bounds) -> Self {
        let others = (OTHERS.to_owned(), ReadAheadTally::default());
        Self {
            bounds,
            files: HashMap::default(),
            tasks: HashMap::default(),
            programs: vec![others],
            by_name: HashMap::new(),
            reads: 0,
            ranges: 0,
            untracked_pages: 0,
        }
    }

    /// Counts a record. Records come in order of time. `name` returns the program of a thread.
    pub fn point(&mut self, point: &CachePoint, name: &mut dyn FnMut(u32) -> String) {
        let CachePoint { at_ns, tid, ino, seen } = *point;
        match seen {
            Seen::Added { first, pages } => {
                let program = self.program(tid, at_ns, name);
                self.add(tid, program, ino, first, first.saturating_add(pages));
            }
            Seen::Deleted { first, pages } => {
                self.resolve(ino, first, first.saturating_add(pages), |_| Some(Fate::Dropped));
            }
            Seen::Read { first, last } => {
                let read = self.task(tid).read;
                self.resolve(ino, first, last.saturating_add(1), |waiting| {
                    let just_now = waiting.tid == tid && waiting.read == read;
                    Some(if just_now { Fate::Demanded } else { Fate::Used })
                });
                self.begin_read(tid, None);
            }
            Seen::Faulted { page } => {
                self.resolve(ino, page, page.saturating_add(1), |_| Some(Fate::Used));
                self.begin_read(tid, Some((ino, page)));
            }
            Seen::Mapped { first, last } => {
                self.resolve(ino, first, last.saturating_add(1), |_| Some(Fate::Mapped));
            }
            Seen::Dirtied { page } => {
                let (first, pages) = match self.task(tid).added {
                    Some((of, first, pages)) if (of, first) == (ino, page) => (first, pages),
                    _ => (page, 1),
                };
                self.resolve(ino, first, first.saturating_add(pages), |_| None);
            }
        }
    }

    /// Pages that were not followed.
    pub fn untracked_pages(&self) -> u64 {
        self.untracked_pages
    }

    /// Ends the watch: returns all pages, those of each file, and those of each program.
    #[expect(clippy::type_complexity, reason = "three lists of the same form")]
    pub fn finish(
        mut self,
    ) -> (ReadAheadTally, Vec<(u64, ReadAheadTally)>, Vec<(String, ReadAheadTally)>) {
        let inodes: Vec<u64> = self.files.keys().copied().collect();
        for ino in inodes {
            self.resolve(ino, 0, u64::MAX, |_| Some(Fate::Unused));
        }
        let mut total = ReadAheadTally::default();
        for (_, tally) in &self.programs {
            for fate in [Fate::Demanded, Fate::Used, Fate::Mapped, Fate::Dropped, Fate::Unused] {
                let mut tally = *tally;
                *total.get_mut(fate) += *tally.get_mut(fate);
            }
        }
        let none = ReadAheadTally::default();
        let files = self.files.into_iter().map(|(ino, file)| (ino, file.tally));
        let files = files.filter(|(_, tally)| *tally != none).collect();
        self.programs.retain(|(_, tally)| *tally != none);
        (total, files, self.programs)
    }

    fn task(&self, tid: u32) -> Task {
        self.tasks.get(&tid).copied().unwrap_or_default()
    }

    fn task_mut(&mut self, tid: u32) -> &mut Task {
        // Threads that have ended are among them. Pages that the others have just added then count
        // as read ahead.
        if self.tasks.len() >= self.bounds.tasks && !self.tasks.contains_key(&tid) {
            self.tasks.clear();
        }
        self.tasks.entry(tid).or_default()
    }

    fn begin_read(&mut self, tid: u32, fault: Option<(u64, u64)>) {
        self.reads += 1;
        let read = self.reads;
        let task = self.task_mut(tid);
        (task.read, task.fault, task.added) = (read, fault, None);
    }

    fn program(&mut self, tid: u32, at_ns: u64, name: &mut dyn FnMut(u32) -> String) -> u32 {
        let task = self.task(tid);
        if task.named_ns != 0 && at_ns.saturating_sub(task.named_ns) < NAME_AGAIN_NS {
            return task.program;
        }
        let name = name(tid);
        let program = match self.by_name.get(&name) {
            Some(&program) => program,
            None if self.programs.len() >= self.bounds.programs => 0,
            None => {
                let program = self.programs.len() as u32;
                self.programs.push((name.clone(), ReadAheadTally::default()));
                self.by_name.insert(name, program);
                program
            }
        };
        let task = self.task_mut(tid);
        (task.program, task.named_ns) = (program, at_ns.max(1));
        program
    }

    fn add(&mut self, tid: u32, program: u32, ino: u64, first: u64, end: u64) {
        // They are there already only if a record was lost.
        self.resolve(ino, first, end, |_| Some(Fate::Dropped));
        let is_known = self.files.contains_key(&ino);
        if !is_known && self.files.len() >= self.bounds.files {
            self.untracked_pages += end - first;
            return;
        }
        let task = self.task_mut(tid);
        let (read, fault) = (task.read, task.fault);
        task.added = Some((ino, first, end - first));
        let demanded = fault.filter(|(of, page)| *of == ino && (first..end).contains(page));
        if let Some((_, page)) = demanded {
            self.task_mut(tid).fault = None;
            self.files.entry(ino).or_default().tally.demanded_pages += 1;
            self.programs[program as usize].1.demanded_pages += 1;
            self.wait(ino, first, Waiting { end: page, program, tid, read });
            self.wait(ino, page + 1, Waiting { end, program, tid, read });
        } else {
            self.wait(ino, first, Waiting { end, program, tid, read });
        }
    }

    fn wait(&mut self, ino: u64, first: u64, waiting: Waiting) {
        if first >= waiting.end {
            return;
        }
        let file = self.files.entry(ino).or_default();
        let before = file.waiting.range_mut(..first).next_back();
        if let Some((_, before)) = before
            && *before == (Waiting { end: first, ..waiting })
        {
            before.end = waiting.end;
        } else if self.ranges >= self.bounds.ranges {
            self.untracked_pages += waiting.end - first;
        } else {
            self.ranges += 1;
            file.waiting.insert(first, waiting);
        }
    }

    /// Pages of the range that wait have this fate; `None`: they are not counted.
    fn resolve(&mut self, ino: u64, first: u64, end: u64, fate: impl Fn(&Waiting) -> Option<Fate>) {
        let Some(file) = self.files.get_mut(&ino) else { return };
        // One range may begin before.
        let from = file.waiting.range(..first).next_back().map_or(first, |(&start, _)| start);
        let touched: Vec<u64> = file
            .waiting
            .range(from..end)
            .filter(|(_, waiting)| waiting.end > first)
            .map(|(&start, _)| start)
            .collect();
        for start in touched {
            let waiting = file.waiting.remove(&start).expect("it was just found");
            self.ranges -= 1;
            let (cut_first, cut_end) = (start.max(first), waiting.end.min(end));
            if start < cut_first {
                file.waiting.insert(start, Waiting { end: cut_first, ..waiting });
                self.ranges += 1;
            }
            if cut_end < waiting.end {
                file.waiting.insert(cut_end, waiting);
                self.ranges += 1;
            }
            if let Some(fate) = fate(&waiting) {
                *file.tally.get_mut(fate) += cut_end - cut_first;
                *self.programs[waiting.program as usize].1.get_mut(fate) += cut_end - cut_first;
            }
        }
    }
}

#[cfg(test)]
mod tests;
