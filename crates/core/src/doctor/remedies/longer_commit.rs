//! ext4 commits its journal less often.

use super::{Effect, Findings, Proposal, RemedySpec, quoted};
use crate::doctor::what_if::Change;

pub(super) const SPEC: RemedySpec =
    RemedySpec { id: "longer-commit", what: "ext4 commits its journal each minute", propose };

const COMMIT_S: u64 = 60;
/// The kernel's default.
const DEFAULT_S: u64 = 5;

fn propose(findings: &Findings<'_>) -> Vec<Proposal> {
    let now_s = |system: &crate::doctor::FileSystem| {
        system.option("commit").and_then(|text| text.parse().ok()).unwrap_or(DEFAULT_S)
    };
    let suits = |system: &&crate::doctor::FileSystem| {
        system.kind == "ext4" && now_s(system) < COMMIT_S && system.option("ro").is_none()
    };
    let systems: Vec<_> = findings.facts.file_systems.iter().filter(suits).collect();
    if systems.is_empty() {
        return Vec::new();
    }
    let set = |mount: &str, s: u64| format!("sudo mount -o remount,commit={s} {}", quoted(mount));
    vec![Proposal {
        title: "Let ext4 commit its journal each minute".to_owned(),
        evidence: "ext4 writes its journal 5 s after a change, and each commit repeats the blocks \
                   that the next one changes again"
            .to_owned(),
        price: "a power cut loses up to a minute of changes that no program synced".to_owned(),
        commands: systems.iter().map(|system| set(&system.mount, COMMIT_S)).collect(),
        undo: systems.iter().map(|system| set(&system.mount, now_s(system))).collect(),
        programs: Vec::new(),
        effect: Effect::Change(Change::Commit { commit_us: COMMIT_S * 1_000_000 }),
    }]
}
