//! Every sifter that drops files, over random histories: what may be dropped, RAM, and what is
//! below in the end; and the shelf against plain lists.

use super::*;
use crate::sift::{
    ALL, LastUses, SelectedSifter, Selection,
    model::{FileModel, testing::random_trees},
    simulate::Sifted,
    testing::History,
};
use flashsift_events::{
    event::{Knows, MaybeOwned},
    page::PAGE_BYTES,
    structure::Extents,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
};

mod explanations;
mod ghosts;

const KNOWS: Knows = Knows { times: true, creations: true, opens: true, ..Knows::NOTHING };

/// About this many events; between two of them pass up to 2 s, and sometimes days.
fn events(seed: u64, n: usize) -> Vec<Event<'static>> {
    let mut history = History::new(seed);
    let mut at_us = 0;
    let mut all = Vec::new();
    while all.len() < n || history.goes_on() {
        at_us += u64::from(history.dice.below(2_000_000));
        if history.dice.below(50) == 0 {
            at_us += 86_400_000_000 * u64::from(history.dice.below(10));
        }
        all.push(Event { at_us, pid: 5, tid: 6, action: history.action() });
    }
    all
}

/// The state that a history gives a file.
#[derive(Clone, Debug, Default)]
struct Seen {
    opens: usize,
    names: BTreeSet<String>,
    last_name: String,
    content: Extents,
    /// An application synced it, alone.
    synced: bool,
}

/// The files of a history, as far as it has gone.
#[derive(Default)]
struct Files(BTreeMap<FileId, Seen>);

impl Files {
    fn take(&mut self, action: &Action<'_>) {
        if let Action::RenameDirectory { names } = action {
            let moved = |name: &str| match name.strip_prefix(&*names.from) {
                Some(rest) if rest.starts_with('/') => format!("{}{rest}", &*names.to),
                _ => name.to_owned(),
            };
            for file in self.0.values_mut() {
                file.names = file.names.iter().map(|name| moved(name)).collect();
                file.last_name = moved(&file.last_name);
            }
            return;
        }
        let Some(id) = action.file() else { return };
        let file = self.0.entry(id).or_default();
        let named = |file: &mut Seen, name: &str| {
            if !name.is_empty() {
                file.names.insert(name.into());
                file.last_name = name.into();
            }
        };
        match action {
            Action::Create(create) => named(file, &create.name),
            Action::Bind { name, .. } | Action::Link { name, .. } => named(file, name),
            Action::Rename { names, .. } => {
                file.names.remove(&*names.from);
                named(file, &names.to);
            }
            Action::Unbind { name, .. } => drop(file.names.remove(&**name)),
            Action::Open { .. } => file.opens += 1,
            Action::Close { .. } => file.opens -= 1,
            Action::Sync { .. } => file.synced |= !file.names.is_empty(),
            Action::Write { offset, len, .. } | Action::Direct { offset, len, write: true, .. } => {
                file.content.insert(*offset..offset + len);
            }
            Action::Truncate { size, .. } => file.content.remove(*size..u64::MAX),
            Action::Punch { offset, len, .. } => file.content.remove(*offset..offset + len),
            Action::Gone { .. } => drop(self.0.remove(&id)),
            _ => {}
        }
    }
}

fn droppable() -> Droppable {
    Droppable::matching(&["/d0/*".into(), "/d1/*".into()])
}

/// The model `trees`.
static MODELS: LazyLock<[(String, Arc<FileModel>); 1]> = LazyLock::new(|| {
    let model = FileModel::from_bytes(random_trees(20, 10, 8, 1).as_bytes()).unwrap();
    [("trees".to_owned(), Arc::new(model))]
});

/// Returns every sifter with its default parameters, and with a model where it takes one; the
/// controller also as one that takes no cache for a new one.
fn all_sifters() -> impl Iterator<Item = Selection> {
    let others = [
        "controller:cold-mib=0",
        "cachesifter:model=trees,threshold=0.9",
        "lrb:model=trees,threshold=0.9",
        "lrb:model=trees,threshold=0.6,sample=2",
    ];
    let defaults = ALL.iter().map(Selection::default_of);
    defaults.chain(others.map(|sifter| Selection::parse(sifter).unwrap()))
}

