//! The remedies, each a file with the change that it proposes.

use super::{
    Facts, Files, Usage, database,
    facts::{EntryKind, Inspect, is_within},
    program,
    steps::RemedyStep,
    what_if::Change,
};
use crate::recommend::WritebackTimes;
use flashsift_files::judge::Judgement;
use std::collections::{BTreeMap, BTreeSet};

mod access_times;
mod caches_in_ram;
mod delayed_syncs;
mod fewer_syncs;
pub(super) mod kernel_times;
mod logs_in_ram;
mod mount;
mod own_setting;
mod packages;
mod sift;
mod swap;
mod trim;
mod write_ahead_log;

/// A remedy in the list.
pub struct RemedySpec {
    /// Name for programs.
    pub id: &'static str,
    /// Its change, in one line.
    pub what: &'static str,
    /// Proposes it where it applies.
    pub(super) propose: fn(&Findings<'_>) -> Vec<Proposal>,
}

/// Every remedy. They are ranked by what they save, behind the setting of the kernel.
pub const ALL: &[RemedySpec] = &[
    own_setting::SPEC,
    write_ahead_log::SPEC,
    caches_in_ram::SPEC,
    logs_in_ram::SPEC,
    packages::SPEC,
    fewer_syncs::SPEC,
    mount::SPEC,
    sift::SPEC,
    delayed_syncs::SPEC,
    kernel_times::SPEC,
    access_times::SPEC,
    swap::SPEC,
    trim::SPEC,
];

/// Findings that a remedy can look at.
pub(super) struct Findings<'a> {
    pub(super) facts: &'a Facts,
    pub(super) inspect: &'a dyn Inspect,
    /// By program and file, the greatest first.
    pub(super) usages: &'a [Usage],
    pub(super) files: &'a Files,
    pub(super) duration_us: u64,
    /// The best times of the kernel's write-back, if any save something.
    pub(super) times: Option<(WritebackTimes, Judgement)>,
}

/// A proposed remedy.
pub(super) struct Proposal {
    /// The program, file or directory, if there is one such remedy for each; else empty.
    pub(super) subject: String,
    pub(super) title: String,
    pub(super) evidence: String,
    pub(super) price: String,
    pub(super) steps: Vec<RemedyStep>,
    /// Programs that it concerns; empty: all.
    pub(super) programs: Vec<Box<str>>,
    pub(super) effect: Effect,
}

/// How the saving is found.
pub(super) enum Effect {
    /// The events run again with this change.
    Change(Change),
    /// It is found already.
    Judged(Judgement),
    /// These bytes would not be written, by the kernel's counters.
    Bytes(u64),
    /// Nothing tells.
    Unknown,
}

/// The most proposals of one kind.
const MOST: usize = 3;
/// The most files of a program whose content is looked at.
const LOOKED_AT_MAX: usize = 256;

/// Parts of paths of the files of containers, which have mounts of their own.
const OF_CONTAINERS: &[&str] = &[
    "/docker/",
    "/containerd/",
    "/containers/storage/",
    "/lib/lxc/",
    "/lib/lxd/",
    "/lib/machines/",
];

/// Files below one directory.
#[derive(Default)]
struct Group {
    reached_bytes: u64,
    files: BTreeSet<flashsift_events::event::FileId>,
    programs: BTreeSet<Box<str>>,
}

