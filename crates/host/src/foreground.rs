//! The application in the foreground: the program of a control group, or of the session that a seat
//! shows.
//!
//! Android moves the processes of the application on the screen into one group (`top-app`). On
//! other systems systemd-logind knows which session each seat shows; its group holds the program
//! that a kiosk, a car's head unit or a TV box runs. logind's files below `/run/systemd` are those
//! that libsystemd reads.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    str::FromStr,
};

/// Where the application in the foreground is looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A control group of either version, by its directory.
    Group(PathBuf),
    /// The session that this seat shows.
    Logind {
        /// The seat.
        seat: String,
    },
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "logind" {
            return Ok(Source::Logind { seat: "seat0".to_owned() });
        }
        if let Some(seat) = text.strip_prefix("logind:") {
            let is_name = !seat.is_empty() && seat.bytes().all(|byte| byte.is_ascii_alphanumeric());
            return match is_name {
                true => Ok(Source::Logind { seat: seat.to_owned() }),
                false => Err(format!("{seat:?} is no seat; write logind:seat0")),
            };
        }
        match text.strip_prefix("cgroup:") {
            Some(path) if path.starts_with('/') => Ok(Source::Group(path.into())),
            Some(path) => Err(format!(
                "cgroup:{path} has to begin with /: write the directory of the group, such as \
                 cgroup:/dev/cpuset/top-app"
            )),
            None => Err(format!(
                "{text:?} is no source; write cgroup:/dev/cpuset/top-app, logind or logind:seat0"
            )),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Group(path) => write!(out, "cgroup:{}", path.display()),
            Source::Logind { seat } => write!(out, "logind:{seat}"),
        }
    }
}

impl Source {
    /// Returns the name of the program in the foreground, as `/proc/PID/comm` gives it: that of the
    /// oldest process of the group, for a session without its leader, which only opens it. Empty:
    /// there is none now.
    pub fn program(&self) -> String {
        self.program_in(Path::new("/"))
    }

    fn program_in(&self, root: &Path) -> String {
        let (group, leader) = match self {
            Source::Group(path) => (root.join(path.strip_prefix("/").unwrap_or(path)), None),
            Source::Logind { seat } => match session(root, seat) {
                Some((group, leader)) => (group, Some(leader)),
                None => return String::new(),
            },
        };
        let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        let processes = text.lines().filter_map(|line| line.trim().parse::<u32>().ok());
        let started = processes.filter(|pid| Some(*pid) != leader).filter_map(|pid| {
            let process = root.join(format!("proc/{pid}"));
            Some((started(&fs::read_to_string(process.join("stat")).ok()?)?, pid, process))
        });
        let Some((_, _, process)) = started.min() else { return String::new() };
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        name.trim_end_matches('\n').to_owned()
    }
}

/// Returns the group and the leader of the session that a seat shows.
fn session(root: &Path, seat: &str) -> Option<(PathBuf, u32)> {
    let value = |text: &str, key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
        Some(line.to_owned())
    };
    let seats = fs::read_to_string(root.join("run/systemd/seats").join(seat)).ok()?;
    let active = value(&seats, "ACTIVE")?;
    let text = fs::read_to_string(root.join("run/systemd/sessions").join(&active)).ok()?;
    let leader: u32 = value(&text, "LEADER")?.parse().ok()?;
    // The leader stays in the scope of its session.
    let groups = fs::read_to_string(root.join(format!("proc/{leader}/cgroup"))).ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    let point = super::memory::root_of_groups(&mounts)?;
    let point = point.strip_prefix("/").unwrap_or(&point);
    Some((root.join(point).join(path), leader))
}

/// Returns the start time of a process, in ticks since boot, from its `stat`: the 22nd field. The
/// second, the name, may contain spaces and parentheses.
fn started(stat: &str) -> Option<u64> {
    stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(root: &Path, pid: u32, name: &str, started: u64) {
        let folder = root.join(format!("proc/{pid}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("comm"), format!("{name}\n")).unwrap();
        let fields = "S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0";
        fs::write(folder.join("stat"), format!("{pid} ({name}) {fields} {started} 5 6\n")).unwrap();
    }

    #[test]
    fn the_program_of_a_group_is_its_oldest_process() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("dev/cpuset/top-app");
        fs::create_dir_all(&group).unwrap();
        let source: Source = "cgroup:/dev/cpuset/top-app".parse().unwrap();
        assert_eq!(source.program_in(root.path()), "", "the group has no list");
        process(root.path(), 40, "a) b (c", 7);
        process(root.path(), 9, "helper", 80);
        fs::write(group.join("cgroup.procs"), "9\n40\n77\n").unwrap();
        assert_eq!(source.program_in(root.path()), "a) b (c");
        fs::write(group.join("cgroup.procs"), "").unwrap();
        assert_eq!(source.program_in(root.path()), "");
    }

    #[test]
    fn the_program_of_a_seat_is_that_of_its_active_session() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        let source: Source = "logind".parse().unwrap();
        assert_eq!(source.program_in(root.path()), "", "there is no logind");
        for folder in
            ["run/systemd/seats", "run/systemd/sessions", "proc/self", "cg/user/session-4.scope"]
        {
            fs::create_dir_all(at(folder)).unwrap();
        }
        fs::write(at("run/systemd/seats/seat0"), "IS_SEAT0=1\nACTIVE=4\nACTIVE_UID=1\n").unwrap();
        fs::write(at("run/systemd/sessions/4"), "UID=1\nSCOPE=session-4.scope\nLEADER=20\n")
            .unwrap();
        fs::write(at("proc/self/mountinfo"), "1 1 0:3 / /cg rw - cgroup2 none rw\n").unwrap();
        process(root.path(), 20, "login", 1);
        process(root.path(), 21, "kiosk", 2);
        fs::write(at("proc/20/cgroup"), "0::/user/session-4.scope\n").unwrap();
        fs::write(at("cg/user/session-4.scope/cgroup.procs"), "20\n21\n").unwrap();
        assert_eq!(source.program_in(root.path()), "kiosk");
    }

    #[test]
    fn sources_are_read_as_they_are_written() {
        for text in ["cgroup:/a/b", "logind:seat1"] {
            assert_eq!(text.parse::<Source>().unwrap().to_string(), text);
        }
        for (text, why) in [
            ("cgroup:a", "has to begin with /"),
            ("logind:", "is no seat"),
            ("logind:../x", "is no seat"),
            ("top-app", "is no source"),
        ] {
            assert!(text.parse::<Source>().unwrap_err().contains(why), "{text}");
        }
    }

    /// A real process, this one: the fields are where the kernel puts them.
    #[test]
    fn the_start_of_this_process_is_found() {
        let (own, init) =
            (fs::read_to_string("/proc/self/stat"), fs::read_to_string("/proc/1/stat"));
        assert!(started(&own.unwrap()).unwrap() > started(&init.unwrap()).unwrap());
    }
}
