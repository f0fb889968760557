//! Memory of the sifter `keep` for each file in RAM.

use crate::allocated::held_bytes;
use flashsift_events::event::{Action, Create, Event, FileId, MaybeOwned};
use flashsift_files::sift::{Keep, KeepConfig, Sift};
fn event(keep: &mut Keep, now: u64, action: Action<'_>) {
    keep.handle(now, &Event { at_us: now, pid: 1, tid: 1, action });
    while let Some(decision) = keep.poll() {
        keep.done(now, decision.file().expect("a decision on a file"), Ok(()));
    }
}

/// The sifter once took 240 bytes a file, in four maps, and the daemon with it more than 500.
#[test]
fn a_file_in_ram_takes_at_most_48_bytes() {
    const FILES: u64 = 100_000;
    let mut keep = Keep::new(KeepConfig::default());
    let before = held_bytes();
    for (now, file) in (0..FILES).map(|n| (n, FileId(n))) {
        let name = MaybeOwned::Borrowed("/d/a");
        let create = Create { file, name, owner: None, mode: None, sync: false };
        event(&mut keep, now, Action::Create(MaybeOwned::Borrowed(&create)));
        event(&mut keep, now, Action::Open { file, open: None, created: true });
        event(
            &mut keep,
            now,
            Action::Write { file, open: None, offset: 0, len: 5000, sync: false },
        );
        event(&mut keep, now, Action::Close { file, open: None });
    }
    let a_file = (held_bytes() - before) as f64 / FILES as f64;
    assert!((32.0..=48.0).contains(&a_file), "{a_file} bytes a file");
    event(&mut keep, FILES, Action::SyncAll);
    assert_eq!(keep.files(), 0);
    let left = held_bytes() - before;
    assert!(left < 100_000, "{left} bytes stay after the last file has left");
}