impl Findings<'_> {
    /// Groups usages by a key, the greatest groups first.
    fn groups(&self, key: impl Fn(&Usage) -> Option<String>) -> Vec<(String, Group)> {
        let mut groups: BTreeMap<String, Group> = BTreeMap::new();
        for usage in self.usages {
            let Some(key) = key(usage) else { continue };
            let group = groups.entry(key).or_default();
            group.reached_bytes += usage.reached_bytes;
            group.files.extend(&usage.files);
            if usage.reached_bytes > 0 {
                group.programs.insert(usage.program.clone());
            }
        }
        let mut groups: Vec<_> =
            groups.into_iter().filter(|(_, group)| group.reached_bytes > 0).collect();
        groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.reached_bytes));
        groups
    }

    /// Groups usages by a directory on the file system of the file, the greatest groups first.
    /// `root`: returns the directory of a file, at or below the mount point that is given.
    fn groups_by_directory(
        &self,
        root: impl Fn(&str, &str) -> Option<String>,
    ) -> Vec<(String, Group)> {
        self.groups(|usage| {
            let mount = self.facts.mount_of(&usage.file)?;
            let root = root(&usage.file, &mount.point)?;
            (self.facts.mount_of(&root) == Some(mount)).then_some(root)
        })
    }

    /// Whether a file that a program synced is one of a database, or cannot be examined.
    fn may_be_database(&self, usage: &Usage) -> bool {
        database::is_file(&usage.file)
            || self.inspect.ends(&usage.file).is_none_or(|ends| database::is_content(&ends))
    }

    /// Whether a program has settings of its own that reduce writes.
    fn is_known(&self, program: &str) -> bool {
        let own = || self.usages.iter().filter(|usage| *usage.program == *program);
        program::all().iter().any(|known| own().any(|usage| known.is(program, &usage.file)))
    }

    /// Whether a program keeps a database, or may keep one.
    fn may_keep_database(&self, program: &str) -> bool {
        let mut own: Vec<_> =
            self.usages.iter().filter(|usage| *usage.program == *program).collect();
        if database::is_program(program) || own.iter().any(|usage| database::is_file(&usage.file)) {
            return true;
        }
        own.retain(|usage| usage.syncs > 0);
        own.sort_by_key(|usage| std::cmp::Reverse(usage.syncs));
        own.truncate(LOOKED_AT_MAX);
        own.into_iter().any(|usage| self.may_be_database(usage))
    }

    /// Whether memory may be mounted over a directory: it hides nothing that programs need but
    /// files that they make again.
    fn can_be_in_memory(&self, directory: &str) -> bool {
        self.can_be_covered(directory, false)
    }

    /// Whether another file system may be mounted over a directory. `shows`: it shows what is
    /// below, databases among it.
    fn can_be_covered(&self, directory: &str, shows: bool) -> bool {
        let Some(mount) = self.facts.mount_of(directory) else { return false };
        let is_mount =
            |system: &super::FileSystem| system.mount == mount.point && system.kind == mount.kind;
        if !self.facts.file_systems.iter().any(is_mount) {
            return false;
        }
        // Other mounts: below the directory they would be hidden. One that shows the directory at
        // another place would go on to write to flash.
        let rest = &directory[mount.point.trim_end_matches('/').len()..];
        let inner = format!("{}{rest}", mount.root.trim_end_matches('/'));
        let is_in_the_way = |other: &super::MountPoint| {
            is_within(&other.point, directory)
                || other.dev == mount.dev
                    && (is_within(&other.root, &inner) || is_within(&inner, &other.root))
        };
        if self.facts.mounts.iter().any(|other| other != mount && is_in_the_way(other)) {
            return false;
        }
        let is_upper = |upper: &String| is_within(directory, upper) || is_within(upper, directory);
        if self.facts.upper_directories.iter().any(is_upper)
            || OF_CONTAINERS.iter().any(|part| directory.contains(part))
        {
            return false;
        }
        let is_of_database = |usage: &Usage| {
            usage.syncs > 0
                && (database::is_program(&usage.program)
                    || self.inspect.ends(&usage.file).is_some_and(|e| database::is_content(&e)))
        };
        let own = || self.usages.iter().filter(|usage| is_within(&usage.file, directory));
        let mut is_free =
            shows || !own().any(|usage| database::is_file(&usage.file) || is_of_database(usage));
        let is_complete = is_free
            && self.inspect.entries(directory, &mut |path, kind| {
                is_free &= kind != EntryKind::Other && (shows || !database::is_file(path));
            });
        is_complete && is_free
    }

    /// File data an hour. Journal and metadata, which a saving contains, are not among it.
    fn data_per_hour(&self, bytes: u64) -> String {
        let bytes = bytes as f64 * 3.6e9 / self.duration_us.max(1) as f64;
        format!("{} of file data an hour", flashsift_events::show::bytes(bytes as u64))
    }

    fn per_hour(&self, bytes: u64) -> String {
        let bytes = bytes as f64 * 3.6e9 / self.duration_us.max(1) as f64;
        format!("{} an hour", flashsift_events::show::bytes(bytes as u64))
    }
}

