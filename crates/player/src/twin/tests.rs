//! Random histories against a naive model, on a plain directory; and scripts of single events.

use super::{
    content::Content,
    script::{FileOp, Script, ScriptBuilder, Span},
    tree::{Names, Tree, below},
};
use flashsift_events::event::{Action, Create, Event, FileId, MaybeOwned, Renamed};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::Path,
};

/// Names and sizes as the history has them.
#[derive(Default)]
struct Model {
    names: BTreeMap<String, FileId>,
    sizes: BTreeMap<FileId, u64>,
    events: Vec<Event<'static>>,
    /// Names that a file has had: another file that appears there was not there before.
    used: Vec<String>,
}

impl Model {
    fn push(&mut self, action: Action<'static>) {
        let at_us = self.events.len() as u64;
        self.events.push(Event { at_us, pid: 1, tid: 1, action });
    }

    fn unbind(&mut self, name: &str) -> Option<FileId> {
        let file = self.names.remove(name)?;
        self.push(Action::Unbind { file, name: name.to_owned().into() });
        Some(file)
    }

    fn end(&mut self, file: Option<FileId>) {
        if let Some(file) = file.filter(|file| !self.names.values().any(|other| other == file)) {
            self.sizes.remove(&file);
            self.push(Action::Gone { file });
        }
    }

    fn step(&mut self, random: &mut Pcg64) {
        let directory = ["/m", "/m/a", "/m/a/deep", "/m/b"][random.random_range(0..4)];
        let name = format!("{directory}/f{}", random.random_range(0..4));
        let any = self.names.iter().nth(random.random_range(0..8)).map(|(n, f)| (n.clone(), *f));
        let next = FileId(self.events.len() as u64);
        match (random.random_range(0..10), any) {
            (0..=2, _) => {
                let old = self.unbind(&name);
                self.end(old);
                self.push(Action::Create(MaybeOwned::owned(Create {
                    file: next,
                    name: MaybeOwned::owned_str(&name),
                    owner: None,
                    mode: None,
                    sync: false,
                })));
                self.used.push(name.clone());
                self.names.insert(name, next);
                self.sizes.insert(next, 0);
            }
            // A file that was there before.
            (3, _) if !self.names.contains_key(&name) && !self.used.contains(&name) => {
                let size = random.random_range(0..20_000);
                self.push(Action::Bind { file: next, name: name.clone().into() });
                self.push(Action::Size { file: next, size });
                self.used.push(name.clone());
                self.names.insert(name, next);
                self.sizes.insert(next, size);
            }
            (4 | 5, Some((_, file))) => {
                let (offset, len) = (random.random_range(0..30_000), random.random_range(1..9_000));
                let sync = random.random_bool(0.2);
                let stored = offset / 4096 * 4096;
                let known = self.sizes[&file];
                self.sizes.insert(file, known.max(offset + len));
                self.push(Action::Write { file, open: None, offset, len, sync });
                if offset + len < known && random.random_bool(0.5) {
                    self.push(Action::Folio { file, offset: stored, len: 4096 });
                }
            }
            (6, Some((_, file))) => {
                let size = random.random_range(0..30_000);
                self.sizes.insert(file, size);
                self.push(Action::Truncate { file, size });
                self.push(Action::Sync { file, offset: 0, len: u64::MAX, data_only: false });
            }
            (7, Some((from, file))) if from != name && self.names.get(&name) != Some(&file) => {
                let old = self.unbind(&name);
                self.push(Action::Rename { file, names: Renamed::owned(&from, &name) });
                self.names.remove(&from);
                self.names.insert(name.clone(), file);
                self.used.push(name);
                self.end(old);
            }
            (8, Some((_, file))) if !self.names.contains_key(&name) => {
                self.push(Action::Link { file, name: name.clone().into() });
                self.used.push(name.clone());
                self.names.insert(name, file);
            }
            (9, Some((name, _))) => {
                let old = self.unbind(&name);
                self.end(old);
            }
            _ => {
                self.push(Action::SyncDirectory { path: directory.to_owned().into() });
            }
        }
    }

    fn script(&self) -> Script {
        let mut builder = ScriptBuilder::default();
        self.events.iter().for_each(|event| builder.event(event));
        builder.finish()
    }
}

/// Performs a script in a directory.
fn performed(script: &Script, folder: &Path) {
    let root = || File::open(folder).unwrap().into();
    let mut tree = Tree::new(root(), Content::new(1, 0.25), Names::default());
    tree.make_initial(script).unwrap();
    let (content, names) = tree.into_parts();
    let mut tree = Tree::new(root(), content, names);
    for step in &script.steps {
        tree.perform(&step.op).unwrap_or_else(|error| panic!("{step:?}: {error}"));
    }
}

fn files_in(folder: &Path, root: &Path, found: &mut BTreeMap<String, u64>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_in(&path, root, found);
        } else {
            let name = format!("/{}", path.strip_prefix(root).unwrap().display());
            found.insert(name, path.metadata().unwrap().len());
        }
    }
}

