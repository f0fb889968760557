//! The controller on histories with a known rule, and against an adversary.

use super::{
    chances::{AHEAD, Chances, Fate, LEVELS, Row, level_of},
    tracked::Tracked,
    *,
};
use crate::sift::{
    Blocked, Decision, Droppable, SelectedSifter, Selection, SifterSetup, simulate::Sifted,
};
use flashsift_events::{
    dice::Dice,
    event::{Create, FileId, Knows, MaybeOwned},
    page::PAGE_BYTES,
};

const MIB: u64 = 1 << 20;
const SECOND_US: Micros = 1_000_000;

fn controller(params: &str, budget_bytes: u64) -> Sifted<crate::sift::BoxedSift> {
    let cold = if params.contains("cold") { "" } else { "cold-mib=0," };
    let sifter = Selection::parse(&format!("controller:{cold}{params}")).unwrap();
    let sifter = sifter
        .build(&SifterSetup {
            budget_bytes,
            patterns: &[],
            droppable: &Droppable::caches(),
            knows_opens: false,
            last_uses: None,
            models: &[],
        })
        .unwrap();
    let knows = Knows { times: true, creations: true, ..Knows::NOTHING };
    Sifted::new(sifter, budget_bytes, knows).logged()
}

/// Returns a controller that remembers so many files.
fn with_ghosts(ghosts: usize) -> Controller {
    let settings = Settings { again: 1.0, price: 1.0, cap_bytes: MIB, settle_us: DAY_US };
    Controller::new(settings, Cold::new(0, Droppable::caches()), ghosts)
}

