//! A program without its syncs.

use super::{Effect, Findings, MOST, Proposal, RemedySpec, quoted};
use crate::doctor::{database, what_if::Change};

pub(super) const SPEC: RemedySpec = RemedySpec {
    id: "fewer-syncs",
    what: "a program that syncs often leaves its data to the kernel",
    propose,
};

/// Syncs below which a program is left alone.
const SYNCS_MIN: u64 = 10;

fn propose(findings: &Findings<'_>) -> Vec<Proposal> {
    let suits = |usage: &super::Usage| usage.syncs > 0 && &*usage.program != "dpkg";
    let groups = findings.groups(|usage| suits(usage).then(|| usage.program.to_string()));
    let propose = |(program, group): (String, super::Group)| {
        let own =
            || findings.usages.iter().filter(|usage| *usage.program == *program && suits(usage));
        let syncs: u64 = own().map(|usage| usage.syncs).sum();
        let first = own().max_by_key(|usage| usage.syncs)?;
        // Databases are damaged without syncs, and the command has to work.
        let is_possible = |facts: &crate::doctor::ProgramFacts| {
            facts.obeys_preload && !facts.open_files.iter().any(|file| database::is_file(file))
        };
        if syncs < SYNCS_MIN
            || findings.is_known(&program)
            || findings.may_keep_database(&program)
            || !findings.inspect.program(&program).as_ref().is_some_and(is_possible)
        {
            return None;
        }
        let command = quoted(&program);
        Some(Proposal {
            title: format!("Run {program} without its syncs"),
            evidence: format!(
                "{program} syncs {syncs} times, {} times {}: each sync writes at least a page of \
                 the file, and mostly a commit of the journal",
                first.syncs, first.file
            ),
            price: format!(
                "a power cut loses up to {} of what it wrote; where it can, let the program sync \
                 less often instead",
                crate::show::duration(findings.facts.flusher.expire_us)
            ),
            commands: vec![
                "sudo apt-get install eatmydata".to_owned(),
                format!("eatmydata {command}"),
            ],
            undo: vec![command],
            programs: vec![program.into()],
            effect: Effect::Change(Change::WithoutSyncs(group.files)),
        })
    };
    groups.into_iter().filter_map(propose).take(MOST).collect()
}
