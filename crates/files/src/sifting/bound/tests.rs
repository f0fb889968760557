//! The bound beside what sifters keep, over random histories and small ones of equal files.

use super::*;
use crate::sift::{ALL, Droppable, Selection, live::AGAIN, testing::History};
use flashsift_events::{
    dice::Dice,
    event::{About, Create, Knows, MaybeOwned, Side, Space},
};

const ABOUT: About = About {
    side: Side::Before,
    space: Space::Files,
    knows: Knows {
        times: true,
        writes: true,
        creations: true,
        opens: true,
        syncs: true,
        removals: true,
        ..Knows::NOTHING
    },
    epoch_us: None,
    boot_us: None,
};

fn sifting<'e>(events: &'e [Event<'static>]) -> Option<Sifting<'e>> {
    let droppable = Droppable::matching(&["/d0/*".into(), "/d1/*".into()]);
    Sifting::new(events, ABOUT, droppable).ok()
}

/// In any history, no sifter keeps more than the bound unless it lets bytes be fetched again, alone
/// or as mounted.
// Promises: Sift 9.
#[test]
fn no_sifter_keeps_more_than_the_bound() {
    let none = Selection::parse("none").unwrap();
    let (mut runs, mut bounded) = (0, 0);
    for seed in 0..600 {
        let mut history = History::new(seed);
        let (mut events, mut at_us) = (Vec::new(), 0);
        // Histories are of seconds, minutes and hours.
        let pause_us = [200_000, 5_000_000, 60_000_000][seed as usize % 3];
        while events.len() < 400 || history.goes_on() {
            at_us += u64::from(history.dice.below(pause_us));
            events.push(Event { at_us, pid: 5, tid: 6, action: history.action() });
        }
        let Some(mut sifting) = sifting(&events) else { continue };
        if seed % 4 == 3 {
            sifting.run_as_mounted(AGAIN);
        }
        let bound = sifting.kept_bound();
        let stock = sifting.sift(&none, 0, |_| {}).unwrap().droppable;
        for budget_bytes in [0, 1 << 13, 1 << 16, 1 << 19, 1 << 22] {
            let most = bound.kept(budget_bytes);
            bounded += u32::from(budget_bytes > 0 && most.all < stock.all);
            // A tmpfs does not write what is synced.
            for spec in ALL.iter().filter(|spec| spec.name != "tmpfs") {
                let sifter = Selection::default_of(spec);
                let outcome = sifting.sift(&sifter, budget_bytes, |_| {}).unwrap();
                if outcome.fetched_again.all > 0 {
                    continue;
                }
                runs += 1;
                let at = format!("{} in {budget_bytes} bytes, seed {seed}", spec.name);
                for (stock, flash, most) in [
                    (stock.all, outcome.droppable.all, most.all),
                    (stock.second, outcome.droppable.second, most.second),
                ] {
                    let kept = stock.saturating_sub(flash);
                    assert!(kept <= most, "{at}: {kept} > {most} of {stock}");
                }
            }
        }
    }
    assert!(runs > 4000 && bounded > 100, "{runs} runs, RAM bounds {bounded}");
}

const SECOND_US: Micros = 1_000_000;

/// Events of files of one size, written at once.
struct Equal {
    pages: u64,
    events: Vec<Event<'static>>,
}

impl Equal {
    fn push(&mut self, at_us: Micros, action: Action<'static>) {
        self.events.push(Event { at_us, pid: 1, tid: 1, action });
    }

    fn create(&mut self, at_us: Micros, file: FileId) {
        let name = MaybeOwned::owned_str(&format!("/d0/{}", file.0));
        let create = Create { file, name, owner: None, mode: None, sync: false };
        self.push(at_us, Action::Create(MaybeOwned::owned(create)));
        let len = self.pages * PAGE_BYTES;
        self.push(at_us, Action::Write { file, open: None, offset: 0, len, sync: false });
    }

    fn read(&mut self, at_us: Micros, file: FileId) {
        let len = self.pages * PAGE_BYTES;
        self.push(at_us, Action::Read { file, open: None, offset: 0, len });
    }

    /// Deletes a file; of one that is younger than 30 s, nothing reaches flash.
    fn delete(&mut self, at_us: Micros, file: FileId) {
        let name = MaybeOwned::owned_str(&format!("/d0/{}", file.0));
        self.push(at_us, Action::Unbind { file, name });
        self.push(at_us, Action::Gone { file });
    }
}

/// Of files of one size, the oracle keeps nearly what the bound allows. In the end, files that are
/// deleted at once drive all others out of RAM: the oracle drops files only when it needs space.
// Promises: Sift 9.
#[test]
fn the_oracle_is_near_the_bound_on_equal_files() {
    let none = Selection::parse("none").unwrap();
    let oracle = Selection::parse("oracle").unwrap();
    let mut bounded = 0;
    for seed in 0..200 {
        let mut dice = Dice::new(seed);
        let pages = u64::from(4 + dice.below(20));
        let held = 60 + dice.below(60);
        let files = u64::from(held * 4 + dice.below(held * 6));
        let held = u64::from(held);
        let budget_bytes = held * (pages * PAGE_BYTES + FILE_COST_BYTES);
        let mut ends: Vec<(Micros, Option<FileId>)> = Vec::new();
        for file in 0..files {
            let birth_us = u64::from(dice.below(3600)) * SECOND_US + 3 * file;
            ends.push((birth_us, None));
            let life_us = u64::from(dice.below(2400)) * SECOND_US + 1;
            ends.push((birth_us + life_us, Some(FileId(file))));
        }
        let by_time = |ends: &[(Micros, Option<FileId>)]| {
            let mut order: Vec<usize> = (0..ends.len()).collect();
            order.sort_by_key(|n| ends[*n].0);
            order
        };
        let mut history = Equal { pages, events: Vec::new() };
        for n in by_time(&ends) {
            match ends[n] {
                (at_us, Some(file)) => history.read(at_us, file),
                (at_us, None) => history.create(at_us, FileId(n as u64 / 2)),
            }
        }
        let end_us = 7000 * SECOND_US;
        let last: Vec<FileId> = (files..files + held).map(FileId).collect();
        last.iter().for_each(|file| history.create(end_us + file.0, *file));
        last.iter().for_each(|file| history.delete(end_us + SECOND_US + file.0, *file));
        let sifting = sifting(&history.events).unwrap();
        let stock = sifting.sift(&none, 0, |_| {}).unwrap().droppable;
        assert_eq!(stock.all, files * pages * PAGE_BYTES, "seed {seed}");
        let outcome = sifting.sift(&oracle, budget_bytes, |_| {}).unwrap();
        assert_eq!(outcome.fetched_again.all, 0, "seed {seed}");
        let (kept, most) =
            (stock.all - outcome.droppable.all, sifting.kept_bound().kept(budget_bytes).all);
        assert!(kept <= most, "seed {seed}: {kept} > {most}");
        let gap = 1.0 - kept as f64 / most as f64;
        assert!(gap <= 0.02, "seed {seed}: {kept} of {most}, {files} files, {held} fit");
        bounded += u32::from(most < stock.all);
    }
    assert!(bounded > 50, "RAM bounds {bounded} of the instances");
}

/// An application needs each dropped file again. Alone, the sifter goes on dropping; as mounted,
/// the bytes fetched again stay below the ceiling.
#[test]
fn as_mounted_a_sifter_has_a_ceiling() {
    let mut events = Vec::new();
    for n in 0..600u64 {
        let file = FileId(n);
        let name = format!("/d0/{n}").into();
        let create = Create { file, name, owner: None, mode: None, sync: false };
        let before = FileId(n.saturating_sub(40));
        for action in [
            Action::Create(MaybeOwned::owned(create)),
            Action::Write { file, open: None, offset: 0, len: 20_000, sync: false },
            Action::Read { file: before, open: None, offset: 0, len: 20_000 },
        ] {
            events.push(Event { at_us: n * 1_000_000, pid: 5, tid: 6, action });
        }
    }
    let mut sifting = sifting(&events).unwrap();
    let sifter = Selection::parse("drop-all").unwrap();
    let alone = sifting.sift(&sifter, 1 << 18, |_| {}).unwrap();
    sifting.run_as_mounted(AGAIN);
    let mounted = sifting.sift(&sifter, 1 << 19, |_| {}).unwrap();
    let share = |outcome: &super::super::SiftOutcome| {
        let own = outcome.counters.taken_bytes - outcome.counters.fetched_again.bytes;
        outcome.counters.fetched_again.bytes as f64 / own as f64
    };
    let [alone, mounted] = [alone, mounted].map(|outcome| share(&outcome));
    // Of the files that were dropped below the ceiling, 40 are still to come back.
    assert!(alone > 0.5 && mounted > AGAIN / 2.0 && mounted < 1.5 * AGAIN, "{mounted} {alone}");
}
