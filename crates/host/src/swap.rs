//! Active swap areas, and how much the kernel has swapped out.

use crate::mounts::unescaped;
use std::{ffi::OsString, fs, io, path::Path};

/// A swap area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swap {
    /// Device or file.
    pub path: OsString,
    /// Bytes in use.
    pub used_bytes: u64,
}

/// Lists the active swap areas. `proc`: `/proc`, or a folder of a test.
///
/// # Errors
///
/// `/proc/swaps` cannot be read.
pub fn areas(proc: &Path) -> io::Result<Vec<Swap>> {
    let text = fs::read(proc.join("swaps"))?;
    let lines = text.split(|&byte| byte == b'\n').skip(1);
    Ok(lines.filter_map(line).collect())
}

/// Parses a line: path, type, size, used (both KiB), priority.
fn line(line: &[u8]) -> Option<Swap> {
    let space = |byte: &u8| byte.is_ascii_whitespace();
    let mut words = line.split(space).filter(|word| !word.is_empty());
    let path = unescaped(words.next()?);
    let used_kib: u64 = std::str::from_utf8(words.nth(2)?).ok()?.parse().ok()?;
    Some(Swap { path, used_bytes: used_kib.saturating_mul(1024) })
}

/// Returns the bytes that were swapped out since the machine started.
///
/// # Errors
///
/// `/proc/vmstat` cannot be read, or has no such counter.
pub fn swapped_out_bytes(proc: &Path) -> io::Result<u64> {
    let path = proc.join("vmstat");
    let text = fs::read_to_string(&path)?;
    let pages = text.lines().find_map(|line| line.strip_prefix("pswpout ")?.trim().parse().ok());
    let pages: u64 = pages
        .ok_or_else(|| io::Error::other(format!("{} has no line `pswpout`", path.display())))?;
    Ok(pages.saturating_mul(rustix::param::page_size() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_and_counters_are_read() {
        let proc = tempfile::tempdir().unwrap();
        let swaps = "Filename\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
                     /dev/zram0   partition\t1024\t\t8\t\t100\n\
                     /a\\040swap\\040file file 99 0 -2\n";
        fs::write(proc.path().join("swaps"), swaps).unwrap();
        fs::write(proc.path().join("vmstat"), "pswpin 7\npswpout 3\n").unwrap();
        let found = areas(proc.path()).unwrap();
        assert_eq!(found.iter().map(|swap| swap.used_bytes).collect::<Vec<_>>(), [8192, 0]);
        assert_eq!(found[1].path, "/a swap file");
        let page = rustix::param::page_size() as u64;
        assert_eq!(swapped_out_bytes(proc.path()).unwrap(), 3 * page);
        fs::write(proc.path().join("vmstat"), "pswpin 7\n").unwrap();
        assert!(swapped_out_bytes(proc.path()).is_err());
    }
}
