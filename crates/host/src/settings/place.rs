//! Places of values: files of the kernel, mount options, lines of configuration files.

use super::{Roots, SettingScope, SettingSpec, SiteKind, remedy};
use crate::{
    change::ChangeError,
    mounts::{self, Mount},
    readahead::{may_write, write_value},
};
use rustix::{
    fs::{CWD, major, minor},
    io::Errno,
    mount::{FsPickFlags, fsconfig_reconfigure, fsconfig_set_flag, fsconfig_set_string, fspick},
    process::geteuid,
};
use serde::{Deserialize, Serialize};
use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Write},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

/// The file in `/etc/sysctl.d` that belongs to flashsift.
const SYSCTL_CONF: &str = "sysctl.d/90-flashsift.conf";
const SYSCTL_HEAD: &str = "# Written by flashsift tune writeback --persist; --undo removes it.\n";

/// Where a value is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "at", rename_all = "kebab-case")]
pub enum Place {
    /// A file in `/proc/sys` or `/sys` that holds nothing else.
    File {
        /// Its path.
        path: PathBuf,
    },
    /// An option of a mounted file system. The value is the option's number or word.
    MountOption {
        /// Mount point.
        point: PathBuf,
        /// Type of the file system.
        kind: String,
        /// Its device.
        source: String,
        /// The options: one with a number, or the words on and off.
        options: Vec<String>,
        /// The value where the kernel lists none.
        default: String,
    },
    /// The options of the line that mounts a file system at start.
    Fstab {
        /// Path of `fstab`.
        path: PathBuf,
        /// Mount point.
        point: PathBuf,
    },
    /// A line of flashsift's file for `sysctl`. The value is empty where there is none.
    Sysctl {
        /// Path of the file.
        path: PathBuf,
        /// Key.
        key: String,
    },
    /// A file that is flashsift's alone. The value is empty where there is none.
    Text {
        /// Its path.
        path: PathBuf,
    },
    /// A folder. The value is empty where there is none.
    Folder {
        /// Its path.
        path: PathBuf,
    },
    /// Lines of a file that flashsift replaced. The value has each, after [`remedy::MARK`], and its
    /// replacement.
    Marked {
        /// Path of the file.
        path: PathBuf,
    },
    /// The lines of a file that begin so.
    Line {
        /// Path of the file.
        path: PathBuf,
        /// The begin.
        begins: String,
    },
    /// A value that commands of a shell set and print.
    Command {
        /// Sets the wanted value.
        run: String,
        /// Restores another one, for which [`remedy::OLD`] stands.
        undo: String,
        /// Prints it.
        read: String,
        /// The wanted value.
        value: String,
    },
    /// A command by which a program reads its configuration anew. It runs after every change and
    /// after every undo, and has no value that could be read.
    After {
        /// The command.
        run: String,
    },
}

