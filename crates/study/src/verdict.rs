//! The verdict: the best policy in each respect, the Pareto front, and the hits that remain to
//! gain.
//!
//! Only online policies compete; offline policies serve as the measure. Writes include the pages
//! still dirty at the end, so that a policy gains nothing by delaying writes: the counts with and
//! without a drain are the same. Whether the write of such a page would be sequential is unknown
//! until it is written. The policy with the fewest non-sequential writes is therefore left open if
//! it has more writes due than made; a drain decides it.

use crate::{
    device::{DeviceResult, PreparedDevice},
    knee::{self, Knee},
    pareto,
    results::{REFERENCE, ResultRow, Results, SizeResults},
};
use flashsift_caches::{policy::Kind, trace::Unit};
use flashsift_pages::system::Outcome;

/// A policy and its result at one size.
#[derive(Clone, Copy, Debug)]
pub struct Contender<'a> {
    /// Its [`flashsift_caches::policy::Selection::label`].
    pub policy: &'a str,
    /// The policy's kind: only online policies compete.
    pub kind: Kind,
    /// The policy's result at this size.
    pub outcome: Outcome,
}

/// The best in one respect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Best<'a> {
    /// All policies that are equally good, in the order given.
    pub policies: Vec<&'a str>,
    /// Hits or writes, in pages.
    pub count: u64,
    /// The count of [`REFERENCE`].
    pub reference: Option<u64>,
    /// Whether every competing policy is equally good.
    pub all_alike: bool,
}

impl<'a> Best<'a> {
    /// Returns the online policies with the smallest count; `None` without online policies.
    pub fn least(counts: &[(&'a str, Kind, u64)]) -> Option<Self> {
        let online = || counts.iter().filter(|(_, kind, _)| *kind == Kind::Online);
        let count = online().map(|(_, _, count)| *count).min()?;
        let policies: Vec<_> =
            online().filter(|(_, _, own)| *own == count).map(|(policy, _, _)| *policy).collect();
        let reference =
            online().find(|(policy, _, _)| *policy == REFERENCE).map(|(_, _, count)| *count);
        Some(Self { all_alike: policies.len() == online().count(), policies, count, reference })
    }
}

/// The part of a verdict that only traces with writes have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writes<'a> {
    /// Fewest [`Outcome::writes_due`].
    pub fewest: Best<'a>,
    /// Fewest non-sequential writes. `None` if one of the best has more pages still dirty than it
    /// has written.
    pub fewest_nonsequential: Option<Best<'a>>,
    /// Pareto front of hits and [`Outcome::writes_due`], from most hits to fewest writes: no other
    /// policy is as good in both and better in one.
    pub pareto_front: Vec<&'a str>,
}

/// The verdict at one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict<'a> {
    /// Page accesses, the same for all.
    pub accesses: u64,
    /// Most hits.
    pub hits: Best<'a>,
    /// `None` if the trace has no writes.
    pub writes: Option<Writes<'a>>,
    /// The offline policy that bounds hits, and its hits, if one takes part.
    pub bound: Option<(&'a str, u64)>,
}

impl<'a> Verdict<'a> {
    /// Returns the verdict; `None` without online policies.
    pub fn new(contenders: &[Contender<'a>]) -> Option<Self> {
        let online: Vec<_> =
            contenders.iter().filter(|one| one.kind == Kind::Online).copied().collect();
        let accesses = online.first()?.outcome.accesses();
        let writes = online.iter().any(|one| one.outcome.write_accesses > 0).then(|| Writes {
            fewest: best(&online, |outcome| outcome.writes_due(), u64::min),
            fewest_nonsequential: fewest_nonsequential(&online),
            pareto_front: pareto_front(&online),
        });
        let bound = contenders.iter().filter(|one| one.kind == Kind::Bound);
        Some(Self {
            accesses,
            hits: best(&online, |outcome| outcome.hits(), u64::max),
            writes,
            bound: bound.map(|one| (one.policy, one.outcome.hits())).max_by_key(|(_, hits)| *hits),
        })
    }

    /// Returns the hits that the bound has beyond the best policy, as a share of all accesses.
    pub fn left_to_gain(&self) -> Option<f64> {
        Some(above(self.bound?.1, self.hits.count) as f64 / self.accesses as f64)
    }

    /// Returns the share that the best policy has of the hits that the bound has beyond
    /// [`REFERENCE`]. `None` if the bound has none.
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
    let best = counts().reduce(better).expect("one policy competes");
    let policies: Vec<_> =
        online.iter().filter(|one| count(&one.outcome) == best).map(|one| one.policy).collect();
    let reference =
        online.iter().find(|one| one.policy == REFERENCE).map(|one| count(&one.outcome));
    Best { all_alike: policies.len() == online.len(), policies, count: best, reference }
}

fn fewest_nonsequential<'a>(online: &[Contender<'a>]) -> Option<Best<'a>> {
    let best = best(online, |outcome| outcome.device.nonsequential_writes, u64::min);
    let mut winners = online.iter().filter(|one| best.policies.contains(&one.policy));
    winners.all(|one| one.outcome.dirty_left <= one.outcome.device.writes).then_some(best)
}

