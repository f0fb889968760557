//! Reads the wear that storage reports: eMMC's `life_time` and `pre_eol_info`, and UFS's health
//! descriptor, from sysfs.
//!
//! Both standards (JEDEC JESD84-B51, JESD220) report used life in tenths of the maker's estimate
//! for two kinds of memory, A and B; usually the faster cells and the rest. SD cards have no such
//! register, so their remaining life is unknown, and it is not guessed.

use serde::Serialize;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// A storage device of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Storage {
    /// Block device, such as `mmcblk0`; without one, the name in sysfs.
    pub name: String,
    /// Model name; empty if there is none.
    pub model: String,
    /// Kind of storage, with its registers if it has any.
    #[serde(flatten)]
    pub kind: Kind,
}

/// Kinds of storage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Kind {
    /// A memory card, which has no wear register.
    Sd,
    /// eMMC; without registers before version 5.0 and on old kernels.
    Emmc {
        /// Values of its registers.
        wear: Option<Wear>,
    },
    /// UFS.
    Ufs {
        /// Values of its registers.
        wear: Option<Wear>,
    },
}

/// Values of the wear registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Wear {
    /// Used life of the memories A and B.
    pub life_time: [LifeTime; 2],
    /// Use of the spare blocks.
    pub spare: Spare,
}

/// Used life as a share of the maker's estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LifeTime {
    /// The register is 0 or has a reserved value.
    NotDefined,
    /// Less than this percentage, and at least ten points less.
    PercentUsedBelow(u8),
    /// More than the estimated life.
    Exceeded,
}

/// Use of the reserved blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spare {
    /// The register is 0 or has a reserved value.
    NotDefined,
    /// Less than 80 % are used.
    Normal,
    /// 80 % are used.
    Warning,
    /// 90 % are used.
    Urgent,
}

impl From<u8> for LifeTime {
    fn from(register: u8) -> Self {
        match register {
            n @ 0x01..=0x0a => Self::PercentUsedBelow(n * 10),
            0x0b => Self::Exceeded,
            _ => Self::NotDefined,
        }
    }
}

impl From<u8> for Spare {
    fn from(register: u8) -> Self {
        match register {
            1 => Self::Normal,
            2 => Self::Warning,
            3 => Self::Urgent,
            _ => Self::NotDefined,
        }
    }
}

/// A register could not be read.
#[derive(Debug, thiserror::Error)]
pub enum WearError {
    /// The file exists but cannot be read.
    #[error("{path} cannot be read: {source}", path = path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The file has unexpected content.
    #[error("{path} holds `{text}`; expected {expected}", path = path.display())]
    Content {
        /// Path of the file.
        path: PathBuf,
        /// Content of the file.
        text: String,
        /// Expected content.
        expected: &'static str,
    },
}

