//! `mount --enable` and `--disable`: a systemd unit that mounts a directory at every start, a plain
//! user's when the user logs in.

use crate::records;
use anyhow::{Context, bail};
use flashsift_host::mounts;
use flashsift_mount::attach::{KIND, place};
use flashsift_traces::replace::Replace;
use rustix::fs::Mode;
use std::{
    env,
    ffi::{OsStr, OsString},
    fmt::Write as _,
    fs,
    io::{self, Write as _},
    os::unix::{ffi::OsStrExt, fs::symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The first line of each of our units, by which we know it again.
const MARK: &str = "# Written by `flashsift mount --enable`.";
/// The unit in `dist/` that writes back before the machine sleeps, without its prefix.
const TAKEN: &str = "sleep";
/// Longest name of a unit, bytes (systemd.unit(5)).
const NAME_MAX: usize = 255;

/// The service manager that starts a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manager {
    /// The machine's, and for whom the directory is mounted.
    Machine(Early),
    User,
}

/// Whether the directory is one of the system's own services, as /var/log. These use it before
/// others start, and after others have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Early {
    No,
    Yes,
}

impl Manager {
    fn ours(early: Early) -> anyhow::Result<Self> {
        match (rustix::process::geteuid().is_root(), early) {
            (true, early) => Ok(Self::Machine(early)),
            (false, Early::No) => Ok(Self::User),
            (false, Early::Yes) => bail!("--system writes a unit of the machine, as root"),
        }
    }

    /// The directory for units of this machine or of this user.
    fn units(self) -> anyhow::Result<PathBuf> {
        if self != Self::User {
            return Ok("/etc/systemd/system".into());
        }
        let named = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let config = named("XDG_CONFIG_HOME").or_else(|| Some(named("HOME")?.join(".config")));
        Ok(config.context("HOME is not set: where do units of yours belong?")?.join("systemd/user"))
    }

