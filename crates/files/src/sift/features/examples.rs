//! Examples for training: the features of every file that a trace creates, with its labels.
//!
//! Two labels stand beside each other.
//!
//! - *The paper's* (CacheSifter, FAST '22, Section 5.1), by active period, the last access minus
//!   the first one over the file's whole life: BAR below 30 s, Transient up to 90 s, Long-living
//!   above. A file that was accessed once or never has an active period of 0.
//! - *Reuse*: whether an application read the file after it would have left RAM. All files that the
//!   trace creates lie in an LRU list of files; creation and each access move a file to its
//!   beginning. While the sizes of the files in it exceed the RAM, the last file leaves it. A read
//!   of a file that has left is the reuse; any access takes the file in again. The label is unknown
//!   for a file that is alive at the end of the trace and never left RAM.
//!
//! A file that was created less than 90 s before the end of the trace and is alive at the end is
//! left out: neither label is known.

use super::{FileWindow, Phase, Windows};
use flashsift_events::{
    event::{Action, Event, FileId, Knows, Micros},
    ledger::FileLedger,
    names::in_cache,
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::BTreeMap;

/// Active period from which a file is Transient, µs.
pub(in crate::sift) const TRANSIENT_US: Micros = 30_000_000;
/// Longest active period of a Transient file, µs.
pub(in crate::sift) const LONG_LIVING_US: Micros = 90_000_000;

/// The paper's categories of cache files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Category {
    /// Burn-after-reading: active for less than 30 s.
    Bar,
    /// Active for 30 s to 90 s.
    Transient,
    /// Active for more than 90 s.
    LongLiving,
}

impl Category {
    /// Returns the category of a file with this active period.
    pub fn new(active_us: Micros) -> Self {
        match active_us {
            ..TRANSIENT_US => Category::Bar,
            TRANSIENT_US..=LONG_LIVING_US => Category::Transient,
            _ => Category::LongLiving,
        }
    }
}

/// One file of a trace.
#[derive(Clone, Debug)]
pub struct Example {
    /// The file.
    pub file: FileId,
    /// Its accesses in the windows of both phases.
    pub window: FileWindow,
    /// The last name that the trace has for it; empty if there is none.
    pub name: Box<str>,
    /// Its first name leads through a directory for cache files.
    pub in_cache: bool,
    /// The user who owns it, where the trace knows it.
    pub uid: Option<u32>,
    /// Time from its creation to its end, or to the end of the trace, µs.
    pub lived_us: Micros,
    /// It ended before the trace did.
    pub deleted: bool,
    /// Its largest size, bytes.
    pub max_size_bytes: u64,
    /// The last access minus the first one, µs.
    pub active_us: Micros,
    /// The label by active period.
    pub category: Category,
    /// The label by reuse, where it is known.
    pub reused: Option<bool>,
}

/// Makes examples from the events of a trace.
#[derive(Debug)]
pub struct ExampleCollector {
    windows: Windows,
    ram_bytes: u64,
    knows: Knows,
    files: HashMap<FileId, Candidate, FixedState>,
    names: FileLedger,
    /// Files in RAM by the number of the access that touched them last.
    lru: BTreeMap<u64, FileId>,
    /// Sum of the sizes of these files: a sparse file may have nearly 2⁶⁴ bytes.
    in_ram_bytes: u128,
    touches: u64,
    now_us: Micros,
    ended: Vec<Example>,
}

#[derive(Debug)]
struct Candidate {
    example: Example,
    accesses: Option<(Micros, Micros)>,
    /// Its key in the LRU list and its bytes there.
    in_ram: Option<(u64, u64)>,
    has_left: bool,
}

impl ExampleCollector {
    /// Begins before the first event of a trace with these facts. `ram_bytes`: RAM for files, for
    /// the label by reuse.
    pub fn new(windows: Windows, ram_bytes: u64, knows: Knows) -> Self {
        Self {
            windows,
            ram_bytes,
            knows,
            files: HashMap::default(),
            names: FileLedger::default(),
            lru: BTreeMap::new(),
            in_ram_bytes: 0,
            touches: 0,
            now_us: 0,
            ended: Vec::new(),
        }
    }

    /// Takes the next event.
    pub fn handle(&mut self, event: &Event<'_>) {
        self.now_us = self.now_us.max(event.at_us);
        self.names.take_names(&event.action);
        match &event.action {
            Action::Create(create) => {
                let uid = create.owner.map(|owner| owner.uid);
                self.created(create.file, uid, event.at_us);
            }
            Action::Open { file, created: true, .. }
                if !self.knows.creations && !self.files.contains_key(file) =>
            {
                self.created(*file, None, event.at_us);
            }
            Action::Gone { file } => {
                if let Some(candidate) = self.files.remove(file) {
                    self.leave_ram(&candidate);
                    self.ended.push(candidate.ended(&self.names, event.at_us, true));
                }
            }
            Action::Read { .. }
            | Action::Write { .. }
            | Action::Direct { .. }
            | Action::Truncate { .. } => self.accessed(event),
            _ => {}
        }
    }

