//! What a comparison comes to at one cache size: who is best at what, whom nobody beats, and how much is left to gain.
//!
//! Only online policies compete; what knows the future is the measure. Writes count the pages that are still dirty at the
//! end, too, so that nobody wins by leaving work undone: with and without a drain the counts are the same. Whether such a
//! page's write would be sequential nobody knows before it is written. So who scatters least is left open where the best
//! has more writes due than made; a drain settles it.

use crate::{policy::Kind, system::Outcome};
use std::cmp::Reverse;

/// The policy that others are measured against, where it takes part.
pub const REFERENCE: &str = "lru";

/// A policy, with its parameters, and what came of it.
#[derive(Clone, Copy, Debug)]
pub struct Contender<'a> {
    /// As [`crate::policy::Selection::label`] has it.
    pub policy: &'a str,
    /// Whether it competes.
    pub kind: Kind,
    /// At this size.
    pub outcome: Outcome,
}

/// The best in one respect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Best<'a> {
    /// All that are equally good, in the order given.
    pub policies: Vec<&'a str>,
    /// Hits or writes, in pages.
    pub count: u64,
    /// The count of [`REFERENCE`].
    pub reference: Option<u64>,
    /// Every policy that competes is as good.
    pub all_alike: bool,
}

impl<'a> Best<'a> {
    /// Of those that compete, who has the least of something else. `None` if nobody competes.
    pub fn least(counts: &[(&'a str, Kind, u64)]) -> Option<Self> {
        let online = || counts.iter().filter(|(_, kind, _)| *kind == Kind::Online);
        let count = online().map(|(_, _, count)| *count).min()?;
        let policies: Vec<_> =
            online().filter(|(_, _, own)| *own == count).map(|(policy, _, _)| *policy).collect();
        let reference = online().find(|(policy, _, _)| *policy == REFERENCE).map(|(_, _, count)| *count);
        Some(Self { all_alike: policies.len() == online().count(), policies, count, reference })
    }
}

/// What only traces with writes have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writes<'a> {
    /// Fewest [`Outcome::writes_due`].
    pub fewest: Best<'a>,
    /// Fewest writes that were not sequential. `None` if one of the best has more pages still dirty than it has written.
    pub scattered: Option<Best<'a>>,
    /// Pareto set of hits and [`Outcome::writes_due`], from most hits to fewest writes: no other policy is as good in
    /// both and better in one.
    pub unbeaten: Vec<&'a str>,
}

/// What comes of all policies at one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict<'a> {
    /// Page accesses, the same for all.
    pub accesses: u64,
    /// Most hits.
    pub hits: Best<'a>,
    /// `None` if the trace has no writes.
    pub writes: Option<Writes<'a>>,
    /// The bound and its hits, where it takes part.
    pub bound: Option<(&'a str, u64)>,
}

impl<'a> Verdict<'a> {
    /// `None` if nobody competes.
    pub fn of(contenders: &[Contender<'a>]) -> Option<Self> {
        let online: Vec<_> = contenders.iter().filter(|one| one.kind == Kind::Online).copied().collect();
        let accesses = online.first()?.outcome.accesses();
        let writes = online.iter().any(|one| one.outcome.write_accesses > 0).then(|| Writes {
            fewest: best(&online, |outcome| outcome.writes_due(), u64::min),
            scattered: scattered(&online),
            unbeaten: unbeaten(&online),
        });
        let bound = contenders.iter().filter(|one| one.kind == Kind::Bound);
        Some(Self {
            accesses,
            hits: best(&online, |outcome| outcome.hits(), u64::max),
            writes,
            bound: bound.map(|one| (one.policy, one.outcome.hits())).max_by_key(|(_, hits)| *hits),
        })
    }

    /// Hits that the bound has and the best does not, as a share of all accesses.
    pub fn left_to_gain(&self) -> Option<f64> {
        Some(above(self.bound?.1, self.hits.count) as f64 / self.accesses as f64)
    }

    /// Of the hits that the bound has and [`REFERENCE`] does not, the share that the best has. `None` where there are none.
    pub fn gap_closed(&self) -> Option<f64> {
        let reference = self.hits.reference?;
        let gap = above(self.bound?.1, reference);
        (gap > 0).then(|| (self.hits.count - reference) as f64 / gap as f64)
    }
}

fn above(bound: u64, hits: u64) -> u64 {
    bound.checked_sub(hits).expect("no policy hits more often than the bound")
}

fn best<'a>(
    online: &[Contender<'a>],
    count: impl Fn(&Outcome) -> u64,
    better: fn(u64, u64) -> u64,
) -> Best<'a> {
    let counts = || online.iter().map(|one| count(&one.outcome));
    let best = counts().reduce(better).expect("somebody competes");
    let policies: Vec<_> =
        online.iter().filter(|one| count(&one.outcome) == best).map(|one| one.policy).collect();
    let reference = online.iter().find(|one| one.policy == REFERENCE).map(|one| count(&one.outcome));
    Best { all_alike: policies.len() == online.len(), policies, count: best, reference }
}

fn scattered<'a>(online: &[Contender<'a>]) -> Option<Best<'a>> {
    let best = best(online, |outcome| outcome.device.nonsequential_writes, u64::min);
    let mut winners = online.iter().filter(|one| best.policies.contains(&one.policy));
    winners.all(|one| one.outcome.dirty_left <= one.outcome.device.writes).then_some(best)
}

