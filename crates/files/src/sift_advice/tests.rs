use super::*;
use crate::{
    sift::{Droppable, SelectedSifter, Selection, Spec},
    sifting::{SiftSlice, Sifting},
};
use flashsift_events::{
    dice::Dice,
    event::{About, Action, Create, FileId, Knows, MaybeOwned, Side, Space},
    params::Listed,
};

const SECOND: u64 = 1_000_000;
const FILE_BYTES: u64 = 16 << 10;
const RAM_BYTES: u64 = 2 << 20;

fn about() -> About {
    let knows = Knows {
        times: true,
        writes: true,
        syncs: true,
        removals: true,
        creations: true,
        ..Knows::NOTHING
    };
    About { epoch_us: None, boot_us: None, side: Side::Before, space: Space::Files, knows }
}

fn at(at_us: u64, action: Action<'static>) -> Event<'static> {
    Event { at_us, pid: 0, tid: 0, action }
}

/// The events of a file of [`FILE_BYTES`] in this directory.
fn created(at_us: u64, file: u64, directory: &str) -> [Event<'static>; 2] {
    let name = MaybeOwned::owned_str(&format!("{directory}/{file}"));
    let file = FileId(file);
    let create = Create { file, name, owner: None, mode: None, sync: false };
    let write = Action::Write { file, open: None, offset: 0, len: FILE_BYTES, sync: false };
    [at(at_us, Action::Create(MaybeOwned::owned(create))), at(at_us, write)]
}

fn read(at_us: u64, file: u64) -> Event<'static> {
    at(at_us, Action::Read { file: FileId(file), open: None, offset: 0, len: FILE_BYTES })
}

/// Files that are created every ten seconds for ten hours. Each of those of the cache `hot` is read
/// again after an hour, by when 360 newer ones have filled the RAM.
fn hours(of_hot: impl Fn(u64) -> bool) -> Vec<Event<'static>> {
    let mut events = Vec::new();
    for file in 0..3600 {
        let now = file * 10 * SECOND;
        if of_hot(file) {
            events.extend(created(now, file, "/hot/cache"));
            events.push(read(now + 3600 * SECOND, file));
        } else {
            events.extend(created(now, file, "/cold/cache"));
        }
    }
    events.sort_by_key(|event| event.at_us);
    events
}

fn every_online_sifter() -> Vec<Selection> {
    let all = Spec::ALL.iter().map(Selection::default_of);
    all.filter(|sifter| !sifter.is_offline() && sifter.spec.name != "none").collect()
}

fn advice(events: &[Event<'static>], sifters: &[Selection], again_max: f64) -> SiftAdvice {
    let slices = SiftSlices::new(events);
    let mut sifting = Sifting::new(events, about(), Droppable::caches()).unwrap();
    sifting.cut(slices.begins_us.clone());
    let run = |sifter: &Selection, ram| sifting.sift(sifter, ram, |_| ()).unwrap();
    let stock = run(&Selection::parse("none").unwrap(), 0);
    let judged = sifters.iter().map(|sifter| {
        let outcome = run(sifter, RAM_BYTES);
        JudgedSifter::new(sifter.label(), sifter.is_offline(), &stock, outcome)
    });
    SiftAdvice { judged: judged.collect(), slices, stock, fetched_again_max: again_max }
}

fn judged<'a>(advice: &'a SiftAdvice, name: &str) -> &'a JudgedSifter {
    advice.judged.iter().find(|one| one.name == name).unwrap()
}

/// Files that are never read again need not be written: a sifter is recommended that drops them,
/// and nothing is fetched again. Only the files in RAM at the end are written.
// Promises: Sift 13.
#[test]
fn files_that_are_never_read_again_are_dropped() {
    let advice = advice(&hours(|_| false), &every_online_sifter(), 0.05);
    let best = advice.recommended().unwrap();
    let kept = 1.0 - RAM_BYTES as f64 / (3600 * FILE_BYTES) as f64;
    assert!(best.kept.whole >= kept - 0.001 && best.kept.whole < 1.0, "{best:?}");
    assert!(best.kept.lesser() > 0.8 && best.kept.lesser() <= best.kept.whole, "{best:?}");
    assert_eq!(best.fetched_again, HalvedShare::default());
    assert_eq!((best.outcome.fetched_again.all, best.slices), (0, 20));
    assert!(advice.judged.iter().all(|one| one.kept.whole <= best.kept.whole));
    assert_eq!(advice.most_kept(), Some(best));
}

