//! Reads without access times.

use super::{Effect, Findings, Proposal, RemedySpec, RemedyStep, quoted};
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
    let steps = |system: &crate::doctor::FileSystem| {
        let point = quoted(&system.mount);
        let words = "grep -x -e noatime -e relatime || echo strictatime";
        [
            RemedyStep::Command {
                run: format!("mount -o remount,noatime {point}"),
                undo: format!("mount -o remount,OLD {point}"),
                read: format!("findmnt -n -o VFS-OPTIONS -M {point} | tr , '\\n' | {words}"),
                value: "noatime".to_owned(),
                old: match system.option("relatime") {
                    Some(_) => "relatime".to_owned(),
                    None => "strictatime".to_owned(),
                },
                of_user: false,
            },
            RemedyStep::MountOption { point: system.mount.clone(), option: "noatime".to_owned() },
        ]
    };
    vec![Proposal {
        subject: String::new(),
        title: "Mount without access times".to_owned(),
        evidence: match strict {
            true => "each read of a file changes its inode (strictatime)",
            false => "the first read of a file after a change or after a day changes its inode",
        }
        .to_owned(),
        price: "programs that compare access times, such as some mail clients, see old ones"
            .to_owned(),
        steps: systems.iter().flat_map(|system| steps(system)).collect(),
        programs: Vec::new(),
        effect: Effect::Change(Change::NoAccessTimes),
    }]
}
