use super::*;
use crate::event::{Create, MaybeOwned, OpenId, Renamed};
use proptest::prelude::*;
use std::{collections::BTreeMap, num::NonZeroU32};

/// The definition: the whole history, looked through for each question.
#[derive(Default)]
struct Naive(Vec<Event<'static>>);

impl Naive {
    fn of(&self, file: FileId) -> impl Iterator<Item = &Event<'static>> {
        self.0.iter().filter(move |event| event.action.file() == Some(file))
    }

    /// Files in order of appearance.
    fn files(&self) -> Vec<FileId> {
        let mut files = Vec::new();
        for file in self.0.iter().filter_map(|event| event.action.file()) {
            if !files.contains(&file) {
                files.push(file);
            }
        }
        files
    }

    /// The last name that an event gave, moved by each later rename of a directory above it.
    fn name(&self, file: FileId) -> Option<String> {
        let given = |event: &Event<'_>| match &event.action {
            Action::Create(create) if create.file == file => {
                Some((*create.name).to_owned()).filter(|name| !name.is_empty())
            }
            Action::Bind { file: of, name } | Action::Link { file: of, name } if *of == file => {
                Some((**name).to_owned())
            }
            Action::Rename { file: of, names } if *of == file => Some((*names.to).to_owned()),
            _ => None,
        };
        let last = self.0.iter().rposition(|event| given(event).is_some())?;
        let mut name = given(&self.0[last])?;
        for event in &self.0[last..] {
            if let Action::RenameDirectory { names } = &event.action {
                let below = format!("{}/", &*names.from);
                if name.starts_with(&below) {
                    name.replace_range(..below.len() - 1, &names.to);
                }
            }
        }
        Some(name)
    }

    fn created_us(&self, file: FileId) -> Option<Micros> {
        let creates = |event: &&Event<'_>| {
            matches!(event.action, Action::Create(_) | Action::Open { created: true, .. })
        };
        self.of(file).find(creates).map(|event| event.at_us)
    }

    fn gone_us(&self, file: FileId) -> Option<Micros> {
        let ends = |event: &&Event<'_>| matches!(event.action, Action::Gone { .. });
        self.of(file).filter(ends).last().map(|event| event.at_us)
    }

    /// The names and opens that the file has, as lists.
    fn links(&self, file: FileId) -> (Vec<String>, Vec<Option<OpenId>>) {
        let (mut names, mut opens) = (Vec::new(), Vec::new());
        for event in self.of(file) {
            match &event.action {
                Action::Create(create) => {
                    (names, opens) = (vec![(*create.name).to_owned()], Vec::new());
                    names.retain(|name| !name.is_empty());
                }
                Action::Bind { name, .. } if names.is_empty() => names.push((**name).to_owned()),
                Action::Link { name, .. } => names.push((**name).to_owned()),
                Action::Rename { names: renamed, .. } => {
                    names.pop();
                    names.push((*renamed.to).to_owned());
                }
                Action::Unbind { .. } => drop(names.pop()),
                Action::Open { open, .. } => opens.push(*open),
                Action::Close { .. } => drop(opens.pop()),
                Action::Gone { .. } => (names, opens) = (Vec::new(), Vec::new()),
                _ => {}
            }
        }
        (names, opens)
    }
}

fn path(n: u32) -> String {
    let dir = ["/a", "/a/b", "/ab", "/c"][n as usize % 4];
    if n % 5 == 4 { format!("{dir}/cache/f") } else { format!("{dir}/f{}", n / 4) }
}

/// Any event of any file at any time: files appear in the middle of the trace, names are those of
/// other files, and files are used after their end.
fn action((kind, file, one, other): (u32, u64, u32, u32)) -> Action<'static> {
    let (file, name) = (FileId(file), MaybeOwned::from(path(one)));
    let open = NonZeroU32::new(1 + other % 3).map(OpenId);
    match kind {
        0 | 1 => {
            let name = if kind == 0 { name } else { "".into() };
            let create = Create { file, name, owner: None, mode: None, sync: false };
            Action::Create(MaybeOwned::owned(create))
        }
        2 => Action::Bind { file, name },
        3 => Action::Link { file, name },
        4 => Action::Rename { file, names: Renamed::owned(&path(one), &path(other)) },
        5 => {
            let dir = |n: u32| ["/a", "/a/b", "/ab", "/d", "/c/e"][n as usize % 5];
            Action::RenameDirectory { names: Renamed::owned(dir(one), dir(other)) }
        }
        6 | 7 => Action::Unbind { file, name },
        8 => Action::Open { file, open, created: other == 0 },
        9 => Action::Close { file, open },
        10 => Action::Gone { file },
        11 => Action::Sync { file, offset: 0, len: u64::MAX, data_only: false },
        12 => Action::SyncAll,
        _ => Action::Write { file, open, offset: 0, len: 1, sync: false },
    }
}

