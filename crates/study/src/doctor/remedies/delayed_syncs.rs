//! flashsift's mount with delayed syncs: all files of a directory reach flash together.

use super::{Effect, Findings, MOST, Proposal, RemedySpec, mount};
use crate::doctor::what_if::Change;

pub(super) const SPEC: RemedySpec = RemedySpec {
    id: "delayed-syncs",
    what: "a mount of flashsift lets the syncs of a directory wait for five minutes",
    propose,
};

const DELAY_US: u64 = 300_000_000;
/// Syncs below which a directory is left alone.
const SYNCS_MIN: u64 = 10;

fn propose(findings: &Findings<'_>) -> Vec<Proposal> {
    let syncs = |group: &super::Group| -> u64 {
        let own = findings.usages.iter().filter(|usage| !usage.files.is_disjoint(&group.files));
        own.map(|usage| usage.syncs).sum()
    };
    // A known program has a setting that bounds the loss, and often others rely on its syncs.
    let is_known =
        |group: &super::Group| group.programs.iter().any(|program| findings.is_known(program));
    let suits = |(_, group): &(String, super::Group)| syncs(group) >= SYNCS_MIN && !is_known(group);
    let propose = |(directory, group): (String, super::Group)| Proposal {
        title: format!("Let the syncs in {directory} wait for five minutes (mount --delay-sync)"),
        evidence: format!(
            "{}, with {} syncs",
            mount::evidence(findings, &group, &directory),
            syncs(&group)
        ),
        price: "a power cut takes all files there back together by up to five minutes, also what \
                programs synced; not for files on which another machine relies, such as mail that \
                is deleted on the server after it was fetched; the files belong to one user"
            .to_owned(),
        steps: mount::steps(&directory, " --delay-sync '*=5m'"),
        programs: group.programs.iter().cloned().collect(),
        effect: Effect::Change(Change::Epochs { files: group.files, apart_us: DELAY_US }),
        subject: directory,
    };
    findings.directories().into_iter().filter(suits).take(MOST).map(propose).collect()
}
