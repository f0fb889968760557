//! Free space is trimmed.

use super::{Effect, Findings, Proposal, RemedySpec, RemedyStep};

pub(super) const SPEC: RemedySpec =
    RemedySpec { id: "trim", what: "the device learns which space is free", propose };

fn propose(findings: &Findings<'_>) -> Vec<Proposal> {
    let facts = findings.facts;
    let discards = facts.file_systems.iter().all(|system| system.option("discard").is_some());
    if facts.trims != Some(false) || discards {
        return Vec::new();
    }
    vec![Proposal {
        subject: String::new(),
        title: "Trim free space each week".to_owned(),
        evidence: "no file system is mounted with discard, and fstrim.timer does not run: the \
                   device copies deleted data when it collects garbage"
            .to_owned(),
        price: "none; what it saves happens inside the device, so it is not estimated".to_owned(),
        steps: vec![RemedyStep::Command {
            run: "systemctl enable --now fstrim.timer".to_owned(),
            undo: "systemctl disable --now fstrim.timer".to_owned(),
            // Its status is 1 for a unit that is not enabled.
            read: "systemctl is-enabled fstrim.timer || true".to_owned(),
            value: "enabled".to_owned(),
            old: String::new(),
            of_user: false,
        }],
        programs: Vec::new(),
        effect: Effect::Unknown,
    }]
}
