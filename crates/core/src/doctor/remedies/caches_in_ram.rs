//! Directories of caches and of temporary files in memory.

use super::{Effect, Findings, Proposal, RemedySpec, in_memory, listed};
use crate::doctor::what_if::Change;

pub(super) const SPEC: RemedySpec =
    RemedySpec { id: "caches-in-ram", what: "caches and temporary files stay in memory", propose };

/// Directories of temporary files.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];

/// Returns the directory of a cache that holds the file: that of one application below a directory
/// of caches, or a directory that is one application's.
pub(in crate::doctor) fn root(path: &str) -> Option<String> {
    if let Some(root) = TEMPORARY.iter().find(|root| below(path, root)) {
        return Some((*root).to_owned());
    }
    let components: Vec<&str> = path.split('/').collect();
    let directories = &components[..components.len() - 1];
    let is_cache = |name: &&str| name.to_lowercase().contains("cache");
    let at = directories.iter().position(is_cache)?;
    // `.cache` and `/var/cache` hold one directory an application.
    let shared = matches!(directories[at], ".cache" | "cache") && at + 1 < directories.len();
    Some(directories[..=at + usize::from(shared)].join("/"))
}

fn below(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

fn propose(findings: &Findings<'_>) -> Vec<Proposal> {
    let groups = findings.groups(|usage| root(&usage.file));
    let propose = |(directory, group): (String, super::Group)| {
        let programs: Vec<_> = group.programs.into_iter().collect();
        let (commands, undo) = in_memory(&directory, group.reached_bytes);
        Proposal {
            title: format!("Keep {directory} in memory"),
            evidence: format!(
                "{} writes {} to {} files there",
                listed(&programs),
                findings.per_hour(group.reached_bytes),
                crate::show::count(group.files.len() as u64),
            ),
            price: "its files are gone after a restart, and take memory meanwhile; programs that have files \
                    open there go on with the old ones until they are started again".to_owned(),
            commands,
            undo,
            programs,
            effect: Effect::Change(Change::InMemory(group.files)),
        }
    };
    groups.into_iter().map(propose).collect()
}
