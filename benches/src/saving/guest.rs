//! Rows on F2FS in an emulated guest, where this machine's kernel has no F2FS. The guest runs
//! Debian's kernel, which `make setup` unpacks for tests.

use super::{Options, rows::Row};
use anyhow::{Context, ensure};
use flashsift_testbed::has;
use std::{env, fs, path::Path, process::Command};

const BOOT: &str = "crates/cli/tests/guest/boot";
const KERNEL: &str = "target/guest/mount";

/// Returns the reason for which no guest can run here.
pub(super) fn cannot_run() -> Option<String> {
    for file in [BOOT, "target/guest/mount/initrd"] {
        if !Path::new(file).exists() {
            return Some(format!("{file} is missing"));
        }
    }
    let missing = ["qemu-system-x86_64", "mkfs.f2fs"].into_iter().find(|name| !has(name));
    missing.map(|program| format!("{program} is not installed"))
}

/// Runs rows in a guest. Returns their table and the guest's kernel.
pub(super) fn table(
    options: &Options,
    rows: &[&'static Row],
    rounds: usize,
    dir: &Path,
) -> anyhow::Result<String> {
    let out = tempfile::tempdir_in(dir)?;
    let quoted = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', "'\\''"));
    let names: Vec<_> = rows.iter().map(|row| row.name).collect();
    let quick = if options.quick { "--quick" } else { "" };
    let script = format!(
        "cd {} && {} --saving --file-system f2fs --no-knobs {quick} --rounds {rounds} --rows {} \
         --program {} --mount-options={} -o /out/F2FS.md",
        quoted(&env::current_dir()?),
        quoted(&env::current_exe()?),
        names.join(","),
        quoted(&options.program.canonicalize()?),
        quoted(Path::new(&options.mount_options)),
    );
    fs::write(out.path().join("command"), script)?;
    let mut boot = Command::new(BOOT);
    boot.args([KERNEL, "f2fs"]).arg(out.path());
    // The longest row takes 500 s, and the processor is emulated.
    boot.env("FLASHSIFT_GUEST_SECONDS", "1500").env("FLASHSIFT_GUEST_MEMORY", "6G");
    let output = boot.output().context(BOOT)?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    let status = fs::read_to_string(out.path().join("status")).unwrap_or_default();
    ensure!(status.trim() == "0", "the guest ended with {:?}: {said}", output.status.code());
    let text = fs::read_to_string(out.path().join("F2FS.md"))?;
    let kernel = text.lines().find(|line| line.contains(" Linux ")).context("a kernel")?;
    let begin = text.find("## On f2fs").context("a table")?;
    let section = &text[begin + 3..];
    let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
    Ok(format!("## {}\n\nIn an emulated guest: {kernel}\n", section.trim_end()))
}
