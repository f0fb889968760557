//! The sifter of a mount: over random histories with switches in between, and its ceiling.

use super::*;
use crate::{
    event::{Knows, MaybeOwned, Renamed},
    policy::conformance::Dice,
    sift::{simulate::Sifted, testing::History},
};
use std::collections::BTreeMap;

const KNOWS: Knows = Knows { times: true, creations: true, opens: true, ..Knows::NOTHING };
const BUDGET_BYTES: u64 = 1 << 17;

fn live() -> Live {
    Live::new(KeepConfig { budget_bytes: BUDGET_BYTES, ..KeepConfig::default() })
}

/// A sifter without a ceiling.
fn chosen(sifter: &str) -> LiveSifter {
    let droppable = Droppable::matching(&["/d0/*".into(), "/d1/*".into()]);
    let sifter = Selection::parse(sifter).unwrap();
    LiveSifter { again: 1.0, ..LiveSifter::new(sifter, droppable, BUDGET_BYTES / SIFTER_PART) }
}

/// Switches, choices and sizes change at any time between two events: no invariant breaks,
/// files are dropped only
/// while the sifter is on, only closed ones whose last name is droppable, and at the end RAM is
/// empty.
// Promises: Mount 59.
#[test]
fn switches_at_any_time_keep_every_promise() {
    let sifters = ["drop-all", "touch", "controller", "s3-fifo", "tmpfs", "random:p=0.5"];
    let mut dropped_in_all = 0;
    for seed in 0..60 {
        let mut history = History::new(seed);
        let mut dice = Dice::new(seed ^ 0xabc);
        let mut sifted = Sifted::new(live(), BUDGET_BYTES, KNOWS).logged();
        let mut names: BTreeMap<FileId, String> = BTreeMap::new();
        let mut opens: BTreeMap<FileId, u32> = BTreeMap::new();
        let (mut at_us, mut seen, mut mode) = (0, 0, LiveMode::Sift);
        sifted.call(|live, now| live.choose(now, chosen("drop-all")), &mut |_| {}).unwrap();
        sifted.call(|live, now| live.switch(now, mode), &mut |_| {});
        for _ in 0..1500 {
            at_us += u64::from(history.dice.below(2_000_000));
            let event = Event { at_us, pid: 5, tid: 6, action: history.action() };
            match &event.action {
                Action::Create(create) => drop(names.insert(create.file, (*create.name).into())),
                Action::Bind { file, name } | Action::Link { file, name } => {
                    names.insert(*file, (**name).into());
                }
                Action::Rename { file, names: to } => drop(names.insert(*file, (*to.to).into())),
                Action::RenameDirectory { names: moved } => {
                    for name in names.values_mut() {
                        if let Some(to) = moved.moved(name) {
                            *name = to;
                        }
                    }
                }
                Action::Open { file, .. } => *opens.entry(*file).or_default() += 1,
                Action::Close { file, .. } => *opens.entry(*file).or_default() -= 1,
                _ => {}
            }
            sifted.event(&event, &mut |_| {});
            let was = mode;
            match dice.below(300) {
                0 => {
                    mode = LiveMode::ALL[dice.below(3) as usize];
                    sifted.call(|live, now| live.switch(now, mode), &mut |_| {});
                }
                1 => {
                    let name = sifters[dice.below(sifters.len() as u32) as usize];
                    let choose = |live: &mut Live, now| live.choose(now, chosen(name));
                    sifted.call(choose, &mut |_| {}).unwrap();
                }
                2 => {
                    let bytes = BUDGET_BYTES / u64::from(1 + dice.below(8));
                    sifted.call(|live, now| live.resize(now, bytes), &mut |_| {});
                }
                3 => sifted.call(|live, _| live.reset(), &mut |_| {}),
                _ => {}
            }
            for (_, decision) in &sifted.log()[seen..] {
                if let Decision::Drop { file, .. } = decision {
                    let name = &names[file];
                    dropped_in_all += 1;
                    assert!([was, mode].contains(&LiveMode::Sift), "seed {seed}: {name}");
                    assert!(name.starts_with("/d0/") || name.starts_with("/d1/"), "seed {seed}");
                    assert_eq!(opens.get(file).copied().unwrap_or(0), 0, "seed {seed}: {name}");
                }
            }
            seen = sifted.log().len();
            sifted.check();
        }
        sifted.finish(&mut |_| {});
        for made in std::mem::take(&mut history.files) {
            for name in made.names {
                let action = Action::Unbind { file: made.file, name: name.into() };
                sifted.event(&Event { at_us, pid: 0, tid: 0, action }, &mut |_| {});
            }
            let action = Action::Gone { file: made.file };
            sifted.event(&Event { at_us, pid: 0, tid: 0, action }, &mut |_| {});
        }
        let counts = sifted.call(|live, _| live.counts(), &mut |_| {});
        assert_eq!(counts.held.files, 0, "seed {seed}");
        assert_eq!(sifted.counters().ram_bytes, 0, "seed {seed}");
    }
    assert!(dropped_in_all > 100, "{dropped_in_all}");
}

