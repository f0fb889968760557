//! Looks at the file that a process runs: whether a library can be put in front of its system calls
//! with `LD_PRELOAD`.
//!
//! Only the dynamic linker reads `LD_PRELOAD`. A statically linked program has none, a program in
//! Go calls the kernel without a library, and a program with privileges of its own ignores the
//! variable.

use crate::{inside, mounts::Table};
use rustix::{
    fd::AsRawFd,
    fs::{CWD, Mode, OFlags, fgetxattr, openat},
};
use std::{
    fs::{self, File},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, MetadataExt},
    },
};

/// Properties of an executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Executable {
    /// It names a dynamic linker.
    pub is_dynamic: bool,
    /// It is of the same word size as this program.
    pub is_native: bool,
    /// It was made by the Go compiler.
    pub is_go: bool,
    /// It has the rights of its owner or its group, or capabilities.
    pub is_privileged: bool,
}

/// Looks at the file that a process runs. A file on a file system that may not answer is not
/// accessed.
///
/// # Errors
///
/// The process has ended or is a thread of the kernel, or its file is no ELF file or cannot be
/// read.
pub fn executable_of(pid: u32) -> io::Result<Executable> {
    let link = format!("/proc/{pid}/exe");
    let path = fs::read_link(&link)?;
    // Its mappings name the device, and are read without access to the file.
    let maps = fs::read(format!("/proc/{pid}/maps"))?;
    let dev_in = |line: &[u8]| {
        let (before, mapped) = line.split_at(line.iter().position(|&byte| byte == b'/')?);
        let dev = before.split(|&byte| byte == b' ').nth(3)?;
        (mapped == path.as_os_str().as_bytes()).then(|| crate::users::hexadecimal(dev))?
    };
    let dev = maps.split(|&byte| byte == b'\n').find_map(dev_in);
    let table = Table::read()?;
    let is_local = |dev| table.all().iter().any(|mount| mount.dev == dev && mount.is_local());
    let unknown = || io::Error::other("it is not known to be on a local file system");
    let dev = dev.filter(|dev| is_local(*dev)).ok_or_else(unknown)?;
    let file = openat(CWD, &link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    // The process may run another file meanwhile. Files of a volume of btrfs have another number.
    if inside::dev_of(&file)? != dev && !is_on_volume(&table, dev) {
        return Err(unknown());
    }
    let again = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    in_file(&File::from(openat(CWD, again, flags, Mode::empty())?))
}

fn is_on_volume(table: &Table, dev: rustix::fs::Dev) -> bool {
    let kinds = ["btrfs", "bcachefs", "overlay"];
    table.all().iter().any(|mount| mount.dev == dev && kinds.contains(&&*mount.kind))
}

const PT_LOAD: u64 = 1;
const PT_INTERP: u64 = 3;
const PT_NOTE: u64 = 4;
const PF_W: u64 = 2;
/// `debug/buildinfo` of Go: the beginning of the data that a program says its version with.
const GO_INFO: &[u8] = b"\xff Go buildinf:";
/// Name in the note with the build's number.
const GO_NOTE: &[u8] = b"Go\0\0";
const GO_SECTIONS: [&[u8]; 2] = [b".go.buildinfo\0", b".note.go.buildid\0"];
/// Parts of a file that are read at most, bytes.
const PART_MAX: u64 = 64 << 10;
/// Programs have about a dozen. A file with thousands of them would take seconds to read.
const SEGMENTS_MAX: usize = 64;

fn in_file(file: &File) -> io::Result<Executable> {
    let malformed = || io::Error::other("it has no complete head of an ELF file");
    let mut head = [0; 64];
    file.read_exact_at(&mut head, 0)?;
    if !head.starts_with(b"\x7fELF") {
        return Err(malformed());
    }
    let elf = Elf { is_64: head[4] == 2, is_big: head[5] == 2 };
    let part = |at: u64, len: u64| {
        let mut bytes = vec![0; len.min(PART_MAX) as usize];
        let read = file.read_at(&mut bytes, at)?;
        bytes.truncate(read);
        io::Result::Ok(bytes)
    };
    let table = |at: Option<u64>, size: Option<u64>, count: Option<u64>| {
        let [at, size, count] = [at, size, count].map(|number| number.ok_or_else(malformed));
        let (at, size, count) = (at?, size?, count?);
        let bytes = part(at, size * count)?;
        if size == 0 || bytes.len() as u64 != size * count {
            return Err(malformed());
        }
        Ok(bytes.chunks_exact(size as usize).map(<[u8]>::to_vec).collect::<Vec<_>>())
    };
    // Offsets of fields in 32-bit and 64-bit files.
    let half = |at: [usize; 2]| elf.number(&head, at, 2);
    let word = |bytes: &[u8], at| elf.number(bytes, at, 4);
    let address = |bytes: &[u8], at| elf.number(bytes, at, if elf.is_64 { 8 } else { 4 });
    let segments = table(address(&head, [28, 32]), half([42, 54]), half([44, 56]))?;
    if segments.len() > SEGMENTS_MAX {
        return Err(malformed());
    }
    let (mut is_dynamic, mut is_go) = (false, false);
    for segment in &segments {
        let place = || {
            let (at, len) = (address(segment, [4, 8])?, address(segment, [16, 32])?);
            part(at, len).ok()
        };
        match word(segment, [0, 0]) {
            Some(PT_INTERP) => is_dynamic = true,
            Some(PT_NOTE) => is_go |= place().is_some_and(|note| contains(&note, GO_NOTE)),
            Some(PT_LOAD) if word(segment, [24, 4]).is_some_and(|flags| flags & PF_W != 0) => {
                is_go |= place().is_some_and(|data| contains(&data, GO_INFO));
            }
            _ => {}
        }
    }
    let count = half([48, 60]).unwrap_or_default();
    if count > 0 && !is_go {
        let sections = table(address(&head, [32, 40]), half([46, 58]), Some(count))?;
        let names = half([50, 62]).and_then(|names| sections.get(usize::try_from(names).ok()?));
        let names = names
            .and_then(|names| part(address(names, [16, 24])?, address(names, [20, 32])?).ok())
            .unwrap_or_default();
        is_go = GO_SECTIONS.iter().any(|name| contains(&names, name));
    }
    let mut capabilities = [0; 64];
    let has_capabilities = fgetxattr(file, "security.capability", &mut capabilities[..]).is_ok();
    Ok(Executable {
        is_dynamic,
        is_native: elf.is_64 == cfg!(target_pointer_width = "64"),
        is_go,
        is_privileged: file.metadata()?.mode() & 0o6000 != 0 || has_capabilities,
    })
}

/// Form of an ELF file.
struct Elf {
    is_64: bool,
    is_big: bool,
}

impl Elf {
    /// Reads a number of so many bytes. `at`: its offset in 32-bit and in 64-bit files.
    fn number(&self, bytes: &[u8], at: [usize; 2], len: usize) -> Option<u64> {
        let at = at[usize::from(self.is_64)];
        let bytes = bytes.get(at..at + len)?.iter();
        let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        Some(if self.is_big { bytes.fold(0, add) } else { bytes.rev().fold(0, add) })
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{os::unix::fs::PermissionsExt, process::Command};

    /// A 64-bit ELF file with these segments: type, flags and content.
    fn elf(segments: &[(u64, u64, &[u8])]) -> tempfile::NamedTempFile {
        let mut head = vec![0; 64];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        head[32] = 64;
        head[54] = 56;
        head[56] = u8::try_from(segments.len()).unwrap();
        let mut content = Vec::new();
        for (kind, flags, bytes) in segments {
            let at = (64 + segments.len() * 56 + content.len()) as u64;
            let mut segment = vec![0; 56];
            segment[..4].copy_from_slice(&u32::try_from(*kind).unwrap().to_le_bytes());
            segment[4..8].copy_from_slice(&u32::try_from(*flags).unwrap().to_le_bytes());
            segment[8..16].copy_from_slice(&at.to_le_bytes());
            segment[32..40].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
            head.extend(segment);
            content.extend_from_slice(bytes);
        }
        head.extend(content);
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), head).unwrap();
        file
    }

    #[test]
    fn dynamic_and_go_programs_are_known() {
        let look = |segments: &[(u64, u64, &[u8])]| in_file(elf(segments).as_file()).unwrap();
        let interp = (PT_INTERP, 4, &b"/lib64/ld-linux-x86-64.so.2\0"[..]);
        let data = (PT_LOAD, 6, &b"nothing of note"[..]);
        let found = look(&[interp, data]);
        assert!(found.is_dynamic && !found.is_go && !found.is_privileged);
        assert_eq!(found.is_native, cfg!(target_pointer_width = "64"));
        assert!(!look(&[data]).is_dynamic);
        let (note, info) =
            (b"\x04\0\0\0\x04\0\0\0\x04\0\0\0Go\0\0abcd", b"xx\xff Go buildinf:\x08");
        assert!(look(&[interp, data, (PT_NOTE, 4, note)]).is_go);
        assert!(look(&[interp, (PT_LOAD, 6, info)]).is_go);
        assert!(!look(&[interp, (PT_LOAD, 4, info)]).is_go, "text of another program");
    }

    #[test]
    fn what_is_no_program_is_an_error() {
        for content in [&b""[..], b"#!/bin/sh\n", &[0x7f; 100], b"\x7fELF\x02\x01"] {
            let file = tempfile::NamedTempFile::new().unwrap();
            fs::write(file.path(), content).unwrap();
            assert!(in_file(file.as_file()).is_err());
        }
        // The table of segments ends behind the file's end.
        let file = elf(&[(PT_LOAD, 6, b"x")]);
        file.as_file().set_len(70).unwrap();
        assert!(in_file(file.as_file()).is_err());
    }

    #[test]
    fn the_program_of_a_process_is_found() {
        let found = executable_of(std::process::id()).unwrap();
        assert!(found.is_native && !found.is_go && !found.is_privileged);
        assert_eq!(found.is_dynamic, !cfg!(target_feature = "crt-static"));
        assert!(executable_of(u32::MAX).is_err());
    }

    #[test]
    fn rights_of_the_owner_make_a_program_privileged() {
        let file = elf(&[(PT_INTERP, 4, b"/ld\0")]);
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(in_file(file.as_file()).unwrap().is_privileged);
        let file = elf(&[(PT_INTERP, 4, b"/ld\0")]);
        let set = Command::new("setcap").arg("cap_net_raw=ep").arg(file.path()).status();
        if set.is_ok_and(|status| status.success()) {
            assert!(in_file(file.as_file()).unwrap().is_privileged);
        }
    }
}
