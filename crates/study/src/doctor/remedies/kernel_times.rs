//! The kernel keeps changes in memory for longer: its expiry of dirty pages, and the commit of
//! ext4's journal. `recommend` and `tune writeback` judge the same times by the same rule.

use super::{Effect, Findings, Proposal, RemedySpec, RemedyStep};
use crate::{
    doctor::{Facts, FileSystem},
    recommend::{WritebackTimes, time_in_words},
};
use flashsift_files::judge::Judgement;

pub(in crate::doctor) const SPEC: RemedySpec = RemedySpec {
    id: "kernel-write-back",
    what: "the kernel keeps dirty pages for longer, ext4 its changes: the times of `tune writeback`",
    propose,
};

/// Judges the times that every command tries, and returns those to propose, or else the best ones
/// that are not confirmed. `judge` compares times with the present ones.
pub(in crate::doctor) fn chosen(
    facts: &Facts,
    judge: impl Fn(WritebackTimes) -> Judgement,
) -> Option<(WritebackTimes, Judgement)> {
    let now = facts.times();
    let mut all = now.candidates(None, ext4(facts).next().is_some());
    // Without a tick the flusher never runs.
    all.retain(|times| now.tick_us > 0 || times.expire_us == now.expire_us);
    let all: Vec<_> = all.into_iter().map(|times| (times, judge(times))).collect();
    let numbered = || all.iter().enumerate().map(|(n, (times, found))| (n, *times, found));
    let confirmed = numbered().filter(|(.., found)| found.recommends());
    let best = WritebackTimes::proposed(confirmed).or_else(|| WritebackTimes::proposed(numbered()));
    best.map(|n| all[n])
}

/// The ext4 that are mounted for writing.
fn ext4(facts: &Facts) -> impl Iterator<Item = &FileSystem> {
    facts.file_systems.iter().filter(|one| one.kind == "ext4" && one.option("ro").is_none())
}

fn propose(findings: &Findings<'_>) -> Vec<Proposal> {
    let Some((times, found)) = findings.times else { return Vec::new() };
    let now = findings.facts.times();
    let (expires, commits) = (times.expire_us != now.expire_us, times.commit_us != now.commit_us);
    let [expire, commit] = [times.expire_us, times.commit_us].map(time_in_words);
    let mut parts = Vec::new();
    if expires {
        parts.push(format!("keep dirty pages for {expire}"));
    }
    if commits {
        parts.push(format!("commit ext4's journal after {commit}"));
    }
    let mut mounts = ext4(findings.facts).map(|system| &*system.mount);
    let first = findings.facts.file_systems.first().map_or("/", |system| &*system.mount);
    let word = |us: u64| flashsift_events::duration::Exact(us).to_string();
    let expire = format!("dirty-expire={}", word(times.expire_us));
    let commit = format!("commit={}", word(times.commit_us));
    let set = |set: &[&String], on: &str| RemedyStep::WriteBack {
        set: set.iter().map(|one| (*one).clone()).collect(),
        on: on.to_owned(),
    };
    let mut steps = Vec::new();
    match (expires, commits) {
        (true, true) => steps.extend(mounts.next().map(|on| set(&[&expire, &commit], on))),
        (true, false) => steps.push(set(&[&expire], first)),
        (false, _) => {}
    }
    if commits {
        steps.extend(mounts.map(|on| set(&[&commit], on)));
    }
    vec![Proposal {
        subject: String::new(),
        title: format!("Let the kernel {}", parts.join(" and ")),
        evidence: format!(
            "pages are written {} after they change, and the journal {} after: some change \
             again or are deleted soon after",
            time_in_words(now.expire_us),
            time_in_words(now.commit_us)
        ),
        price: times.price(now),
        steps,
        programs: Vec::new(),
        effect: Effect::Judged(found),
    }]
}