/// Quotes a word for a shell.
pub(in crate::doctor) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    match word.chars().all(plain) && !word.is_empty() {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Joins names as in a sentence.
fn listed(names: &[Box<str>]) -> String {
    match names {
        [] => String::new(),
        [one] => one.to_string(),
        [many @ .., last] => format!("{} and {last}", many.join(", ")),
    }
}

impl Group {
    /// Proposes to keep the group's directory in memory. The directories and links below it are
    /// copied, as programs that run as services need them.
    fn in_memory(self, findings: &Findings<'_>, title: String, directory: &str) -> Proposal {
        let programs: Vec<_> = self.programs.into_iter().collect();
        let size_mib = (self.reached_bytes >> 20).next_power_of_two().max(64);
        let files = match self.files.len() {
            1 => "1 file".to_owned(),
            many => format!("{} files", flashsift_events::show::count(many as u64)),
        };
        let at = quoted(directory);
        // The shell's directory stays the one below the mount. Until the tree is there, only root
        // may enter, so that the directory's owner cannot lead the copy elsewhere.
        let script = format!(
            "cd {at} && mount -t tmpfs -o size={size_mib}m,mode=700 tmpfs {at} && \
             find . -xdev -mindepth 1 \\( -type d -o -type l \\) -print0 | \
             tar -c --no-recursion --null -T - -f - | tar -xp -f - -C {at} && \
             chown --reference=. {at} && chmod --reference=. {at}"
        );
        Proposal {
            subject: directory.to_owned(),
            title,
            evidence: format!(
                "{} {} {} to {files} there",
                listed(&programs),
                if programs.len() > 1 { "write" } else { "writes" },
                findings.data_per_hour(self.reached_bytes),
            ),
            price:
                "new files and directories take memory, and a restart or a power cut loses them; \
                    without the lines that keep it, that also ends the change; files that are \
                    there now are hidden until it is undone; programs that have them open go on \
                    with them until they are started again"
                    .to_owned(),
            steps: std::iter::once(RemedyStep::Command {
                run: format!("sh -c '{}'", script.replace('\'', r"'\''")),
                undo: format!("umount {at}"),
                // Its status is 1 without a mount.
                read: format!("findmnt -n -o FSTYPE -M {at} || true"),
                value: "tmpfs".to_owned(),
                old: String::new(),
                of_user: false,
            })
            .chain(lasting_memory(directory, size_mib))
            .collect(),
            programs,
            effect: Effect::Change(Change::InMemory(self.files)),
        }
    }
}

/// Returns the steps that keep a directory in memory from the next start on. systemd makes the
/// directories below before services start.
fn lasting_memory(directory: &str, size_mib: u64) -> Vec<RemedyStep> {
    // A path with other characters needs the escapes of fstab, of tmpfiles.d and of sed.
    if !directory.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c)) {
        return Vec::new();
    }
    vec![
        RemedyStep::Output {
            path: format!("/etc/tmpfiles.d/flashsift{}.conf", directory.replace('/', "-")),
            command: format!(
                "find {directory} -xdev -mindepth 1 \
                 \\( -type d -printf 'd \"%p\" %#m %U %G\\n' \\) -o \
                 \\( -type l -printf 'L \"%p\" - - - - %l\\n' \\)"
            ),
        },
        RemedyStep::Line {
            path: "/etc/fstab".to_owned(),
            begins: format!("tmpfs {directory} tmpfs "),
            command: format!(
                "stat -c 'tmpfs {directory} tmpfs size={size_mib}m,mode=%a,uid=%u,gid=%g 0 0' \
                 {directory}"
            ),
        },
    ]
}

#[cfg(test)]
pub(super) mod testing {
    pub(in crate::doctor) use super::{
        caches_in_ram::root as cache_root, logs_in_ram::root as log_root, quoted,
    };
}
