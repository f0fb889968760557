//! Looks at programs while they run, and at files and directories at the end, for the remedies that
//! depend on them.

use flashsift_events::{
    event::{Action, Event},
    names::{escape, unescape},
};
use flashsift_host::{executable, inside::Inside, mounts::Table};
use flashsift_study::doctor::{Doctor, Ends, EntryKind, Inode, Inspect, ProgramFacts};
use rustix::fs::FileType;
use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

/// The most entries of a directory that is looked at.
const ENTRIES_MAX: usize = 200_000;

/// Programs that sync files. A process is looked at when its first sync is seen.
#[derive(Default)]
pub(super) struct Programs {
    /// By process, until it runs another program.
    seen: HashMap<u32, Box<str>>,
    /// `None`: one of its processes could not be examined.
    found: BTreeMap<Box<str>, Option<ProgramFacts>>,
}

impl Programs {
    /// Takes events that `doctor` has taken.
    pub(super) fn take(&mut self, events: &[Event<'_>], doctor: &Doctor) {
        for event in events {
            if !matches!(event.action, Action::Sync { .. }) {
                continue;
            }
            let name = doctor.program_of(event.pid);
            if self.seen.get(&event.pid) != Some(&name) {
                self.add(&name, examined(event.pid));
                self.seen.insert(event.pid, name);
            }
        }
    }

    fn add(&mut self, name: &str, process: Option<ProgramFacts>) {
        let Some(known) = self.found.get_mut(name) else {
            self.found.insert(name.into(), process);
            return;
        };
        *known = known.take().zip(process).map(|(mut known, process)| {
            known.obeys_preload &= process.obeys_preload;
            known.open_files.extend(process.open_files);
            known
        });
    }
}

/// `None` where the process has ended, or its program cannot be examined.
fn examined(pid: u32) -> Option<ProgramFacts> {
    let program = executable::executable_of(pid).ok()?;
    let obeys_preload =
        program.is_dynamic && program.is_native && !program.is_go && !program.is_privileged;
    // The links are read, not followed.
    let open = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    let paths = open.filter_map(|entry| fs::read_link(entry.path()).ok());
    let open_files = paths.filter(|path| path.is_absolute());
    let open_files = open_files.map(|path| escape(path.as_os_str().as_bytes()).into());
    Some(ProgramFacts { obeys_preload, open_files: open_files.collect() })
}

/// The file systems and programs that were watched.
pub(super) struct Inspector {
    table: Table,
    /// By number of the mount.
    file_systems: HashMap<u64, Inside>,
    programs: Programs,
}

impl Inspector {
    /// `points`: mount points of the watched file systems.
    pub(super) fn new<'a>(
        table: Table,
        points: impl Iterator<Item = &'a Path>,
        programs: Programs,
    ) -> Self {
        let mounts = points.filter_map(|point| table.get(point));
        let mounts = mounts.filter(|mount| table.is_reachable(mount));
        let opened = mounts.filter_map(|mount| Some((mount.id, Inside::new(mount).ok()?)));
        Self { file_systems: opened.collect(), table, programs }
    }

    /// Returns the watched file system of a path.
    fn file_system(&self, path: &Path) -> Option<&Inside> {
        self.file_systems.get(&self.table.get(path)?.id)
    }
}

impl Inspect for Inspector {
    fn ends(&self, file: &str) -> Option<Ends> {
        let path = unescape(file);
        let path = Path::new(OsStr::from_bytes(&path));
        let inside = self.file_system(path)?;
        let ends = inside.ends(path, Ends::HEAD_BYTES, Ends::TAIL_BYTES).ok()?;
        Some(Ends { head: ends.head, tail: ends.tail })
    }

    fn inode(&self, file: &str) -> Option<Inode> {
        let path = unescape(file);
        let path = Path::new(OsStr::from_bytes(&path));
        let file = self.file_system(path)?.file(path).ok()?;
        let about = file.metadata().ok()?;
        let extents = flashsift_record::extents(&file).ok()?;
        Some(Inode { dev: about.dev(), number: about.ino(), extents })
    }

