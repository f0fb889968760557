//! Directories of caches and of temporary files in memory.

use super::{Findings, MOST, Proposal, RemedySpec};
use crate::doctor::facts::is_within;

pub(super) const SPEC: RemedySpec =
    RemedySpec { id: "caches-in-ram", what: "caches and temporary files stay in memory", propose };

/// Directories of temporary files.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];

/// Returns the directory of a cache that holds the file: that of one application below a directory
/// of caches, or a directory that is one application's. It is at or below `mount`, the mount point
/// of the file.
pub(in crate::doctor) fn root(path: &str, mount: &str) -> Option<String> {
    let is_on_mount = |directory: &str| is_within(directory, mount);
    let temporary = |root: &&&str| is_on_mount(root) && is_within(path, root) && path != **root;
    if let Some(root) = TEMPORARY.iter().find(temporary) {
        return Some((*root).to_owned());
    }
    let components: Vec<&str> = path.split('/').collect();
    let directories = &components[..components.len() - 1];
    let is_cache = |at: &usize| {
        directories[*at].to_lowercase().contains("cache")
            && is_on_mount(&directories[..=*at].join("/"))
    };
    let at = (0..directories.len()).find(is_cache)?;
    // `.cache` and `/var/cache` hold one directory an application.
    let shared = matches!(directories[at], ".cache" | "cache") && at + 1 < directories.len();
    Some(directories[..=at + usize::from(shared)].join("/"))
}

fn propose(findings: &Findings<'_>) -> Vec<Proposal> {
    let groups = findings.groups_by_directory(root).into_iter();
    let groups = groups.filter(|(directory, _)| findings.can_be_in_memory(directory));
    let propose = |(directory, group): (String, super::Group)| {
        group.in_memory(findings, format!("Keep {directory} in memory"), &directory)
    };
    groups.take(MOST).map(propose).collect()
}