impl Place {
    /// Returns the place of a setting for a mounted file system.
    ///
    /// # Errors
    ///
    /// The file system has no such setting, or this kernel has not.
    pub fn new(
        spec: &SettingSpec,
        mount: Option<&Mount>,
        roots: &Roots,
    ) -> Result<Self, ChangeError> {
        let refuse = |why: String| Err(ChangeError::Refused(why));
        let Some(site) = spec.site(mount.map(|mount| &*mount.kind)) else {
            return refuse(match mount {
                Some(mount) => format!(
                    "{} ({}) has no setting {}: it is one of {}",
                    mount.point.display(),
                    mount.kind,
                    spec.name,
                    spec.kinds().join(", ")
                ),
                None => format!("{} belongs to a file system: name one by --on", spec.name),
            });
        };
        let mounted = || {
            let named = || ChangeError::Refused(format!("{}: name a mount by --on", spec.name));
            mount.ok_or_else(named)
        };
        let option = |options: &[&str], default: &str| -> Result<Self, ChangeError> {
            let mount = mounted()?;
            Ok(Self::MountOption {
                point: mount.point.clone(),
                kind: mount.kind.clone(),
                source: mount.source.to_string_lossy().into_owned(),
                options: options.iter().map(|option| (*option).to_owned()).collect(),
                default: default.to_owned(),
            })
        };
        let block = || {
            let dev = mounted()?.dev;
            let link = roots.sys.join(format!("dev/block/{}:{}", major(dev), minor(dev)));
            let none = |_| ChangeError::Refused(format!("{}: there is no block device", spec.name));
            fs::canonicalize(link).map_err(none)
        };
        let place = match site.at {
            SiteKind::Sysctl(path) => Self::File { path: roots.proc.join("sys").join(path) },
            SiteKind::Number(option_name, default) => option(&[option_name], default)?,
            SiteKind::Switch(on, off, default) => option(&[on, off], default)?,
            SiteKind::F2fs(file) => {
                let name = block()?.file_name().unwrap_or_default().to_owned();
                Self::File { path: roots.sys.join("fs/f2fs").join(name).join(file) }
            }
            SiteKind::Bdi(file) => {
                let block = block()?;
                // A partition has the bdi of its disk.
                let disk = match block.join("partition").exists() {
                    true => block.parent().unwrap_or(&block).to_owned(),
                    false => block,
                };
                let path = disk.join("dev");
                let dev = fs::read_to_string(&path).map_err(|error| at(&path, error))?;
                Self::File { path: roots.sys.join("class/bdi").join(dev.trim()).join(file) }
            }
        };
        match &place {
            Self::File { path } if !path.exists() => {
                refuse(format!("{}: this kernel has no {}", spec.name, path.display()))
            }
            _ => Ok(place),
        }
    }

    /// Returns the place in a configuration file that gives the value at every start.
    ///
    /// # Errors
    ///
    /// There is none.
    pub(super) fn permanent(&self, roots: &Roots) -> Result<Self, ChangeError> {
        match self {
            Self::File { path } => {
                let key = path.strip_prefix(roots.proc.join("sys")).map_err(|_| {
                    ChangeError::Refused(format!(
                        "--persist: no configuration file sets {} at a start; a udev rule can",
                        path.display()
                    ))
                })?;
                let key = key.to_string_lossy().replace('/', ".");
                let path = roots.etc.join(SYSCTL_CONF);
                match path.parent().is_some_and(Path::is_dir) {
                    true => Ok(Self::Sysctl { path, key }),
                    false => Err(ChangeError::Refused(format!(
                        "--persist: there is no {}",
                        roots.etc.join("sysctl.d").display()
                    ))),
                }
            }
            Self::MountOption { point, .. } => {
                let path = roots.etc.join("fstab");
                let path = fs::canonicalize(&path).map_err(|error| at(&path, error))?;
                let place = Self::Fstab { path, point: point.clone() };
                place.read()?;
                Ok(place)
            }
            other => Ok(other.clone()),
        }
    }

    /// Returns the value to write here for a value of the setting.
    pub(super) fn with(&self, setting: &Self, present: &str, value: &str) -> String {
        match (self, setting) {
            (Self::Fstab { .. }, Self::MountOption { options, .. }) => {
                let own = |option: &&str| {
                    let name = option.split('=').next().unwrap_or(option);
                    options.iter().any(|own| own == name)
                };
                let mut all: Vec<&str> = present.split(',').filter(|one| !own(one)).collect();
                let written = match &options[..] {
                    [number] => format!("{number}={value}"),
                    _ => value.to_owned(),
                };
                all.push(&written);
                all.join(",")
            }
            _ => value.to_owned(),
        }
    }

    /// Returns the value. An error says why there is none.
    ///
    /// # Errors
    ///
    /// The place is gone, cannot be read, or is another one's.
    pub fn read(&self) -> Result<String, ChangeError> {
        match self {
            Self::File { path } => {
                Ok(fs::read_to_string(path).map_err(|error| at(path, error))?.trim().to_owned())
            }
            Self::MountOption { options, default, .. } => {
                let mount = self.mount()?;
                // mountinfo leaves out what is the default of this file system.
                let all = ext4_options(&mount).filter(|_| options.len() > 1);
                Ok(option_value(&all.unwrap_or(mount.options), options, default))
            }
            Self::Fstab { path, point } => {
                let text = fs::read(path).map_err(|error| at(path, error))?;
                let field = fstab_options(&text, point).map_err(|why| {
                    ChangeError::Refused(format!(
                        "--persist: {why} of {} mounts {}",
                        path.display(),
                        point.display()
                    ))
                })?;
                Ok(String::from_utf8_lossy(&text[field]).into_owned())
            }
            Self::Sysctl { path, key } => {
                let text = or_empty(path).map_err(|error| at(path, error))?;
                let value = text.lines().find_map(|line| line_value(line, key));
                Ok(value.unwrap_or_default().to_owned())
            }
            Self::Text { path } => remedy::read_text(path),
            Self::Folder { path } => remedy::read_folder(path),
            Self::Marked { path } => remedy::read_marked(path),
            Self::Line { path, begins } => remedy::read_line(path, begins),
            Self::Command { read, .. } => remedy::shell(read),
            Self::After { .. } => Ok(String::new()),
        }
    }

