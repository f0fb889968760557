//! Reads the facts about the machine that the examination needs.

use super::inspect::{Inspector, Programs};
use crate::devices;
use anyhow::Context;
use flashsift_events::{names::escape, page::PAGE_BYTES};
use flashsift_files::flusher::FlusherSettings;
use flashsift_host::{
    disks::{self, Counters},
    flusher,
    mounts::{self, Mount, Table},
    swap,
    wear::{self, Kind, LifeTime},
};
use flashsift_record as recorder;
use flashsift_study::doctor::{Disk, Facts, FileSystem, MountPoint, Swap};
use std::{
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::Command,
};
use tracing::{debug, warn};

const SYS: &str = "/sys";
const PROC: &str = "/proc";

/// The machine at the beginning of the examination.
pub(super) struct Watched {
    flusher: FlusherSettings,
    file_systems: Vec<FileSystem>,
    disks: Vec<(u64, disks::Disk)>,
    swapped_out_bytes: u64,
}

impl Watched {
    /// Reads settings and counters of the file systems of `paths`; of all, if there is none.
    pub(super) fn begin(paths: &[PathBuf]) -> anyhow::Result<Self> {
        let settings = flusher::settings().context("reading the kernel's write-back settings")?;
        let mut file_systems = Vec::new();
        let mut disks: Vec<(u64, disks::Disk)> = Vec::new();
        for point in recorder::file_systems(paths)? {
            let Some(mount) = mounts::at(&point).context("reading mounts")? else { continue };
            file_systems.push(FileSystem {
                mount: point.display().to_string(),
                kind: mount.kind,
                source: mount.source.to_string_lossy().into_owned(),
                options: mount.options,
            });
            // btrfs and network file systems have no disk; those that are recorded have one.
            match disks::disk_of(Path::new(SYS), mount.dev) {
                Ok(disk) if disks.iter().all(|(_, known)| known.name != disk.name) => {
                    disks.push((mount.dev, disk));
                }
                Ok(_) => {}
                Err(error) => {
                    warn!("the disk of {} is not counted: {error}", point.display());
                }
            }
        }
        Ok(Self {
            flusher: FlusherSettings {
                expire_us: settings.expire_us,
                tick_us: settings.tick_us,
                background_pages: settings.background_bytes / PAGE_BYTES,
            },
            file_systems,
            disks,
            swapped_out_bytes: swapped_out_bytes(),
        })
    }

    pub(super) fn flusher(&self) -> FlusherSettings {
        self.flusher
    }

    /// Reads what has changed since. `programs`: those that were seen meanwhile.
    pub(super) fn end(self, programs: Programs) -> anyhow::Result<(Facts, Inspector)> {
        let table = Table::read().context("reading mounts")?;
        let wears = wear::storage(Path::new(SYS)).unwrap_or_else(|error| {
            warn!("{error}");
            Vec::new()
        });
        let disks = self.disks.into_iter().map(|(dev, before)| {
            let now = disks::disk_of(Path::new(SYS), dev)
                .with_context(|| format!("the counters of {}", before.name))?;
            let Counters { read_bytes, written_bytes, discarded_bytes } =
                now.counters.since(before.counters);
            let register = wears.iter().find(|storage| storage.name == before.name);
            let is_memory_card = register.is_some_and(|storage| storage.kind == Kind::Sd);
            let (wear, life_used) = match register.map(|storage| &storage.kind) {
                Some(Kind::Sd) => (Some("an SD card: it tells no wear".to_owned()), None),
                Some(Kind::Emmc { wear } | Kind::Ufs { wear }) => {
                    (wear.map(|wear| in_words(&wear)), wear.and_then(|wear| share_used(&wear)))
                }
                None => {
                    let percent = smart(&before.name, &table);
                    (percent.map(smart_in_words), percent.map(|percent| percent as f64 / 100.0))
                }
            };
            let disks::Disk { name, model, capacity_bytes, .. } = before;
            Ok(Disk {
                name,
                model,
                capacity_bytes,
                written_bytes,
                read_bytes,
                discarded_bytes,
                is_memory_card,
                wear,
                life_used,
            })
        });
        let disks = disks.collect::<anyhow::Result<_>>()?;
        let swaps = swap::areas(Path::new(PROC)).unwrap_or_else(|error| {
            debug!("swap areas are unknown: {error}");
            Vec::new()
        });
        let swaps = swaps.into_iter().map(|swap| Swap {
            path: swap.path.to_string_lossy().into_owned(),
            used_bytes: swap.used_bytes,
        });
        let facts = Facts {
            flusher: self.flusher,
            file_systems: self.file_systems,
            disks,
            swaps: swaps.collect(),
            swapped_out_bytes: swapped_out_bytes().saturating_sub(self.swapped_out_bytes),
            trims: trims(&table),
            mounts: mount_points(&table),
            upper_directories: upper_directories(&table),
        };
        let points = facts.file_systems.iter().map(|system| Path::new(&system.mount));
        let inspector = Inspector::new(table, points, programs);
        Ok((facts, inspector))
    }
}