/// Lists the eMMC, SD and UFS storage below `sys` (`/sys`, or a tree of a test) by name. Other
/// storage is left out: SMART reports its wear.
///
/// # Errors
///
/// A register cannot be read or has unexpected content.
pub fn storage(sys: &Path) -> Result<Vec<Storage>, WearError> {
    let mut found = Vec::new();
    for device in entries(&sys.join("bus/mmc/devices"))? {
        let kind = match text(&device.join("type"))?.as_deref() {
            Some("MMC") => Kind::Emmc { wear: emmc(&device)? },
            Some("SD") => Kind::Sd,
            // SDIO devices are not storage.
            _ => continue,
        };
        let model = text(&device.join("name"))?.unwrap_or_default();
        found.push(Storage { name: block_device(&device)?, model, kind });
    }
    // Controllers of systems on a chip, and of laptops.
    for bus in ["platform", "pci"] {
        for device in entries(&sys.join("bus").join(bus).join("devices"))? {
            let health = device.join("health_descriptor");
            if health.is_dir() {
                let model =
                    text(&device.join("string_descriptors/product_name"))?.unwrap_or_default();
                let name = file_name(&device);
                found.push(Storage { name, model, kind: Kind::Ufs { wear: ufs(&health)? } });
            }
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

/// Reads the registers: `life_time` is `0x01 0x02`, for A and B; `pre_eol_info` is `0x01`.
fn emmc(device: &Path) -> Result<Option<Wear>, WearError> {
    let path = device.join("life_time");
    let (Some(life), Some(spare)) = (text(&path)?, register(&device.join("pre_eol_info"))?) else {
        return Ok(None);
    };
    let both: Option<Vec<u8>> = life.split_whitespace().map(hex).collect();
    match both.as_deref() {
        Some([a, b]) => {
            Ok(Some(Wear { life_time: [(*a).into(), (*b).into()], spare: spare.into() }))
        }
        _ => Err(WearError::Content { path, text: life, expected: "two numbers like 0x01 0x02" }),
    }
}

fn ufs(health: &Path) -> Result<Option<Wear>, WearError> {
    let life = |name| register(&health.join(name));
    let (a, b) = (life("life_time_estimation_a")?, life("life_time_estimation_b")?);
    let (Some(a), Some(b), Some(spare)) = (a, b, register(&health.join("eol_info"))?) else {
        return Ok(None);
    };
    Ok(Some(Wear { life_time: [a.into(), b.into()], spare: spare.into() }))
}

/// Reads a register of one byte in hexadecimal; `None` if this machine does not have it.
fn register(path: &Path) -> Result<Option<u8>, WearError> {
    let Some(text) = text(path)? else { return Ok(None) };
    match hex(&text) {
        Some(byte) => Ok(Some(byte)),
        None => {
            Err(WearError::Content { path: path.to_owned(), text, expected: "a number like 0x01" })
        }
    }
}

fn hex(text: &str) -> Option<u8> {
    u8::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

/// Reads a file and trims the text; `None` if there is no such file.
fn text(path: &Path) -> Result<Option<String>, WearError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(WearError::Read { path: path.to_owned(), source }),
    }
}

/// Lists a folder; empty if it does not exist.
fn entries(dir: &Path) -> Result<Vec<PathBuf>, WearError> {
    let read = |source| WearError::Read { path: dir.to_owned(), source };
    match fs::read_dir(dir) {
        Ok(entries) => entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()
            .map_err(read),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(read(error)),
    }
}

/// Returns the name of the block device; without one, the name in sysfs.
fn block_device(device: &Path) -> Result<String, WearError> {
    let mut names: Vec<String> =
        entries(&device.join("block"))?.iter().map(|path| file_name(path)).collect();
    names.sort();
    Ok(names.into_iter().next().unwrap_or_else(|| file_name(device)))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::{TempDir, tempdir};

    /// Creates a tree like sysfs.
    fn sys(files: &[(&str, &str)]) -> TempDir {
        let dir = tempdir().unwrap();
        for (path, content) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        dir
    }

    const EMMC: &str = "bus/mmc/devices/mmc0:0001";

    // Promises: Devices 14.
    #[test]
    fn registers_are_read() {
        let tree = sys(&[
            (&format!("{EMMC}/type"), "MMC\n"),
            (&format!("{EMMC}/name"), "SLD128\n"),
            (&format!("{EMMC}/life_time"), "0x03 0x0b\n"),
            (&format!("{EMMC}/pre_eol_info"), "0x02\n"),
            (&format!("{EMMC}/block/mmcblk0/size"), "1\n"),
            ("bus/mmc/devices/mmc1:aaaa/type", "SD\n"),
            ("bus/mmc/devices/mmc1:aaaa/name", "SD16G\n"),
            // A file with the name of an eMMC register, which must be ignored.
            ("bus/mmc/devices/mmc1:aaaa/life_time", "0x01 0x01\n"),
            ("bus/mmc/devices/mmc2:0001/type", "SDIO\n"),
            ("bus/platform/devices/1d84000.ufshc/health_descriptor/eol_info", "0x01\n"),
            (
                "bus/platform/devices/1d84000.ufshc/health_descriptor/life_time_estimation_a",
                "0x01\n",
            ),
            (
                "bus/platform/devices/1d84000.ufshc/health_descriptor/life_time_estimation_b",
                "0x00\n",
            ),
            ("bus/platform/devices/1d84000.ufshc/string_descriptors/product_name", "KLUDG4UHGC\n"),
            ("bus/platform/devices/serial8250/uevent", ""),
        ]);
        let life_time = [LifeTime::PercentUsedBelow(10), LifeTime::NotDefined];
        let ufs = Kind::Ufs { wear: Some(Wear { life_time, spare: Spare::Normal }) };
        let life_time = [LifeTime::PercentUsedBelow(30), LifeTime::Exceeded];
        let emmc = Kind::Emmc { wear: Some(Wear { life_time, spare: Spare::Warning }) };
        let named = |name: &str, model: &str, kind| Storage {
            name: name.into(),
            model: model.into(),
            kind,
        };
        assert_eq!(
            storage(tree.path()).unwrap(),
            [
                named("1d84000.ufshc", "KLUDG4UHGC", ufs),
                named("mmc1:aaaa", "SD16G", Kind::Sd),
                named("mmcblk0", "SLD128", emmc)
            ]
        );
    }

    /// A machine without such storage, an eMMC before 5.0, registers as old kernels print them, and
    /// reserved values.
    // Promises: Devices 14.
    #[test]
    fn missing_registers_are_not_reported() {
        assert_eq!(storage(sys(&[]).path()).unwrap(), []);
        let old = sys(&[(&format!("{EMMC}/type"), "MMC")]);
        assert_eq!(storage(old.path()).unwrap()[0].kind, Kind::Emmc { wear: None });
        let bare = sys(&[
            (&format!("{EMMC}/type"), "MMC"),
            (&format!("{EMMC}/life_time"), "0a ff"),
            (&format!("{EMMC}/pre_eol_info"), "04"),
        ]);
        let life_time = [LifeTime::PercentUsedBelow(100), LifeTime::NotDefined];
        let wear = Some(Wear { life_time, spare: Spare::NotDefined });
        assert_eq!(storage(bare.path()).unwrap()[0].kind, Kind::Emmc { wear });
    }

    #[test]
    fn nonsense_is_an_error_that_names_the_file() {
        for (file, content) in [
            ("life_time", "0x01"),
            ("life_time", "worn"),
            ("pre_eol_info", "0x100"),
            ("pre_eol_info", ""),
        ] {
            let tree = sys(&[
                (&format!("{EMMC}/type"), "MMC"),
                (&format!("{EMMC}/life_time"), "0x01 0x01"),
                (&format!("{EMMC}/pre_eol_info"), "0x01"),
                (&format!("{EMMC}/{file}"), content),
            ]);
            let error = storage(tree.path()).unwrap_err().to_string();
            assert!(error.contains(file) && error.contains("0x01"), "{error}");
        }
        // A folder in place of a register.
        let tree = sys(&[(&format!("{EMMC}/type"), "MMC"), (&format!("{EMMC}/life_time/x"), "")]);
        assert!(storage(tree.path()).unwrap_err().to_string().contains("cannot be read"));
    }
}