    fn created(&mut self, file: FileId, uid: Option<u32>, at_us: Micros) {
        let example = Example {
            file,
            window: FileWindow::new(at_us, self.windows),
            name: Box::default(),
            in_cache: self.names.name_of(file).is_some_and(in_cache),
            uid,
            lived_us: 0,
            deleted: false,
            max_size_bytes: 0,
            active_us: 0,
            category: Category::Bar,
            reused: None,
        };
        let candidate = Candidate { example, accesses: None, in_ram: None, has_left: false };
        self.files.insert(file, candidate);
        self.touch(file);
    }

    fn accessed(&mut self, event: &Event<'_>) {
        let Some(id) = event.action.file() else { return };
        let Some(file) = self.files.get_mut(&id) else { return };
        file.example.window.handle(event);
        file.example.max_size_bytes =
            file.example.max_size_bytes.max(file.example.window.size_bytes());
        let (len, reads) = match event.action {
            Action::Read { len, .. } | Action::Direct { len, write: false, .. } => (len, true),
            Action::Write { len, .. } | Action::Direct { len, .. } => (len, false),
            _ => (0, false),
        };
        if len > 0 {
            let (first, last) = file.accesses.unwrap_or((event.at_us, event.at_us));
            file.accesses = Some((first.min(event.at_us), last.max(event.at_us)));
            if reads && file.in_ram.is_none() {
                file.example.reused = Some(true);
            }
        }
        if len > 0 || file.in_ram.is_some() {
            self.touch(id);
        }
    }

    /// Moves a file to the beginning of the LRU list, with its present size.
    fn touch(&mut self, id: FileId) {
        let Some(file) = self.files.get_mut(&id) else { return };
        let bytes = file.example.window.size_bytes();
        self.touches += 1;
        if let Some((key, before)) = file.in_ram.replace((self.touches, bytes)) {
            self.lru.remove(&key);
            self.in_ram_bytes -= u128::from(before);
        }
        self.lru.insert(self.touches, id);
        self.in_ram_bytes += u128::from(bytes);
        while self.in_ram_bytes > self.ram_bytes.into() {
            let Some((_, oldest)) = self.lru.pop_first() else { break };
            let Some(file) = self.files.get_mut(&oldest) else { continue };
            if let Some((_, bytes)) = file.in_ram.take() {
                self.in_ram_bytes -= u128::from(bytes);
            }
            file.has_left = true;
        }
    }

    fn leave_ram(&mut self, file: &Candidate) {
        if let Some((key, bytes)) = file.in_ram {
            self.lru.remove(&key);
            self.in_ram_bytes -= u128::from(bytes);
        }
    }

    /// Ends the trace. Returns its examples by time of creation.
    pub fn finish(mut self) -> Vec<Example> {
        let now_us = self.now_us;
        let alive = self
            .files
            .into_values()
            .filter(|file| now_us.saturating_sub(file.example.window.born_us()) >= LONG_LIVING_US);
        self.ended.extend(alive.map(|file| file.ended(&self.names, now_us, false)));
        self.ended.sort_by_key(|example| (example.window.born_us(), example.file));
        self.ended
    }
}

impl Candidate {
    fn ended(self, names: &FileLedger, at_us: Micros, deleted: bool) -> Example {
        let mut example = self.example;
        example.name = names.name_of(example.file).unwrap_or_default().into();
        example.lived_us = at_us.saturating_sub(example.window.born_us());
        example.deleted = deleted;
        example.active_us = self.accesses.map_or(0, |(first, last)| last - first);
        example.category = Category::new(example.active_us);
        if example.reused.is_none() && (deleted || self.has_left) {
            example.reused = Some(false);
        }
        example
    }
}

impl Example {
    /// Returns whether the file was alive when a phase's window ended, so that a sifter would have
    /// categorised it.
    pub fn outlived(&self, phase: Phase) -> bool {
        !self.deleted
            || self.window.born_us().saturating_add(self.lived_us) > self.window.ends_us(phase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_events::event::{Create, FileOwner, MaybeOwned, Renamed};

    const SECOND: Micros = 1_000_000;

    fn examples(ram_bytes: u64, history: &[(u64, Action<'static>)]) -> Vec<Example> {
        let knows = Knows { creations: true, ..Knows::NOTHING };
        let mut collector = ExampleCollector::new(Windows::default(), ram_bytes, knows);
        for (at_s, action) in history {
            let action = action.clone();
            collector.handle(&Event { at_us: at_s * SECOND, pid: 0, tid: 0, action });
        }
        collector.finish()
    }

    fn create(file: u64) -> Action<'static> {
        Action::Create(MaybeOwned::owned(Create {
            file: FileId(file),
            name: MaybeOwned::owned_str("/u/cache/a"),
            owner: Some(FileOwner { uid: 7, gid: 0 }),
            mode: None,
            sync: false,
        }))
    }

    fn write(file: u64, len: u64) -> Action<'static> {
        Action::Write { file: FileId(file), open: None, offset: 0, len, sync: false }
    }

    fn read(file: u64) -> Action<'static> {
        Action::Read { file: FileId(file), open: None, offset: 0, len: 10 }
    }

    fn gone(file: u64) -> Action<'static> {
        Action::Gone { file: FileId(file) }
    }

