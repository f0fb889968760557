//! Requirements on every policy in the list: it agrees with its model, keeps its invariants, and
//! has no more hits than the bound.

use super::{
    ALL, Kind, PolicySpec, Setup,
    naive::{self, Act, Placing},
};
use flashsift_events::{
    dice::Dice,
    page::Page,
    params::{self, Params},
};

/// Generates a history ([`naive::history`]).
pub(super) fn history(dice: &mut Dice, pages: u32, steps: u32) -> Vec<Act> {
    naive::history(&mut |n| dice.below(n), pages, steps)
}

/// Turns every access into a read.
pub(super) fn reads_only(act: Act) -> Act {
    if let Act::Write(page) = act { Act::Read(page) } else { act }
}

/// Turns every access and every write-back into a write, so that all pages are dirty.
pub(super) fn writes_only(act: Act) -> Act {
    if let Act::Read(page) | Act::Clean(page) = act { Act::Write(page) } else { act }
}

/// Asserts that two policies have the same effect on the cache at every step of seeded histories,
/// each act passed through `map`.
pub(super) fn assert_coincide(one: &str, other: &str, map: impl Fn(Act) -> Act) {
    let chosen = [one, other].map(|text| super::Selection::parse(text).unwrap());
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let pages = 1 + dice.below(60);
        let frames = 1 + dice.below(pages + 1);
        let [mut one_cache, mut other_cache] = chosen.each_ref().map(|chosen| {
            let setup = Setup { frames, pages, runs: &[], params: &chosen.params, bytes: None };
            (chosen.spec.cache)(&setup, Placing::Fixed)
        });
        for (step, act) in history(&mut dice, pages, 300).into_iter().map(&map).enumerate() {
            let (left, right) = (one_cache.step(act, 0), other_cache.step(act, 0));
            assert_eq!(
                left, right,
                "{one} and {other} differ, seed {seed}, {frames} frames, step {step} {act:?}"
            );
        }
        assert_eq!(
            one_cache.drain(),
            other_cache.drain(),
            "{one} and {other} differ in the drain, seed {seed}"
        );
    }
}

/// Returns the pages that accesses evict from a cache of this many frames, step by step, in
/// ascending order within a step.
pub(super) fn pushed_out(text: &str, frames: u32, acts: &[Act]) -> Vec<Page> {
    let chosen = super::Selection::parse(text).unwrap();
    let setup = Setup { frames, pages: 1000, runs: &[], params: &chosen.params, bytes: None };
    let mut cache = (chosen.spec.cache)(&setup, Placing::Fixed);
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

/// Returns the settings of a policy's parameters that deserve a test: the defaults, and each
/// parameter's extremes or other words.
fn settings(spec: &'static PolicySpec) -> Vec<(String, Params)> {
    let mut texts = vec![spec.name.to_owned()];
    for param in spec.params {
        match param.kind {
            params::ParamKind::Number { min, max, .. } => {
                texts.extend([min, max].map(|n| format!("{}:{}={n}", spec.name, param.name)));
            }
            params::ParamKind::Word(words) => {
                texts.extend(
                    words.iter().map(|word| format!("{}:{}={word}", spec.name, param.name)),
                );
            }
            params::ParamKind::Duration { min_us, max_us, .. } => {
                texts.extend(
                    [min_us, max_us].map(|us| format!("{}:{}={us}us", spec.name, param.name)),
                );
            }
            params::ParamKind::Text => {}
            params::ParamKind::Expression { .. } => {
                for text in [
                    "hits",
                    "0-recency",
                    "hits/(age*size)",
                    "recency^0.5-5*dirty",
                    "distance-hits",
                    "0/0",
                ] {
                    texts.push(format!("{}:{}={text}", spec.name, param.name));
                }
            }
        }
    }
    texts
        .into_iter()
        .map(|text| (text.clone(), super::Selection::parse(&text).unwrap().params))
        .collect()
}

/// Each policy evicts the same pages as its model over 1,000 seeded histories per setting, at
/// capacities from one frame to more frames than pages, through a final drain; pages stay in
/// place, get one late, or move at each write-back. Programs of 32 bits run emulated here, and see
/// 50 of the histories.
// Promises: Counting 4, Counting 5, Counting 7, Policies 1, Placement 8.
#[test]
fn every_policy_agrees_with_its_model() {
    let histories = if usize::BITS == 32 { 50 } else { 1000 };
    for spec in ALL {
        for (text, params) in settings(spec) {
            for seed in 0..histories {
                let mut dice = Dice::new(seed);
                let pages = 1 + dice.below(if seed % 10 == 0 { 200 } else { 40 });
                let frames = 1 + dice.below(pages + 2);
                let steps = 20 + dice.below(200);
                let acts = history(&mut dice, pages, steps);
                let setup = Setup { frames, pages, runs: &[], params: &params, bytes: None };
                let placing = Placing::ALL[seed as usize % Placing::ALL.len()];
                if let Err(difference) = naive::compare(spec, &setup, placing, &acts) {
                    panic!(
                        "{text}, seed {seed}, {frames} frames, {pages} pages, {placing:?}: \
                         differs from its model at {difference}"
                    );
                }
            }
        }
    }
}

/// No policy has more hits than the bound, on any history, whatever its parameters.
// Promises: Policies 2.
#[test]
fn no_policy_has_more_hits_than_the_bound() {
    let bound = ALL.iter().find(|spec| spec.kind == Kind::Bound).unwrap();
    let settings: Vec<_> =
        ALL.iter().flat_map(|spec| settings(spec).into_iter().map(move |s| (spec, s))).collect();
    for seed in 0..300 {
        let mut dice = Dice::new(seed);
        let pages = 2 + dice.below(60);
        let frames = 1 + dice.below(pages);
        let acts = history(&mut dice, pages, 300);
        let next_uses = naive::next_uses(&acts);
        let hits = |spec: &PolicySpec, params: &Params| {
            let mut cache = (spec.cache)(
                &Setup { frames, pages, runs: &[], params, bytes: None },
                Placing::Fixed,
            );
            acts.iter().zip(&next_uses).filter(|(act, next)| cache.step(**act, **next).hit).count()
        };
        let most = hits(bound, &Params::default());
        for (spec, (text, params)) in &settings {
            let found = hits(spec, params);
            assert!(found <= most, "{text} has {found} hits, the bound {most}; seed {seed}");
        }
    }
}

/// The state that a history reads when it depends on the cache.
struct Live<'a> {
    dice: &'a mut Dice,
    frames: usize,
    step: u32,
    /// Resident pages, the oldest first.
    resident: &'a [Page],
}