    /// Returns the mount point of the file system that it concerns, if it is one.
    pub fn point(&self) -> Option<&Path> {
        match self {
            Self::MountOption { point, .. } | Self::Fstab { point, .. } => Some(point),
            _ => None,
        }
    }

    fn mount(&self) -> Result<Mount, ChangeError> {
        let Self::MountOption { point, kind, source, .. } = self else {
            return Err(ChangeError::Refused("it is no mount option".to_owned()));
        };
        let mount = mounts::at(point).map_err(|error| at(Path::new("/proc/mounts"), error))?;
        let is_same = |mount: &Mount| mount.kind == *kind && mount.source == OsStr::new(source);
        mount.filter(is_same).ok_or_else(|| {
            ChangeError::Refused(format!("{source} is not mounted at {}", point.display()))
        })
    }

    /// Fails if the user may not write here.
    pub(super) fn may_write(&self) -> Result<(), ChangeError> {
        match self {
            Self::File { path } => may_write(path),
            Self::MountOption { point, .. } if !geteuid().is_root() => {
                Err(ChangeError::NotAllowed(point.display().to_string()))
            }
            Self::MountOption { .. } => Ok(()),
            Self::Command { .. } | Self::After { .. } | Self::Folder { .. }
                if !geteuid().is_root() =>
            {
                Err(ChangeError::NotAllowed(self.to_string()))
            }
            Self::Command { .. } | Self::After { .. } | Self::Folder { .. } => Ok(()),
            // The folder of a new file may not be there yet.
            Self::Text { path } if !path.parent().is_some_and(Path::is_dir) => Ok(()),
            Self::Fstab { path, .. }
            | Self::Sysctl { path, .. }
            | Self::Text { path }
            | Self::Marked { path }
            | Self::Line { path, .. } => {
                let folder = path.parent().unwrap_or(Path::new("/"));
                rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).map_err(
                    |error| match error {
                        Errno::ACCESS | Errno::PERM => {
                            ChangeError::NotAllowed(path.display().to_string())
                        }
                        Errno::ROFS => ChangeError::ReadOnly(path.display().to_string()),
                        error => at(folder, error.into()),
                    },
                )
            }
        }
    }

    /// Writes the value.
    pub(super) fn write(&self, value: &str) -> Result<(), ChangeError> {
        match self {
            Self::File { path } => write_value(path, value),
            Self::MountOption { options, .. } => self.reconfigure(options, &self.read()?, value),
            Self::Fstab { path, point } => {
                let mut text = fs::read(path).map_err(|error| at(path, error))?;
                let field = fstab_options(&text, point).map_err(|why| {
                    ChangeError::Refused(format!("{}: {why} is there now", path.display()))
                })?;
                text.splice(field, value.bytes());
                replace(path, &text).map_err(|error| at(path, error))
            }
            Self::Sysctl { path, key } => {
                let text = or_empty(path).map_err(|error| at(path, error))?;
                let others = text.lines().filter(|line| line_value(line, key).is_none());
                let mut lines: Vec<String> = others.map(|line| format!("{line}\n")).collect();
                if !value.is_empty() {
                    lines.push(format!("{key} = {value}\n"));
                }
                let own = |line: &&String| *line != SYSCTL_HEAD;
                let kept: String = lines.iter().filter(own).map(String::as_str).collect();
                let written = match kept.is_empty() {
                    true => fs::remove_file(path).and_then(|()| sync_folder(path)),
                    false => replace(path, format!("{SYSCTL_HEAD}{kept}").as_bytes()),
                };
                written.map_err(|error| at(path, error))
            }
            Self::Text { path } => remedy::write_text(path, value),
            Self::Folder { path } => remedy::write_folder(path, value),
            Self::Marked { path } => remedy::write_marked(path, value),
            Self::Line { path, begins } => remedy::write_line(path, begins, value),
            Self::Command { run, undo, value: wanted, .. } => {
                remedy::write_command(run, undo, wanted, value)
            }
            Self::After { run } => remedy::shell(run).map(drop),
        }
    }

    /// Removes a file that a killed flashsift had not renamed yet.
    pub(super) fn clean_up(&self) {
        if let Self::Fstab { path, .. }
        | Self::Sysctl { path, .. }
        | Self::Text { path }
        | Self::Marked { path }
        | Self::Line { path, .. } = self
        {
            // Mostly there is none.
            let _ = fs::remove_file(unfinished(path));
        }
    }

    /// Changes one option of a mounted file system. The flags of the mount stay as they are, which
    /// `mount(2)` would replace. If other options change with it, all is as before.
    fn reconfigure(&self, options: &[String], old: &str, value: &str) -> Result<(), ChangeError> {
        let before = self.mount()?;
        let set = |value: &str| reconfigure(&before.point, options, value);
        set(value).map_err(|error| match error {
            (Errno::PERM | Errno::ACCESS, _) => {
                ChangeError::NotAllowed(before.point.display().to_string())
            }
            (error, said) => at(&before.point, io::Error::other(format!("{error}{said}"))),
        })?;
        let after = self.mount()?;
        let others = |mount: &Mount| -> Vec<String> {
            let listed = mount.options.iter().filter(|option| !is_one_of(option, options));
            listed.cloned().collect()
        };
        if others(&before) != others(&after) {
            let _ = set(old);
            return Err(ChangeError::NotTaken(format!(
                "{}: the kernel changed other options, too ({} instead of {})",
                before.point.display(),
                after.options.join(","),
                before.options.join(",")
            )));
        }
        Ok(())
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File { path } => write!(f, "{}", path.display()),
            Self::MountOption { point, .. } => write!(f, "{}", point.display()),
            Self::Fstab { path, point } => {
                write!(f, "the line of {} in {}", point.display(), path.display())
            }
            Self::Sysctl { path, key } => write!(f, "{key} in {}", path.display()),
            Self::Text { path } | Self::Folder { path } => write!(f, "{}", path.display()),
            Self::Marked { path } => write!(f, "lines of {}", path.display()),
            Self::Line { path, begins } => {
                write!(f, "the line of {} that begins with {begins:?}", path.display())
            }
            Self::Command { run, .. } | Self::After { run } => write!(f, "`{run}`"),
        }
    }
}