fn pareto_front<'a>(online: &[Contender<'a>]) -> Vec<&'a str> {
    let points =
        online.iter().map(|one| (one.outcome.hits(), one.outcome.writes_due(), one.policy));
    pareto::front(points.collect())
}

/// Costs within this factor of the least count as equal, because CPU times vary from run to run.
const CPU_NOISE: f64 = 1.1;

/// The online policies with the least CPU time.
#[derive(Clone, Debug, PartialEq)]
pub struct LeastCpu<'a> {
    /// All policies of about equal cost, the fastest first.
    pub policies: Vec<&'a str>,
    /// CPU time of the fastest, averaged over the sizes.
    pub ns_per_access: f64,
}

impl<'a> LeastCpu<'a> {
    /// Takes costs in nanoseconds per access. `None` without online policies.
    fn new(costs: impl Iterator<Item = (&'a str, Kind, f64)>) -> Option<Self> {
        let mut means: Vec<(&str, f64, u32)> = Vec::new();
        for (policy, _, ns) in costs.filter(|(_, kind, _)| *kind == Kind::Online) {
            match means.iter_mut().find(|(other, _, _)| *other == policy) {
                Some((_, sum, n)) => (*sum, *n) = (*sum + ns, *n + 1),
                None => means.push((policy, ns, 1)),
            }
        }
        let mean = |(_, sum, n): &(&str, f64, u32)| sum / f64::from(*n);
        let ns_per_access = means.iter().map(mean).reduce(f64::min)?;
        means.sort_by(|one, other| mean(one).total_cmp(&mean(other)));
        means.retain(|one| mean(one) <= ns_per_access * CPU_NOISE);
        let policies = means.into_iter().map(|(policy, _, _)| policy).collect();
        Some(Self { policies, ns_per_access })
    }
}

/// The verdict of a whole study.
#[derive(Clone, Debug)]
pub struct StudyVerdict<'a> {
    /// Sizes ascending, never empty.
    pub sizes: Vec<SizeVerdict<'a>>,
    /// `None` without online policies.
    pub least_cpu: Option<LeastCpu<'a>>,
    /// Accesses that miss in every cache.
    pub cold_accesses: u64,
    /// Whether dirty pages were written at the end.
    pub drained: bool,
    /// The unit that one frame holds.
    pub unit: Unit,
}

/// The verdict at one size, overall and on each device.
#[derive(Clone, Debug)]
pub struct SizeVerdict<'a> {
    /// The cache size in frames.
    pub frames: u32,
    /// Hits and writes.
    pub verdict: Verdict<'a>,
    /// On each device of the request, in its order.
    pub devices: Vec<DeviceVerdict<'a>>,
    /// The knees of write buffers.
    pub knees: Vec<Knee>,
}

/// The best on a device at one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceVerdict<'a> {
    /// The device's label.
    pub device: &'a str,
    /// Least elapsed time, µs.
    pub fastest: Best<'a>,
    /// Fewest pages programmed; `None` if nothing wears, or nothing is written.
    pub lives_longest: Option<Best<'a>>,
}

