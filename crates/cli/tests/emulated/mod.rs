//! A guest with another kernel, emulated: `guest/boot` describes it.

use flashsift_testbed::{has, skip};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Debian's kernel: where in target/guest it is.
pub(crate) const DEBIAN: &str = "";
/// The folder in target/guest of the kernels for another architecture.
const ARM64: &str = "arm64";

/// Directory of the guest: the programs are installed, and `make test` has unpacked the kernel.
/// `None`, with a message that names the test, if one of them is missing.
pub(crate) fn guest(kernel: &str) -> Option<PathBuf> {
    let emulator = if Path::new(kernel).starts_with(ARM64) {
        "qemu-system-aarch64"
    } else {
        "qemu-system-x86_64"
    };
    let missing = [emulator, "mkfs.f2fs"].into_iter().find(|program| !has(program));
    let home = std::env::var_os("FLASHSIFT_GUEST")
        .map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/guest"),
            PathBuf::from,
        )
        .join(kernel);
    match missing {
        Some(program) => skip(format_args!("{program} is not installed")),
        None if !home.join("initrd").exists() => {
            skip(format_args!("no Debian kernel was unpacked to {}", home.display()))
        }
        None => Some(home),
    }
}

/// A file of the directory `guest`, as the guest has it, too.
pub(crate) fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest").join(name)
}

/// Runs the bash scripts in a guest whose card has that file system, each after a power cut; the
/// directory is its /out. `options` are environment variables of `boot`, unless the test has them.
/// False, and the test is skipped, if no guest stayed awake: the emulation of qemu 7.2 sometimes
/// loses a wake-up, and the guest sleeps for good.
pub(crate) fn run(
    guest: &Path,
    file_system: &str,
    options: &[(&str, &str)],
    out: &Path,
    scripts: &[&str],
) -> bool {
    let tries = (0..2).map(|_| {
        let _ = fs::remove_file(out.join("card"));
        scripts.iter().all(|script| run_one(guest, file_system, options, out, script))
    });
    let ran = tries.into_iter().any(|awake| awake);
    assert!(ran || !out.join("begun").exists(), "twice its command did not end");
    ran || skip("the emulated guest fell asleep twice")
}

/// False if the guest had to be ended.
fn run_one(
    guest: &Path,
    file_system: &str,
    options: &[(&str, &str)],
    out: &Path,
    script: &str,
) -> bool {
    fs::write(out.join("command"), script).unwrap();
    const TIMED_OUT: i32 = 124;
    let mut boot = Command::new(here("boot"));
    boot.envs(options.iter().filter(|(name, _)| std::env::var_os(name).is_none()).copied());
    let console = boot.arg(guest).arg(file_system).arg(out).stdin(Stdio::null()).output().unwrap();
    let printed = format!(
        "the guest says:\n{}{}",
        String::from_utf8_lossy(&console.stdout),
        String::from_utf8_lossy(&console.stderr)
    );
    if console.status.code() == Some(TIMED_OUT) {
        eprintln!("ended after its time: {printed}");
        return false;
    }
    let status = fs::read_to_string(out.join("status")).unwrap_or_else(|_| "none".to_owned());
    assert_eq!(status.trim(), "0", "{printed}");
    true
}