    fn entries(&self, directory: &str, each: &mut dyn FnMut(&str, EntryKind)) -> bool {
        let path = unescape(directory);
        let path = Path::new(OsStr::from_bytes(&path));
        let mut pass = |path: &Path, kind| {
            let kind = match kind {
                FileType::Directory => EntryKind::Directory,
                FileType::RegularFile => EntryKind::File,
                FileType::Symlink => EntryKind::Link,
                _ => EntryKind::Other,
            };
            each(&escape(path.as_os_str().as_bytes()), kind);
        };
        let inside = self.file_system(path);
        inside.is_some_and(|inside| {
            inside.walk(path, ENTRIES_MAX, &mut pass).is_ok_and(|complete| complete)
        })
    }

    fn program(&self, name: &str) -> Option<ProgramFacts> {
        self.programs.found.get(name)?.clone()
    }

    /// Docker's, or Podman's of root or of a user. Files are read only on file systems that are
    /// watched.
    fn container(&self, id: &str) -> Option<String> {
        if !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let read = |path: &Path| {
            self.file_system(path)?;
            serde_json::from_slice::<serde_json::Value>(&fs::read(path).ok()?).ok()
        };
        let docker = Path::new("/var/lib/docker/containers").join(id).join("config.v2.json");
        if let Some(about) = read(&docker) {
            return Some(about.get("Name")?.as_str()?.trim_start_matches('/').to_owned());
        }
        let home = Path::new("/home");
        let homes = self.file_system(home).and_then(|_| fs::read_dir(home).ok());
        let homes = homes.into_iter().flatten().flatten();
        let of_users = homes.map(|home| home.path().join(".local/share/containers/storage"));
        let stores = std::iter::once("/var/lib/containers/storage".into()).chain(of_users);
        let lists = stores.flat_map(|store: PathBuf| {
            ["containers.json", "volatile-containers.json"]
                .map(|file| store.join("overlay-containers").join(file))
        });
        lists.filter_map(|list| read(&list)).find_map(|list| name_in(&list, id))
    }
}

/// The name of a container in Podman's list.
fn name_in(list: &serde_json::Value, id: &str) -> Option<String> {
    let is_it = |one: &&serde_json::Value| one.get("id").is_some_and(|found| found == id);
    let container = list.as_array()?.iter().find(is_it)?;
    Some(container.get("names")?.get(0)?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All processes of a program count, and one that could not be examined forbids a guess.
    #[test]
    fn a_program_is_known_if_all_its_processes_are() {
        let facts = |obeys_preload, file: &str| {
            Some(ProgramFacts { obeys_preload, open_files: [file.into()].into() })
        };
        let mut programs = Programs::default();
        programs.add("both", facts(true, "/a"));
        programs.add("both", facts(true, "/b"));
        programs.add("one", facts(true, "/a"));
        programs.add("one", None);
        programs.add("one", facts(true, "/a"));
        programs.add("static", facts(true, "/a"));
        programs.add("static", facts(false, "/a"));
        let both = programs.found["both"].clone().unwrap();
        assert_eq!((both.obeys_preload, both.open_files.len()), (true, 2));
        assert_eq!(programs.found["one"], None);
        assert!(!programs.found["static"].as_ref().unwrap().obeys_preload);
        assert_eq!(examined(u32::MAX), None);
    }

    /// As Podman 4.3 writes it.
    #[test]
    fn podman_lists_names() {
        let list = serde_json::json!([
            {"id": "aa", "names": ["one"], "image": "1"},
            {"id": "bb", "names": ["zigbee"], "metadata": "{}"},
            {"id": "cc"}
        ]);
        let name = |id: &str| name_in(&list, id);
        assert_eq!((name("bb").as_deref(), name("cc"), name("dd")), (Some("zigbee"), None, None));
    }
}
