//! Anonymized names, for traces that are shared with others.

use crate::{Error, events::Sink};
use flashsift_events::{
    event::{About, Action, Create, Event, MaybeOwned, Renamed},
    names,
};
use std::hash::{BuildHasher, RandomState};

/// A sink that replaces each component of a path by a keyed hash, and passes the events on.
///
/// The key is random and is not kept, so no reader of the trace can test guesses of names against
/// it. Facts that analyses need stay: which names are equal, which lie in one directory, the
/// extension, and SQLite's suffixes, so that a database and its journal remain a pair.
pub struct Anonymize<'a> {
    sink: &'a mut dyn Sink,
    key: RandomState,
    events: Vec<Event<'static>>,
}

impl<'a> Anonymize<'a> {
    /// Returns a sink that passes events on to `sink`.
    pub fn new(sink: &'a mut dyn Sink) -> Self {
        Self { sink, key: RandomState::new(), events: Vec::new() }
    }

    fn path(&self, path: &str) -> Box<str> {
        let parts: Vec<_> = path.split('/').map(|part| self.component(part)).collect();
        parts.join("/").into()
    }

    fn component(&self, part: &str) -> String {
        if part.is_empty() {
            return String::new();
        }
        let (stem, kept) = split(part);
        format!("{:010x}{kept}", self.key.hash_one(stem) >> 24)
    }
}

/// Splits a component into the part that is hidden and the part that is kept.
fn split(part: &str) -> (&str, &str) {
    let body = names::companion(part).map_or(part, |(database, _)| database);
    let extension = match body.rsplit_once('.') {
        Some((stem, ext)) if !stem.is_empty() && (1..=8).contains(&ext.len()) => ext,
        _ => "",
    };
    let plain = |ext: &str| ext.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let stem = match extension {
        // A numeric extension is more often a part of the name than a kind of file.
        ext if plain(ext) && ext.bytes().any(|byte| byte.is_ascii_alphabetic()) => {
            body.len() - ext.len() - 1
        }
        _ => body.len(),
    };
    part.split_at(stem)
}

