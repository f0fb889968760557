//! The sifter of a mount: over random histories with switches in between, and its ceiling.

use super::*;
use crate::sift::{simulate::Sifted, testing::History};
use flashsift_events::{
    dice::Dice,
    event::{Knows, MaybeOwned, Renamed},
};
use std::collections::{BTreeMap, BTreeSet};

const KNOWS: Knows = Knows { times: true, creations: true, opens: true, ..Knows::NOTHING };
const BUDGET_BYTES: u64 = 1 << 17;

fn live() -> Live {
    Live::new(KeepConfig { budget_bytes: BUDGET_BYTES, ..KeepConfig::default() })
}

/// A sifter without a ceiling, with at most half of the RAM.
fn chosen(sifter: &str) -> LiveSifter {
    let droppable = Droppable::matching(&["/d0/*".into(), "/d1/*".into()]);
    let sifter = Selection::parse(sifter).unwrap();
    LiveSifter { again: 1.0, ..LiveSifter::new(sifter, droppable, BUDGET_BYTES / 2) }
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
    /// Of the files written.
    reasons: BTreeSet<Reason>,
}

impl App {
    fn new(chosen: LiveSifter) -> Self {
        let live = Live::sifting(BUDGET_BYTES, chosen).unwrap();
        let (dropped, reasons) = (Vec::new(), BTreeSet::new());
        Self { live, now: 0, next: 0, dropped, written: 0, reasons }
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
                Decision::WriteBack { why, .. } => {
                    self.written += 1;
                    self.reasons.insert(why);
                }
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

/// A list of the files in RAM: what leaves it is searched from its beginning.
#[derive(Default)]
struct NaiveRam {
    files: Vec<NaiveFile>,
}

#[derive(Clone, Copy, Debug)]
struct NaiveFile {
    file: FileId,
    is_sifted: bool,
    /// Its first change, or of a file of the sifter its last use.
    since_us: Micros,
    pages: u64,
}

impl NaiveRam {
    fn bytes(&self, is_counted: impl Fn(&NaiveFile) -> bool) -> u64 {
        let files = self.files.iter().filter(|file| is_counted(file));
        files.map(|file| FILE_COST_BYTES + file.pages * 4096).sum()
    }

    /// Removes the oldest of these that may leave now.
    fn leave(&mut self, now: Micros, from: impl Fn(&NaiveFile) -> bool) -> Option<NaiveFile> {
        let may_leave = |file: &&NaiveFile| from(file) && !(file.is_sifted && file.since_us == now);
        let oldest =
            self.files.iter().filter(may_leave).min_by_key(|file| file.since_us).copied()?;
        self.files.retain(|file| file.file != oldest.file);
        Some(oldest)
    }

    /// Removes what does not fit, in order.
    fn fit(&mut self, now: Micros) -> Vec<FileId> {
        let mut left = Vec::new();
        let (most, wanted) = (BUDGET_BYTES, BUDGET_BYTES - BUDGET_BYTES / 16);
        while self.bytes(|file| file.is_sifted) > most
            && let Some(file) = self.leave(now, |file| file.is_sifted)
        {
            left.push(file.file);
        }
        let goal = if self.bytes(|file| !file.is_sifted) > most { wanted } else { most };
        while self.bytes(|file| !file.is_sifted) > goal {
            left.extend(self.leave(now, |file| !file.is_sifted).map(|file| file.file));
        }
        let goal = if self.bytes(|_| true) > most { wanted } else { most };
        while self.bytes(|_| true) > goal {
            let [kept, sifted] =
                [false, true].map(|side| self.bytes(|file| file.is_sifted == side));
            let has_idle = |file: &NaiveFile| file.is_sifted && file.since_us != now;
            let next = if !self.files.iter().any(has_idle) || kept == 0 {
                self.leave(now, |_| true)
            } else if kept < BUDGET_BYTES / 4 {
                self.leave(now, |file| file.is_sifted)
            } else if sifted < BUDGET_BYTES / 4 {
                self.leave(now, |file| !file.is_sifted)
            } else {
                self.leave(now, |_| true)
            };
            let Some(mut next) = next else { break };
            left.push(next.file);
            // A sifter that is asked for space goes on until it has freed some.
            while next.is_sifted
                && next.pages == 0
                && let Some(more) = self.leave(now, |file| file.is_sifted)
            {
                left.push(more.file);
                next = more;
            }
        }
        left
    }
}

/// Files of both sides are created, written, read and deleted in any order: those that leave RAM,
/// and their order on each side, are those of a list that is searched for the oldest.
// Promises: Mount 29.
#[test]
fn files_of_both_sides_leave_one_ram_as_from_a_list() {
    let (mut left_in_all, mut mixed) = ([0, 0], 0);
    for seed in 0..60 {
        let mut dice = Dice::new(seed);
        // One side may have nearly all files.
        let sifted_of_ten = dice.below(11);
        let chosen = LiveSifter { budget_bytes: BUDGET_BYTES, ..chosen("drop-all") };
        let mut live = Live::sifting(BUDGET_BYTES, chosen).unwrap();
        let (mut slow, mut names) = (NaiveRam::default(), BTreeMap::new());
        let (mut now, mut next) = (0, 0);
        for step in 0..1500 {
            now += 1 + u64::from(dice.below(3_000_000));
            let at = format!("seed {seed}, step {step}");
            let known = slow.files.len() as u32;
            let which = dice.below(known.max(1)) as usize;
            let (open, offset) = (None, 0);
            let len = u64::from(dice.below(10)) * 4096;
            let handle = |live: &mut Live, action: Action<'_>| {
                live.handle(now, &Event { at_us: now, pid: 1, tid: 1, action });
            };
            match dice.below(8) {
                0..=2 => {
                    next += 1;
                    let (file, is_sifted) = (FileId(next), dice.below(10) < sifted_of_ten);
                    let name = format!("{}/{next}", if is_sifted { "/d0" } else { "/home" });
                    names.insert(file, name.clone());
                    let name = name.into();
                    let create = Create { file, name, owner: None, mode: None, sync: false };
                    slow.files.push(NaiveFile { file, is_sifted, since_us: now, pages: 0 });
                    handle(&mut live, Action::Create(MaybeOwned::owned(create)));
                }
                _ if known == 0 => continue,
                3..=5 => {
                    let of = &mut slow.files[which];
                    of.pages = of.pages.max(len / 4096);
                    of.since_us = if of.is_sifted { now } else { of.since_us };
                    let file = of.file;
                    handle(&mut live, Action::Write { file, open, offset, len, sync: false });
                }
                6 => {
                    let of = &mut slow.files[which];
                    of.since_us = if of.is_sifted { now } else { of.since_us };
                    handle(&mut live, Action::Read { file: of.file, open, offset, len });
                }
                _ => {
                    let NaiveFile { file, .. } = slow.files.remove(which);
                    let name = names[&file].clone().into();
                    handle(&mut live, Action::Unbind { file, name });
                }
            }
            live.check();
            let expected = slow.fit(now);
            let decided: Vec<FileId> =
                std::iter::from_fn(|| live.poll()).filter_map(|it| it.file()).collect();
            // The two machines have a queue of decisions each.
            let is_sifted = |file: &FileId| names[file].starts_with("/d0");
            for side in [true, false] {
                let of = |files: &[FileId]| -> Vec<FileId> {
                    files.iter().copied().filter(|file| is_sifted(file) == side).collect()
                };
                let (decided, expected) = (of(&decided), of(&expected));
                assert_eq!(decided, expected, "{at}");
                left_in_all[usize::from(side)] += decided.len();
            }
            let sifted = expected.iter().filter(|file| is_sifted(file)).count();
            mixed += u32::from(sifted > 0 && sifted < expected.len());
            decided.into_iter().for_each(|file| live.done(now, file, Ok(())));
            live.check();
            assert_eq!(live.held_bytes(), slow.bytes(|_| true), "{at}");
        }
    }
    assert!(left_in_all[0] > 1000 && left_in_all[1] > 1000, "{left_in_all:?}");
    assert!(mixed > 100, "{mixed}");
}

/// Files of one kind alone have all of the RAM. Before, the sifter's had a half, and `keep`'s the
/// other one: a mount with a sifter wrote up to 1.8 times as much as one without.
// Promises: Mount 29.
#[test]
fn each_side_has_the_ram_that_the_other_one_leaves() {
    // The sifter alone frees no more than it has to.
    for (directory, left) in [("/d0", 1), ("/home", 2)] {
        let mut app = App::new(LiveSifter { budget_bytes: BUDGET_BYTES, ..chosen("drop-all") });
        for n in 0..13 {
            app.write(&format!("{directory}/{n}"), 8192);
            assert_eq!((app.dropped.len(), app.written), (0, 0), "{directory}");
        }
        app.write(&format!("{directory}/last"), 8192);
        assert_eq!(app.dropped.len() + app.written, left, "{directory}");
    }
    // `--sift-budget` is the most that the sifter takes.
    let mut app = App::new(LiveSifter { budget_bytes: BUDGET_BYTES / 4, ..chosen("drop-all") });
    (0..4).for_each(|n| app.write(&format!("/d0/{n}"), 8192));
    assert_eq!(app.live.counts().held.files, 3);
    assert!(app.live.sifted_bytes() <= BUDGET_BYTES / 4);
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
        // A mount hands files that leave for want of space to the page cache of BACKING. Refused
        // ones had another reason, and so were written at once.
        assert_eq!(app.reasons, BTreeSet::from([Reason::Space]), "{sifter}");
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
        app.live.has_content(app.now, FileId(app.next), content(of));
        app.live.has_content(app.now, FileId(app.next), content(of));
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

/// A file is explained by its meaning from its close on, also once it has left RAM.
// Promises: Mount 85.
#[test]
fn explanations_name_the_kind_of_cache() {
    let mut app = App::new(chosen("drop-all"));
    for n in 0..20 {
        app.write(&format!("/d0/a-1.0.{n}.crate"), 20_000);
        let file = FileId(app.next);
        let meaning = |app: &App| app.live.explain_held(app.now, file).unwrap().meaning;
        assert_eq!(meaning(&app), None);
        app.live.closed(app.now, file, &FileParts::of(&[n; 9000]));
        assert_eq!(meaning(&app).as_deref(), Some("cargo, package"));
        app.live.check();
    }
    let explained = app.live.decisions().filter_map(|one| one.explanation.as_ref());
    let meanings: BTreeSet<&str> = explained.filter_map(|one| one.meaning.as_deref()).collect();
    assert_eq!(meanings, BTreeSet::from(["cargo, package"]));
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
            app.live.has_content(app.now, FileId(app.next), content);
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
