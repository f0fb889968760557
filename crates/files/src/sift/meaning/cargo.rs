//! Cargo's downloads: `registry/cache/<registry>/<name>-<version>.crate`. The name is enough.

use super::{CacheFile, CacheKind, Copied, ResourceType};

pub(super) const KIND: CacheKind = CacheKind {
    name: "cargo",
    source: "The Cargo Book, \"Cargo Home\"; checked with names of cargo 1.95",
    parse,
};

fn parse(file: &CacheFile<'_>) -> Option<Copied> {
    let package = file.file_name().strip_suffix(".crate")?;
    let hyphens = package.match_indices('-').map(|(at, _)| at);
    let at = hyphens.into_iter().find(|at| is_version(&package[at + 1..]))?;
    let (site, url) = (package[..at].to_owned(), package.to_owned());
    Some(Copied { site, url, third_party: false, resource: ResourceType::Package })
}

/// Whether a text begins as a version does: no name of a package has a dot.
fn is_version(text: &str) -> bool {
    let mut numbers = text.splitn(3, '.');
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let mut next = || numbers.next().is_some_and(is_number);
    next() && next() && numbers.next().is_some()
}
