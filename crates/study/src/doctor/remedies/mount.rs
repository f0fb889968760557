//! flashsift's mount: new files of a directory stay in memory for a while.

use super::{Effect, Findings, Group, MOST, Proposal, RemedySpec, RemedyStep, listed, quoted};
use crate::doctor::what_if::{Change, MOUNT_BYTES, MountedWith};

pub(super) const SPEC: RemedySpec = RemedySpec {
    id: "mount",
    what: "a mount of flashsift keeps new files of a directory in memory for up to 30 minutes",
    propose,
};

fn propose(findings: &Findings<'_>) -> Vec<Proposal> {
    let propose = |(directory, group): (String, Group)| Proposal {
        title: format!("Mount flashsift over {directory}: new files wait in memory"),
        evidence: evidence(findings, &group, &directory),
        price: format!(
            "a power cut loses up to 30 minutes of what no program synced there, not {}; up to {} \
             of memory; programs that use the directory end before it is mounted",
            flashsift_events::show::duration(findings.facts.flusher.expire_us),
            flashsift_events::show::bytes(MOUNT_BYTES),
        ),
        steps: steps(&directory, ""),
        programs: group.programs.iter().cloned().collect(),
        effect: Effect::Change(Change::Mounted { files: group.files, with: MountedWith::Keep }),
        subject: directory,
    };
    findings.directories().into_iter().take(MOST).map(propose).collect()
}

impl Findings<'_> {
    /// Returns the directories over which a mount can be put, the most written first: that of a
    /// cache, or the one of a file.
    pub(super) fn directories(&self) -> Vec<(String, Group)> {
        let groups = self.groups_by_directory(|file, mount| {
            let cache = super::caches_in_ram::root(file, mount);
            let own = || file.rsplit_once('/').map(|(directory, _)| directory.to_owned());
            cache.or_else(own).filter(|directory| is_possible(directory))
        });
        let can = |(directory, _): &(String, Group)| self.can_be_covered(directory, true);
        groups.into_iter().filter(can).collect()
    }
}

/// Whether programs that use a directory can be ended before it is mounted: not those that run from
/// the start of the machine to its end.
fn is_possible(directory: &str) -> bool {
    let of_system = ["/etc", "/usr", "/boot", "/var/log", "/var/lib/dpkg", "/var/lib/apt"];
    let is_of_system =
        of_system.iter().any(|above| crate::doctor::facts::is_within(directory, above));
    directory.matches('/').count() > 1 && !is_of_system
}

pub(super) fn evidence(findings: &Findings<'_>, group: &Group, directory: &str) -> String {
    let programs: Vec<_> = group.programs.iter().cloned().collect();
    let writes = if programs.len() > 1 { "write" } else { "writes" };
    let bytes = findings.data_per_hour(group.reached_bytes);
    format!("{} {writes} {bytes} in {directory}", listed(&programs))
}

/// The commands of a mount in place. `options`: with a space before each.
pub(super) fn steps(directory: &str, options: &str) -> Vec<RemedyStep> {
    let at = quoted(directory);
    let person = |run: String, undo: String, lasting| RemedyStep::Person { run, undo, lasting };
    vec![
        person("# end the programs that use the directory".to_owned(), String::new(), false),
        person(
            format!("flashsift mount {at} {at}{options}"),
            format!("flashsift unmount {at}"),
            false,
        ),
        person(
            format!("flashsift mount --enable {at}{options}"),
            format!("flashsift mount --disable {at}"),
            true,
        ),
    ]
}
