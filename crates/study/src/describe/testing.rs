//! Helpers for hand-made traces and their results.

use super::{Describer, Found, Value};
use flashsift_events::event::{
    About, Action, Create, Event, FileId, Knows, MaybeOwned, Renamed, Side, Space,
};

/// A trace of files with all information.
pub(super) fn about() -> About {
    let knows = Knows { times: true, syncs: true, writes: true, removals: true, ..Knows::NOTHING };
    About { epoch_us: None, boot_us: None, side: Side::Before, space: Space::Files, knows }
}

pub(super) fn at(second: u64, action: Action<'static>) -> Event<'static> {
    Event { at_us: second * 1_000_000, pid: 0, tid: 0, action }
}

pub(super) fn by(pid: u32, action: Action<'static>) -> Event<'static> {
    Event { at_us: 0, pid, tid: pid, action }
}

pub(super) fn read(file: u64, offset: u64, len: u64) -> Action<'static> {
    Action::Read { open: None, file: FileId(file), offset, len }
}

pub(super) fn write(file: u64, offset: u64, len: u64) -> Action<'static> {
    Action::Write { open: None, file: FileId(file), offset, len, sync: false }
}

pub(super) fn write_sync(file: u64, offset: u64, len: u64) -> Action<'static> {
    Action::Write { open: None, file: FileId(file), offset, len, sync: true }
}

pub(super) fn sync(file: u64) -> Action<'static> {
    Action::Sync { file: FileId(file), offset: 0, len: u64::MAX, data_only: false }
}

pub(super) fn truncate(file: u64, size: u64) -> Action<'static> {
    Action::Truncate { file: FileId(file), size }
}

/// Made by an open, as traces tell it that do not know owners and modes.
pub(super) fn create(file: u64) -> Action<'static> {
    Action::Open { open: None, file: FileId(file), created: true }
}

pub(super) fn create_named(file: u64, name: &str) -> Action<'static> {
    let (file, name) = (FileId(file), MaybeOwned::owned_str(name));
    Action::Create(MaybeOwned::owned(Create { file, name, owner: None, mode: None, sync: false }))
}

pub(super) fn link(file: u64, name: &str) -> Action<'static> {
    Action::Link { file: FileId(file), name: MaybeOwned::owned_str(name) }
}

pub(super) fn rename_directory(from: &str, to: &str) -> Action<'static> {
    Action::RenameDirectory { names: Renamed::owned(from, to) }
}

pub(super) fn bind(file: u64, name: &str) -> Action<'static> {
    Action::Bind { file: FileId(file), name: MaybeOwned::owned_str(name) }
}

pub(super) fn unbind(file: u64, name: &str) -> Action<'static> {
    Action::Unbind { file: FileId(file), name: MaybeOwned::owned_str(name) }
}

pub(super) fn rename(file: u64, from: &str, to: &str) -> Action<'static> {
    Action::Rename { file: FileId(file), names: Renamed::owned(from, to) }
}

pub(super) fn gone(file: u64) -> Action<'static> {
    Action::Gone { file: FileId(file) }
}

pub(super) fn process(name: &str) -> Action<'static> {
    Action::Process { name: MaybeOwned::owned_str(name) }
}

/// Results of one characterisation.
pub(super) fn describe(name: &str, events: &[Event<'static>]) -> Found {
    describe_as(about(), name, events).unwrap()
}

pub(super) fn describe_as(
    about: About,
    name: &str,
    events: &[Event<'static>],
) -> Result<Found, &'static str> {
    let mut describer = Describer::new(about, u64::MAX);
    describer.extend(events).unwrap();
    let sections = describer.finish(10).sections;
    sections.into_iter().find(|section| section.spec.name == name).expect("it is in the list").found
}

pub(super) fn figure(found: &Found, key: &str) -> Value {
    found.figures_named(&[key]).first().unwrap_or_else(|| panic!("no figure {key}")).value.clone()
}

/// All values of a column.
pub(super) fn column(found: &Found, key: &str, column: &str) -> Vec<Value> {
    let table = found.table_named(key).unwrap_or_else(|| panic!("no table {key}"));
    assert!(table.has(column), "no column {column}");
    table.values(column).cloned().collect()
}

pub(super) fn counts<const N: usize>(counts: [u64; N]) -> Vec<Value> {
    counts.map(Value::Count).to_vec()
}

pub(super) fn bytes(bytes: u64) -> Value {
    Value::Bytes(bytes)
}

pub(super) fn name(name: &str) -> Value {
    Value::Name(name.into())
}