/// A performer of decisions that creates and writes files.
struct App {
    live: Live,
    now: Micros,
    next: u64,
    dropped: Vec<String>,
    written: usize,
}

impl App {
    fn new(chosen: LiveSifter) -> Self {
        let live = Live::sifting(BUDGET_BYTES, chosen).unwrap();
        Self { live, now: 0, next: 0, dropped: Vec::new(), written: 0 }
    }

    fn observe(&mut self, action: Action<'_>) {
        self.now += 1000;
        self.live.handle(self.now, &Event { at_us: self.now, pid: 1, tid: 1, action });
        while let Some(decision) = self.live.poll() {
            match decision {
                Decision::Drop { file, .. } => {
                    let name = self.live.held[&file].name.to_string();
                    // As the mount performs it: an unlink, and then the result.
                    for action in
                        [Action::Unbind { file, name: name.as_str().into() }, Action::Gone { file }]
                    {
                        let event = Event { at_us: self.now, pid: 0, tid: 0, action };
                        assert!(self.live.drops(&event));
                        self.live.handle(self.now, &event);
                    }
                    self.dropped.push(name);
                }
                Decision::WriteBack { .. } => self.written += 1,
                Decision::CloseEpoch => {}
            }
            if let Some(file) = decision.file() {
                self.live.done(self.now, file, Ok(()));
            }
            self.live.check();
        }
    }

    fn write(&mut self, name: &str, len: u64) {
        self.next += 1;
        let file = FileId(self.next);
        let create = Create { file, name: name.into(), owner: None, mode: None, sync: false };
        self.observe(Action::Create(MaybeOwned::Borrowed(&create)));
        self.observe(Action::Write { file, open: None, offset: 0, len, sync: false });
    }
}