    #[test]
    fn categories_follow_the_papers_bounds() {
        for (active_s, category) in [
            (0, Category::Bar),
            (29, Category::Bar),
            (30, Category::Transient),
            (90, Category::Transient),
            (91, Category::LongLiving),
        ] {
            assert_eq!(Category::new(active_s * SECOND), category, "{active_s} s");
            let history =
                [(5, create(1)), (6, write(1, 10)), (6 + active_s, read(1)), (1000, gone(9))];
            let example = &examples(100, &history)[0];
            assert_eq!((example.category, example.active_us), (category, active_s * SECOND));
            assert_eq!(
                (example.uid, example.in_cache, &*example.name),
                (Some(7), true, "/u/cache/a")
            );
        }
    }

    /// Files 1 and 2 do not fit into 100 bytes together: 1 leaves when 2 is written.
    #[test]
    fn a_read_after_the_file_left_ram_is_reuse() {
        let begin = [(0, create(1)), (0, write(1, 60)), (1, create(2)), (1, write(2, 60))];
        let reused = |rest: &[(u64, Action<'static>)]| {
            let history = [&begin[..], rest, &[(500, gone(99))]].concat();
            examples(100, &history).iter().map(|example| example.reused).collect::<Vec<_>>()
        };
        assert_eq!(reused(&[]), [Some(false), None], "2 is still in RAM");
        assert_eq!(reused(&[(2, read(2))]), [Some(false), None], "in RAM");
        assert_eq!(reused(&[(2, read(1))]), [Some(true), Some(false)], "2 leaves for 1");
        assert_eq!(reused(&[(2, read(1)), (3, read(2))]), [Some(true); 2]);
        assert_eq!(reused(&[(2, write(1, 60))]), [Some(false); 2], "written anew, not read");
        assert_eq!(reused(&[(2, gone(1)), (3, gone(2))]), [Some(false); 2]);
    }

    /// An example had the name from before a rename of its directory, and no name of a link.
    #[test]
    fn an_example_has_its_last_name() {
        let moved = Action::RenameDirectory { names: Renamed::owned("/u", "/v") };
        let history = [(0, create(1)), (1, moved), (2, gone(1))];
        assert_eq!(&*examples(100, &history)[0].name, "/v/cache/a");
        let link = Action::Link { file: FileId(1), name: MaybeOwned::owned_str("/u/b") };
        let found = examples(100, &[(0, create(1)), (1, link), (2, gone(1))]);
        assert_eq!((&*found[0].name, found[0].in_cache), ("/u/b", true), "by its first name");
    }

    #[test]
    fn young_files_at_the_end_are_left_out() {
        let history =
            [(0, create(1)), (10, create(2)), (11, create(3)), (50, gone(3)), (100, read(9))];
        let ids: Vec<u64> = examples(100, &history).iter().map(|example| example.file.0).collect();
        assert_eq!(ids, [1, 2, 3]);
        let history = [&history[..], &[(50, create(4)), (51, create(5)), (52, gone(5))]].concat();
        let found = examples(100, &history);
        let ids: Vec<u64> = found.iter().map(|example| example.file.0).collect();
        assert_eq!(ids, [1, 2, 3, 5], "4 is alive and too young");
        let outlived: Vec<bool> =
            found.iter().map(|example| example.outlived(Phase::First)).collect();
        assert_eq!(outlived, [true, true, true, false]);
    }

    #[test]
    fn an_open_that_creates_a_file_is_its_creation_where_creations_are_unknown() {
        let mut collector = ExampleCollector::new(Windows::default(), 1, Knows::NOTHING);
        let file = FileId(1);
        for (at_us, action) in [
            (0, Action::Bind { file, name: MaybeOwned::owned_str("/cache/x") }),
            (1, Action::Open { file, open: None, created: true }),
            (2, Action::Open { file: FileId(2), open: None, created: false }),
            (3, Action::Gone { file }),
        ] {
            collector.handle(&Event { at_us, pid: 0, tid: 0, action });
        }
        let found = collector.finish();
        assert_eq!(found.len(), 1);
        assert_eq!((&*found[0].name, found[0].lived_us, found[0].deleted), ("/cache/x", 2, true));
    }
}