impl Results<'_> {
    /// Returns the verdict; `None` without online policies.
    pub fn verdict(&self) -> Option<StudyVerdict<'_>> {
        let sizes: Option<Vec<_>> = self.sizes().iter().map(|size| self.at_size(size)).collect();
        let costs = self.rows().map(|row| (&*row.policy, row.kind, row.cpu_ns_per_access));
        Some(StudyVerdict {
            sizes: sizes.filter(|sizes| !sizes.is_empty())?,
            least_cpu: LeastCpu::new(costs),
            cold_accesses: self.study.trace.cold_accesses(),
            drained: self.study.request.drain,
            unit: self.study.request.unit,
        })
    }

    fn at_size<'r>(&self, size: &'r SizeResults) -> Option<SizeVerdict<'r>> {
        let contenders = size.rows.iter().map(|row| Contender {
            policy: &row.policy,
            kind: row.kind,
            outcome: row.outcome,
        });
        let contenders: Vec<_> = contenders.collect();
        let devices = self.study.request.devices.iter().enumerate();
        let devices = devices
            .map(|(n, device)| DeviceVerdict::new(device, &size.rows, |row| &row.devices[n]));
        Some(SizeVerdict {
            frames: size.frames,
            verdict: Verdict::new(&contenders)?,
            devices: devices.collect::<Option<_>>()?,
            knees: knee::knees(size),
        })
    }
}

