//! A policy written as an expression: of a sample of frames, the one with the least score leaves.
//!
//! `score:hits / age` is such a policy. Searches for policies, by people or programs, need a judge
//! that is fast and takes text. The facts that an expression may use:
//!
//! | name | fact |
//! | --- | --- |
//! | `hits` | accesses since the page came in, the first included |
//! | `age` | accesses of the cache since the page came in, at least 1 |
//! | `recency` | accesses of the cache since the page's last access, at least 1 |
//! | `size` | bytes: of a page 4096 |
//! | `dirty` | 1 if the page is dirty, else 0 |
//! | `distance` | pages between this page and the one evicted last, in the order of files |
//!
//! Samples are drawn with replacement, and are the same in each run. Of equal scores the first
//! drawn leaves; a score that is no number is the greatest. An object keeps the size that it
//! entered with. A drain evicts by the same rule.

use super::{Build, Kind, Policy, PolicySpec, Setup};
use crate::{
    cache::{Frames, Victims},
    objects,
};
use exmex::{Express, FlatEx};
use flashsift_events::{
    page::{Access, Frame},
    params::{self, Param},
    structure::Resident,
};

pub(super) const SPEC: PolicySpec = PolicySpec {
    name: "score",
    paper: "none: an expression of your own, over a sample as in Redis and in Hyperbolic caching",
    what: "of a sample, what an expression gives the least score leaves: score:hits / age",
    goal: "its own",
    time: "O(sample) evaluations an eviction; a hit counts",
    memory: "32 bytes a frame",
    memory_bytes: |size| 32 * size.frames,
    when: "to try an idea, or to search for policies",
    params: PARAMS,
    kind: Kind::Online,
    slow: false,
    by_place: <Score as Policy>::WANTS_ADDRESSES,
    policy: super::only::<Score>,
    objects: Some(objects::runs::<Score>()),
    #[cfg(any(test, feature = "naive"))]
    naive: |setup| Box::new(model::Score::new(setup)),
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<Score>,
};

const PARAMS: &[Param] = &[
    Param {
        name: "by",
        what: "the score",
        kind: params::ParamKind::Expression { default: "hits/age", variables: FACTS },
    },
    Param {
        name: "sample",
        what: "frames drawn for an eviction",
        kind: params::ParamKind::Number { default: 8.0, min: 1.0, max: 128.0 },
    },
];

const FACTS: &[&str] = &["hits", "age", "recency", "size", "dirty", "distance"];

/// Returns the expression, and the facts that it takes, in its order of variables.
fn expression(setup: &Setup<'_>) -> (FlatEx<f64>, Vec<usize>) {
    let text = setup.params.text(PARAMS, "by");
    let parsed = exmex::parse::<f64>(text).expect("an expression is checked when it is selected");
    let number = |name: &String| FACTS.iter().position(|fact| fact == name);
    let facts = parsed.var_names().iter().filter_map(number).collect();
    (parsed, facts)
}

pub(super) struct Score {
    resident: Resident,
    /// By frame.
    entries: Vec<Entry>,
    expression: FlatEx<f64>,
    facts: Vec<usize>,
    values: Vec<f64>,
    sample: usize,
    /// Accesses so far.
    now: u64,
    /// The page evicted last.
    last: u32,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    entered: u64,
    accessed: u64,
    hits: u32,
    bytes: u32,
}

impl Build for Score {
    fn build(setup: &Setup<'_>) -> Self {
        let (expression, facts) = expression(setup);
        Self {
            resident: Resident::new(setup.slots()),
            entries: vec![Entry::default(); setup.slots() as usize],
            values: vec![0.0; facts.len()],
            expression,
            facts,
            sample: setup.params.number(PARAMS, "sample") as usize,
            now: 0,
            last: 0,
        }
    }
}

impl Score {
    fn score(&mut self, frame: Frame, frames: &Frames) -> f64 {
        let Entry { entered, accessed, hits, bytes } = self.entries[frame.0 as usize];
        for (value, fact) in self.values.iter_mut().zip(&self.facts) {
            *value = match fact {
                0 => f64::from(hits),
                1 => (self.now + 1 - entered) as f64,
                2 => (self.now + 1 - accessed) as f64,
                3 => f64::from(bytes),
                4 => f64::from(u8::from(frames.dirty(frame))),
                _ => f64::from(frames.page(frame).0.abs_diff(self.last)),
            };
        }
        number(self.expression.eval(&self.values))
    }
}

/// A result that is no number is the greatest score.
fn number<E>(score: Result<f64, E>) -> f64 {
    score.ok().filter(|score| !score.is_nan()).unwrap_or(f64::INFINITY)
}

impl Policy for Score {
    const OFFLINE: bool = false;

    fn insert(&mut self, frame: Frame, access: &Access) {
        self.now += 1;
        let bytes = access.bytes;
        self.entries[frame.0 as usize] =
            Entry { entered: self.now, accessed: self.now, hits: 1, bytes };
        self.resident.insert(frame);
    }

    #[inline(always)]
    fn hit(&mut self, frame: Frame, _: &Access) {
        self.now += 1;
        let entry = &mut self.entries[frame.0 as usize];
        entry.hits = entry.hits.saturating_add(1);
        entry.accessed = self.now;
    }

