//! flashsift's mount with a sifter: cache files that are not read again never reach flash.

use super::{Effect, Findings, MOST, Proposal, RemedySpec, caches_in_ram, mount};
use crate::doctor::what_if::{Change, MOUNT_BYTES, MountedWith};

pub(super) const SPEC: RemedySpec = RemedySpec {
    id: "sift",
    what: "a mount of flashsift drops files of a cache that will not be read again",
    propose,
};

fn propose(findings: &Findings<'_>) -> Vec<Proposal> {
    let is_cache = |directory: &str| {
        // The root of a file in a cache of an application, not a directory of temporary files.
        let root = caches_in_ram::root(&format!("{directory}/file"), "/");
        root.is_some_and(|root| root == directory && root.to_lowercase().contains("cache"))
    };
    let caches = findings.directories().into_iter().filter(|(directory, _)| is_cache(directory));
    let propose = |(directory, group): (String, super::Group)| Proposal {
        title: format!("Drop files of {directory} that are not read again (mount --sift)"),
        evidence: mount::evidence(findings, &group, &directory),
        price: format!(
            "a program fetches a dropped file again if it needs it; a power cut loses up to 30 \
             minutes of what no program synced there; up to {} of memory; only caches with a \
             profile (flashsift list profiles) are sifted",
            flashsift_events::show::bytes(MOUNT_BYTES),
        ),
        steps: mount::steps(&directory, " --sift controller"),
        programs: group.programs.iter().cloned().collect(),
        effect: Effect::Change(Change::Mounted {
            files: group.files,
            with: MountedWith::Controller,
        }),
        subject: directory,
    };
    caches.take(MOST).map(propose).collect()
}
