//! Settings of the kernel's write-back: which there are, where each is for a mounted file system,
//! what a power cut takes with it, and how it is read, set, made permanent and undone.
//!
//! A setting is one line of [`ALL`]. Its values are texts, as the machine has them.

use crate::mounts::Mount;
use serde::Serialize;
use std::path::PathBuf;

mod change;
mod place;
pub mod remedy;
#[cfg(test)]
mod tests;

pub use change::{AppliedSetting, SettingChange, SettingsMachine, Wanted};
pub use place::Place;

/// A setting.
#[derive(Clone, Copy, Debug)]
pub struct SettingSpec {
    /// Name on the command line.
    pub name: &'static str,
    /// One-line description.
    pub what: &'static str,
    /// The effect of a power cut, in a sentence.
    pub crash: &'static str,
    /// The parts of the machine that it concerns.
    pub scope: SettingScope,
    /// Where it is, by file system.
    sites: &'static [Site],
}

/// The parts of the machine that a setting concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettingScope {
    /// All file systems.
    Machine,
    /// One mounted file system.
    FileSystem,
    /// All file systems of one type.
    Type,
    /// All partitions of one device.
    Device,
}

/// The form of a setting's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueForm {
    /// A time of so many microseconds a unit, with the least and the greatest number of units.
    Time {
        /// Microseconds.
        unit_us: u64,
        /// Least number.
        least: u64,
        /// Greatest number.
        most: u64,
    },
    /// A percentage.
    Percent,
    /// One of two words: on and off.
    Switch,
}

/// A place of a setting for one kind of file system.
#[derive(Clone, Copy, Debug)]
struct Site {
    /// Types of file systems; empty: all.
    kinds: &'static [&'static str],
    at: SiteKind,
    values: ValueForm,
}

