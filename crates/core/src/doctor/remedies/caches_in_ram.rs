//! Directories of caches and of temporary files in memory.

use super::{Findings, Proposal, RemedySpec};

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
    let groups = findings.groups(|usage| root(&usage.file)).into_iter();
    let propose = |(directory, group): (String, super::Group)| {
        group.in_memory(findings, format!("Keep {directory} in memory"), &directory)
    };
    groups.map(propose).collect()
}