impl<'a> DeviceVerdict<'a> {
    fn new(
        device: &PreparedDevice,
        rows: &'a [ResultRow],
        on: impl Fn(&'a ResultRow) -> &'a DeviceResult,
    ) -> Option<Self> {
        let best = |count: fn(&DeviceResult) -> Option<f64>| {
            let counts = rows
                .iter()
                .map(|row| Some((&*row.policy, row.kind, count(on(row))?.round() as u64)));
            Best::least(&counts.collect::<Option<Vec<_>>>()?)
        };
        let wears = device.profile().cycles.is_some();
        Some(Self {
            device: &on(rows.first()?).device,
            fastest: best(|result| Some(result.elapsed_s * 1e6))?,
            lives_longest: wears.then(|| best(|result| result.flash_pages)).flatten(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_caches::back::DeviceCounts;
    use proptest::prelude::*;
    use std::cmp::Reverse;

    const NAMES: [&str; 8] = ["lru", "a", "b", "c", "d", "e", "f", "g"];

    fn outcome(hits: u64, written: u64, left: u64, nonsequential: u64) -> Outcome {
        let device = DeviceCounts {
            writes: written,
            nonsequential_writes: nonsequential,
            ..Default::default()
        };
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

    // Promises: Compare 1, Compare 5.
    #[test]
    fn the_verdict_names_the_best_in_each_respect() {
        let contenders = [
            online("lru", outcome(50, 20, 0, 9)),
            online("fifo", outcome(40, 30, 0, 2)),
            // Fewest pages written, but not fewest due.
            online("lazy", outcome(50, 10, 20, 5)),
            online("good", outcome(60, 12, 1, 5)),
            belady(80),
            Contender { policy: "oracle", kind: Kind::Heuristic, outcome: outcome(79, 0, 0, 0) },
        ];
        let verdict = Verdict::new(&contenders).unwrap();
        assert_eq!((&verdict.hits.policies[..], verdict.hits.count), (&["good"][..], 60));
        let writes = verdict.writes.as_ref().unwrap();
        assert_eq!((&writes.fewest.policies[..], writes.fewest.count), (&["good"][..], 13));
        assert_eq!(writes.fewest.reference, Some(20));
        let nonsequential = writes.fewest_nonsequential.as_ref().unwrap();
        assert_eq!((&nonsequential.policies[..], nonsequential.count), (&["fifo"][..], 2));
        assert_eq!(writes.pareto_front, ["good"]);
        assert_eq!(verdict.left_to_gain(), Some(0.2));
        assert_eq!(verdict.gap_closed(), Some(1.0 / 3.0));
    }

    #[test]
    fn ties_name_all_equals_and_mark_respects_in_which_all_policies_are_equal() {
        let same = outcome(50, 0, 7, 0);
        let verdict = Verdict::new(&[online("lru", same), online("a", same), belady(50)]).unwrap();
        assert_eq!((verdict.hits.policies.len(), verdict.hits.all_alike), (2, true));
        assert_eq!(
            verdict.writes.unwrap().pareto_front,
            ["lru", "a"],
            "no policy is better than its equal"
        );
        let verdict = Verdict::new(&[
            online("lru", same),
            online("a", same),
            online("b", outcome(49, 0, 7, 0)),
        ])
        .unwrap();
        assert_eq!(
            (&verdict.hits.policies[..], verdict.hits.all_alike),
            (&["lru", "a"][..], false)
        );
        assert!(verdict.writes.unwrap().fewest.all_alike);
    }

    // Promises: Compare 4.
    #[test]
    fn fewest_nonsequential_is_open_while_more_is_due_than_written() {
        let verdict = |left| {
            let contenders =
                [online("lru", outcome(50, 20, 0, 9)), online("lazy", outcome(50, 4, left, 1))];
            Verdict::new(&contenders).unwrap().writes.unwrap().fewest_nonsequential
        };
        assert_eq!(verdict(4).unwrap().policies, ["lazy"]);
        assert_eq!(verdict(5), None);
    }

    #[test]
    fn the_verdict_omits_respects_without_data() {
        assert_eq!(Verdict::new(&[]), None);
        assert_eq!(Verdict::new(&[belady(3)]), None);
        let reads = Outcome { read_accesses: 10, read_hits: 4, ..Default::default() };
        let verdict = Verdict::new(&[online("fifo", reads), online("a", reads)]).unwrap();
        assert_eq!(
            (verdict.writes.is_none(), verdict.left_to_gain(), verdict.gap_closed()),
            (true, None, None)
        );
        assert_eq!(verdict.hits.reference, None);
        // The reference has as many hits as the bound.
        let verdict = Verdict::new(&[online("lru", outcome(5, 0, 0, 0)), belady(5)]).unwrap();
        assert_eq!((verdict.left_to_gain(), verdict.gap_closed()), (Some(0.0), None));
    }

    // Promises: Compare 6.
    #[test]
    fn least_cpu_compares_means_and_treats_costs_within_noise_as_equal() {
        let costs = [
            ("lru", Kind::Online, 20.0),
            ("fifo", Kind::Online, 10.0),
            ("sieve", Kind::Online, 8.0),
            ("belady", Kind::Bound, 1.0),
            ("lru", Kind::Online, 30.0),
            ("fifo", Kind::Online, 10.0),
            ("sieve", Kind::Online, 11.0),
        ];
        let least = LeastCpu { policies: vec!["sieve", "fifo"], ns_per_access: 9.5 };
        assert_eq!(LeastCpu::new(costs.into_iter()), Some(least));
        assert_eq!(LeastCpu::new(costs[3..4].iter().copied()), None);
    }

    proptest! {
        /// The Pareto front matches its definition, and no policy is better than the best in a
        /// respect. The order of contenders changes only the order of equals.
        // Promises: Compare 3.
        #[test]
        fn no_policy_beats_the_pareto_front(
            outcomes in prop::collection::vec((0..9u64, 0..9u64, 0..3u64, 0..9u64), 1..8),
            turn in 0..8usize,
        ) {
            let mut all: Vec<_> = NAMES
                .iter()
                .zip(&outcomes)
                .map(|(name, (hits, written, left, nonsequential))| online(name, outcome(*hits, *written, *left, *nonsequential)))
                .collect();
            let verdict = Verdict::new(&all).unwrap();
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
            let mut found = writes.pareto_front.clone();
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
            let turned = Verdict::new(&all).unwrap();
            prop_assert_eq!((turned.hits.count, turned.hits.all_alike), (verdict.hits.count, verdict.hits.all_alike));
            let turned: Vec<_> = turned.writes.unwrap().pareto_front.iter().map(|name| of_turned(&all, name)).collect();
            let before: Vec<_> = writes.pareto_front.iter().map(|name| of_turned(&all, name)).collect();
            prop_assert_eq!(turned, before);
        }
    }

    fn of_turned(all: &[Contender<'_>], name: &str) -> (u64, u64) {
        let outcome = all.iter().find(|one| one.policy == name).unwrap().outcome;
        (outcome.hits(), outcome.writes_due())
    }
}
