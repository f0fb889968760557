//! The verdict: a summary of the tables in words.

use crate::{size, text::labelled};
use flashsift_caches::trace::Unit;
use flashsift_events::page::PAGE_BYTES;
use flashsift_study::{Best, Knee, REFERENCE, StudyVerdict, Verdict};
use std::cmp::Reverse;

/// Column at which the text begins.
const INDENT: usize = 24;

/// Renders the verdict, one statement a line, wrapped, with a final newline. `suffix`: behind the
/// heading.
pub(super) fn render(found: &StudyVerdict<'_>, suffix: &str, columns: usize) -> String {
    let mut out = format!("In short{suffix}:\n");
    for (label, text) in lines(found) {
        out.push_str(&labelled(&format!("  {label} "), INDENT, &text, columns));
    }
    if let Some(open) = drain_note(found) {
        out.push_str(&labelled("", 2, open, columns));
    }
    out
}

/// Returns a note if `--drain` would add the writes of pages that are dirty at the end.
pub(super) fn drain_note(found: &StudyVerdict<'_>) -> Option<&'static str> {
    let writes = found.sizes.iter().any(|size| size.verdict.writes.is_some());
    (writes && !found.drained).then_some(
        "Writes include pages still dirty at the end. Run with --drain to count which of those \
         would be non-sequential.",
    )
}

/// Returns the verdict: each criterion with the best policies.
pub(super) fn lines(found: &StudyVerdict<'_>) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    let mut line = |label: &str, text: String| lines.push((label.to_owned(), text));
    let accesses = found.sizes.first().map_or(0, |size| size.verdict.accesses);
    let hits = Criterion {
        pick: |verdict| Some(&verdict.hits),
        margin: |best, accesses| {
            best.reference.map(|lru| (best.count - lru) as f64 / accesses as f64)
        },
        than: "points more than",
        value: |best, accesses| format!("{:.2} %", best.count as f64 / accesses as f64 * 100.0),
        undecided: "undecided",
    };
    let fewest = Criterion {
        pick: |verdict| verdict.writes.as_ref().map(|writes| &writes.fewest),
        margin: |best, _| best.reference.map(|lru| (lru - best.count) as f64 / lru as f64),
        than: "% fewer than",
        value: |best, _| size::count(best.count),
        undecided: if found.drained { "undecided" } else { "undecided without --drain" },
    };
    let fewest_nonsequential = Criterion {
        pick: |verdict| verdict.writes.as_ref()?.fewest_nonsequential.as_ref(),
        ..fewest
    };
    line("most hits", hits.render(found, accesses));
    if found.sizes.iter().any(|size| size.verdict.writes.is_some()) {
        line("fewest writes", fewest.render(found, accesses));
        line("Pareto-optimal", pareto_optimal(found));
        line("fewest non-sequential", fewest_nonsequential.render(found, accesses));
    }
    if let Some(least) = &found.least_cpu {
        let named = match least.policies[..] {
            [one, two, three, _, ref more @ ..] => {
                format!("{one}, {two}, {three} and {} more", 1 + more.len())
            }
            _ => listed(&least.policies),
        };
        let ns = least.ns_per_access;
        line("least CPU", format!("{named}: about {ns:.0} ns an access, in this run"));
    }
    line("left to gain", left_to_gain(found, accesses));
    lines.extend(on_devices(found));
    let knees = found.sizes.iter().flat_map(|size| &size.knees);
    lines.extend(knees.map(|knee| knee_words(knee, found.unit)));
    lines
}

/// A criterion that has a best policy.
#[derive(Clone, Copy)]
struct Criterion {
    pick: for<'v, 'a> fn(&'v Verdict<'a>) -> Option<&'v Best<'a>>,
    /// The best's advantage over the reference, as a share, given all accesses.
    margin: fn(&Best<'_>, u64) -> Option<f64>,
    /// Unit of the share in hundredths, and the words before the reference: `% fewer than`.
    than: &'static str,
    /// The best's count, if there is only one size.
    value: fn(&Best<'_>, u64) -> String,
    /// The words where no policy can be named.
    undecided: &'static str,
}

impl Criterion {
    /// Names the best policies, their sizes, and their advantage.
    fn render(self, found: &StudyVerdict<'_>, accesses: u64) -> String {
        self.sentence(
            found,
            accesses,
            &found.sizes.iter().map(|size| (self.pick)(&size.verdict)).collect::<Vec<_>>(),
        )
    }

    /// The same for bests that come from elsewhere, by size.
    fn sentence(
        self,
        found: &StudyVerdict<'_>,
        accesses: u64,
        bests: &[Option<&Best<'_>>],
    ) -> String {
        let mut groups: Vec<(Winners<'_>, Vec<usize>)> = Vec::new();
        for (at, best) in bests.iter().enumerate() {
            let winners = match best {
                None => Winners::Open,
                Some(best) if best.all_alike => Winners::All,
                Some(best) => Winners::Some(&best.policies),
            };
            add(&mut groups, winners, at);
        }
        let mut than = format!(" {} {REFERENCE}", self.than);
        let parts = groups.into_iter().map(|(winners, sizes)| {
            let at = at_sizes(found, &sizes);
            let Winners::Some(policies) = winners else {
                return if winners == Winners::All {
                    format!("all alike{at}")
                } else {
                    format!("{}{at}", self.undecided)
                };
            };
            let mut part = format!("{}{at}", names(policies));
            let bests = || sizes.iter().filter_map(|at| bests[*at]);
            if let [_] = found.sizes[..] {
                bests().for_each(|best| part += &format!(": {}", (self.value)(best, accesses)));
            }
            let margins: Vec<f64> =
                bests().filter_map(|best| (self.margin)(best, accesses)).collect();
            if !margins.is_empty() && !policies.contains(&REFERENCE) {
                // The unit is printed once.
                part += &format!(" ({}{})", range(&margins), std::mem::take(&mut than));
            }
            part
        });
        parts.collect::<Vec<_>>().join("; ")
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Winners<'a> {
    Some(&'a [&'a str]),
    All,
    /// No policy can be named: [`Criterion::undecided`] says why.
    Open,
}

/// For each device: the policy with the least time, and the one with the longest flash lifetime.
/// Says what non-volatile memory saves, and how much of it is enough.
fn knee_words(knee: &Knee, unit: Unit) -> (String, String) {
    let sized = |pages: u32| {
        let bytes = u64::from(pages) * PAGE_BYTES;
        format!("{} ({})", size::counted(pages.into(), "page"), size::bytes(bytes))
    };
    let text = format!(
        "with a cache of {}, {} of NVM write {} less to storage than without; the knee is at {}, \
         which save {}",
        size::of_cache(knee.frames, unit),
        sized(knee.most_pages),
        size::share(knee.most_saving),
        sized(knee.knee_pages),
        size::share(knee.knee_saving),
    );
    (knee.system.clone(), text)
}

fn on_devices(found: &StudyVerdict<'_>) -> Vec<(String, String)> {
    let fastest = Criterion {
        pick: |_| None,
        margin: |best, _| {
            best.reference.filter(|lru| *lru > 0).map(|lru| (lru - best.count) as f64 / lru as f64)
        },
        than: "% less time than",
        value: |best, _| size::duration(best.count),
        undecided: "undecided",
    };
    let lives = Criterion {
        margin: |best, _| {
            best.reference
                .filter(|_| best.count > 0)
                .map(|lru| (lru - best.count) as f64 / best.count as f64)
        },
        than: "% longer than",
        value: |best, _| format!("{} pages programmed", size::count(best.count)),
        undecided: "no policy, as no flash wears",
        ..fastest
    };
    let mut lines = Vec::new();
    let devices = found.sizes.first().map_or(0, |size| size.devices.len());
    for n in 0..devices {
        let at = || found.sizes.iter().map(|size| &size.devices[n]);
        let name = at().next().map_or("", |device| device.device);
        let times: Vec<_> = at().map(|device| Some(&device.fastest)).collect();
        let mut text = format!("least time {}", fastest.sentence(found, 0, &times));
        let lifetimes: Vec<_> = at().map(|device| device.lives_longest.as_ref()).collect();
        if lifetimes.iter().any(Option::is_some) {
            text += &format!("; lives longest {}", lives.sentence(found, 0, &lifetimes));
        }
        lines.push((format!("on {name}"), text));
    }
    lines
}

/// The policies of the Pareto front with their sizes, in descending order of the number of sizes.
fn pareto_optimal(found: &StudyVerdict<'_>) -> String {
    let mut on_front: Vec<(&str, Vec<usize>)> = Vec::new();
    let mut alike: Vec<(String, Vec<usize>)> = Vec::new();
    for (at, size) in found.sizes.iter().enumerate() {
        let Some(writes) = &size.verdict.writes else { continue };
        let front = &writes.pareto_front;
        let all_equal = front.iter().all(|policy| {
            size.verdict.hits.policies.contains(policy) && writes.fewest.policies.contains(policy)
        });
        if size.verdict.hits.all_alike && writes.fewest.all_alike {
            add(&mut alike, "all".to_owned(), at);
        } else if all_equal && front.len() > NAMED_MAX {
            add(&mut alike, front.len().to_string(), at);
        } else {
            front.iter().for_each(|policy| add(&mut on_front, *policy, at));
        }
    }
    on_front.sort_by_key(|(_, sizes)| Reverse(sizes.len()));
    let mut together: Vec<(Vec<usize>, Vec<&str>)> = Vec::new();
    for (policy, sizes) in on_front {
        add(&mut together, sizes, policy);
    }
    let named = together.iter().map(|(sizes, policies)| listed(policies) + &at_sizes(found, sizes));
    let alike =
        alike.iter().map(|(count, sizes)| format!("{count} alike{}", at_sizes(found, sizes)));
    named.chain(alike).collect::<Vec<_>>().join("; ")
}

/// Adds a value to its key; keys keep the order of their first use.
fn add<K: PartialEq, V>(groups: &mut Vec<(K, Vec<V>)>, key: K, value: V) {
    match groups.iter_mut().find(|(other, _)| *other == key) {
        Some((_, values)) => values.push(value),
        None => groups.push((key, vec![value])),
    }
}

fn left_to_gain(found: &StudyVerdict<'_>, accesses: u64) -> String {
    let percent = |part: u64| part as f64 / accesses.max(1) as f64 * 100.0;
    let verdicts = || found.sizes.iter().map(|size| &size.verdict);
    let left: Vec<f64> = verdicts().filter_map(Verdict::left_to_gain).collect();
    let closed: Vec<f64> = verdicts().filter_map(Verdict::gap_closed).collect();
    let mut parts = Vec::new();
    if let Some((bound, hits)) = verdicts().find_map(|verdict| verdict.bound) {
        let value = if found.sizes.len() == 1 {
            format!(" {:.2} %,", percent(hits))
        } else {
            String::new()
        };
        parts.push(match left.iter().any(|left| *left > 0.0) {
            true => format!("{bound} hits{value} {} points more than the best", range(&left)),
            false => format!("{bound} hits no more often than the best"),
        });
        if !closed.is_empty() {
            let closed = range(&closed);
            parts
                .push(format!("the best closes {closed} % of the gap from {REFERENCE} to {bound}"));
        }
    }
    let most = percent(accesses - found.cold_accesses);
    let rest = cold_words(found.unit);
    parts.push(format!("no cache hits more than {most:.2} %, the rest are {rest}"));
    parts.join("; ")
}

/// Names the accesses that no cache hits.
pub(super) fn cold_words(unit: Unit) -> &'static str {
    match unit {
        Unit::Page => "first accesses to a page, or to one deleted or truncated before",
        Unit::Request => "first accesses to an object, or to one deleted before",
    }
}

/// A longer list is replaced by its count.
const NAMED_MAX: usize = 5;

/// Joins names: `a`, `a and b`, `a, b and c`, `7 alike`.
fn names(policies: &[&str]) -> String {
    if policies.len() > NAMED_MAX { format!("{} alike", policies.len()) } else { listed(policies) }
}

fn listed<T: AsRef<str>>(items: &[T]) -> String {
    let items: Vec<&str> = items.iter().map(T::as_ref).collect();
    match items[..] {
        [ref items @ .., last] if !items.is_empty() => format!("{} and {last}", items.join(", ")),
        _ => items.concat(),
    }
}

/// Names sizes: ` at every size`, ` at 4 MiB`, ` at 512 KiB, 1 and 2 MiB`, ` from 1 to 16 MiB`;
/// empty if there is only one size.
fn at_sizes(found: &StudyVerdict<'_>, sizes: &[usize]) -> String {
    let label = |at: usize, next: Option<usize>| shortened(found, at, next);
    match (sizes, found.sizes.len()) {
        (_, 1) => String::new(),
        (sizes, all) if sizes.len() == all => " at every size".to_owned(),
        ([first, _, .., last], _) if last - first + 1 == sizes.len() => {
            format!(" from {} to {}", label(*first, Some(*last)), label(*last, None))
        }
        _ => {
            let nexts = sizes.iter().skip(1).map(|at| Some(*at)).chain([None]);
            let labels: Vec<String> =
                sizes.iter().zip(nexts).map(|(at, next)| label(*at, next)).collect();
            format!(" at {}", listed(&labels))
        }
    }
}

/// Returns a size, without its unit if the next named size has the same.
fn shortened(found: &StudyVerdict<'_>, at: usize, next: Option<usize>) -> String {
    let label_of = |at: usize| size::of_cache(found.sizes[at].frames, found.unit);
    let label = label_of(at);
    let unit = |label: &str| label.split_once(' ').map(|(_, unit)| unit.to_owned());
    match (label.split_once(' '), next) {
        (Some((number, _)), Some(next)) if unit(&label) == unit(&label_of(next)) => {
            number.to_owned()
        }
        _ => label,
    }
}

/// Renders shares in hundredths: `0.3 to 2.3`, `up to 2.3`, `2.3`, `14 to 20`, `less than 0.1`.
fn range(shares: &[f64]) -> String {
    let show = |share: f64| match share * 100.0 {
        hundredths if hundredths < 9.95 => format!("{hundredths:.1}"),
        // Rounding never turns a part into the whole.
        hundredths if hundredths < 100.0 => format!("{:.0}", hundredths.min(99.0)),
        hundredths => format!("{hundredths:.0}"),
    };
    let least = show(shares.iter().copied().fold(f64::INFINITY, f64::min));
    let most = show(shares.iter().copied().fold(f64::NEG_INFINITY, f64::max));
    match (&*least, &*most) {
        (_, "0.0") => "less than 0.1".to_owned(),
        ("0.0", _) => format!("up to {most}"),
        _ if least == most => most,
        _ => format!("{least} to {most}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_caches::{back::DeviceCounts, policy::Kind, trace::Unit};
    use flashsift_pages::system::Outcome;
    use flashsift_study::{Contender, SizeVerdict};

    /// Hits of 100 accesses, pages written and not sequential, pages left dirty.
    type Counts = (u64, u64, u64, u64);

    fn outcome((hits, written, nonsequential, left): Counts) -> Outcome {
        let device = DeviceCounts {
            writes: written,
            nonsequential_writes: nonsequential,
            ..Default::default()
        };
        Outcome {
            read_accesses: 50,
            write_accesses: 50,
            read_hits: hits,
            device,
            dirty_left: left,
            ..Default::default()
        }
    }

    /// Sizes of 1, 2, 4, … MiB; at each, policies and their outcomes.
    fn judged<'a>(sizes: &[&[(&'a str, Counts)]]) -> StudyVerdict<'a> {
        let size = |(n, policies): (usize, &&[(&'a str, Counts)])| {
            let kind = |policy| if policy == "belady" { Kind::Bound } else { Kind::Online };
            let contenders: Vec<_> = policies
                .iter()
                .map(|(policy, counts)| Contender {
                    policy,
                    kind: kind(*policy),
                    outcome: outcome(*counts),
                })
                .collect();
            let frames = 256 << n;
            let verdict = Verdict::new(&contenders).unwrap();
            SizeVerdict { frames, verdict, devices: Vec::new(), knees: Vec::new() }
        };
        StudyVerdict {
            sizes: sizes.iter().enumerate().map(size).collect(),
            least_cpu: None,
            cold_accesses: 9,
            drained: false,
            unit: Unit::Page,
        }
    }

    fn line(judged: &StudyVerdict<'_>, label: &str) -> String {
        let words = render(judged, "", usize::MAX);
        let line = words.lines().find_map(|line| line.trim_start().strip_prefix(label));
        line.unwrap_or_else(|| panic!("no {label} in {words}")).trim().to_owned()
    }

    /// A cold access may also follow a deletion. The line said that all are first accesses to a
    /// page, of which `describe` counts fewer.
    #[test]
    fn a_single_size_is_printed_with_its_counts() {
        let judged = judged(&[&[
            ("lru", (50, 20, 10, 0)),
            ("a", (60, 19, 4, 0)),
            ("b", (55, 10, 9, 2)),
            ("belady", (70, 0, 0, 0)),
        ]]);
        assert_eq!(line(&judged, "most hits"), "a: 60.00 % (10 points more than lru)");
        assert_eq!(line(&judged, "fewest writes"), "b: 12 (40 % fewer than lru)");
        assert_eq!(line(&judged, "fewest non-sequential"), "a: 4 (60 % fewer than lru)");
        assert_eq!(line(&judged, "Pareto-optimal"), "a and b");
        assert_eq!(
            line(&judged, "left to gain"),
            "belady hits 70.00 %, 10 points more than the best; the best closes 50 % of the gap \
             from lru to belady; no cache hits more than 91.00 %, the rest are first accesses to a \
             page, or to one deleted or truncated before"
        );
    }

    #[test]
    fn sizes_with_the_same_best_are_printed_together() {
        let (low, high) = ((50, 20, 10, 0), (60, 20, 10, 0));
        let first_best = [("lru", low), ("a", high), ("b", low)];
        let other_best = [("lru", low), ("a", low), ("b", (51, 20, 10, 0))];
        let lru_best = [("lru", high), ("a", low), ("b", low)];
        let judged = |sizes: &[&[_]]| line(&judged(sizes), "most hits");
        assert_eq!(
            judged(&[&first_best, &first_best]),
            "a at every size (10 points more than lru)"
        );
        assert_eq!(
            judged(&[&first_best, &first_best, &other_best, &first_best]),
            "a at 1, 2 and 8 MiB (10 points more than lru); b at 4 MiB (1.0)"
        );
        assert_eq!(
            judged(&[&first_best, &other_best, &other_best, &other_best]),
            "a at 1 MiB (10 points more than lru); b from 2 to 8 MiB (1.0)"
        );
        assert_eq!(
            judged(&[&lru_best, &other_best]),
            "lru at 1 MiB; b at 2 MiB (1.0 points more than lru)"
        );
        let alike = [("lru", low), ("a", low), ("b", low)];
        assert_eq!(judged(&[&lru_best, &alike]), "lru at 1 MiB; all alike at 2 MiB");
        assert_eq!(judged(&[&alike]), "all alike");
        assert_eq!(
            line(&super::tests::judged(&[&alike, &other_best]), "Pareto-optimal"),
            "b at 2 MiB; all alike at 1 MiB"
        );
    }

    /// Without a drain, the policy with the fewest non-sequential writes may only have written
    /// least. The line once read "open at 1 MiB", as if a policy had that name.
    // Promises: Compare 4.
    #[test]
    fn statements_that_need_a_drain_stay_open() {
        let sizes: [&[_]; 2] = [
            &[("lru", (50, 20, 10, 0)), ("lazy", (50, 3, 1, 17))],
            &[("lru", (50, 20, 10, 0)), ("a", (50, 19, 5, 1))],
        ];
        assert_eq!(
            line(&judged(&sizes), "fewest non-sequential"),
            "undecided without --drain at 1 MiB; a at 2 MiB (50 % fewer than lru)"
        );
        assert_eq!(line(&judged(&sizes), "fewest writes"), "all alike at every size");
        assert!(render(&judged(&sizes), "", 80).contains("--drain"));
        let drained = StudyVerdict { drained: true, ..judged(&sizes) };
        assert!(!render(&drained, "", 80).contains("--drain"));
    }

    #[test]
    fn many_equals_are_counted() {
        let same = (50, 20, 10, 0);
        let mut policies: Vec<_> =
            ["lru", "a", "b", "c", "d", "e"].map(|policy| (policy, same)).to_vec();
        policies.push(("worse", (40, 30, 20, 0)));
        assert_eq!(line(&judged(&[&policies]), "most hits"), "6 alike: 50.00 %");
        assert_eq!(line(&judged(&[&policies]), "Pareto-optimal"), "6 alike");
        assert_eq!(line(&judged(&[&policies[1..]]), "most hits"), "a, b, c, d and e: 50.00 %");
    }

    #[test]
    fn ranges_are_rounded_without_overstating_a_share() {
        assert_eq!(range(&[0.0004]), "less than 0.1");
        assert_eq!(range(&[0.0, 0.02]), "up to 2.0");
        assert_eq!(range(&[0.0994, 0.0996]), "9.9 to 10");
        assert_eq!(range(&[0.999, 0.5]), "50 to 99");
        assert_eq!(range(&[1.0]), "100");
    }
}