/// Reasons for which nothing of a file system is changed.
pub(super) fn refusal(spec: &SettingSpec, mount: &Mount, roots: &Roots) -> Option<String> {
    if matches!(spec.scope, SettingScope::Machine | SettingScope::Type) {
        return None;
    }
    let point = mount.point.display();
    if mount.read_only {
        return Some(format!("{point} is mounted read-only: nothing is written there"));
    }
    let link = roots.sys.join(format!("dev/block/{}:{}", major(mount.dev), minor(mount.dev)));
    let block = fs::canonicalize(link).ok()?;
    let disk = match block.join("partition").exists() {
        true => block.parent()?.to_owned(),
        false => block,
    };
    let is_removable =
        fs::read_to_string(disk.join("removable")).is_ok_and(|text| text.trim() == "1");
    is_removable.then(|| {
        format!("{point} is on a removable device: it can be pulled out before data is written")
    })
}

pub(super) fn at(path: &Path, error: io::Error) -> ChangeError {
    ChangeError::At { path: path.display().to_string(), error }
}

pub(super) fn or_empty(path: &Path) -> io::Result<String> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        other => other,
    }
}

/// Whether a listed option is one of these; the kernel writes `nodioread_nolock` for
/// `dioread_lock`.
fn is_one_of(option: &str, options: &[String]) -> bool {
    let name = option.split('=').next().unwrap_or(option);
    options.iter().any(|own| name == own || name.strip_prefix("no") == Some(own))
}

