//! Logs in memory.

use super::{Effect, Findings, Proposal, RemedySpec, in_memory, listed};
use crate::{doctor::what_if::Change, names};

pub(super) const SPEC: RemedySpec =
    RemedySpec { id: "logs-in-ram", what: "logs stay in memory", propose };

const JOURNALD: &str = "/var/log/journal";

/// Returns the directory of a log.
pub(in crate::doctor) fn root(path: &str) -> Option<String> {
    if path.starts_with("/var/log/journal/") {
        return Some(JOURNALD.to_owned());
    }
    let directory = path.rsplit_once('/')?.0;
    let name = names::file_name(path);
    let is_log = name.ends_with(".log") || name.contains(".log.") || name == "log";
    (is_log || path.starts_with("/var/log/")).then(|| directory.to_owned())
}

fn propose(findings: &Findings<'_>) -> Vec<Proposal> {
    let groups = findings.groups(|usage| {
        let cached = super::caches_in_ram::root(&usage.file);
        root(&usage.file).filter(|_| cached.is_none())
    });
    let propose = |(directory, group): (String, super::Group)| {
        let programs: Vec<_> = group.programs.into_iter().collect();
        let (commands, undo) = if directory == JOURNALD {
            let file = "/etc/systemd/journald.conf.d/flashsift.conf";
            (
                vec![
                    "sudo mkdir -p /etc/systemd/journald.conf.d".to_owned(),
                    format!("printf '[Journal]\\nStorage=volatile\\n' | sudo tee {file}"),
                    "sudo systemctl restart systemd-journald".to_owned(),
                ],
                vec![
                    format!("sudo rm {file}"),
                    "sudo systemctl restart systemd-journald".to_owned(),
                ],
            )
        } else {
            in_memory(&directory, group.reached_bytes)
        };
        let log_files: u64 = group.files.len() as u64;
        Proposal {
            title: format!("Keep the logs in {directory} in memory"),
            evidence: format!(
                "{} writes {} to {} there",
                listed(&programs),
                findings.per_hour(group.reached_bytes),
                if log_files == 1 { "1 file".to_owned() } else { format!("{log_files} files") },
            ),
            price: "a restart or a power cut loses them; programs that have logs open there go on with the \
                    old ones until they are started again".to_owned(),
            commands,
            undo,
            programs,
            effect: Effect::Change(Change::InMemory(group.files)),
        }
    };
    // A program that writes other files beside its log keeps them: only log files are counted.
    groups.into_iter().map(propose).collect()
}