impl Sink for Anonymize<'_> {
    fn about(&mut self, about: About) -> Result<(), Error> {
        self.sink.about(about)
    }

    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        self.events.clear();
        for event in events {
            let mut event = event.clone();
            match &mut event.action {
                Action::Create(create) => {
                    let named =
                        Create { name: self.path(&create.name).into(), ..create.to_static() };
                    *create = MaybeOwned::owned(named);
                }
                Action::Bind { name, .. }
                | Action::Link { name, .. }
                | Action::Unbind { name, .. } => {
                    *name = self.path(name).into();
                }
                Action::SyncDirectory { path } => *path = self.path(path).into(),
                Action::Rename { names, .. } | Action::RenameDirectory { names } => {
                    *names = Renamed::owned(&self.path(&names.from), &self.path(&names.to));
                }
                // Anyone can compute the hash of a site, and look for it.
                Action::Meaning { site, url, .. } => {
                    (*site, *url) = (self.key.hash_one(*site), self.key.hash_one(*url));
                }
                // Names of programs and foreground applications stay: analyses compare traces by
                // them. So do control groups, whose names are those of services and applications.
                Action::Process { .. }
                | Action::Foreground { .. }
                | Action::ControlGroup { .. } => {}
                Action::Read { .. }
                | Action::Write { .. }
                | Action::Direct { .. }
                | Action::Sync { .. }
                | Action::SyncAll
                | Action::Folio { .. }
                | Action::Filled { .. }
                | Action::Truncate { .. }
                | Action::Punch { .. }
                | Action::Size { .. }
                | Action::Open { .. }
                | Action::Close { .. }
                | Action::Gone { .. }
                | Action::Place { .. }
                | Action::Cause { .. }
                | Action::MemoryLines { .. }
                | Action::TimeToLive { .. }
                | Action::MemoryPressure { .. } => {}
            }
            self.events.push(event);
        }
        self.sink.events(&self.events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Kept;
    use flashsift_events::event::{FileId, MaybeOwned};

    fn hidden(paths: &[&str]) -> Vec<String> {
        let mut kept = Kept::default();
        let event = |name: &&str| Event {
            at_us: 0,
            pid: 0,
            tid: 0,
            action: Action::Bind { file: FileId(0), name: MaybeOwned::owned_str(name) },
        };
        let events: Vec<_> = paths.iter().map(event).collect();
        Anonymize::new(&mut kept).events(&events).unwrap();
        let name = |event: &Event| match &event.action {
            Action::Bind { name, .. } => name.to_string(),
            _ => unreachable!("only names went in"),
        };
        kept.events.iter().map(name).collect()
    }

    // Promises: Record 13.
    #[test]
    fn equal_parts_stay_equal_and_facts_for_analyses_stay() {
        let names = hidden(&[
            "/home/ann/msg.db",
            "/home/ann/msg.db-wal",
            "/home/bob/msg.db-journal",
            "/home/ann",
        ]);
        let parts: Vec<Vec<_>> = names.iter().map(|name| name.split('/').collect()).collect();
        assert!(
            names
                .iter()
                .all(|name| !["home", "ann", "bob", "msg"].iter().any(|word| name.contains(word)))
        );
        assert_eq!(parts[0][..3], parts[1][..3]);
        assert_eq!(parts[3][..3], parts[0][..3]);
        assert_ne!(parts[2][2], parts[0][2]);
        assert_eq!(format!("{}-wal", parts[0][3]), parts[1][3]);
        assert_eq!(format!("{}-journal", parts[0][3]), parts[2][3]);
        assert!(names[0].ends_with(".db"));
    }

    // Promises: Record 13.
    #[test]
    fn every_path_in_every_event_is_replaced() {
        let (file, path) = (FileId(0), || MaybeOwned::from("/secret/secret.db"));
        let renamed = || Renamed::owned("/secret/secret.db", "/secret/secret.db");
        let create = Create { file, name: path(), owner: None, mode: Some(0o600), sync: true };
        let actions = [
            Action::Create(MaybeOwned::owned(create)),
            Action::Bind { file, name: path() },
            Action::Link { file, name: path() },
            Action::Rename { file, names: renamed() },
            Action::RenameDirectory { names: renamed() },
            Action::Unbind { file, name: path() },
        ];
        let events = actions.map(|action| Event { at_us: 0, pid: 0, tid: 0, action });
        let mut kept = Kept::default();
        Anonymize::new(&mut kept).events(&events).unwrap();
        let names = |event: &Event| match &event.action {
            Action::Create(create) => {
                assert_eq!((create.mode, create.sync), (Some(0o600), true));
                vec![create.name.to_string()]
            }
            Action::Bind { name, .. } | Action::Link { name, .. } | Action::Unbind { name, .. } => {
                vec![name.to_string()]
            }
            Action::Rename { names, .. } | Action::RenameDirectory { names } => {
                vec![names.from.to_string(), names.to.to_string()]
            }
            other => panic!("{other:?}"),
        };
        let names: Vec<_> = kept.events.iter().flat_map(names).collect();
        assert_eq!(names.len(), 8);
        assert!(names.iter().all(|name| *name == names[0]), "equal names stay equal: {names:?}");
        assert!(!names[0].contains("secret") && names[0].ends_with(".db"), "{}", names[0]);
    }

    #[test]
    fn only_extensions_that_name_a_kind_of_file_are_kept() {
        assert_eq!(split("photo.jpeg"), ("photo", ".jpeg"));
        assert_eq!(split(".bashrc"), (".bashrc", ""));
        assert_eq!(split("report.2024"), ("report.2024", ""));
        assert_eq!(split("to.mother-in-law"), ("to.mother-in-law", ""));
        assert_eq!(split("a-wal"), ("a", "-wal"));
        assert_eq!(split("x.tar.gz"), ("x.tar", ".gz"));
    }

    // Promises: Record 13.
    #[test]
    fn each_anonymizer_has_another_key() {
        assert_ne!(hidden(&["/a"]), hidden(&["/a"]));
    }
}