/// The value of an option among those that the kernel lists.
pub(super) fn option_value(listed: &[String], options: &[String], default: &str) -> String {
    match options {
        [number] => {
            let value = |option: &String| {
                let (name, value) = option.split_once('=')?;
                (name == number).then(|| value.to_owned())
            };
            listed.iter().find_map(value).unwrap_or_else(|| default.to_owned())
        }
        words => {
            let found = words.iter().find(|word| listed.contains(word));
            // `no` before the first word stands for the second.
            let negated = words.first().zip(words.get(1)).filter(|(on, _)| {
                listed.iter().any(|option| option.strip_prefix("no") == Some(on))
            });
            let found = found.or(negated.map(|(_, off)| off));
            found.map_or_else(|| default.to_owned(), Clone::clone)
        }
    }
}

/// Every option of a mounted ext4, also those that mountinfo leaves out.
fn ext4_options(mount: &Mount) -> Option<Vec<String>> {
    let link = format!("/sys/dev/block/{}:{}", major(mount.dev), minor(mount.dev));
    let block = fs::canonicalize(link).ok().filter(|_| mount.kind == "ext4")?;
    let path = Path::new("/proc/fs/ext4").join(block.file_name()?).join("options");
    Some(fs::read_to_string(path).ok()?.lines().map(str::to_owned).collect())
}

fn reconfigure(point: &Path, options: &[String], value: &str) -> Result<(), (Errno, String)> {
    let quiet = |error| (error, String::new());
    let picked = fspick(CWD, point, FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_NO_AUTOMOUNT);
    let picked = picked.map_err(quiet)?;
    let said = |error: Errno| {
        // The kernel's own words, one message a read, such as `e ext4: …`.
        let mut text = [0; 512];
        let len = rustix::io::read(&picked, &mut text).unwrap_or(0);
        let words = String::from_utf8_lossy(&text[..len]).trim().to_owned();
        (error, if words.is_empty() { words } else { format!(" ({words})") })
    };
    match options {
        [number] => fsconfig_set_string(&picked, &**number, value).map_err(said)?,
        _ => fsconfig_set_flag(&picked, value).map_err(said)?,
    }
    fsconfig_reconfigure(&picked).map_err(said)
}

/// The value of a key in a line `key = value`.
fn line_value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let (name, value) = line.split_once('=')?;
    (name.trim() == key).then(|| value.trim())
}

/// Finds the field of options in the one line that mounts something at `point`. An error is the
/// begin of a sentence.
pub(super) fn fstab_options(
    text: &[u8],
    point: &Path,
) -> Result<std::ops::Range<usize>, &'static str> {
    let mut found = None;
    let mut start = 0;
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let begin = start;
        start += line.len();
        let is_space = |byte: &u8| byte.is_ascii_whitespace();
        let mut fields = Vec::new();
        let mut at = 0;
        while fields.len() < 4 {
            let Some(from) = line[at..].iter().position(|byte| !is_space(byte)) else { break };
            let from = at + from;
            let to = line[from..].iter().position(is_space).map_or(line.len(), |len| from + len);
            fields.push(from..to);
            at = to;
        }
        let [device, place, _, options] = &fields[..] else { continue };
        if line[device.start] == b'#'
            || Path::new(&mounts::unescaped(&line[place.clone()])) != point
        {
            continue;
        }
        if found.replace(begin + options.start..begin + options.end).is_some() {
            return Err("more than one line");
        }
    }
    found.ok_or("no line")
}

/// Replaces a file by one with this content, its owner and its mode. Another name has the new
/// content until it is on the disk.
pub(super) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = unfinished(path);
    let mut file = File::create(&new)?;
    match fs::metadata(path) {
        Ok(meta) => {
            file.set_permissions(meta.permissions())?;
            std::os::unix::fs::fchown(&file, Some(meta.uid()), Some(meta.gid()))?;
        }
        Err(_) => file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))?,
    }
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    sync_folder(path)
}

/// The name of a file that is not complete yet.
fn unfinished(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().as_bytes();
    path.with_file_name(OsStr::from_bytes(&[name, b".flashsift-new"].concat()))
}

pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}