/// From most hits on, who has fewer writes than all before; or is the equal of the last of them.
fn unbeaten<'a>(online: &[Contender<'a>]) -> Vec<&'a str> {
    let mut points: Vec<_> = online
        .iter()
        .map(|one| (Reverse(one.outcome.hits()), one.outcome.writes_due(), one.policy))
        .collect();
    points.sort_by_key(|(hits, writes, _)| (*hits, *writes));
    let mut last: Option<(Reverse<u64>, u64)> = None;
    points.retain(|(hits, writes, _)| {
        let stays = last.is_none_or(|last| *writes < last.1 || (*hits, *writes) == last);
        if stays {
            last = Some((*hits, *writes));
        }
        stays
    });
    points.into_iter().map(|(_, _, policy)| policy).collect()
}

/// Costs within this factor of the least are not told apart: CPU times are measured, and never twice the same.
const CPU_NOISE: f64 = 1.1;

/// The online policies whose CPU time an access, averaged over the sizes, is least or as good as that; and the least.
pub fn least_cpu<'a>(costs: &[(&'a str, Kind, f64)]) -> Option<(Vec<&'a str>, f64)> {
    let mut means: Vec<(&str, f64, u32)> = Vec::new();
    for (policy, _, ns) in costs.iter().filter(|(_, kind, _)| *kind == Kind::Online) {
        match means.iter_mut().find(|(other, _, _)| other == policy) {
            Some((_, sum, n)) => (*sum, *n) = (*sum + ns, *n + 1),
            None => means.push((policy, *ns, 1)),
        }
    }
    let mean = |(_, sum, n): &(&str, f64, u32)| sum / f64::from(*n);
    let least = means.iter().map(mean).reduce(f64::min)?;
    means.sort_by(|one, other| mean(one).total_cmp(&mean(other)));
    means.retain(|one| mean(one) <= least * CPU_NOISE);
    Some((means.into_iter().map(|(policy, _, _)| policy).collect(), least))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::back::DeviceCounts;
    use proptest::prelude::*;

    const NAMES: [&str; 8] = ["lru", "a", "b", "c", "d", "e", "f", "g"];

    fn outcome(hits: u64, written: u64, left: u64, scattered: u64) -> Outcome {
        let device = DeviceCounts { writes: written, nonsequential_writes: scattered, ..Default::default() };
        Outcome {
            read_accesses: 60,
            write_accesses: 40,
            read_hits: hits,
            device,
            dirty_left: left,
            ..Default::default()
        }
    }

    fn online(policy: &str, outcome: Outcome) -> Contender<'_> {
        Contender { policy, kind: Kind::Online, outcome }
    }

    fn belady(hits: u64) -> Contender<'static> {
        Contender { policy: "belady", kind: Kind::Bound, outcome: outcome(hits, 0, 0, 0) }
    }

    #[test]
    fn names_the_best_of_each() {
        let contenders = [
            online("lru", outcome(50, 20, 0, 9)),
            online("fifo", outcome(40, 30, 0, 2)),
            // Fewest written, but not fewest due.
            online("lazy", outcome(50, 10, 20, 5)),
            online("good", outcome(60, 12, 1, 5)),
            belady(80),
            Contender { policy: "oracle", kind: Kind::Heuristic, outcome: outcome(79, 0, 0, 0) },
        ];
        let verdict = Verdict::of(&contenders).unwrap();
        assert_eq!((&verdict.hits.policies[..], verdict.hits.count), (&["good"][..], 60));
        let writes = verdict.writes.as_ref().unwrap();
        assert_eq!((&writes.fewest.policies[..], writes.fewest.count), (&["good"][..], 13));
        assert_eq!(writes.fewest.reference, Some(20));
        let scattered = writes.scattered.as_ref().unwrap();
        assert_eq!((&scattered.policies[..], scattered.count), (&["fifo"][..], 2));
        assert_eq!(writes.unbeaten, ["good"]);
        assert_eq!(verdict.left_to_gain(), Some(0.2));
        assert_eq!(verdict.gap_closed(), Some(1.0 / 3.0));
    }

    #[test]
    fn ties_are_named_and_what_is_all_alike_is_said() {
        let same = outcome(50, 0, 7, 0);
        let verdict = Verdict::of(&[online("lru", same), online("a", same), belady(50)]).unwrap();
        assert_eq!((verdict.hits.policies.len(), verdict.hits.all_alike), (2, true));
        assert_eq!(verdict.writes.unwrap().unbeaten, ["lru", "a"], "nobody is better than an equal");
        let verdict =
            Verdict::of(&[online("lru", same), online("a", same), online("b", outcome(49, 0, 7, 0))])
                .unwrap();
        assert_eq!((&verdict.hits.policies[..], verdict.hits.all_alike), (&["lru", "a"][..], false));
        assert!(verdict.writes.unwrap().fewest.all_alike);
    }

    #[test]
    fn who_scatters_least_is_open_while_more_is_due_than_written() {
        let verdict = |left| {
            let contenders = [online("lru", outcome(50, 20, 0, 9)), online("lazy", outcome(50, 4, left, 1))];
            Verdict::of(&contenders).unwrap().writes.unwrap().scattered
        };
        assert_eq!(verdict(4).unwrap().policies, ["lazy"]);
        assert_eq!(verdict(5), None);
    }

    #[test]
    fn what_is_not_there_is_not_judged() {
        assert_eq!(Verdict::of(&[]), None);
        assert_eq!(Verdict::of(&[belady(3)]), None);
        let reads = Outcome { read_accesses: 10, read_hits: 4, ..Default::default() };
        let verdict = Verdict::of(&[online("fifo", reads), online("a", reads)]).unwrap();
        assert_eq!(
            (verdict.writes.is_none(), verdict.left_to_gain(), verdict.gap_closed()),
            (true, None, None)
        );
        assert_eq!(verdict.hits.reference, None);
        // Nothing between the reference and the bound.
        let verdict = Verdict::of(&[online("lru", outcome(5, 0, 0, 0)), belady(5)]).unwrap();
        assert_eq!((verdict.left_to_gain(), verdict.gap_closed()), (Some(0.0), None));
    }

    #[test]
    fn least_cpu_is_of_means_and_not_told_apart_within_noise() {
        let costs = [
            ("lru", Kind::Online, 20.0),
            ("fifo", Kind::Online, 10.0),
            ("sieve", Kind::Online, 8.0),
            ("belady", Kind::Bound, 1.0),
            ("lru", Kind::Online, 30.0),
            ("fifo", Kind::Online, 10.0),
            ("sieve", Kind::Online, 11.0),
        ];
        assert_eq!(least_cpu(&costs), Some((vec!["sieve", "fifo"], 9.5)));
        assert_eq!(least_cpu(&costs[3..4]), None);
    }

    proptest! {
        /// The Pareto set by its definition; each respect's best is one of those whom none beats in it; the order of
        /// contenders changes nothing but the order of equals.
        #[test]
        fn nobody_beats_the_unbeaten(
            outcomes in prop::collection::vec((0..9u64, 0..9u64, 0..3u64, 0..9u64), 1..8),
            turn in 0..8usize,
        ) {
            let mut all: Vec<_> = NAMES
                .iter()
                .zip(&outcomes)
                .map(|(name, (hits, written, left, scattered))| online(name, outcome(*hits, *written, *left, *scattered)))
                .collect();
            let verdict = Verdict::of(&all).unwrap();
            let writes = verdict.writes.as_ref().unwrap();
            let as_good = |one: &Outcome, other: &Outcome| {
                one.hits() >= other.hits() && one.writes_due() <= other.writes_due()
            };
            let mut expected: Vec<&str> = all
                .iter()
                .filter(|one| {
                    !all.iter().any(|other| {
                        as_good(&other.outcome, &one.outcome) && !as_good(&one.outcome, &other.outcome)
                    })
                })
                .map(|one| one.policy)
                .collect();
            let mut found = writes.unbeaten.clone();
            let of = |name: &str| all.iter().find(|one| one.policy == name).unwrap().outcome;
            prop_assert!(found.is_sorted_by_key(|name| (Reverse(of(name).hits()), Reverse(of(name).writes_due()))));
            found.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!(found, expected);
            for one in &all {
                prop_assert_eq!(verdict.hits.policies.contains(&one.policy), all.iter().all(|other| other.outcome.hits() <= one.outcome.hits()));
                prop_assert_eq!(writes.fewest.policies.contains(&one.policy), all.iter().all(|other| other.outcome.writes_due() >= one.outcome.writes_due()));
            }
            let turn = turn % all.len();
            all.rotate_left(turn);
            let turned = Verdict::of(&all).unwrap();
            prop_assert_eq!((turned.hits.count, turned.hits.all_alike), (verdict.hits.count, verdict.hits.all_alike));
            let turned: Vec<_> = turned.writes.unwrap().unbeaten.iter().map(|name| of_turned(&all, name)).collect();
            let before: Vec<_> = writes.unbeaten.iter().map(|name| of_turned(&all, name)).collect();
            prop_assert_eq!(turned, before);
        }
    }

    fn of_turned(all: &[Contender<'_>], name: &str) -> (u64, u64) {
        let outcome = all.iter().find(|one| one.policy == name).unwrap().outcome;
        (outcome.hits(), outcome.writes_due())
    }
}