#[derive(Clone, Copy, Debug)]
enum SiteKind {
    /// A file below `/proc/sys`; the key of sysctl has dots.
    Sysctl(&'static str),
    /// A mount option with a number, and the number that the kernel has where it lists none.
    Number(&'static str, &'static str),
    /// A pair of mount options, on and off, and the one that the kernel has where it lists none.
    Switch(&'static str, &'static str, &'static str),
    /// A file of F2FS in sysfs.
    F2fs(&'static str),
    /// A file of the bdi of the file system's device.
    Bdi(&'static str),
}

const SECONDS: ValueForm = ValueForm::Time { unit_us: 1_000_000, least: 1, most: 86_400 };
const CENTISECONDS: ValueForm = ValueForm::Time { unit_us: 10_000, least: 1, most: 8_640_000 };

const fn sysctl(kinds: &'static [&'static str], path: &'static str, values: ValueForm) -> Site {
    Site { kinds, at: SiteKind::Sysctl(path), values }
}

/// Every setting.
pub const ALL: &[SettingSpec] = &[
    SettingSpec {
        name: "dirty-expire",
        what: "age at which the kernel writes a changed file (vm.dirty_expire_centisecs)",
        crash: "takes what no program synced for this time, one dirty-writeback and one commit",
        scope: SettingScope::Machine,
        sites: &[sysctl(&[], "vm/dirty_expire_centisecs", CENTISECONDS)],
    },
    SettingSpec {
        name: "dirty-writeback",
        what: "interval at which the kernel looks for such files (vm.dirty_writeback_centisecs)",
        crash: "takes what no program synced for one interval more than dirty-expire",
        scope: SettingScope::Machine,
        sites: &[sysctl(&[], "vm/dirty_writeback_centisecs", CENTISECONDS)],
    },
    SettingSpec {
        name: "dirty-background",
        what: "share of the free memory above which it writes at once (vm.dirty_background_ratio)",
        crash: "takes no older changes, but more of them where programs write much",
        scope: SettingScope::Machine,
        sites: &[sysctl(&[], "vm/dirty_background_ratio", ValueForm::Percent)],
    },
    SettingSpec {
        name: "commit",
        what: "interval of the journal: commit= of ext4 and btrfs, cp_interval of F2FS",
        crash: "takes names, sizes and places of this time that no program synced; any program's \
                fsync commits those of all",
        scope: SettingScope::FileSystem,
        sites: &[
            Site { kinds: &["ext4"], at: SiteKind::Number("commit", "5"), values: SECONDS },
            Site { kinds: &["btrfs"], at: SiteKind::Number("commit", "30"), values: SECONDS },
            Site { kinds: &["f2fs"], at: SiteKind::F2fs("cp_interval"), values: SECONDS },
        ],
    },
    SettingSpec {
        name: "xfssyncd",
        what: "interval at which XFS writes its log (fs.xfs.xfssyncd_centisecs)",
        crash: "takes names, sizes and places of this time that no program synced",
        scope: SettingScope::Type,
        sites: &[sysctl(
            &["xfs"],
            "fs/xfs/xfssyncd_centisecs",
            ValueForm::Time { unit_us: 10_000, least: 100, most: 720_000 },
        )],
    },
    SettingSpec {
        name: "dioread-nolock",
        what: "ext4 marks new blocks as unwritten until their data is there (dioread_nolock)",
        crash: "takes no older changes; with off, data is there before the commit that names its \
                blocks",
        scope: SettingScope::FileSystem,
        sites: &[Site {
            kinds: &["ext4"],
            at: SiteKind::Switch("dioread_nolock", "dioread_lock", "dioread_nolock"),
            values: ValueForm::Switch,
        }],
    },
    SettingSpec {
        name: "auto-da-alloc",
        what: "ext4 writes a file at once that replaces another one by its name (auto_da_alloc)",
        crash: "takes, with off, the content of files that replaced others without an fsync",
        scope: SettingScope::FileSystem,
        sites: &[Site {
            kinds: &["ext4"],
            at: SiteKind::Switch("auto_da_alloc", "noauto_da_alloc", "auto_da_alloc"),
            values: ValueForm::Switch,
        }],
    },
    SettingSpec {
        name: "discard",
        what: "ext4 discards blocks at each commit that frees them",
        crash: "takes nothing",
        scope: SettingScope::FileSystem,
        sites: &[Site {
            kinds: &["ext4"],
            at: SiteKind::Switch("discard", "nodiscard", "nodiscard"),
            values: ValueForm::Switch,
        }],
    },
    SettingSpec {
        name: "bdi-max-ratio",
        what: "share of the dirty memory that this device may take (max_ratio)",
        crash: "takes no older changes, but fewer of them where programs write much",
        scope: SettingScope::Device,
        sites: &[Site { kinds: &[], at: SiteKind::Bdi("max_ratio"), values: ValueForm::Percent }],
    },
    SettingSpec {
        name: "bdi-min-ratio",
        what: "share of the dirty memory that is kept for this device (min_ratio)",
        crash: "takes no older changes, but more of them where programs write much",
        scope: SettingScope::Device,
        sites: &[Site { kinds: &[], at: SiteKind::Bdi("min_ratio"), values: ValueForm::Percent }],
    },
];

/// Options that are never set, each with the reason. All of them were accepted, and do harm or
/// nothing.
pub const NEVER: &[(&str, &str)] = &[
    ("journal_async_commit", "a mounted ext4 does not take it back"),
    ("data", "ext4 refuses another data mode while it is mounted"),
    ("fast_commit", "mke2fs decides it when the file system is made"),
    ("logbsize", "XFS accepts it at a remount and changes nothing"),
    ("nobarrier", "a power cut then loses what programs synced"),
];

impl SettingSpec {
    /// Returns the setting of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|spec| spec.name == name)
    }

    fn site(&self, kind: Option<&str>) -> Option<&'static Site> {
        let suits = |site: &&Site| match kind {
            Some(kind) => site.kinds.is_empty() || site.kinds.contains(&kind),
            None => site.kinds.is_empty() || matches!(site.at, SiteKind::Sysctl(_)),
        };
        self.sites.iter().find(suits)
    }

    /// Returns the form of its values on a file system.
    pub fn values(&self, mount: Option<&Mount>) -> Option<ValueForm> {
        self.site(mount.map(|mount| &*mount.kind)).map(|site| site.values)
    }

    /// Returns the words for on and off, if its values are these.
    pub fn words(&self, mount: Option<&Mount>) -> Option<[&'static str; 2]> {
        match self.site(mount.map(|mount| &*mount.kind))?.at {
            SiteKind::Switch(on, off, _) => Some([on, off]),
            _ => None,
        }
    }

    /// Returns the types of file systems that it exists for; none: all.
    pub fn kinds(&self) -> Vec<&'static str> {
        self.sites.iter().flat_map(|site| site.kinds.iter().copied()).collect()
    }

    /// Whether a mounted file system has to be named.
    pub fn needs_mount(&self) -> bool {
        matches!(self.scope, SettingScope::FileSystem | SettingScope::Device)
    }
}

/// Roots of the trees that are read and changed: `/proc`, `/sys`, `/etc`, or those of a test.
#[derive(Clone, Debug)]
pub struct Roots {
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
    /// `/etc`.
    pub etc: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { proc: "/proc".into(), sys: "/sys".into(), etc: "/etc".into() }
    }
}
