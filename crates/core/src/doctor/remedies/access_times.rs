//! Reads without access times.

use super::{Effect, Findings, Proposal, RemedySpec, quoted};
use crate::doctor::what_if::Change;

pub(super) const SPEC: RemedySpec =
    RemedySpec { id: "no-access-times", what: "reads change no access times (noatime)", propose };

fn propose(findings: &Findings<'_>) -> Vec<Proposal> {
    let suits = |system: &&crate::doctor::FileSystem| system.option("noatime").is_none();
    let systems: Vec<_> = findings.facts.file_systems.iter().filter(suits).collect();
    if systems.is_empty() {
        return Vec::new();
    }
    let strict = systems.iter().any(|system| system.option("relatime").is_none());
    let set = |mount: &str, word: &str| format!("sudo mount -o remount,{word} {}", quoted(mount));
    vec![Proposal {
        title: "Mount without access times".to_owned(),
        evidence: match strict {
            true => "each read of a file changes its inode (strictatime)",
            false => "the first read of a file after a change or after a day changes its inode",
        }
        .to_owned(),
        price: "programs that compare access times, such as some mail clients, see old ones"
            .to_owned(),
        commands: systems.iter().map(|system| set(&system.mount, "noatime")).collect(),
        undo: systems
            .iter()
            .map(|system| {
                let word =
                    if system.option("relatime").is_some() { "relatime" } else { "strictatime" };
                set(&system.mount, word)
            })
            .collect(),
        programs: Vec::new(),
        effect: Effect::Change(Change::NoAccessTimes),
    }]
}