/// The mounts to which their mount points lead.
fn mount_points(table: &Table) -> Vec<MountPoint> {
    let is_there = |mount: &&Mount| table.get(&mount.point).is_some_and(|top| top.id == mount.id);
    let text = |path: &Path| escape(path.as_os_str().as_bytes()).into_owned();
    let point = |mount: &Mount| MountPoint {
        point: text(&mount.point),
        root: text(&mount.root),
        dev: mount.dev,
        kind: mount.kind.clone(),
    };
    table.all().iter().filter(is_there).map(point).collect()
}

/// The directories to which overlays write.
fn upper_directories(table: &Table) -> Vec<String> {
    let overlays = table.all().iter().filter(|mount| mount.kind == "overlay");
    let options = overlays.flat_map(|mount| &mount.options);
    let paths = options.filter_map(|option| option.strip_prefix("upperdir="));
    paths.map(|path| escape(mounts::unescaped(path.as_bytes()).as_bytes()).into_owned()).collect()
}

/// A program that is installed. Directories that may not answer are not searched.
fn installed(program: &str, table: &Table) -> Option<Command> {
    let path = std::env::var_os("PATH")?;
    let find = |directory: PathBuf| {
        let (found, mount) = table.find(&directory.join(program)).ok()?;
        (mount.is_local() && found.is_file()).then_some(found)
    };
    std::env::split_paths(&path).find_map(find).map(Command::new)
}

/// 0 where the kernel has no swap.
fn swapped_out_bytes() -> u64 {
    swap::swapped_out_bytes(Path::new(PROC)).unwrap_or_else(|error| {
        debug!("swap is not counted: {error}");
        0
    })
}

fn in_words(wear: &wear::Wear) -> String {
    let [a, b] = wear.life_time.map(devices::life_used);
    format!("life used: {a} (A), {b} (B)")
}

/// The share of the life that is used, of the memory that is worn most: the upper end of the tenth
/// that the register names.
fn share_used(wear: &wear::Wear) -> Option<f64> {
    let share = |life: &LifeTime| match life {
        LifeTime::NotDefined => None,
        LifeTime::PercentUsedBelow(percent) => Some(f64::from(*percent) / 100.0),
        LifeTime::Exceeded => Some(1.0),
    };
    wear.life_time.iter().filter_map(share).reduce(f64::max)
}

/// Asks `smartctl` for the wear of an NVMe or SATA disk, where it is installed.
fn smart(disk: &str, table: &Table) -> Option<u64> {
    let device = format!("/dev/{disk}");
    let output = installed("smartctl", table)?.args(["--json", "-a", &device]).output().ok()?;
    smart_percent(&output.stdout)
}

/// The percentage of its life that a disk has used, from the output of `smartctl --json -a`.
fn smart_percent(json: &[u8]) -> Option<u64> {
    let value: serde_json::Value = serde_json::from_slice(json).ok()?;
    let nvme = value.pointer("/nvme_smart_health_information_log/percentage_used");
    // ACS-4, Device Statistics log, page 7: Percentage Used Endurance Indicator.
    let pages = value.pointer("/ata_device_statistics/pages").and_then(|pages| pages.as_array());
    let sata = || {
        let tables = pages?.iter().filter_map(|page| page.get("table")?.as_array()).flatten();
        let named = |row: &&serde_json::Value| {
            row.get("name").is_some_and(|name| name == "Percentage Used Endurance Indicator")
        };
        tables.into_iter().find(named)?.get("value")
    };
    nvme.or_else(sata)?.as_u64()
}

fn smart_in_words(percent: u64) -> String {
    format!("{percent} % of its life used (SMART)")
}

/// Whether systemd trims file systems; `None` without systemd.
fn trims(table: &Table) -> Option<bool> {
    let mut command = installed("systemctl", table)?;
    let output = command.args(["is-enabled", "fstrim.timer"]).output().ok()?;
    match std::str::from_utf8(&output.stdout).ok()?.trim() {
        "enabled" => Some(true),
        "disabled" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_and_overlays_are_listed() {
        let table = "22 1 8:2 / / rw - ext4 /dev/sda2 rw\n\
            23 22 8:3 / /srv rw - ext4 /dev/sdb1 rw\n\
            24 23 8:4 /in /srv rw - ext4 /dev/sdc1 rw\n\
            25 22 0:40 / /merged rw - overlay overlay rw,lowerdir=/a,upperdir=/up\\040per\n";
        let table = Table::new(mounts::parse(table.as_bytes()));
        assert_eq!(upper_directories(&table), ["/up per"]);
        let listed = mount_points(&table);
        let listed: Vec<_> = listed.iter().map(|mount| (&*mount.point, &*mount.root)).collect();
        assert_eq!(listed, [("/", "/"), ("/srv", "/in"), ("/merged", "/")]);
    }

    /// The forms of smartctl 7.3 for NVMe and for SATA.
    #[test]
    fn smart_tells_the_used_life() {
        let nvme = br#"{"nvme_smart_health_information_log":{"percentage_used":7}}"#;
        assert_eq!(smart_in_words(smart_percent(nvme).unwrap()), "7 % of its life used (SMART)");
        let sata = br#"{"ata_device_statistics":{"pages":[{"number":1},{"number":7,"table":
            [{"name":"Percentage Used Endurance Indicator","value":12}]}]}}"#;
        assert_eq!(smart_percent(sata), Some(12));
        for nothing in [&b"{}"[..], b"", b"not json", br#"{"ata_device_statistics":{"pages":1}}"#] {
            assert_eq!(smart_percent(nothing), None);
        }
    }
}
