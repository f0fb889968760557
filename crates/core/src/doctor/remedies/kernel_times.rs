//! The kernel keeps changes in memory for longer: its expiry of dirty pages, and the commit of
//! ext4's journal, each alone and together.

use super::{Effect, Findings, Proposal, RemedySpec, RemedyStep};
use crate::{
    doctor::what_if::Change,
    study::recommend::{WritebackTimes, time_in_words},
    writeback::flusher::FlusherSettings,
};

pub(in crate::doctor) const SPEC: RemedySpec = RemedySpec {
    id: "kernel-write-back",
    what: "the kernel keeps dirty pages for five minutes, ext4 its changes for a minute or five",
    propose,
};

const EXPIRE_US: u64 = 300_000_000;
const COMMITS_US: [u64; 2] = [60_000_000, 300_000_000];

/// Proposes the cheaper ones first.
fn propose(findings: &Findings<'_>) -> Vec<Proposal> {
    let flusher = findings.facts.flusher;
    let systems: Vec<_> = findings.facts.file_systems.iter().collect();
    let ext4 = || systems.iter().filter(|one| one.kind == "ext4" && one.option("ro").is_none());
    let commit_us = findings.facts.commit_us();
    let now = WritebackTimes {
        expire_us: flusher.expire_us,
        tick_us: flusher.tick_us,
        commit_us: commit_us.unwrap_or(WritebackTimes::LINUX.commit_us),
    };
    let expires = [now.expire_us, EXPIRE_US];
    let commits = COMMITS_US.iter().filter(|us| ext4().next().is_some() && **us > now.commit_us);
    let commits: Vec<u64> = std::iter::once(now.commit_us).chain(commits.copied()).collect();
    let all = expires.iter().flat_map(|expire_us| {
        commits.iter().map(|commit_us| WritebackTimes {
            expire_us: *expire_us,
            commit_us: *commit_us,
            ..now
        })
    });
    let mut all: Vec<WritebackTimes> =
        all.filter(|times| *times != now && times.expire_us >= now.expire_us).collect();
    all.sort_by_key(|times| times.loss_us());
    if now.tick_us == 0 {
        all.retain(|times| times.expire_us == now.expire_us);
    }
    let propose = |times: WritebackTimes| {
        let (expires, commits) =
            (times.expire_us != now.expire_us, times.commit_us != now.commit_us);
        let [expire, commit] = [times.expire_us, times.commit_us].map(time_in_words);
        let mut parts = Vec::new();
        if expires {
            parts.push(format!("keep dirty pages for {expire}"));
        }
        if commits {
            parts.push(format!("commit ext4's journal after {commit}"));
        }
        let mut mounts = ext4().map(|system| &*system.mount);
        let first = systems.first().map_or("/", |system| &*system.mount);
        let word = |us: u64| crate::duration::Exact(us).to_string();
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
        Proposal {
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
            effect: Effect::Change(Change::KernelTimes {
                flusher: FlusherSettings { expire_us: times.expire_us, ..flusher },
                commit_us: commits.then_some(times.commit_us),
            }),
        }
    };
    all.into_iter().map(propose).collect()
}
