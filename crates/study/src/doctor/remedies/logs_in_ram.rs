//! Logs in memory.

use super::{Findings, MOST, Proposal, RemedySpec, RemedyStep};
use flashsift_events::names;

pub(super) const SPEC: RemedySpec =
    RemedySpec { id: "logs-in-ram", what: "logs stay in memory", propose };

const JOURNALD: &str = "/var/log/journal";

/// Returns the directory of a log, if it is one for logs. A log beside other files has none: memory
/// over its directory would hide them.
pub(in crate::doctor) fn root(path: &str) -> Option<String> {
    if path.starts_with("/var/log/journal/") {
        return Some(JOURNALD.to_owned());
    }
    let directory = path.rsplit_once('/')?.0;
    let is_for_logs = matches!(names::file_name(directory), "log" | "logs");
    (is_for_logs || path.starts_with("/var/log/")).then(|| directory.to_owned())
}

fn propose(findings: &Findings<'_>) -> Vec<Proposal> {
    let groups = findings.groups_by_directory(|file, mount| {
        let cached = super::caches_in_ram::root(file, mount);
        root(file).filter(|_| cached.is_none())
    });
    let is_possible =
        |directory: &str| directory == JOURNALD || findings.can_be_in_memory(directory);
    let groups = groups.into_iter().filter(|(directory, _)| is_possible(directory));
    let propose = |(directory, group): (String, super::Group)| {
        let title = format!("Keep the logs in {directory} in memory");
        let proposal = group.in_memory(findings, title, &directory);
        if directory != JOURNALD {
            return proposal;
        }
        // journald knows how to do this itself.
        Proposal {
            price: "a restart or a power cut loses them".to_owned(),
            steps: vec![
                RemedyStep::File {
                    path: "/etc/systemd/journald.conf.d/flashsift.conf".to_owned(),
                    content: "[Journal]\nStorage=volatile\n".to_owned(),
                    new_folder: true,
                },
                RemedyStep::After { run: "systemctl restart systemd-journald".to_owned() },
            ],
            ..proposal
        }
    };
    groups.take(MOST).map(propose).collect()
}
