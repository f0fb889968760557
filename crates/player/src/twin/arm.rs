//! One arm of a twin: a loop device in memory, a file system on it, a mount that no directory
//! shows.

use super::{loop_device::LoopDevice, setting::Setting};
use crate::Error;
use rustix::{
    fs::{Mode, OFlags, openat},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag,
        fsconfig_set_string, fsmount, fsopen,
    },
};
use std::{os::fd::OwnedFd, path::Path, process::Command};

/// A mount; it ends when its last file is closed, also if this process is killed.
#[derive(Debug)]
pub(super) struct Mounted {
    _mount: OwnedFd,
}

/// Makes the file system of a setting.
pub(super) fn make(setting: &Setting, device: &LoopDevice) -> Result<(), Error> {
    let [program, arguments @ ..] = setting.file_system.make else {
        unreachable!("each file system has a program")
    };
    let output = Command::new(program)
        .args(arguments)
        .args(&setting.make)
        .arg(&device.path)
        .output()
        .map_err(|error| Error::system(format!("{program} ({})", setting.label), error))?;
    if output.status.success() {
        return Ok(());
    }
    let says = String::from_utf8_lossy(&output.stderr);
    Err(Error::Refused(format!("{}: {program} failed: {}", setting.label, says.trim())))
}

/// Mounts it, and returns the mount and its root.
pub(super) fn mount(setting: &Setting, device: &Path) -> Result<(Mounted, OwnedFd), Error> {
    let failed = |what: &str, error: Errno, says: String| {
        let says = if says.is_empty() { error.to_string() } else { says };
        Error::Refused(format!("{}: {what}: {says}", setting.label))
    };
    let name = setting.file_system.name;
    let context = fsopen(name, FsOpenFlags::FSOPEN_CLOEXEC).map_err(|error| match error {
        Errno::NODEV => failed("mounting", error, format!("the kernel has no {name}")),
        error => failed("mounting", error, String::new()),
    })?;
    for option in &setting.mount {
        let done = match option.split_once('=') {
            Some((key, value)) => fsconfig_set_string(&context, key, value),
            None => fsconfig_set_flag(&context, option.as_str()),
        };
        done.map_err(|error| failed(&format!("option `{option}`"), error, messages(&context)))?;
    }
    let done = fsconfig_set_string(&context, "source", device)
        .and_then(|()| fsconfig_create(&context))
        .and_then(|()| {
            let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
            fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        });
    let mount = done.map_err(|error| failed("mounting", error, messages(&context)))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(&mount, ".", flags, Mode::empty())
        .map_err(|error| failed("mounting", error, String::new()))?;
    Ok((Mounted { _mount: mount }, root))
}

/// The kernel's messages on a mount that failed.
fn messages(context: &OwnedFd) -> String {
    let mut all = Vec::new();
    let mut buffer = [0; 1024];
    while let Ok(len @ 1..) = rustix::io::read(context, &mut buffer) {
        let text = String::from_utf8_lossy(&buffer[..len]);
        // A letter for the severity stands before each.
        all.push(text.trim().trim_start_matches(['e', 'w', 'i']).trim().to_owned());
    }
    all.join("; ")
}
