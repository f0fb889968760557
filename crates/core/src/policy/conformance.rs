//! What every policy in the list must do, whatever it is: agree with its model, keep its invariants, stay below the
//! bound.

use super::{
    ALL, Kind, Setup, Spec,
    naive::{self, Act},
};
use crate::{
    page::Page,
    params::{self, Params},
};
use proptest::{
    prelude::Rng,
    test_runner::{RngAlgorithm, TestRng},
};

/// A seeded stream of small numbers.
pub(super) struct Dice(TestRng);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        Self(TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
    }

    pub(super) fn below(&mut self, n: u32) -> u32 {
        self.0.next_u32() % n
    }
}

/// Reads, writes, removals and cleanings with the shapes that real traces have: a hot set, scans, runs of neighbours,
/// files deleted and made again.
pub(super) fn history(dice: &mut Dice, pages: u32, steps: u32) -> Vec<Act> {
    let hot = 1 + dice.below(pages);
    let removals = dice.below(2) * 3;
    let cleanings = dice.below(2) * 10;
    let mut acts = Vec::new();
    let mut scan = 0;
    while acts.len() < steps as usize {
        let page = match dice.below(4) {
            0 => dice.below(pages),
            1 => {
                scan = (scan + 1) % pages;
                scan
            }
            _ => dice.below(hot),
        };
        acts.push(match dice.below(100) {
            n if n < removals => Act::Drop(page, 1 + dice.below(8).pow(2)),
            n if n < removals + cleanings => Act::Clean(page),
            n if n < 60 => Act::Read(page),
            _ => Act::Write(page),
        });
    }
    acts
}

/// Every access as a read.
pub(super) fn reads_only(act: Act) -> Act {
    if let Act::Write(page) = act { Act::Read(page) } else { act }
}

/// Every access as a write, every cleaning too: all pages are dirty.
pub(super) fn writes_only(act: Act) -> Act {
    if let Act::Read(page) | Act::Clean(page) = act { Act::Write(page) } else { act }
}

/// Two policies do the same to the cache at every step of seeded histories, each act passed through `map`.
pub(super) fn assert_coincide(one: &str, other: &str, map: impl Fn(Act) -> Act) {
    let chosen = [one, other].map(|text| super::Selection::parse(text).unwrap());
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let pages = 1 + dice.below(60);
        let frames = 1 + dice.below(pages + 1);
        let [mut one_cache, mut other_cache] = chosen
            .each_ref()
            .map(|chosen| (chosen.spec.cache)(&Setup { frames, pages, runs: &[], params: &chosen.params }));
        for (step, act) in history(&mut dice, pages, 300).into_iter().map(&map).enumerate() {
            let (left, right) = (one_cache.step(act, 0), other_cache.step(act, 0));
            assert_eq!(
                left, right,
                "{one} and {other} part, seed {seed}, {frames} frames, step {step} {act:?}"
            );
        }
        assert_eq!(
            one_cache.drain(),
            other_cache.drain(),
            "{one} and {other} part in the drain, seed {seed}"
        );
    }
}

/// The pages that accesses push out of a cache of so many frames, step by step, ascending within one.
pub(super) fn pushed_out(text: &str, frames: u32, acts: &[Act]) -> Vec<Page> {
    let chosen = super::Selection::parse(text).unwrap();
    let mut cache = (chosen.spec.cache)(&Setup { frames, pages: 1000, runs: &[], params: &chosen.params });
    let (mut gone, mut before) = (Vec::new(), Vec::new());
    for act in acts {
        let after = cache.step(*act, 0).resident;
        if !matches!(act, Act::Drop(..)) {
            gone.extend(before.iter().filter(|page| !after.contains(page)).copied());
        }
        before = after;
    }
    gone
}

/// Every way to set a policy's parameters that is worth a test of its own: the defaults, and each parameter's
/// extremes or other words.
fn settings(spec: &'static Spec) -> Vec<(String, Params)> {
    let mut texts = vec![spec.name.to_owned()];
    for param in spec.params {
        match param.kind {
            params::Kind::Number { min, max, .. } => {
                texts.extend([min, max].map(|n| format!("{}:{}={n}", spec.name, param.name)));
            }
            params::Kind::Word(words) => {
                texts.extend(words.iter().map(|word| format!("{}:{}={word}", spec.name, param.name)));
            }
        }
    }
    texts.into_iter().map(|text| (text.clone(), super::Selection::parse(&text).unwrap().params)).collect()
}

/// Each policy agrees with its model, victim by victim, over 1,000 seeded histories a setting, at capacities from one
/// frame to more than there are pages, through a final drain.
#[test]
fn every_policy_agrees_with_its_model() {
    for spec in ALL {
        for (text, params) in settings(spec) {
            for seed in 0..1000 {
                let mut dice = Dice::new(seed);
                let pages = 1 + dice.below(if seed % 10 == 0 { 200 } else { 40 });
                let frames = 1 + dice.below(pages + 2);
                let steps = 20 + dice.below(200);
                let acts = history(&mut dice, pages, steps);
                let setup = Setup { frames, pages, runs: &[], params: &params };
                if let Err(parted) = naive::compare(spec, &setup, &acts) {
                    panic!(
                        "{text}, seed {seed}, {frames} frames, {pages} pages: parted from its model at {parted}"
                    );
                }
            }
        }
    }
}

/// No policy hits more often than the bound, on any history.
#[test]
fn the_bound_holds() {
    let bound = ALL.iter().find(|spec| spec.kind == Kind::Bound).unwrap();
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let pages = 2 + dice.below(60);
        let frames = 1 + dice.below(pages);
        let acts = history(&mut dice, pages, 300);
        let next_uses = naive::next_uses(&acts);
        let hits = |spec: &Spec| {
            let setup = Setup { frames, pages, runs: &[], params: &Params::default() };
            let mut cache = (spec.cache)(&setup);
            acts.iter().zip(&next_uses).filter(|(act, next)| cache.step(**act, **next).hit).count()
        };
        let most = hits(bound);
        for spec in ALL {
            let found = hits(spec);
            assert!(found <= most, "{} hits {found} times, the bound {most}; seed {seed}", spec.name);
        }
    }
}

/// Equalities that follow from the definitions and that no policy can meet by accident: a Clock whose pages are all
/// referenced at arrival and before every miss is a FIFO, as is a SpatialClock to which pages arrive in ascending order
/// and never return.
#[test]
fn policies_that_must_coincide_do() {
    let written = |text: &str, acts: &[Act], frames| {
        let chosen = super::Selection::parse(text).unwrap();
        let setup = Setup { frames, pages: 4000, runs: &[], params: &chosen.params };
        let mut cache = (chosen.spec.cache)(&setup);
        acts.iter().flat_map(|act| cache.step(*act, 0).written).collect::<Vec<_>>()
    };
    for frames in 1..30 {
        let mut acts = Vec::new();
        for page in 0..frames + 60 {
            acts.push(Act::Write(page));
            acts.extend((page.saturating_sub(frames - 1)..=page).map(Act::Read));
        }
        assert_eq!(written("clock:insert_ref=1", &acts, frames), written("fifo", &acts, frames));
        assert_eq!(written("clock", &acts, frames), written("fifo", &acts, frames));

        let ascending: Vec<Act> = (0..frames + 60).map(|page| Act::Write(page * 7)).collect();
        assert_eq!(written("spatialclock", &ascending, frames), written("fifo", &ascending, frames));
        assert_eq!(written("fifo", &ascending, frames).len(), 60);
    }
}