fn event(at_us: Micros, action: Action<'static>) -> Event<'static> {
    Event { at_us, pid: 1, tid: 1, action }
}

/// Creates a file of this size.
fn create(sifted: &mut Sifted<crate::sift::BoxedSift>, at: Micros, id: u64, name: &str, len: u64) {
    let (file, open, offset, sync) = (FileId(id), None, 0, false);
    let name = MaybeOwned::owned_str(name);
    let create = Create { file, name, owner: None, mode: None, sync };
    sifted.event(&event(at, Action::Create(MaybeOwned::owned(create))), &mut |_| ());
    sifted.event(&event(at, Action::Write { file, open, offset, len, sync }), &mut |_| ());
}

fn read(sifted: &mut Sifted<crate::sift::BoxedSift>, at: Micros, id: u64) {
    let action = Action::Read { file: FileId(id), open: None, offset: 0, len: 4096 };
    sifted.event(&event(at, action), &mut |_| ());
}

#[test]
fn levels_are_halves_of_doublings() {
    let starts = [0, 10, 15, 20, 30, 40, 60, 80, 120].map(|tenths| tenths * SECOND_US / 10);
    for (level, start) in starts.into_iter().enumerate() {
        assert_eq!(level_of(start), level as u8);
        assert_eq!(level_of(start.saturating_sub(1)), level.saturating_sub(1) as u8);
    }
    assert_eq!(usize::from(level_of(u64::MAX)), LEVELS - 1);
}

/// Of each directory's files a known share is used in level 9. Below that level the chance of a
/// later use is this share, and above it close to none.
// Promises: Sift 16.
#[test]
fn chances_are_the_shares_of_the_files_that_were_used() {
    for share in [0.1, 0.5, 0.9] {
        let mut chances = Chances::new();
        let (row, mut dice) = (Row::new("/h/.cache/a/x"), Dice::new(1));
        chances.advance(0);
        for _ in 0..4000 {
            chances.begins(row);
            let used = f64::from(dice.below(1000)) < share * 1000.0;
            for level in 0..if used { 9 } else { 30 } {
                chances.ends(row, level, Fate::Passed);
            }
            if used {
                chances.ends(row, 9, Fate::Used);
            }
        }
        chances.advance(86_400 * SECOND_US);
        chances.check();
        for level in [0, 5, 9] {
            let found = f64::from(chances.get(row, level).later);
            assert!((found - share).abs() < 0.05, "{found} of {share} in level {level}");
        }
        assert!(chances.get(row, 10).later < 0.1);
    }
}

/// A time that has not been seen yet does not count.
// Promises: Sift 16.
#[test]
fn levels_far_beyond_the_time_since_the_start_do_not_count() {
    let mut chances = Chances::new();
    chances.advance(0);
    chances.begins(Row::new("/a/b"));
    let first = chances.get(Row::new("/a/b"), 0).later;
    chances.advance(86_400 * SECOND_US);
    let later = chances.get(Row::new("/a/b"), 0).later;
    assert!(first < later, "{first} {later}: {AHEAD} levels more than have been seen");
}

/// Directories have rows of their own, but for those whose names are numbers.
#[test]
fn rows_are_of_directories_and_uses() {
    assert_eq!(Row::new("/m/tiles/16/a3/5.png"), Row::new("/m/tiles/17/4/6.png"));
    assert_ne!(Row::new("/m/tiles/16/5.png"), Row::new("/m/other/16/5.png"));
    let row = Row::new("/m/tiles/16/5.png");
    assert_eq!([row.uses(), row.used().uses(), row.used().used().used().uses()], [0, 1, 2]);
    assert_eq!(row.used().moved("/m/other/1"), Row::new("/m/other/1").used());
}

/// One directory's files are read again 200 s after their creation, when they would have left RAM,
/// the other's never. The controller comes to write the former and to drop the latter.
// Promises: Sift 16.
#[test]
fn what_is_read_again_is_written_and_the_rest_dropped() {
    let mut sifted = controller("again=0.1", 4 * MIB);
    let (mut dropped, mut written) = ([0, 0], [0, 0]);
    let mut log = 0;
    for n in 0..20_000_u64 {
        let at = n * SECOND_US;
        let kind = n % 2;
        let name = format!("/h/.cache/{}/{n}x", ["once", "again"][kind as usize]);
        create(&mut sifted, at, n, &name, 64 << 10);
        if let Some(old) = n.checked_sub(200).filter(|old| old % 2 == 1) {
            read(&mut sifted, at + 1, old);
        }
        sifted.check();
        for (_, decision) in &sifted.log()[log..] {
            let Some(file) = decision.file().filter(|_| n > 10_000) else { continue };
            match decision {
                Decision::Drop { .. } => dropped[file.0 as usize % 2] += 1,
                _ => written[file.0 as usize % 2] += 1,
            }
        }
        log = sifted.log().len();
    }
    let counters = sifted.counters();
    let left = counters.dropped.bytes + counters.written_bytes();
    assert!(counters.fetched_again.bytes * 10 <= left, "{counters:?}");
    assert!(dropped[0] > 4 * written[0], "once: {dropped:?} dropped, {written:?} written");
    assert!(written[1] > 3 * dropped[1], "again: {dropped:?} dropped, {written:?} written");
}

/// A program that waits until much is dropped, and then reads all of it at once, costs no more than
/// `cap` beyond the share `again`.
// Promises: Sift 16.
#[test]
fn an_adversary_costs_no_more_than_the_cap() {
    for (cap_mib, seed) in [(1, 0), (4, 1), (16, 2)] {
        let mut sifted = controller(&format!("again=0.05,cap-mib={cap_mib}"), 2 * MIB);
        let mut dice = Dice::new(seed);
        let (mut log, mut at) = (0, 0);
        let mut out = Vec::new();
        for n in 0..6000_u64 {
            at += SECOND_US * u64::from(dice.below(60));
            create(&mut sifted, at, n, &format!("/h/.cache/a/{n}x"), 32 << 10);
            let drops = sifted.log()[log..].iter().filter_map(|(_, decision)| match decision {
                Decision::Drop { file, .. } => Some(file.0),
                _ => None,
            });
            out.extend(drops);
            log = sifted.log().len();
        }
        assert!(!out.is_empty(), "cap {cap_mib}: something is dropped");
        for id in out {
            read(&mut sifted, at + 1, id);
        }
        let counters = sifted.counters();
        let left = counters.dropped.bytes + counters.written_bytes();
        let allowed = left / 20 + cap_mib * MIB;
        assert!(counters.fetched_again.bytes <= allowed, "cap {cap_mib}: {counters:?}");
        sifted.check();
    }
}

/// A dropped file that its application deletes is no longer expected back: the application may
/// create another one of that name.
// Promises: Sift 16.
#[test]
fn a_deleted_file_does_not_come_back() {
    let mut controller = with_ghosts(100);
    let known = controller.tracked.hold(0, FileId(1), Slot::default(), Row::new("/c/a"));
    controller.tracked.leave(known, Key::of_path("/c/a"), 3);
    assert_eq!(controller.tracked.dropped_bytes(), 3 * PAGE_BYTES);
    let name = MaybeOwned::owned_str("/c/a");
    controller.observe_outside_ram(
        SECOND_US,
        &event(SECOND_US, Action::Unbind { file: FileId(1), name }),
    );
    assert_eq!(controller.tracked.dropped_bytes(), 0);
    assert_eq!(controller.fetched_again(2 * SECOND_US, "/c/a"), None);
    controller.tracked.check();
}

/// The table of files that have left RAM does not grow beyond its bound, and forgets those that
/// left first.
// Promises: Sift 16.
#[test]
fn files_that_left_are_forgotten_in_order() {
    let mut controller = with_ghosts(3);
    for n in 0..5 {
        let known = controller.tracked.hold(n, FileId(n), Slot::default(), Row::new("/c/a"));
        controller.tracked.leave(known, Key::Written(FileId(n)), 1);
        controller.tracked.check();
    }
    let kept: Vec<u64> =
        (0..5).filter(|n| controller.tracked.find(Key::Written(FileId(*n))).is_some()).collect();
    assert_eq!(kept, [2, 3, 4]);
}

/// Decisions are performed late, and some fail; files are used, renamed and deleted meanwhile. With
/// a table for few files, the number of a file that was on its way to flash and had been forgotten
/// was that of another file.
#[test]
fn flash_may_refuse_files_that_are_forgotten() {
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let ghosts = [0, 1, 5, 1000][seed as usize % 4];
        let selection =
            Selection::parse(&format!("controller:again=0.5,cold-mib=0,ghosts={ghosts}")).unwrap();
        let droppable = Droppable::caches();
        let mut sifter = selection
            .build(&SifterSetup {
                budget_bytes: 12 * PAGE_BYTES,
                patterns: &[],
                droppable: &droppable,
                knows_opens: false,
                last_uses: None,
                models: &[],
            })
            .unwrap();
        let (mut at, mut pending) = (0, Vec::new());
        for _ in 0..300 {
            at += SECOND_US * u64::from(dice.below(20));
            let file = FileId(dice.below(12).into());
            let name = || MaybeOwned::owned_str(&format!("/h/.cache/{}x", file.0));
            let (open, offset, len, sync) = (None, 0, PAGE_BYTES, false);
            let action = match dice.below(7) {
                0 | 1 => Action::Create(MaybeOwned::owned(Create {
                    file,
                    name: name(),
                    owner: None,
                    mode: None,
                    sync,
                })),
                2 | 3 => Action::Write { file, open, offset, len, sync },
                4 => Action::Read { file, open, offset, len },
                5 => Action::Unbind { file, name: name() },
                _ => Action::Gone { file },
            };
            sifter.handle(at, &event(at, action));
            sifter.check();
            pending.extend(std::iter::from_fn(|| sifter.poll()));
            while !pending.is_empty() && dice.below(3) > 0 {
                let decision = pending.swap_remove(dice.below(pending.len() as u32) as usize);
                let result = if dice.below(3) == 0 { Err(Blocked::NoSpace) } else { Ok(()) };
                if let Some(file) = decision.file() {
                    sifter.done(at, file, result);
                    sifter.check();
                }
            }
        }
    }
}

