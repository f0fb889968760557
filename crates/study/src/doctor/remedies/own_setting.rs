//! A known program's own setting.

use super::{Effect, Findings, Proposal, RemedySpec};
use crate::doctor::{Usage, program, what_if::Change};

pub(super) const SPEC: RemedySpec = RemedySpec {
    id: "own-setting",
    what: "a known program's own setting, such as MariaDB's or journald's",
    propose,
};

fn propose(findings: &Findings<'_>) -> Vec<Proposal> {
    let mut proposals = Vec::new();
    for known in program::all() {
        let is_own = |usage: &&Usage| known.is(&usage.program, &usage.file);
        let own: Vec<_> = findings.usages.iter().filter(is_own).collect();
        for setting in &known.settings {
            let concerns = |usage: &&&Usage| setting.concerns(&usage.file, findings.inspect);
            let own: Vec<_> = own.iter().filter(concerns).collect();
            let reached: u64 = own.iter().map(|usage| usage.reached_bytes).sum();
            let syncs: u64 = own.iter().map(|usage| usage.syncs).sum();
            let apart_us = setting.syncs_apart_us();
            // A setting about syncs does nothing for a program that does not sync.
            if reached == 0 || apart_us.is_some() && syncs == 0 {
                continue;
            }
            let mut programs: Vec<_> = own.iter().map(|usage| usage.program.clone()).collect();
            programs.sort();
            programs.dedup();
            let files = own.iter().flat_map(|usage| usage.files.iter().copied()).collect();
            proposals.push(Proposal {
                subject: known.word.to_owned(),
                title: setting.change.clone(),
                evidence: format!(
                    "{} writes {} and syncs {syncs} times",
                    known.name,
                    findings.data_per_hour(reached)
                ),
                price: format!("{} ({})", setting.lost, setting.source),
                steps: setting.steps.clone(),
                programs,
                effect: match (apart_us, setting.held_us()) {
                    (Some(apart_us), _) => Effect::Change(Change::FewerSyncs { files, apart_us }),
                    (None, Some(held_us)) => Effect::Change(Change::Held { files, held_us }),
                    (None, None) => Effect::Unknown,
                },
            });
        }
    }
    proposals
}