// Promises: Prove 1.
#[test]
fn a_replay_leaves_the_names_and_sizes_of_the_history() {
    for seed in 0..60 {
        let mut random = Pcg64::seed_from_u64(seed);
        let mut model = Model::default();
        (0..80).for_each(|_| model.step(&mut random));
        let folder = tempfile::tempdir().unwrap();
        performed(&model.script(), folder.path());
        let mut found = BTreeMap::new();
        files_in(folder.path(), folder.path(), &mut found);
        let expected: BTreeMap<_, _> =
            model.names.iter().map(|(name, file)| (name.clone(), model.sizes[file])).collect();
        assert_eq!(found, expected, "seed {seed}");
    }
}

fn script(actions: impl IntoIterator<Item = Action<'static>>) -> Script {
    let mut model = Model::default();
    actions.into_iter().for_each(|action| model.push(action));
    model.script()
}

fn write(file: u64, offset: u64, len: u64) -> Action<'static> {
    Action::Write { file: FileId(file), open: None, offset, len, sync: false }
}

/// Older recordings tell no sizes: a file was as large as it is read, or written behind.
#[test]
fn the_size_of_a_file_that_was_there_is_inferred() {
    let bind = |file, name: &'static str| Action::Bind { file: FileId(file), name: name.into() };
    let read = Action::Read { file: FileId(1), open: None, offset: 5_000_000, len: 96 };
    let found = script([
        bind(0, "/m/log"),
        write(0, 70_000, 10),
        bind(1, "/m/db"),
        read,
        write(1, 3 << 20, 4096),
        write(1, 6_000_000, 4096),
        bind(2, "/m/new"),
        Action::Open { file: FileId(2), open: None, created: true },
        write(2, 0, 8),
    ]);
    let sizes: Vec<_> = found.initial.iter().map(|file| file.size).collect();
    assert_eq!(sizes, [70_000, 6_000_000], "{found:?}");
    // Only the changed MiB needs content.
    assert_eq!(found.initial[1].changed.iter().copied().collect::<Vec<_>>(), [3]);
    assert_eq!(found.initial_content_bytes(), 1 << 20);
    assert!(found.steps.iter().any(|step| step.op == FileOp::Create(FileId(2), "/m/new".into())));
}

#[test]
fn a_file_in_a_renamed_directory_was_there_under_the_old_name() {
    let names = Renamed::owned("/m/old", "/m/new");
    let found = script([
        write(0, 0, 1),
        Action::RenameDirectory { names },
        Action::Bind { file: FileId(1), name: "/m/new/f".into() },
        write(1, 0, 1),
    ]);
    assert_eq!(*found.initial[1].names, [Box::from("/m/old/f")]);
    assert!(found.directories.contains("/m/old"));
}

#[test]
fn a_rename_over_a_file_is_one_operation() {
    let found = script([
        write(0, 0, 1),
        Action::Unbind { file: FileId(1), name: "/m/f".into() },
        Action::Rename { file: FileId(0), names: Renamed::owned("/m/t", "/m/f") },
    ]);
    let last: Vec<_> = found.steps[found.steps.len() - 2..].iter().map(|step| &step.op).collect();
    assert!(matches!(last[..], [FileOp::Replaced(FileId(1), _), FileOp::Rename(..)]), "{last:?}");
}

/// The kernel lets a device have the share of all dirty pages that it has of recent writes. Beside
/// a busy disk two of five arms were written early, 48 MiB more, and seemed worse by 34 %.
#[test]
fn each_device_is_kept_its_share_of_dirty_pages() {
    // The most that are dirty, the kernel's limit, arms.
    for (dirty, limit, arms, percent) in [
        (0, 1000, 3, 1),
        (8, 1000, 3, 1),
        (9, 1000, 3, 2),
        (100, 1000, 3, 13),
        (300, 1000, 3, 30),
        (5000, 1000, 3, 30),
        (100, 1000, 90, 1),
        (100, 0, 3, 30),
    ] {
        assert_eq!(super::share_percent(dirty, limit, arms), percent, "{dirty} {limit} {arms}");
    }
}

#[test]
fn a_store_makes_its_whole_folio_dirty() {
    let found =
        script([write(0, 5000, 1), Action::Folio { file: FileId(0), offset: 4096, len: 8192 }]);
    let store = FileOp::Store(FileId(0), Span { offset: 4096, len: 8192 });
    assert_eq!(found.steps[0].op, store);
}

/// Nine arms with a download of 90 MB each, deleted before it is written, were once written by all
/// of them: together they had more dirty pages than the kernel allows.
#[test]
fn pages_are_dirty_until_the_kernel_writes_them() {
    let mut builder = ScriptBuilder::default();
    for (at_s, len) in [(0, 5), (10, 7), (34, 1), (46, 4), (200, 6)] {
        let event = Event { at_us: at_s * 1_000_000, pid: 1, tid: 1, action: write(0, 0, len) };
        builder.event(&event);
    }
    let script = builder.finish();
    let most = [0, 10, 35, 300, u64::MAX]
        .map(|age_s: u64| script.most_dirty_bytes(age_s.saturating_mul(1_000_000)));
    assert_eq!(most, [7, 12, 13, 23, 23]);
}

/// A trace may be from any user: no name in it may lead out of the twin.
#[test]
fn names_stay_below_the_root() {
    for (name, path) in [
        ("/../../etc/passwd", "etc/passwd"),
        ("a//./b/..", "a/b"),
        ("/m/\\x00\\x2f", "m/_"),
        ("..", ""),
    ] {
        assert_eq!(below(name), Path::new(path), "{name}");
    }
}
