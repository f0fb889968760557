//! Reads the state before a recording begins: mounts, processes, files.

use crate::fanotify::{handle_of, printable};
use flashsift_traces::tracepoint::{Dev, Inode, Machine, Mapping, Name, NameKind, Point, What};
use std::{
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

/// A mounted file system.
#[derive(Clone, Debug)]
pub(crate) struct Mounted {
    pub(crate) dev: Dev,
    pub(crate) kind: String,
    pub(crate) path: PathBuf,
    pub(crate) block_bytes: u64,
}

/// Returns the kernel's device number for `st_dev`.
pub(crate) fn dev_of(st_dev: u64) -> Dev {
    Dev::new(rustix::fs::major(st_dev), rustix::fs::minor(st_dev))
}

/// Lists the mounted file systems that can be recorded, each once.
pub(crate) fn mounts() -> Vec<Mounted> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut mounts: Vec<Mounted> = Vec::new();
    for line in text.lines() {
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let fields: Vec<_> = before.split(' ').collect();
        let (Some(dev), Some(root), Some(path)) = (fields.get(2), fields.get(3), fields.get(4)) else {
            continue;
        };
        let kind = after.split(' ').next().unwrap_or_default();
        let Some(dev) = Dev::parse(dev) else { continue };
        // A bind mount of a part of the file system would give wrong paths.
        if !matches!(kind, "ext4" | "f2fs") || *root != "/" || mounts.iter().any(|m| m.dev == dev) {
            continue;
        }
        let path = PathBuf::from(unescaped(path));
        let block_bytes = rustix::fs::statvfs(&path).map_or(4096, |stat| stat.f_bsize);
        mounts.push(Mounted { dev, kind: kind.to_owned(), path, block_bytes });
    }
    mounts
}

/// Replaces escapes of mountinfo, such as `\\040` for a space.
fn unescaped(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        match after.get(..3).and_then(|octal| u8::from_str_radix(octal, 8).ok()) {
            Some(byte) => {
                out.push(char::from(byte));
                rest = &after[3..];
            }
            None => {
                out.push('\\');
                rest = after;
            }
        }
    }
    out + rest
}

/// Returns the threads of a process.
pub(crate) fn threads(pid: u32) -> Vec<u32> {
    numbers(&format!("/proc/{pid}/task"))
}

fn numbers(folder: &str) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Passes all running processes to the state machine: their threads, and for those in `pids` (for
/// all, if `None`) descriptors and mappings.
pub(crate) fn processes(machine: &mut Machine, pids: Option<&[u32]>, at_ns: u64, points: &mut Vec<Point>) {
    for pid in numbers("/proc") {
        let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        let name = printable(name.strip_suffix(b"\n").unwrap_or(&name));
        for tid in threads(pid) {
            machine.found_task(tid, pid, &name);
        }
        if pids.is_some_and(|pids| !pids.contains(&pid)) {
            continue;
        }
        for fd in numbers(&format!("/proc/{pid}/fd")) {
            let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
            let offset = info.lines().find_map(|line| line.strip_prefix("pos:")?.trim().parse().ok());
            if let (Some(offset), Ok(fd)) = (offset, i32::try_from(fd)) {
                machine.found_descriptor(pid, fd, offset);
            }
        }
        let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
        let maps = String::from_utf8_lossy(&maps);
        points.extend(maps.lines().filter_map(mapping).map(|mapping| Point {
            at_ns,
            tid: pid,
            what: What::Map { pid, mapping },
        }));
    }
}

/// Parses a line such as `7f00-7f10 rw-s 00001000 07:00 12   /path`.
fn mapping(line: &str) -> Option<Mapping> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let shared = words.next()?.as_bytes().get(3) == Some(&b's');
    let offset = hex(words.next()?)?;
    let (major, minor) = words.next()?.split_once(':')?;
    let dev = Dev::new(u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let ino: u64 = words.next()?.parse().ok()?;
    let inode = (ino != 0).then_some(Inode { dev, ino });
    Some(Mapping { start: hex(start)?, end: hex(end)?, inode, offset, shared })
}

/// Passes the files below a directory, on its own device, to the state machine.
pub(crate) fn scan(root: &Path, now_ns: &dyn Fn() -> u64, take: &mut impl FnMut(Name)) {
    let Ok(meta) = root.metadata() else { return };
    let device = meta.dev();
    found(root, 0, now_ns(), take);
    let mut folders = vec![(root.to_owned(), meta.ino())];
    while let Some((folder, ino)) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            let path = entry.path();
            let is_folder = meta.is_dir();
            if meta.dev() != device || !(is_folder || meta.is_file()) {
                continue;
            }
            found(&path, ino, now_ns(), take);
            if is_folder {
                folders.push((path, meta.ino()));
            }
        }
    }
}

/// Passes one file or directory to `take`.
pub(crate) fn found(path: &Path, dir: u64, at_ns: u64, take: &mut impl FnMut(Name)) {
    let Ok(meta) = path.symlink_metadata() else { return };
    let Some(handle) = handle_of(path, dev_of(meta.dev())) else { return };
    take(Name {
        at_ns,
        tid: 0,
        handle,
        dir,
        path: printable(path.as_os_str().as_bytes()).into(),
        directory: meta.is_dir(),
        kind: NameKind::Found { size: meta.len() },
    });
}

/// Passes the open files of a process to `take`, with their paths.
pub(crate) fn open_files(pid: u32, at_ns: u64, take: &mut impl FnMut(Name)) {
    for fd in numbers(&format!("/proc/{pid}/fd")) {
        if let Ok(path) = fs::read_link(format!("/proc/{pid}/fd/{fd}"))
            && path.is_absolute()
        {
            found(&path, 0, at_ns, take);
        }
    }
}