/// An application that needs every dropped file again, at once or after up to forty more: the bytes
/// fetched again stay below the ceiling, or exceed it by the files that were dropped since, and
/// drops never end. A name that came back is not dropped. When nothing comes back any more, nearly
/// all is dropped again.
/// Before, the sifter was suspended for an hour or more, and dropped nothing.
// Promises: Mount 65.
#[test]
fn bytes_fetched_again_stay_below_the_ceiling() {
    const BYTES: u64 = 20_000;
    // The sifter, the delay in drops, and the least number of 500 files that is dropped at the end:
    // `controller` has learned by then that files come back.
    for (sifter, delay, least) in [
        ("drop-all", 0, 450),
        ("drop-all", 40, 450),
        ("touch", 0, 450),
        ("random:p=0.5", 3, 200),
        ("controller", 7, 0),
    ] {
        let mut app = App::new(LiveSifter { again: AGAIN, ..chosen(sifter) });
        let new = |app: &mut App, n: u64| {
            app.now += 60_000_000;
            app.write(&format!("/d0/{n}"), BYTES);
        };
        let mut again = 0;
        for n in 0..1500 {
            new(&mut app, n);
            if app.dropped.len() > again + delay {
                again += 1;
                let name = app.dropped[again - 1].clone();
                app.write(&name, BYTES);
            }
            let LiveCounts { dropped, created_again, written, .. } = app.live.counts();
            let ext4_bytes = dropped.bytes + written.bytes - created_again.bytes;
            let most = AGAIN * ext4_bytes as f64 + ((delay as u64 + 2) * BYTES) as f64;
            assert!(created_again.bytes as f64 <= most, "{sifter}: {:?}", app.live.counts());
        }
        let counts = app.live.counts();
        let mut names = app.dropped.clone();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), app.dropped.len(), "{sifter}: a name was dropped twice");
        if least > 0 {
            assert!(app.dropped.len() > 100 && counts.refused.files > 100, "{sifter}: {counts:?}");
        }
        (1500..2500).for_each(|n| new(&mut app, n));
        let before = app.dropped.len();
        (2500..3000).for_each(|n| new(&mut app, n));
        assert!(app.dropped.len() - before >= least, "{sifter}: {:?}", app.live.counts());
        app.live.reset();
        assert_eq!(app.live.again_share(), 0.0);
    }
}

/// A program that writes each file under a temporary name and renames it, with the file closed or
/// still open: the sifter takes the file when its name is droppable and no process has it open.
/// Before, such files stayed with `keep`, and none of a feed reader's downloads was ever dropped.
// Promises: Mount 58.
#[test]
fn a_file_that_gets_a_droppable_name_goes_to_the_sifter() {
    let mut app = App::new(chosen("drop-all"));
    for n in 0..40 {
        let (temporary, last) = (format!("/home/{n}.part"), format!("/d0/{n}"));
        let names = Renamed::owned(&temporary, &last);
        app.write(&temporary, 10_000);
        let file = FileId(app.next);
        let held = app.live.counts().held.files;
        if n % 2 == 0 {
            app.observe(Action::Rename { file, names });
        } else {
            app.observe(Action::Open { file, open: None, created: false });
            app.observe(Action::Rename { file, names });
            assert_eq!(app.live.counts().held.files, held, "it is open");
            assert!(app.live.keep.has(file));
            app.observe(Action::Close { file, open: None });
        }
        assert!(!app.live.keep.has(file));
    }
    let counts = app.live.counts();
    assert_eq!(app.live.keep.files(), 0);
    assert!(counts.dropped.files > 20, "{counts:?}");
    assert_eq!(counts.dropped.bytes, counts.dropped.files * 12_288, "whole pages: {counts:?}");
    assert_eq!(app.live.latecomers.len(), 0);
    // A second name, which is not droppable, keeps a file where it is.
    app.write("/home/a", 5_000);
    let file = FileId(app.next);
    app.observe(Action::Link { file, name: "/home/b".into() });
    app.observe(Action::Rename { file, names: Renamed::owned("/home/a", "/d0/a") });
    assert!(app.live.keep.has(file));
    app.observe(Action::Gone { file });
    assert_eq!(app.live.latecomers.len(), 0);
}

/// A drop is an unlink for everyone but the sifter, which must still remember the name: its ghost
/// shows later whether the drop was wrong.
#[test]
fn the_performance_of_a_drop_is_no_deletion_by_an_application() {
    let mut app = App::new(chosen("drop-all"));
    for n in 0..25 {
        app.write(&format!("/d0/{n}"), 20_000);
    }
    let counts = app.live.counts();
    assert_eq!(counts.dropped.files as usize, app.dropped.len());
    assert!(counts.dropped.files > 18 && counts.died.files == 0, "{counts:?}");
    app.write("/d0/0", 20_000);
    assert_eq!(app.live.counts().created_again, FileBytes { files: 1, bytes: 20_000 });
}