    /// The target that starts the unit.
    fn target(self) -> &'static str {
        match self {
            Self::Machine(Early::No) => "multi-user.target",
            Self::Machine(Early::Yes) => "sysinit.target",
            Self::User => "default.target",
        }
    }

    fn command(self) -> &'static str {
        match self {
            Self::Machine(_) => "systemctl",
            Self::User => "systemctl --user",
        }
    }

    /// Makes a running systemd read its units again; the reason if that is not possible.
    fn reload(self) -> Result<(), String> {
        // As sd_booted(3) defines it.
        if !Path::new("/run/systemd/system").is_dir() {
            return Err("no systemd runs here".to_owned());
        }
        let mut words = self.command().split(' ');
        let output = Command::new(words.next().unwrap_or_default())
            .args(words)
            .arg("daemon-reload")
            .stdin(Stdio::null())
            .output()
            .map_err(|why| format!("systemctl: {why}"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }
}

/// The files of a unit: its own, and the link by which the target starts it.
struct Unit {
    name: String,
    file: PathBuf,
    link: PathBuf,
    /// The link of an enabling with or without `--system`, whichever this is not.
    other_link: Option<PathBuf>,
}

impl Unit {
    fn new(mountpoint: &Path, manager: Manager, folder: &Path) -> anyhow::Result<Self> {
        let escaped = escaped(mountpoint);
        let name = format!("flashsift-{escaped}.service");
        if name.len() > NAME_MAX {
            bail!("{}: too long for the name of a unit", mountpoint.display());
        }
        if escaped == TAKEN {
            bail!("{name} is the unit that writes back before the machine sleeps");
        }
        let link =
            |manager: Manager| folder.join(format!("{}.wants", manager.target())).join(&name);
        let other_link = match manager {
            Manager::Machine(Early::No) => Some(link(Manager::Machine(Early::Yes))),
            Manager::Machine(Early::Yes) => Some(link(Manager::Machine(Early::No))),
            Manager::User => None,
        };
        Ok(Self { file: folder.join(&name), link: link(manager), other_link, name })
    }

    /// Whether the file is there. One that we have not written is an error.
    fn exists(&self) -> anyhow::Result<bool> {
        match fs::read_to_string(&self.file) {
            Ok(text) if text.starts_with(MARK) => Ok(true),
            Ok(_) => {
                bail!("{} is not of flashsift mount --enable; not changed", self.file.display())
            }
            Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(why) => Err(why).with_context(|| self.file.display().to_string()),
        }
    }

    fn write(&self, text: &str) -> anyhow::Result<()> {
        let at = |path: &Path| path.display().to_string();
        for path in [&self.file, &self.link] {
            let folder = path.parent().context("a unit lies in a directory")?;
            fs::create_dir_all(folder).with_context(|| at(folder))?;
        }
        let write = || {
            let mut file = Replace::new(&self.file)?;
            file.write_all(text.as_bytes())?;
            file.commit()
        };
        write().with_context(|| at(&self.file))?;
        self.remove_other_link()?;
        match symlink(&self.file, &self.link) {
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {
                let leads = fs::read_link(&self.link).with_context(|| at(&self.link))?;
                if leads != self.file {
                    bail!("{} leads to {}; not changed", at(&self.link), leads.display());
                }
                Ok(())
            }
            made => made.with_context(|| at(&self.link)),
        }
    }

    fn remove(&self) -> anyhow::Result<()> {
        remove_link(&self.link)?;
        self.remove_other_link()?;
        remove_file(&self.file)
    }

    fn remove_other_link(&self) -> anyhow::Result<()> {
        match &self.other_link {
            Some(link) if fs::read_link(link).is_ok_and(|leads| leads == self.file) => {
                remove_link(link)
            }
            _ => Ok(()),
        }
    }
}

/// Removes the link by which a target starts a unit.
fn remove_link(link: &Path) -> anyhow::Result<()> {
    remove_file(link)?;
    // As `systemctl disable` does, if no other unit is in it.
    let _ = link.parent().map(fs::remove_dir);
    Ok(())
}

fn remove_file(path: &Path) -> anyhow::Result<()> {
    match fs::remove_file(path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.with_context(|| path.display().to_string()),
    }
}

/// Writes the unit that mounts `backing` on `mountpoint` with these options at every start, with
/// `system` before the system's own services use it. With `dry_run` it is only printed.
pub(super) fn enable(
    backing: &Path,
    mountpoint: &Path,
    options: &[OsString],
    system: bool,
    dry_run: bool,
) -> anyhow::Result<()> {
    let [backing, mountpoint] = [existing(backing)?, existing(mountpoint)?];
    let even_on: Vec<String> = options
        .iter()
        .filter_map(|word| Some(word.to_str()?.strip_prefix("--even-on=")?.to_owned()))
        .collect();
    let users = place::can_ever_be_taken(&place::Wanted {
        backing: &backing,
        mountpoint: &mountpoint,
        even_if_used: true,
        even_on: &even_on,
        xattrs: !options.iter().any(|word| word == "--no-xattr"),
        force: options.iter().any(|word| word == "--force"),
    })?;
    // No other user may change what a service manager runs.
    let mask = rustix::process::umask(Mode::WGRP | Mode::WOTH);
    rustix::process::umask(mask | Mode::WGRP | Mode::WOTH);
    let early = if system { Early::Yes } else { Early::No };
    let manager = Manager::ours(early)?;
    let program = env::current_exe()?;
    let unit = Unit::new(&mountpoint, manager, &manager.units()?)?;
    let text = text(manager, &program, &backing, &mountpoint, options)?;
    let replaced = unit.exists()?;
    if dry_run {
        let (file, link) = (unit.file.display(), unit.link.display());
        let mut out = records::Output::text();
        write!(out, "# {file}\n{text}\n# {link} -> {file}\n")?;
        return out.finish();
    }
    unit.write(&text)?;
    let reloaded = manager.reload();
    let (command, name, dir) = (manager.command(), &unit.name, mountpoint.display());
    let start = match early {
        Early::No => format!("start now  {command} start {name}"),
        // The services that use it run now.
        Early::Yes => "starts     with the machine, before the services that use it".to_owned(),
    };
    let mut said = format!(
        "{} {}\n  {start}\n  undo       flashsift mount --disable {dir}",
        if replaced { "replaced" } else { "wrote" },
        unit.file.display()
    );
    if manager == Manager::User {
        said.push_str(
            "\nIt is mounted when you log in; `loginctl enable-linger` mounts it at every boot",
        );
    }
    tracing::info!("{said}");
    if !system && !users.users.is_empty() && !options.iter().any(|word| word == "--even-if-used") {
        tracing::warn!(
            "{dir} is in use; the mount is refused as long as one of these runs: {}",
            place::listed(&users)
        );
    }
    say_unread(reloaded);
    Ok(())
}

/// Removes what [`enable`] has written for this directory. With `dry_run` the files are only
/// printed.
pub(super) fn disable(mountpoint: &Path, dry_run: bool) -> anyhow::Result<()> {
    // The directory may be gone.
    let mountpoint = mounts::resolved(mountpoint).or_else(|_| std::path::absolute(mountpoint))?;
    let manager = Manager::ours(Early::No)?;
    let unit = Unit::new(&mountpoint, manager, &manager.units()?)?;
    if !unit.exists()? {
        bail!(
            "{} is not mounted at every start: there is no {}",
            mountpoint.display(),
            unit.file.display()
        );
    }
    if dry_run {
        let mut out = records::Output::text();
        for path in [Some(&unit.link), unit.other_link.as_ref(), Some(&unit.file)] {
            if let Some(path) = path.filter(|path| path.is_symlink() || path.exists()) {
                writeln!(out, "would remove {}", path.display())?;
            }
        }
        return out.finish();
    }
    unit.remove()?;
    let reloaded = manager.reload();
    let dir = mountpoint.display();
    let now = match mounts::at(&mountpoint)? {
        Some(mount) if mount.kind == KIND => {
            format!("\n{dir} is still mounted; `flashsift unmount {dir}` ends it")
        }
        _ => String::new(),
    };
    tracing::info!("removed {}{now}", unit.file.display());
    say_unread(reloaded);
    Ok(())
}

fn say_unread(reloaded: Result<(), String>) {
    if let Err(why) = reloaded {
        tracing::warn!("systemd was not notified: {why}. It reads its units when it starts");
    }
}

/// The directory as a unit has to name it.
fn existing(path: &Path) -> anyhow::Result<PathBuf> {
    let at = || path.display().to_string();
    let resolved = mounts::resolved(path).with_context(at)?;
    match fs::metadata(&resolved) {
        Ok(about) if !about.is_dir() => bail!("{} is not a directory", at()),
        Err(why) if !mounts::is_dead(&why) && why.kind() != io::ErrorKind::PermissionDenied => {
            Err(why).with_context(at)
        }
        _ => Ok(resolved),
    }
}

/// The order of a unit whose directory the system's own services use. All services
/// that start after sysinit.target, as syslog does, end before it.
const EARLY: &str = "# Services that use the directory start after this unit, and end before it does: the journal\n\
     # first of all, which has it open from its flush on until systemd-journal-flush ends.\n\
     DefaultDependencies=no\n\
     After=systemd-remount-fs.service systemd-tmpfiles-setup-dev.service\n\
     Wants=modprobe@fuse.service\n\
     After=modprobe@fuse.service\n\
     Before=systemd-journal-flush.service systemd-tmpfiles-setup.service\n\
     Before=systemd-update-utmp.service auditd.service\n\
     Before=rsyslog.service syslog-ng.service sysinit.target";

/// The journal may wait for this service, so this service must not wait for the journal.
const EARLY_SERVICE: &str = "# The journal may wait for this service, which must not wait for the journal.\n\
     StandardOutput=kmsg\n\
     StandardError=kmsg\n\
     OOMScoreAdjust=-900\nLimitNOFILE=1048576\n";

/// The text of the unit. `dist/flashsift@.service` gives the reasons for its settings.
fn text(
    manager: Manager,
    program: &Path,
    backing: &Path,
    mountpoint: &Path,
    options: &[OsString],
) -> anyhow::Result<String> {
    let (folder, flashsift) = (quoted(mountpoint.as_os_str())?, quoted(program.as_os_str())?);
    let places = match backing == mountpoint {
        true => folder.clone(),
        false => format!("{} {folder}", quoted(backing.as_os_str())?),
    };
    let mut mount = format!("{flashsift} mount --foreground");
    for word in options {
        write!(mount, " {}", quoted(word)?)?;
    }
    write!(mount, " -- {} {folder}", quoted(backing.as_os_str())?)?;
    let (before, more) = match manager {
        Manager::Machine(Early::No) => (
            "# User sessions end before this unit.\n\
             Before=systemd-user-sessions.service",
            "OOMScoreAdjust=-900\nLimitNOFILE=1048576\n",
        ),
        Manager::Machine(Early::Yes) => (EARLY, EARLY_SERVICE),
        Manager::User => (
            "# Programs of a graphical session start after this unit and end before it does.\n\
             Before=graphical-session-pre.target",
            "",
        ),
    };
    let target = manager.target();
    Ok(format!(
        "{MARK} To remove it:\n\
         #\n\
         #   flashsift mount --disable {folder}\n\
         \n\
         [Unit]\n\
         Description=flashsift: keep new files in {folder} in RAM for a while\n\
         RequiresMountsFor={places}\n\
         {before}\n\
         # The end of the session, or of the machine, waits until every file is written back.\n\
         Conflicts=shutdown.target\n\
         Before=shutdown.target\n\
         \n\
         [Service]\n\
         Type=notify\n\
         NotifyAccess=main\n\
         ExecStart=:{mount}\n\
         # If this fails because the mount is in use, SIGTERM removes the mount, after all files\n\
         # are written back.\n\
         ExecStop=-:{flashsift} unmount -- {folder}\n\
         KillMode=mixed\n\
         TimeoutStopSec=10min\n\
         Restart=on-failure\n\
         WatchdogSec=60\n\
         WatchdogSignal=SIGTERM\n\
         TimeoutAbortSec=5min\n\
         {more}\
         Environment=MALLOC_MMAP_THRESHOLD_=131072\n\
         \n\
         [Install]\n\
         WantedBy={target}\n"
    ))
}

/// A word in quotes as units have them (systemd.syntax(7), systemd.service(5)): `%` would begin a
/// specifier.
fn quoted(word: &OsStr) -> anyhow::Result<String> {
    let Some(text) = word.to_str() else {
        bail!("{}: a unit cannot name what is not UTF-8", Path::new(word).display());
    };
    let mut quoted = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '%' => quoted.push_str("%%"),
            c if c.is_ascii_control() => write!(quoted, "\\x{:02x}", u32::from(c))?,
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    Ok(quoted)
}

/// A path as part of a unit's name (systemd.unit(5), "String Escaping for Inclusion in Unit
/// Names").
/// It must be absolute and free of links and dots.
fn escaped(path: &Path) -> String {
    let mut name = String::new();
    for (at, byte) in path.as_os_str().as_bytes().iter().skip(1).enumerate() {
        match byte {
            b'/' => name.push('-'),
            b'.' if at == 0 => name.push_str("\\x2e"),
            b':' | b'_' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                name.push(char::from(*byte));
            }
            other => name.push_str(&format!("\\x{other:02x}")),
        }
    }
    if name.is_empty() { "-".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Standard output of a program; `None`, with the reason printed, if it cannot be run.
    fn said(test: &str, command: &mut Command) -> Option<(bool, String)> {
        match command.output() {
            Ok(output) => {
                let all = [output.stdout, output.stderr].concat();
                Some((output.status.success(), String::from_utf8_lossy(&all).into_owned()))
            }
            Err(why) => {
                println!("SKIPPED {test}: {}: {why}", command.get_program().display());
                None
            }
        }
    }

    #[test]
    fn a_path_is_escaped_as_systemd_does() {
        assert_eq!(escaped(Path::new("/")), "-");
        assert_eq!(escaped(Path::new("/home/u/.cache/a-b c")), "home-u-.cache-a\\x2db\\x20c");
        assert_eq!(escaped(Path::new("/.hidden")), "\\x2ehidden");
        for path in ["/", "/.a/.b", "/ä%/\"$\\/x:_9", "/a\nb"] {
            let mut theirs = Command::new("systemd-escape");
            let theirs = said("a_path_is_escaped_as_systemd_does", theirs.arg("--path").arg(path));
            let Some((true, theirs)) = theirs else { return };
            assert_eq!(format!("{}\n", escaped(Path::new(path))), theirs, "{path}");
        }
    }

    /// systemd finds no fault in a unit whose names hold all that a unit gives a meaning to.
    // Promises: Mount 22.
    #[test]
    fn systemd_accepts_the_units() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().canonicalize().unwrap().join("a %h $HOME \"b\\ä");
        fs::create_dir(&dir).unwrap();
        let options = ["--write-through=$x; %n", "--budget=65536"].map(OsString::from);
        let [plain, early] = [Early::No, Early::Yes].map(Manager::Machine);
        let all = [(plain, "--system"), (early, "--system"), (Manager::User, "--user")];
        for (manager, scope) in all {
            let unit = Unit::new(&dir, manager, folder.path()).unwrap();
            assert!(!unit.exists().unwrap());
            let text = text(manager, Path::new("/bin/true"), &dir, &dir, &options).unwrap();
            unit.write(&text).unwrap();
            // A second time with other options.
            unit.write(&text).unwrap();
            assert!(unit.exists().unwrap());
            assert_eq!(fs::read_to_string(&unit.link).unwrap(), text);
            let test = "systemd_accepts_the_units";
            let mut verify = Command::new("systemd-analyze");
            // Where no user is logged in, this is not set, and needed.
            verify.env("XDG_RUNTIME_DIR", folder.path());
            let verified = said(test, verify.args(["verify", "--man=no", scope]).arg(&unit.file));
            if let Some((accepted, says)) = verified {
                assert!(accepted && !says.contains(&unit.name), "{says}");
            }
            unit.remove().unwrap();
            assert!(!unit.file.exists() && !unit.link.parent().unwrap().exists());
        }
    }

    // Promises: Mount 22.
    #[test]
    fn files_of_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let [plain, early] = [Early::No, Early::Yes].map(Manager::Machine);
        let unit = Unit::new(Path::new("/srv/a"), plain, folder.path()).unwrap();
        fs::write(&unit.file, "[Unit]\n").unwrap();
        assert!(unit.exists().unwrap_err().to_string().contains("not changed"));
        fs::remove_file(&unit.file).unwrap();
        fs::create_dir(unit.link.parent().unwrap()).unwrap();
        symlink("/elsewhere", &unit.link).unwrap();
        assert!(unit.write(MARK).unwrap_err().to_string().contains("leads to /elsewhere"));

        fs::remove_file(&unit.link).unwrap();
        unit.write(MARK).unwrap();
        let other = Unit::new(Path::new("/srv/a"), early, folder.path()).unwrap();
        other.write(MARK).unwrap();
        assert!(other.link.is_symlink() && !unit.link.is_symlink(), "one target starts it");
        // `--disable` does not know how it was enabled.
        unit.remove().unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);

        let name = |place: &str| Unit::new(Path::new(place), Manager::User, folder.path());
        assert!(name("/sleep").err().unwrap().to_string().contains("before the machine sleeps"));
        assert!(
            name(&format!("/{}", "a/".repeat(200))).err().unwrap().to_string().contains("long")
        );
    }
}