fn setup<'a>(
    budget_bytes: u64,
    droppable: &'a Droppable,
    last_uses: &'a LastUses,
) -> SifterSetup<'a> {
    let last_uses = Some(last_uses);
    SifterSetup {
        budget_bytes,
        patterns: &[],
        droppable,
        knows_opens: true,
        last_uses,
        models: &*MODELS,
    }
}

/// A file is dropped only while it is closed, has a name, is droppable by the name that it got
/// last, and was never synced. RAM stays within its budget after
/// every event. Files that were never dropped end below as in the history; a dropped file that was
/// not used again does not exist below.
// Promises: Sift 1, Sift 2.
#[test]
fn every_sifter_drops_only_what_may_be_dropped() {
    for selected in all_sifters() {
        let mut drops = 0;
        for seed in 0..300 {
            let droppable = droppable();
            let events = events(seed, 300);
            let last = LastUses::of_all(&events);
            let budget_bytes = [0, 1 << 13, 1 << 16, 1 << 19][seed as usize % 4];
            let label = selected.label();
            let at = format!("{label} in {budget_bytes} bytes, seed {seed}");
            let sifter = selected.build(&setup(budget_bytes, &droppable, &last)).unwrap();
            let mut sifted = Sifted::new(sifter, budget_bytes, KNOWS).logged();
            let (mut files, mut known, mut dropped) = (Files::default(), 0, BTreeSet::new());
            let mut below = Files::default();
            for event in &events {
                sifted.event(event, &mut |event| below.take(&event.action));
                sifted.check();
                for (_, decision) in &sifted.log()[known..] {
                    let Decision::Drop { file: id, .. } = *decision else { continue };
                    drops += 1;
                    dropped.insert(id);
                    let file = &files.0[&id];
                    assert_eq!(file.opens, 0, "{at}: {id:?} is open");
                    assert!(!file.names.is_empty(), "{at}: {id:?} has no name");
                    assert!(droppable.has(&file.last_name), "{at}: {}", file.last_name);
                    assert!(!file.synced, "{at}: {id:?} was synced");
                }
                known = sifted.log().len();
                files.take(&event.action);
            }
            sifted.finish(&mut |event| below.take(&event.action));
            sifted.check();
            assert!(sifted.counters().ram_bytes_peak <= budget_bytes, "{at}");
            for (id, file) in files.0.iter().filter(|(_, file)| !file.names.is_empty()) {
                match below.0.get(id) {
                    Some(found) => {
                        assert_eq!(found.names, file.names, "{at}: {id:?}");
                        assert_eq!(found.content, file.content, "{at}: {id:?}");
                    }
                    None => assert!(dropped.contains(id), "{at}: {id:?} is lost"),
                }
            }
        }
        let label = selected.label();
        let drops_files = !["none", "keep", "tmpfs", "controller"].contains(&&*label);
        assert_eq!(drops > 100, drops_files, "{label}: {drops} drops");
    }
}

/// Files in the order of their last use, with their cost: the definition of `drop-all`.
#[derive(Default)]
struct NaiveLru {
    /// Identity, and pages up to the end.
    files: Vec<(FileId, u64)>,
}