/// An application that names each file anew: the ceiling knows a dropped file by its content, and
/// counts it once, by name or by content.
// Promises: Mount 65.
#[test]
fn content_that_comes_back_under_another_name_counts() {
    let mut app = App::new(chosen("drop-all"));
    let content = |n: u64| ContentKey::new(20_000, &n.to_le_bytes(), &[]);
    let write = |app: &mut App, name: &str, of: u64| {
        app.write(name, 20_000);
        app.live.closed(app.now, FileId(app.next), content(of));
        app.live.closed(app.now, FileId(app.next), content(of));
        app.live.check();
    };
    for n in 0..20 {
        write(&mut app, &format!("/d0/{n}"), n);
    }
    assert!(app.dropped.len() > 12, "{:?}", app.dropped);
    let known = |app: &App| app.live.counts().created_again.files;
    assert_eq!(known(&app), 0);
    write(&mut app, "/d0/other", 0);
    assert_eq!(known(&app), 1);
    write(&mut app, "/d0/0", 0);
    assert_eq!(known(&app), 1, "the same drop counts once");
    write(&mut app, "/d0/1", 1);
    assert_eq!(known(&app), 2, "by name, and not again by content");
}

/// A program replaced 30 files under their old names by new content, and its sifter was suspended
/// for an hour: each counted as fetched again. It goes on dropping below the ceiling. Content that
/// begins anew is new; an entry of a cache that is fetched again has its old body, and other
/// headers behind it. Short files are known under their own names only.
// Promises: Mount 65.
#[test]
fn a_name_with_new_content_is_not_fetched_again() {
    for size in [20_000, 2_000] {
        let mut app = App::new(LiveSifter { again: AGAIN, ..chosen("drop-all") });
        let write = |app: &mut App, name: &str, first: u64, last: u64| {
            app.write(name, size);
            let content = ContentKey::new(size, &first.to_le_bytes(), &last.to_le_bytes());
            app.live.closed(app.now, FileId(app.next), content);
            app.live.check();
        };
        for round in 0..40 {
            for n in 0..30 {
                write(&mut app, &format!("/d0/{n}"), round * 100 + n, 0);
            }
        }
        let known = |app: &App| app.live.counts().created_again.files;
        assert!(app.dropped.len() > 500, "{}", app.dropped.len());
        assert_eq!((known(&app), app.live.again_share()), (0, 0.0), "{size}");
        write(&mut app, "/d0/0", 3900, 1);
        assert_eq!(known(&app), 1, "the same beginning");
        write(&mut app, "/d0/other", 3901, 0);
        assert_eq!(known(&app), if size > 4096 { 2 } else { 1 }, "another name");
    }
}

#[test]
fn a_sifter_that_knows_the_future_is_refused() {
    let refused = live().choose(0, chosen("oracle")).unwrap_err().to_string();
    assert!(refused.contains("oracle knows the rest of the history"), "{refused}");
}

/// Outside the patterns, and in every other mode, files are `keep`'s.
// Promises: Mount 58.
#[test]
fn only_droppable_files_are_the_sifters() {
    let mut app = App::new(chosen("drop-all"));
    app.write("/home/document", 5_000);
    assert_eq!(app.live.counts().held.files, 0);
    app.write("/d0/a", 5_000);
    assert_eq!(app.live.counts().held, FileBytes { files: 1, bytes: 5_000 });
    app.live.switch(app.now, LiveMode::Keep);
    app.write("/d0/b", 5_000);
    assert_eq!(app.live.counts().held.files, 0);
    assert_eq!(app.live.keep.files(), 2);
    app.live.switch(app.now, LiveMode::Plain);
    let create =
        Create { file: FileId(99), name: "/x".into(), owner: None, mode: None, sync: false };
    assert_eq!(app.live.birth(app.now, &create), Birth::Flash(Reason::All));
}