    fn evict(&mut self, _: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        let mut least: Option<(f64, Frame)> = None;
        for _ in 0..self.sample {
            let frame = self.resident.draw().expect("evict is never called on an empty cache");
            let score = self.score(frame, frames);
            if least.is_none_or(|(least, _)| score < least) {
                least = Some((score, frame));
            }
        }
        let (_, frame) = least.expect("a sample holds a frame");
        self.last = frames.page(frame).0;
        self.resident.remove(frame);
        victims.push(frame);
    }

    fn remove(&mut self, frame: Frame, _: &Frames) {
        self.resident.remove(frame);
    }

    fn check(&self, _: &Frames) {
        self.resident.check();
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use super::{PARAMS, Setup};
    use crate::policy::naive::Naive;
    use exmex::{Express, FlatEx};
    use flashsift_events::{
        page::{Access, Page},
        structure::random,
    };
    use std::collections::BTreeSet;

    struct Item {
        page: Page,
        entered: u64,
        accessed: u64,
        hits: u32,
        bytes: u32,
    }

    /// Pages in the order that draws index: a new one comes last, and the last one takes the place
    /// of one that leaves.
    pub(super) struct Score {
        items: Vec<Item>,
        expression: FlatEx<f64>,
        sample: usize,
        now: u64,
        last: u32,
        state: u64,
    }

    impl Score {
        pub(super) fn new(setup: &Setup<'_>) -> Self {
            Self {
                items: vec![],
                expression: exmex::parse(setup.params.text(PARAMS, "by")).unwrap(),
                sample: setup.params.number(PARAMS, "sample") as usize,
                now: 0,
                last: 0,
                state: 0,
            }
        }

        fn position(&self, page: Page) -> usize {
            self.items.iter().position(|item| item.page == page).unwrap()
        }

        fn score(&self, item: &Item, dirty: &BTreeSet<Page>) -> f64 {
            let facts = [
                ("hits", u64::from(item.hits)),
                ("age", self.now + 1 - item.entered),
                ("recency", self.now + 1 - item.accessed),
                ("size", item.bytes.into()),
                ("dirty", dirty.contains(&item.page).into()),
                ("distance", item.page.0.abs_diff(self.last).into()),
            ];
            let fact =
                |name: &String| facts.iter().find(|(fact, _)| fact == name).unwrap().1 as f64;
            let values: Vec<f64> = self.expression.var_names().iter().map(fact).collect();
            super::number(self.expression.eval(&values))
        }
    }

    impl Naive for Score {
        fn insert(&mut self, access: &Access) {
            self.now += 1;
            let (page, bytes) = (access.page, access.bytes);
            self.items.push(Item { page, entered: self.now, accessed: self.now, hits: 1, bytes });
        }
        fn hit(&mut self, access: &Access) {
            self.now += 1;
            let at = self.position(access.page);
            self.items[at].hits += 1;
            self.items[at].accessed = self.now;
        }
        fn evict(&mut self, _: Option<&Access>, dirty: &BTreeSet<Page>) -> Vec<Page> {
            let drawn: Vec<usize> = (0..self.sample)
                .map(|_| {
                    let n = random(&mut self.state) >> 32;
                    ((n * self.items.len() as u64) >> 32) as usize
                })
                .collect();
            let scores: Vec<f64> =
                drawn.iter().map(|at| self.score(&self.items[*at], dirty)).collect();
            let least = scores.iter().copied().fold(f64::INFINITY, f64::min);
            let at = drawn[scores.iter().position(|score| *score == least).unwrap()];
            let page = self.items.swap_remove(at).page;
            self.last = page.0;
            vec![page]
        }
        fn remove(&mut self, page: Page) {
            let at = self.position(page);
            self.items.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::{
        Selection,
        conformance::pushed_out,
        naive::Act::{self, Read, Write},
    };

    fn gone(text: &str, acts: &[Act]) -> Vec<u32> {
        pushed_out(text, 3, acts).iter().map(|page| page.0).collect()
    }

    /// With a sample that draws every frame of three, the page with the least score leaves.
    // Promises: Policies 4.
    #[test]
    fn the_least_score_leaves() {
        let acts = [Read(1), Write(2), Read(3), Read(1), Read(2), Read(4)];
        assert_eq!(gone("score:hits,sample=64", &acts), [3]);
        assert_eq!(gone("score:-recency,sample=64", &acts), [3]);
        assert_eq!(gone("score:0-age,sample=64", &acts), [1]);
        assert_eq!(gone("score:by=0-dirty,sample=64", &acts), [2]);
        // From page 0 on.
        assert_eq!(gone("score:distance,sample=64", &acts), [1]);
        assert_eq!(gone("score:0-distance,sample=64", &acts), [3]);
        // The first drawn leaves if no score is a number.
        assert_eq!(gone("score:0/0,sample=64", &acts).len(), 1);
    }

    /// A wrong expression is refused where it is written.
    #[test]
    fn a_wrong_expression_is_refused() {
        for wrong in ["hits /", "hits @ 2", "popularity", "hits / age)", "sin"] {
            let error = Selection::parse(&format!("score:{wrong}")).err().unwrap().to_string();
            assert!(error.contains("score") && error.contains("distance"), "{error}");
        }
        for right in ["", "hits", "by=hits*2", "hits/(age*size)", "sqrt(hits) - 3*dirty"] {
            assert!(Selection::parse(&format!("score:{right}")).is_ok(), "{right}");
        }
        assert_eq!(
            Selection::parse("score:hits / age").ok().unwrap().label(),
            "score:by=hits / age"
        );
    }
}