/// With closed files that are only written and read, `drop-all` drops those that a plain list of
/// files drops, in the same order.
// Promises: Sift 2.
#[test]
fn drop_all_drops_as_a_list_of_files_does() {
    let mut drops = 0;
    for seed in 0..200 {
        let mut dice = flashsift_events::dice::Dice::new(seed);
        let droppable = droppable();
        let budget_bytes = 40 * PAGE_BYTES;
        let last = LastUses::default();
        let mut sifter = Selection::parse("drop-all")
            .unwrap()
            .build(&setup(budget_bytes, &droppable, &last))
            .unwrap();
        let mut naive = NaiveLru::default();
        for step in 1..200 {
            let id = FileId(u64::from(dice.below(30)));
            let known = naive.files.iter().position(|(file, _)| *file == id);
            let at = |action| Event { at_us: step, pid: 1, tid: 1, action };
            let (pages, reads) = (1 + u64::from(dice.below(12)), dice.below(3) == 0);
            let before = match known {
                Some(n) => naive.files.remove(n).1,
                None => {
                    let name = MaybeOwned::owned_str("/d0/a");
                    let create = Create { file: id, name, owner: None, mode: None, sync: false };
                    sifter.handle(step, &at(Action::Create(MaybeOwned::owned(create))));
                    0
                }
            };
            let (open, offset) = (None, 0);
            let len = pages * PAGE_BYTES;
            let after = match reads {
                true => {
                    sifter.handle(step, &at(Action::Read { file: id, open, offset, len }));
                    before
                }
                false => {
                    let write = Action::Write { file: id, open, offset, len, sync: false };
                    sifter.handle(step, &at(write));
                    before.max(pages)
                }
            };
            naive.files.push((id, after));
            let cost = |files: &[(FileId, u64)]| -> u64 {
                files.iter().map(|(_, pages)| FILE_COST_BYTES + pages * PAGE_BYTES).sum()
            };
            let mut expected = Vec::new();
            while cost(&naive.files) > budget_bytes && naive.files.len() > 1 {
                let (file, _) = naive.files.remove(0);
                expected.push(Decision::Drop { file, why: Reason::Space });
            }
            let found: Vec<_> = std::iter::from_fn(|| sifter.poll()).collect();
            assert_eq!(found, expected, "seed {seed}, step {step}");
            drops += found.len();
            for decision in found {
                sifter.done(step, decision.file().unwrap(), Ok(()));
            }
            sifter.check();
        }
    }
    assert!(drops > 5000, "{drops} drops");
}

fn create(file: u64, name: &str) -> Action<'static> {
    let name = MaybeOwned::owned_str(name);
    let create = Create { file: FileId(file), name, owner: None, mode: None, sync: false };
    Action::Create(MaybeOwned::owned(create))
}

fn write(file: u64, pages: u64) -> Action<'static> {
    let len = pages * PAGE_BYTES;
    Action::Write { file: FileId(file), open: None, offset: 0, len, sync: false }
}

fn decisions(sifter: &mut dyn Sift, at_us: Micros, action: Action<'_>) -> Vec<Decision> {
    sifter.handle(at_us, &Event { at_us, pid: 1, tid: 1, action });
    sifter.check();
    std::iter::from_fn(|| sifter.poll()).collect()
}

/// A file that flash refuses stays in RAM, and is dropped when it is the oldest again.
// Promises: Sift 6.
#[test]
fn a_file_that_flash_refuses_is_dropped_for_space() {
    let (droppable, last) = (droppable(), LastUses::default());
    let mut sifter = Selection::parse("random:p=0")
        .unwrap()
        .build(&setup(8 * PAGE_BYTES, &droppable, &last))
        .unwrap();
    assert_eq!(decisions(&mut *sifter, 0, create(1, "/d0/a")), []);
    assert_eq!(decisions(&mut *sifter, 1, write(1, 4)), []);
    decisions(&mut *sifter, 2, create(2, "/d0/b"));
    let file = FileId(1);
    let written = Decision::WriteBack { file, keep_in_ram: false, why: Reason::Space };
    assert_eq!(decisions(&mut *sifter, 3, write(2, 4)), [written]);
    sifter.done(4, file, Err(Blocked::NoSpace));
    let dropped = Decision::Drop { file, why: Reason::Space };
    let file = FileId(2);
    let written = Decision::WriteBack { file, keep_in_ram: false, why: Reason::Space };
    assert_eq!(decisions(&mut *sifter, 5, create(3, "/d0/c")), [written]);
    sifter.done(6, file, Err(Blocked::NoSpace));
    assert_eq!(decisions(&mut *sifter, 7, write(3, 1)), [dropped]);
    sifter.done(8, FileId(1), Ok(()));
    sifter.check();
}

/// Times that go back change nothing but the order of files.
// Promises: Sift 2.
#[test]
fn time_may_go_back() {
    for selected in all_sifters() {
        let (droppable, last) = (droppable(), LastUses::default());
        let mut sifter = selected.build(&setup(8 * PAGE_BYTES, &droppable, &last)).unwrap();
        for step in 0..200 {
            let at_us = 1_000_000 * (200 - step % 7 * 20);
            for action in [create(step, "/d0/a"), write(step, 2)] {
                for decision in decisions(&mut *sifter, at_us, action) {
                    sifter.done(at_us, decision.file().unwrap(), Ok(()));
                }
            }
        }
    }
}