/// Files that are all read again after they have left RAM are fetched again when they were dropped,
/// and no sifter that drops them is recommended.
// Promises: Sift 13.
#[test]
fn files_that_are_read_again_are_written() {
    let advice = advice(&hours(|file| file < 3200), &every_online_sifter(), 0.05);
    let all = judged(&advice, "drop-all");
    assert!(all.fetched_again.whole > 0.8 && all.fetched_again.greater() > 0.05, "{all:?}");
    let chosen = advice.recommended();
    assert!(chosen.is_none_or(|one| one.fetched_again.greater() <= 0.05), "{chosen:?}");
    assert_ne!(chosen.map(|one| &*one.name), Some("drop-all"));
}

/// A limit that admits the planted share recommends the sifter that a lower one refuses.
// Promises: Sift 13.
#[test]
fn the_limit_of_bytes_fetched_again_decides() {
    let events = hours(|file| file % 10 == 0);
    let sifters = [Selection::parse("drop-all").unwrap()];
    let at = |again_max: f64| advice(&events, &sifters, again_max);
    let all = judged(&at(0.05), "drop-all").clone();
    assert!((0.07..0.1).contains(&all.fetched_again.whole), "{all:?}");
    let most = all.fetched_again.greater();
    assert!(all.fetched_again.whole < most, "{all:?}");
    assert_eq!(at(0.05).recommended(), None);
    assert_eq!(at(most - 1e-9).recommended(), None);
    assert_eq!(at(most).recommended(), Some(&all));
}

/// The future is no configuration, however much it saves.
// Promises: Sift 13.
#[test]
fn a_sifter_that_knows_the_future_is_not_recommended() {
    let advice = advice(&hours(|_| false), &[Selection::parse("oracle").unwrap()], 0.05);
    let oracle = judged(&advice, "oracle");
    assert!(oracle.kept.lesser() > 0.8 && oracle.is_offline);
    assert_eq!((advice.recommended(), advice.most_kept()), (None, None));
}

/// All files within one of the slices: there is nothing to compare slices of.
// Promises: Sift 13.
#[test]
fn one_slice_recommends_nothing() {
    let mut events: Vec<_> =
        (0..400).flat_map(|file| created(file * SECOND, file, "/cold/cache")).collect();
    events.push(read(100_000 * SECOND, 9999));
    let advice = advice(&events, &every_online_sifter(), 0.05);
    assert!(judged(&advice, "drop-all").kept.whole > 0.5);
    assert!(advice.has_too_few_slices() && advice.slices_with_work() < 3);
    assert_eq!(advice.recommended(), None);
}

// Promises: Sift 12.
#[test]
fn sessions_are_parted_by_pauses() {
    let touches = |times_s: &[u64]| {
        let times = times_s.iter().map(|second| read(second * SECOND, 1));
        SiftSlices::new(&times.collect::<Vec<_>>())
    };
    // Ten sessions of two requests, 599 s apart; the pause is 600 s.
    let times: Vec<u64> = (0..10).flat_map(|n| [n * 1199, n * 1199 + 599]).collect();
    let found = touches(&times);
    let begins: Vec<u64> = (1..10).map(|n| n * 1199 * SECOND).collect();
    assert_eq!((found.begins_us.clone(), found.are_sessions, found.count()), (begins, true, 10));
    assert!(!found.are_short());
    // Nine sessions are too few.
    let found = touches(&times[2..]);
    assert_eq!((found.are_sessions, found.count()), (false, SLICES));
    assert!(found.begins_us.is_sorted());
    assert!(touches(&[0, 600]).are_short() && !touches(&[0, 1200]).are_short());
    assert_eq!(touches(&[]).count(), SLICES);
}