/// Number of steps in a live history.
const STEPS: u32 = 200;

/// Asserts that two policies have the same effect at every step of a live history, and in the
/// drain. Returns the pages that were evicted.
fn assert_coincide_live(
    one: &str,
    other: &str,
    seed: u64,
    frames_max: u32,
    mut acts: impl FnMut(Live<'_>) -> Vec<Act>,
) -> Vec<Page> {
    let mut dice = Dice::new(seed);
    let frames = 1 + dice.below(frames_max);
    let chosen = [one, other].map(|text| super::Selection::parse(text).unwrap());
    let setup = |params| Setup { frames, pages: STEPS, runs: &[], params, bytes: None };
    let [mut left, mut right] =
        chosen.each_ref().map(|chosen| (chosen.spec.cache)(&setup(&chosen.params), Placing::Fixed));
    let (mut resident, mut gone) = (Vec::new(), Vec::new());
    for step in 0..STEPS {
        let live = Live { dice: &mut dice, frames: frames as usize, step, resident: &resident };
        for act in acts(live) {
            let effect = left.step(act, 0);
            let difference = format!(
                "{one} and {other} differ, seed {seed}, {frames} frames, step {step} {act:?}"
            );
            assert_eq!(effect, right.step(act, 0), "{difference}");
            if !matches!(act, Act::Drop(..)) {
                gone.extend(
                    resident.iter().filter(|page| !effect.resident.contains(page)).copied(),
                );
            }
            resident.retain(|page| effect.resident.contains(page));
            let arrived = effect.resident.iter().find(|page| !resident.contains(page));
            resident.extend(arrived.copied());
        }
    }
    assert_eq!(left.drain(), right.drain(), "{one} and {other} differ in the drain, seed {seed}");
    gone
}

/// A random access or removal.
fn any_act(dice: &mut Dice, pages: u32) -> Act {
    let page = dice.below(pages);
    match dice.below(20) {
        0 => Act::Drop(page, 1 + dice.below(4)),
        1 => Act::Clean(page),
        2..8 => Act::Write(page),
        _ => Act::Read(page),
    }
}

/// If all bits are set whenever a page comes in, Clock takes one lap and then evicts the oldest
/// page: it is a FIFO, on any history.
#[test]
fn clock_with_all_bits_set_is_fifo() {
    for seed in 0..100 {
        for clock in ["clock", "clock:insert_ref=1"] {
            let gone = assert_coincide_live(clock, "fifo", seed, 30, |live| {
                let touch = live.resident.iter().map(|page| Act::Read(page.0));
                // The last step adds no random act: the drain needs all bits set, too.
                let act = (live.step + 1 < STEPS).then(|| any_act(live.dice, 60));
                touch.chain(act).collect()
            });
            assert!(!gone.is_empty(), "seed {seed}");
        }
    }
}

/// If pages arrive in ascending order and never return, the order of addresses is the order of
/// arrival. Clock and SpatialClock still differ when the hand leaves pages behind and takes one in
/// the middle: Clock meets a new page after those that it has passed, SpatialClock before. So
/// before each arrival either no page is hit, or all are, or all but the newest: the hand takes the
/// first or the last page.
#[test]
fn spatialclock_on_ascending_arrivals_is_clock() {
    let mut not_fifo = 0;
    for seed in 0..100 {
        let gone = assert_coincide_live("spatialclock", "clock", seed, 30, |live| {
            // While a frame is free no page is evicted, and bits that are set now would be set
            // later.
            let hit = match live.dice.below(4) {
                0 if live.resident.len() == live.frames => live.resident,
                1 if live.resident.len() == live.frames => &live.resident[..live.frames - 1],
                _ => &[],
            };
            let mut acts: Vec<Act> = hit.iter().map(|page| Act::Read(page.0)).collect();
            if hit.is_empty()
                && let Some(page) = live.resident.get(live.dice.below(100) as usize)
            {
                acts.push(Act::Drop(page.0, 1));
            }
            acts.push(if live.dice.below(2) == 0 {
                Act::Read(live.step)
            } else {
                Act::Write(live.step)
            });
            acts
        });
        not_fifo += usize::from(!gone.is_sorted());
    }
    assert!(not_fifo > 50, "the newest page was also evicted");
}

/// With two frames there can be no LIR pages, and LIRS is LRU.
#[test]
fn lirs_without_lir_pages_is_lru() {
    for seed in 0..100 {
        assert_coincide_live("lirs", "lru", seed, 2, |live| vec![any_act(live.dice, 6)]);
    }
}
