//! Events of a live source allocate no memory: their names are borrowed.

use crate::allocated::allocated_bytes;
use flashsift_events::event::{
    Action, Create, Event, FileId, FileOwner, MaybeOwned, OpenId, Renamed,
};
use std::{hint::black_box, num::NonZeroU32};

/// A consumer that reads every part of the events of a live mount.
struct Consumer {
    events: u64,
    name_bytes: usize,
}

impl Consumer {
    #[inline(never)]
    fn handle(&mut self, event: &Event<'_>) {
        self.events += 1;
        self.name_bytes += match &event.action {
            Action::Create(create) => create.name.len(),
            Action::Bind { name, .. } | Action::Link { name, .. } | Action::Unbind { name, .. } => {
                name.len()
            }
            Action::Rename { names, .. } | Action::RenameDirectory { names } => {
                names.from.len() + names.to.len()
            }
            Action::Process { name } | Action::Foreground { app: name } => name.len(),
            _ => 0,
        };
    }
}

/// One event of each kind, with names that belong to the source.
fn live(consumer: &mut Consumer, name: &str, other: &str) {
    let (file, open) = (FileId(7), NonZeroU32::new(3).map(OpenId));
    let owner = Some(FileOwner { uid: 1000, gid: 1000 });
    let create = Create { file, name: name.into(), owner, mode: Some(0o600), sync: false };
    let renamed = Renamed { from: name.into(), to: other.into() };
    let mut tell = |action: Action<'_>| {
        consumer.handle(black_box(&Event { at_us: 1, pid: 2, tid: 3, action }));
    };
    tell(Action::Process { name: name.into() });
    tell(Action::Foreground { app: name.into() });
    tell(Action::Create(MaybeOwned::Borrowed(&create)));
    tell(Action::Open { file, open, created: true });
    tell(Action::Write { file, open, offset: 0, len: 4096, sync: false });
    tell(Action::Read { file, open, offset: 0, len: 4096 });
    tell(Action::Direct { file, open, offset: 0, len: 4096, write: true });
    tell(Action::Sync { file, offset: 0, len: u64::MAX, data_only: false });
    tell(Action::SyncAll);
    tell(Action::Truncate { file, size: 0 });
    tell(Action::Punch { file, offset: 0, len: 4096 });
    tell(Action::Size { file, size: 4096 });
    tell(Action::Close { file, open });
    tell(Action::Bind { file, name: name.into() });
    tell(Action::Link { file, name: other.into() });
    tell(Action::Rename { file, names: MaybeOwned::Borrowed(&renamed) });
    tell(Action::RenameDirectory { names: MaybeOwned::Borrowed(&renamed) });
    tell(Action::Unbind { file, name: name.into() });
    tell(Action::Gone { file });
    tell(Action::MemoryPressure { stalled_ppm: 1 });
    tell(Action::Place { file, offset: 0, len: 4096, at: 8192 });
}

#[test]
fn a_live_event_allocates_nothing() {
    let (name, other) = (String::from("/data/app/a"), String::from("/data/app/b"));
    let mut consumer = Consumer { events: 0, name_bytes: 0 };
    let before = allocated_bytes();
    assert!(before >= name.len() as u64, "the allocator counts");
    for _ in 0..1000 {
        live(&mut consumer, &name, &other);
    }
    let after = allocated_bytes();
    assert_eq!(after - before, 0, "bytes allocated for {} events", consumer.events);
    assert_eq!((consumer.events, consumer.name_bytes), (21_000, 1000 * 10 * name.len()));

    // A batch that outlives its source owns its names. The count shows that allocation.
    let event =
        Event { at_us: 0, pid: 0, tid: 0, action: Action::Process { name: (&*name).into() } };
    let owned = event.into_owned();
    assert!(allocated_bytes() - after >= name.len() as u64, "{owned:?}");
}