/// The slices of any cut add up to the whole trace and to its halves.
// Promises: Sift 12.
#[test]
fn slices_add_up_to_the_whole_trace() {
    for seed in 1..20 {
        let mut dice = Dice::new(seed);
        let mut events = Vec::new();
        let (mut now, mut files) = (0, 0);
        for _ in 0..1500 {
            now += u64::from(dice.below(60)) * SECOND;
            match dice.below(3) {
                0 => {
                    events.extend(created(now, files, ["/a/cache", "/b"][dice.below(2) as usize]));
                    files += 1;
                }
                _ if files > 0 => events.push(read(now, u64::from(dice.below(files as u32)))),
                _ => {}
            }
        }
        let end_us = events.last().unwrap().at_us;
        let mut sifting = Sifting::new(&events, about(), Droppable::caches()).unwrap();
        for sifter in Spec::ALL.iter().map(Selection::default_of) {
            let whole = sifting.sift(&sifter, RAM_BYTES, |_| ()).unwrap();
            let end_s = (end_us / SECOND) as u32;
            let mut begins_us: Vec<u64> =
                (0..dice.below(9)).map(|_| u64::from(dice.below(end_s)) * SECOND).collect();
            begins_us.push(end_us / 2 + 1);
            begins_us.sort_unstable();
            let half = begins_us.partition_point(|begin_us| *begin_us <= end_us / 2);
            sifting.cut(begins_us.clone());
            let cut = sifting.sift(&sifter, RAM_BYTES, |_| ()).unwrap();
            sifting.cut(Vec::new());
            let at_end = cut.at_end;
            let sum = |slices: &[SiftSlice], of: fn(&SiftSlice) -> u64| -> u64 {
                slices.iter().chain([&at_end]).map(of).sum()
            };
            let droppable: fn(&SiftSlice) -> u64 = |slice| slice.droppable;
            let others: fn(&SiftSlice) -> u64 = |slice| slice.others;
            let again: fn(&SiftSlice) -> u64 = |slice| slice.fetched_again;
            let all = [
                (droppable, whole.droppable),
                (others, whole.others),
                (again, whole.fetched_again),
            ];
            assert_eq!(cut.slices.len(), begins_us.len() + 1);
            for (of, halves) in all {
                let at = format!("{}, seed {seed}", sifter.label());
                assert_eq!(sum(&cut.slices, of), halves.all, "{at}");
                assert_eq!(sum(&cut.slices[half + 1..], of), halves.second, "{at}");
                assert_eq!(sum(&whole.slices, of), halves.all, "{at}: one slice");
            }
            assert_eq!(SiftOutcome { slices: whole.slices.clone(), ..cut }, whole);
        }
    }
}

/// A saving in one half alone is not confirmed by the other. RAM that fills is no saving, although
/// its bytes reach flash at the end alone.
// Promises: Sift 13.
#[test]
fn halves_are_those_of_the_slices() {
    let found = HalvedShare::new([0.0, 20.0], [100.0, 400.0]);
    assert_eq!((found.whole, found.halves), (0.04, [0.0, 0.05]));
    assert_eq!((found.lesser(), found.greater()), (0.0, 0.05));
    let free = HalvedShare::new([1.0, 0.0], [0.0, 1.0]);
    assert_eq!((free.whole, free.halves), (1.0, [f64::INFINITY, 0.0]));
    assert_eq!(HalvedShare::new([0.0; 2], [0.0; 2]), HalvedShare::default());

    let outcome = |bytes: [u64; 20], waits: u64, at_end: u64| {
        let slice = |droppable| SiftSlice { droppable, waits, ..SiftSlice::default() };
        SiftOutcome {
            slices: bytes.map(slice).into(),
            at_end: SiftSlice { droppable: at_end, ..SiftSlice::default() },
            ..SiftOutcome::default()
        }
    };
    let stock = outcome([100; 20], 0, 0);
    let judged = |with| JudgedSifter::new("x".into(), false, &stock, with);
    // RAM takes 100 bytes in the first slice, and is written at the end.
    let mut filling = [100; 20];
    filling[0] = 0;
    let filling = judged(outcome(filling, 100, 100));
    assert_eq!((filling.kept.whole, filling.kept.halves), (0.0, [0.0, 0.0]));
    assert_eq!((filling.judgement.wins, filling.judgement.slices), (0, 0));
    let saves = judged(outcome([90; 20], 50, 50));
    assert_eq!((saves.kept.whole, saves.kept.halves), (0.075, [0.05, 0.1]));
    assert!(saves.is_worth_it(0.0) && !filling.is_worth_it(1.0));
    let mut second = [50; 20];
    second[..10].fill(100);
    let second = judged(outcome(second, 0, 0));
    assert_eq!(second.kept.halves, [0.0, 0.5]);
    assert!(!second.is_worth_it(1.0));
}
