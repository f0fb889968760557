//! The settings by which this machine's kernel writes dirty pages (`vm.dirty_*`).

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The settings of the kernel's flusher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flusher {
    /// Age at which a file is written, µs.
    pub expire_us: u64,
    /// Interval at which the flusher runs, µs; 0: it never does.
    pub tick_us: u64,
    /// Dirty bytes above which it writes the oldest files at once. A ratio is that of the memory
    /// that is available now.
    pub background_bytes: u64,
}

/// Reads the settings.
///
/// # Errors
///
/// A file of /proc cannot be read, or has another form than the kernel documents.
pub fn settings() -> io::Result<Flusher> {
    settings_in(Path::new("/proc"))
}

fn settings_in(proc: &Path) -> io::Result<Flusher> {
    let setting = |name: &str| number(&proc.join("sys/vm").join(name));
    let background_bytes = match setting("dirty_background_bytes")? {
        0 => available_bytes(proc.join("meminfo"))? / 100 * setting("dirty_background_ratio")?,
        bytes => bytes,
    };
    Ok(Flusher {
        expire_us: setting("dirty_expire_centisecs")?.saturating_mul(10_000),
        tick_us: setting("dirty_writeback_centisecs")?.saturating_mul(10_000),
        background_bytes,
    })
}

fn number(path: &Path) -> io::Result<u64> {
    fs::read_to_string(path)?.trim().parse().map_err(|_| malformed(path))
}

fn available_bytes(path: PathBuf) -> io::Result<u64> {
    let text = fs::read_to_string(&path)?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.and_then(|kib| kib.checked_mul(1024)).ok_or_else(|| malformed(&path))
}

fn malformed(path: &Path) -> io::Error {
    io::Error::other(format!("{} has an unexpected form", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proc(background: [&str; 2]) -> tempfile::TempDir {
        let proc = tempfile::tempdir().unwrap();
        fs::create_dir_all(proc.path().join("sys/vm")).unwrap();
        let [bytes, ratio] = background;
        for (name, value) in [
            ("dirty_background_bytes", bytes),
            ("dirty_background_ratio", ratio),
            ("dirty_expire_centisecs", "3000\n"),
            ("dirty_writeback_centisecs", "500\n"),
        ] {
            fs::write(proc.path().join("sys/vm").join(name), value).unwrap();
        }
        fs::write(
            proc.path().join("meminfo"),
            "MemTotal:  2000 kB\nMemAvailable:    1000 kB\nBuffers: 1 kB\n",
        )
        .unwrap();
        proc
    }

    #[test]
    fn a_ratio_is_of_the_available_memory() {
        let (expire_us, tick_us) = (30_000_000, 5_000_000);
        let ratio = settings_in(proc(["0\n", "10\n"]).path()).unwrap();
        let bytes = settings_in(proc(["4096\n", "0\n"]).path()).unwrap();
        assert_eq!(ratio, Flusher { expire_us, tick_us, background_bytes: 102_400 });
        assert_eq!(bytes, Flusher { expire_us, tick_us, background_bytes: 4096 });
        assert!(settings_in(proc(["0\n", "ten\n"]).path()).is_err());
        assert!(settings_in(Path::new("/nowhere")).is_err());
    }

    #[test]
    fn this_machine_has_settings() {
        let settings = settings().unwrap();
        assert!(settings.background_bytes > 0, "{settings:?}");
    }
}