/// All memory that grows with the number of files, with the spare places of its arrays and of its
/// indexes, without the bytes of paths: the mean over numbers of files that fill them differently.
#[test]
fn a_file_takes_few_bytes() {
    let (mut held, mut left, mut files) = (0, 0, 0);
    for n in [5000, 6500, 8500, 11_000, 14_500, 19_000, 25_000, 33_000] {
        let (mut shelf, mut tracked) = (Shelf::<Known>::new(true), Tracked::new(n as usize));
        for file in 0..n {
            let slot = shelf.insert(FileId(file), file, "/h/.cache/a/1x");
            shelf[slot].state = tracked.hold(file, FileId(file), slot, Row::new("/h/.cache/a/1x"));
        }
        files += n as usize;
        held += shelf.heap_bytes() + tracked.heap_bytes();
        for slot in shelf.all() {
            tracked.leave(shelf[slot].state, Key::of_path(&shelf[slot].id.0.to_string()), 1);
        }
        left += tracked.heap_bytes();
    }
    let (held, left) = (held / files, left / files);
    assert!(held <= 130 && left <= 66, "{held} bytes in RAM, {left} after that");
}

/// One name comes back after it was dropped. It was dropped again each time: a budget on bytes does
/// not see that it is always the same file.
// Promises: Sift 16.
#[test]
fn a_name_that_came_back_is_written() {
    let mut sifted = controller("again=1", 4 * MIB);
    let (mut fates, mut log) = (Vec::new(), 0);
    for n in 0..2000_u64 {
        let at = n * 10 * SECOND_US;
        let name = if n % 250 == 0 { "comes-back".to_owned() } else { format!("{n}x") };
        create(&mut sifted, at, n, &format!("/h/.cache/a/{name}"), 64 << 10);
        for (_, decision) in &sifted.log()[log..] {
            match decision {
                Decision::Drop { file, .. } if file.0 % 250 == 0 => fates.push("dropped"),
                Decision::WriteBack { file, .. } if file.0 % 250 == 0 => fates.push("written"),
                _ => {}
            }
        }
        log = sifted.log().len();
    }
    let first = fates.iter().position(|fate| *fate == "dropped").expect("one is dropped");
    assert!(fates[first + 1..].iter().all(|fate| *fate == "written"), "{fates:?}");
    assert!(fates.len() > first + 2, "{fates:?}");
}

