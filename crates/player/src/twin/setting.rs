//! The settings that a twin compares: a file system, options of its mount and of its making, and
//! settings of the whole machine.

use crate::Error;
use flashsift_events::duration;
use std::path::PathBuf;

/// A file system that a twin can make.
#[derive(Debug)]
pub struct FileSystem {
    /// Its name, for the kernel and in settings.
    pub name: &'static str,
    /// The program that makes it, with arguments.
    pub make: &'static [&'static str],
    /// Options of each mount, beside those of the setting.
    mount: &'static [&'static str],
    /// Words of settings that are for the program that makes it, and their arguments.
    pub words: &'static [(&'static str, &'static str)],
}

/// All file systems of twins.
pub const FILE_SYSTEMS: &[FileSystem] = &[
    FileSystem {
        name: "ext4",
        make: &["mkfs.ext4", "-q", "-F"],
        // ext4 would fill its inode tables with zeros in the background, once in its life.
        mount: &["noinit_itable"],
        words: &[
            ("fast_commit", "-Ofast_commit"),
            ("no_journal", "-O^has_journal"),
            ("blocks=1k", "-b1024"),
        ],
    },
    FileSystem {
        name: "xfs",
        make: &["mkfs.xfs", "-q", "-f"],
        mount: &[],
        words: &[("sectors=4k", "-ssize=4096")],
    },
    FileSystem {
        name: "btrfs",
        make: &["mkfs.btrfs", "-q", "-f"],
        mount: &[],
        words: &[("single", "-msingle")],
    },
    FileSystem { name: "f2fs", make: &["mkfs.f2fs", "-q", "-f"], mount: &[], words: &[] },
];

/// A setting of the whole machine: its word, its file below `/proc/sys`.
pub const OF_MACHINE: &[(&str, &str)] = &[
    ("expire", "vm/dirty_expire_centisecs"),
    ("interval", "vm/dirty_writeback_centisecs"),
    ("xfssyncd", "fs/xfs/xfssyncd_centisecs"),
];

/// One file system with its options.
#[derive(Clone, Debug)]
pub struct Setting {
    /// As it was given.
    pub label: String,
    /// The file system.
    pub file_system: &'static FileSystem,
    /// Arguments for the program that makes it.
    pub make: Vec<&'static str>,
    /// Options of its mount, `key` or `key=value`.
    pub mount: Vec<String>,
    /// Settings of the machine: file and value in hundredths of a second.
    pub machine: Vec<(PathBuf, u64)>,
}

impl Setting {
    /// Reads `ext4:commit=60:expire=5m`: a file system, then words.
    ///
    /// # Errors
    ///
    /// The file system is not known, or a time cannot be read.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut words = text.trim().split(':');
        let name = words.next().unwrap_or_default();
        let find = |fs: &&FileSystem| fs.name == name;
        let Some(file_system) = FILE_SYSTEMS.iter().find(find) else {
            let known: Vec<_> = FILE_SYSTEMS.iter().map(|fs| fs.name).collect();
            return Err(Error::Refused(format!(
                "`{name}` is no file system of twins: {}",
                known.join(", ")
            )));
        };
        let mut this = Self {
            label: text.trim().to_owned(),
            file_system,
            make: Vec::new(),
            mount: file_system.mount.iter().map(|word| (*word).to_owned()).collect(),
            machine: Vec::new(),
        };
        for word in words {
            if let Some((_, argument)) = file_system.words.iter().find(|(known, _)| *known == word)
            {
                this.make.push(argument);
            } else if let Some((key, value)) = word.split_once('=')
                && let Some((_, file)) = OF_MACHINE.iter().find(|(known, _)| *known == key)
            {
                let us = duration::parse_us(value)
                    .map_err(|error| Error::Refused(format!("{text}: {key}: {error}")))?;
                this.machine.push((PathBuf::from("/proc/sys").join(file), us / 10_000));
            } else if word.is_empty() || word.contains(['\0', ',']) {
                return Err(Error::Refused(format!("{text}: an empty word, or a comma in one")));
            } else {
                this.mount.push(word.to_owned());
            }
        }
        this.machine.sort();
        Ok(this)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_go_to_the_mount_the_maker_or_the_machine() {
        let setting = Setting::parse("ext4:fast_commit:commit=60:dioread_lock:expire=5m").unwrap();
        assert_eq!(setting.make, ["-Ofast_commit"]);
        assert_eq!(setting.mount, ["noinit_itable", "commit=60", "dioread_lock"]);
        let expire = PathBuf::from("/proc/sys/vm/dirty_expire_centisecs");
        assert_eq!(setting.machine, [(expire, 30_000)]);
        for wrong in ["", "ntfs", "ext4:", "ext4:expire=soon", "xfs::a"] {
            assert!(Setting::parse(wrong).is_err(), "{wrong}");
        }
    }
}