proptest! {
    #[test]
    fn as_the_whole_history_says(
        steps in prop::collection::vec((0..14_u32, 0..4_u64, 0..12_u32, 0..12_u32), 0..60)
    ) {
        let (mut naive, mut ledger) = (Naive::default(), FileLedger::<u32>::default());
        let (mut names, mut links) = (FileLedger::<()>::default(), BTreeMap::new());
        for (at_us, step) in (0..).zip(steps) {
            let event = Event { at_us, pid: 1, tid: 1, action: action(step) };
            let file = event.action.file();
            prop_assert_eq!(ledger.take(&event), file.and_then(|file| ledger.find(file)));
            names.take_names(&event.action);
            if let Some(file) = file {
                let links: &mut Links = links.entry(file).or_default();
                match &event.action {
                    Action::Create(create) => *links = Links::new(!create.name.is_empty()),
                    action => {
                        let change = links.take(action);
                        let named = matches!(change, LinkChange::Named(_));
                        let name = action.new_name().map(|(_, name)| name);
                        prop_assert!(!named || change == LinkChange::Named(name.unwrap()));
                    }
                }
            }
            naive.0.push(event);
            ledger.check();
            names.check();
            let files: Vec<FileId> = ledger.all().iter().map(|file| file.id).collect();
            prop_assert_eq!(files, naive.files());
            for file in ledger.all() {
                let name = naive.name(file.id);
                prop_assert_eq!(ledger.name(file), name.as_deref());
                prop_assert_eq!(names.name_of(file.id), name.as_deref());
                prop_assert_eq!(ledger.is_cache(file), name.is_some_and(|name| in_cache(&name)));
                prop_assert_eq!(file.created_us, naive.created_us(file.id));
                prop_assert_eq!(file.gone_us, naive.gone_us(file.id));
                let (names, opens) = naive.links(file.id);
                let links = links[&file.id];
                prop_assert_eq!(usize::from(links.names()), names.len());
                prop_assert_eq!(usize::from(links.opens()), opens.len());
                prop_assert_eq!(links.is_dead(), names.is_empty() && opens.is_empty());
            }
        }
    }
}

// Promises: Read-ahead 11.
#[test]
fn the_last_name_counts() {
    let (one, other) = (FileId(1), FileId(2));
    let mut ledger: FileLedger = FileLedger::default();
    ledger.take_names(&Action::Bind { file: one, name: MaybeOwned::owned_str("/a/x.tmp") });
    let names = Renamed::owned("/a/x.tmp", "/a/x");
    ledger.take_names(&Action::Rename { file: one, names });
    ledger.take_names(&Action::Bind { file: other, name: MaybeOwned::owned_str("/ab/x") });
    // `/ab` is another directory.
    ledger.take_names(&Action::RenameDirectory { names: Renamed::owned("/a", "/longer") });
    let named: Vec<_> = ledger.named().collect();
    assert_eq!(named, [(one, "/longer/x"), (other, "/ab/x")]);
    assert_eq!(ledger.name_of(FileId(3)), None);
}

#[test]
fn a_count_that_was_full_stays_full() {
    let (file, name) = (FileId(1), || MaybeOwned::owned_str("/a"));
    let mut links = Links::new(true);
    for _ in 0..70_000 {
        links.take(&Action::Link { file, name: name() });
    }
    for _ in 0..70_000 {
        links.take(&Action::Unbind { file, name: name() });
    }
    assert_eq!(links.names(), u16::MAX);
    links.take(&Action::Gone { file });
    assert!(links.is_dead());
}