/// Nearly every file that leaves the RAM of a new cache comes back. The controller dropped the
/// first ones, before it could have learned that. It waits until half of `cold-mib` have left RAM,
/// where a fetched byte is as dear as a written one. An old cache shows itself by files that were
/// there before and are used. Names alone say nothing: a program may list its folders.
// Promises: Sift 20.
#[test]
fn a_new_cache_drops_nothing_until_it_is_warm() {
    let left_before_the_first_drop = |old: u64, used: u64, folder: &str| {
        let mut sifted = controller("again=1,price=1,cold-mib=16", MIB);
        for id in 0..old {
            let (file, name) = (FileId(1 << 32 | id), format!("{folder}/{id}x"));
            let name = MaybeOwned::owned_str(&name);
            sifted.event(&event(0, Action::Bind { file, name }), &mut |_| ());
        }
        // Each is used twice, and counts once.
        (0..used).chain(0..used).for_each(|id| read(&mut sifted, 0, 1 << 32 | id));
        for n in 0..1000 {
            let at = (1 + n) * SECOND_US;
            create(&mut sifted, at, n, &format!("/h/.cache/a/{n}x"), 64 << 10);
            sifted.check();
            let counters = sifted.counters();
            if counters.dropped.bytes > 0 {
                return counters.written_bytes();
            }
        }
        panic!("nothing is dropped: {old} old files, {used} used");
    };
    let new = left_before_the_first_drop(0, 0, "");
    assert!((8 * MIB..=9 * MIB).contains(&new), "{new}");
    for (old, used, folder) in [(20, 0, "/h/.cache/a"), (20, 20, "/h/documents")] {
        assert_eq!(left_before_the_first_drop(old, used, folder), new, "{old} {used} {folder}");
    }
    let older = left_before_the_first_drop(20, 4, "/h/.cache/a");
    assert!((4 * MIB..=5 * MIB).contains(&older), "{older}");
    assert!(left_before_the_first_drop(20, 16, "/h/.cache/a") <= MIB);
}
