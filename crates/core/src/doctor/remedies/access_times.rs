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
    // The options are the fourth word of a line, and others follow.
    let each = |script: &str| -> Vec<String> {
        let simple = |mount: &&str| quoted(mount) == **mount && !mount.contains(['+', '.', '|']);
        let mounts = systems.iter().map(|system| &*system.mount);
        let line = |mount: &str| script.replace("MOUNT", mount);
        mounts.filter(simple).map(line).collect()
    };
    let line = r"^([^#[:space:]]\S*\s+MOUNT\s+\S+\s+\S+)";
    let keep = each(&format!(r"sudo sed -i -E 's|{line}|\1,noatime|' /etc/fstab"));
    let forget = each(&format!(r"sudo sed -i -E 's|{line},noatime(\s)|\1\2|' /etc/fstab"));
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
        lasting: keep,
        undo: systems
            .iter()
            .map(|system| {
                let word =
                    if system.option("relatime").is_some() { "relatime" } else { "strictatime" };
                set(&system.mount, word)
            })
            .chain(forget)
            .collect(),
        programs: Vec::new(),
        effect: Effect::Change(Change::NoAccessTimes),
    }]
}
