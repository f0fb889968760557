//! Profiles of devices: the constants of a model, each profile in its file, and the one list of
//! them.
//!
//! Every constant has its source: a measurement, or a data sheet by name. `assumed` means that no
//! source gives it. `fit of …` means that it was computed from the source so that the model
//! reproduces the figures; reproducing them then proves nothing.

use super::{Fill, disk, latency, open_unit, page_mapped};
use flashsift_events::{
    page::PAGE_BYTES,
    params::{self, Listed, Param, ParamKind},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

mod emmc1_2012;
mod emmc2_2012;
mod emmc_5_1;
mod hdd_2012;
mod latency_100_800;
mod microsd_2012;
mod ufs_2_1;
mod ufs_3_1;
mod ufs_4_0;

/// All profiles.
pub const ALL: &[ProfileSpec] = &[
    microsd_2012::SPEC,
    emmc1_2012::SPEC,
    emmc2_2012::SPEC,
    emmc_5_1::SPEC,
    ufs_2_1::SPEC,
    ufs_3_1::SPEC,
    ufs_4_0::SPEC,
    hdd_2012::SPEC,
    latency_100_800::SPEC,
];

/// An entry of the list of profiles.
pub struct ProfileSpec {
    /// Name as in `--device`.
    pub name: &'static str,
    /// Parameters of `name:key=value`.
    pub params: &'static [Param],
    /// Returns the profile without parameters.
    pub profile: fn() -> Profile,
}

/// A device as a model with constants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// One line for people.
    pub what: String,
    /// Kind of device, for its wear.
    pub kind: StorageKind,
    /// Program/erase cycles that a block endures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles: Option<f64>,
    /// Constants that follow from figures that the vendor publishes: its best case, of a new device
    /// with deep queues and requests of the best size and place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub best_case: Vec<String>,
    /// The model and its constants.
    pub model: Model,
    /// Source of each constant, by its name.
    #[serde(default)]
    pub sources: BTreeMap<String, String>,
}

/// Kind of a device, as far as its wear is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StorageKind {
    /// A memory card: it has no wear register, so its remaining life is unknown.
    Sd,
    /// eMMC.
    Emmc,
    /// UFS.
    Ufs,
    /// Any other device.
    Other,
}

/// A model with its constants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// The model of [`open_unit`].
    OpenUnit(open_unit::OpenUnitParams),
    /// The model of [`page_mapped`].
    PageMapped(page_mapped::PageMappedParams),
    /// The model of [`latency`].
    Latency(latency::LatencyParams),
    /// The model of [`disk`].
    Disk(disk::HardDiskParams),
}

impl Model {
    /// Returns the capacity in bytes; `None` for a device without an end.
    pub fn capacity_bytes(&self) -> Option<u64> {
        match self {
            Self::OpenUnit(params) => Some(params.capacity_bytes),
            Self::PageMapped(params) => Some(params.capacity_bytes),
            Self::Latency(_) | Self::Disk(_) => None,
        }
    }

    /// Returns the addresses that the tables of a device take, in bytes; its memory, less of them,
    /// grows with the pages that are used.
    pub fn table_bytes(&self) -> u64 {
        match self {
            Self::PageMapped(params) => page_mapped::table_bytes(params),
            Self::OpenUnit(_) | Self::Latency(_) | Self::Disk(_) => 0,
        }
    }

    /// Returns the flash beyond the capacity, as a share of it. Open units are too few to count.
    pub fn over_provisioning(&self) -> f64 {
        match self {
            Self::PageMapped(params) => params.over_provisioning,
            Self::OpenUnit(_) | Self::Latency(_) | Self::Disk(_) => 0.0,
        }
    }

    /// Returns the write amplification of uniform random writes in the steady state; `None` where
    /// it depends on more than the constants.
    pub fn random_write_amplification(&self) -> Option<f64> {
        match self {
            Self::PageMapped(params) => Some(params.random_write_amplification()),
            Self::OpenUnit(_) | Self::Latency(_) | Self::Disk(_) => None,
        }
    }

    /// Returns the content before the first request; `None` where it makes no difference.
    pub fn fill(&self) -> Option<Fill> {
        match self {
            Self::OpenUnit(params) => Some(params.fill),
            Self::PageMapped(params) => Some(params.fill),
            Self::Latency(_) | Self::Disk(_) => None,
        }
    }

    fn change(&mut self, fill: Option<Fill>, capacity_bytes: Option<u64>) {
        let (own_fill, own_bytes) = match self {
            Self::OpenUnit(params) => (&mut params.fill, &mut params.capacity_bytes),
            Self::PageMapped(params) => (&mut params.fill, &mut params.capacity_bytes),
            Self::Latency(_) | Self::Disk(_) => return,
        };
        *own_fill = fill.unwrap_or(*own_fill);
        *own_bytes = capacity_bytes.unwrap_or(*own_bytes);
    }
}

/// A profile with impossible constants.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum ProfileError {
    /// A constant is out of its bounds.
    #[error("{name} is {value}; it has to be {bounds}")]
    Bounds {
        /// Name of the constant.
        name: &'static str,
        /// Its value.
        value: f64,
        /// Its bounds.
        bounds: &'static str,
    },
    /// Sizes that contradict one another.
    #[error("{0}")]
    Sizes(&'static str),
    /// Tables beyond what a program of 32 bits can address.
    #[error(
        "the tables of a device of {} GB take {} MiB, and this program has 32 bits, {} MiB of them \
         for a device; model a part of it, such as :gib=64",
        capacity_bytes / 1_000_000_000, table_bytes >> 20, TABLE_BYTES_MAX_32 >> 20
    )]
    Addresses {
        /// Capacity of the device.
        capacity_bytes: u64,
        /// Addresses that its tables take.
        table_bytes: u64,
    },
}

/// Addresses for the tables of one device in a program of 32 bits. A cell has up to four devices.
const TABLE_BYTES_MAX_32: u64 = 384 << 20;

/// Largest capacity: page numbers have 32 bits, including over-provisioned pages.
const CAPACITY_BYTES_MAX: u64 = 4 << 40;
const US_MAX: f64 = 1e8;

impl Profile {
    /// Checks all constants, and that a program with addresses of `bits` holds the device.
    ///
    /// # Errors
    ///
    /// As [`Self::check`], or the tables take too many addresses.
    pub fn check_in(&self, bits: u32) -> Result<(), ProfileError> {
        self.check()?;
        let table_bytes = self.model.table_bytes();
        if bits <= 32 && table_bytes > TABLE_BYTES_MAX_32 {
            let capacity_bytes = self.model.capacity_bytes().unwrap_or(0);
            return Err(ProfileError::Addresses { capacity_bytes, table_bytes });
        }
        Ok(())
    }

    /// Creates a profile of a model, with no other information.
    pub fn new(model: Model) -> Self {
        Self {
            what: String::new(),
            kind: StorageKind::Other,
            cycles: None,
            best_case: Vec::new(),
            model,
            sources: BTreeMap::new(),
        }
    }

    /// Checks all constants.
    ///
    /// # Errors
    ///
    /// A constant is out of its bounds, or sizes contradict one another.
    pub fn check(&self) -> Result<(), ProfileError> {
        let within = |name, value: f64, min: f64, max: f64, bounds| {
            if (min..=max).contains(&value) {
                Ok(())
            } else {
                Err(ProfileError::Bounds { name, value, bounds })
            }
        };
        let time = |name, us| within(name, us, 0.0, US_MAX, "0 to 100 000 000");
        if let Some(cycles) = self.cycles {
            within("cycles", cycles, 1.0, 1e9, "1 to 1 000 000 000")?;
        }
        if let Some(bytes) = self.model.capacity_bytes() {
            let min = 2.0 * PAGE_BYTES as f64;
            within(
                "capacity_bytes",
                bytes as f64,
                min,
                CAPACITY_BYTES_MAX as f64,
                "8 192 bytes to 4 TiB",
            )?;
        }
        match &self.model {
            Model::OpenUnit(params) => {
                let open_max = f64::from(open_unit::OPEN_UNITS_MAX);
                within("open_units", params.open_units.into(), 1.0, open_max, "1 to 4 096")?;
                time("read_us", params.read_us)?;
                time("far_read_us", params.far_read_us)?;
                time("program_us", params.program_us)?;
                time("copy_us", params.copy_us)?;
                time("erase_us", params.erase_us)?;
                if !open_unit::unit_is_possible(params) {
                    let says = "unit_bytes has to be a multiple of 4 096, and capacity_bytes more than open_units of them";
                    return Err(ProfileError::Sizes(says));
                }
            }
            Model::PageMapped(params) => {
                within("over_provisioning", params.over_provisioning, 0.0, 10.0, "0 to 10")?;
                within("dies", params.dies.into(), 1.0, 1024.0, "1 to 1 024")?;
                within("block_pages", params.block_pages.into(), 1.0, 65536.0, "1 to 65 536")?;
                within("nand_pages", params.nand_pages.into(), 1.0, 65536.0, "1 to 65 536")?;
                within("buffer_pages", params.buffer_pages.into(), 1.0, 65536.0, "1 to 65 536")?;
                time("read_us", params.read_us)?;
                time("write_us", params.write_us)?;
                time("transfer_us", params.transfer_us)?;
                time("program_us", params.program_us)?;
                time("slc_program_us", params.slc_program_us)?;
                time("erase_us", params.erase_us)?;
                time("idle_us", params.idle_us)?;
                time("map_read_us", params.map_read_us)?;
                if let Some(says) = page_mapped::wrong_sizes(params) {
                    return Err(ProfileError::Sizes(says));
                }
            }
            Model::Latency(params) => {
                time("read_us", params.read_us)?;
                time("write_us", params.write_us)?;
            }
            Model::Disk(params) => {
                time("read_us", params.read_us)?;
                time("write_us", params.write_us)?;
                time("read_seek_us", params.read_seek_us)?;
                time("write_seek_us", params.write_seek_us)?;
            }
        }
        Ok(())
    }
}

const GIB: Param = Param {
    name: "gib",
    what: "modelled part of the device, in GiB; 0: all of it",
    kind: ParamKind::Number { default: 0.0, min: 0.0, max: 4096.0 },
};

/// Parameters of devices with open units.
const OPEN_UNIT_PARAMS: &[Param] = &[
    Param {
        name: "fill",
        what: "content before the first request (open units; in-order and random are the same)",
        kind: ParamKind::Word(&["in-order", "empty", "random"]),
    },
    GIB,
];

/// Parameters of page-mapped devices.
const PAGE_MAPPED_PARAMS: &[Param] = &[
    Param {
        name: "fill",
        what: "content before the first request (page-mapped); random: an aged device",
        kind: ParamKind::Word(&["random", "in-order", "empty"]),
    },
    GIB,
];

/// A profile of the list with its parameters.
pub type ProfileSelection = params::Selection<ProfileSpec>;

impl Listed for ProfileSpec {
    const KIND: &'static str = "device";
    const ALL: &'static [Self] = ALL;

    fn declared(&self) -> (&'static str, &'static [Param]) {
        (self.name, self.params)
    }
}

/// A profile with the label that results carry: one of the list, or one read from a file.
#[derive(Clone)]
pub struct LabelledProfile {
    /// As results name it.
    pub label: String,
    /// The device.
    pub profile: Profile,
}

impl From<&ProfileSelection> for LabelledProfile {
    fn from(selection: &ProfileSelection) -> Self {
        Self { label: selection.label(), profile: Profile::from(selection) }
    }
}

/// Every profile of the list, with its defaults.
pub fn all() -> Vec<ProfileSelection> {
    ALL.iter().map(ProfileSelection::default_of).collect()
}

impl From<&ProfileSelection> for Profile {
    /// Returns the profile with the parameters applied.
    fn from(ProfileSelection { spec, params }: &ProfileSelection) -> Self {
        let mut profile = (spec.profile)();
        if !spec.params.is_empty() {
            let fill = match params.word(spec.params, "fill") {
                "empty" => Fill::Empty,
                "random" => Fill::Random,
                _ => Fill::InOrder,
            };
            let gib = params.number(spec.params, "gib");
            profile
                .model
                .change(Some(fill), (gib > 0.0).then_some((gib * f64::from(1 << 30)) as u64));
        }
        profile
    }
}

/// Source of the fill of page-mapped profiles.
const AGED: &str = "assumed: aged to the steady state of greedy collection, Desnoyers, SYSTOR '12";

/// Memory for the mapping table: enough for 4 GiB.
const MAP_CACHE_BYTES: u64 = 4 << 20;
const MAP_CACHE: &str = "assumed, no vendor publishes it: enough to map 4 GiB";
/// Time of a mapping page as a share of the time of a read: Samsung's engineers measured 58 to 67 %
/// more random reads once the host held the mapping table.
const MAP_READ: f64 = 0.625;
const MAP_READ_UFS: &str =
    "fit of 58 to 67 % more random reads with HPB: Jeong et al., HotStorage '17, if all missed";

/// Builds a list of names.
fn named<const N: usize>(each: [&str; N]) -> Vec<String> {
    each.map(str::to_owned).into()
}

/// Builds the map of sources from pairs.
fn sources<const N: usize>(each: [(&str, &str); N]) -> BTreeMap<String, String> {
    each.map(|(name, source)| (name.to_owned(), source.to_owned())).into()
}

#[cfg(test)]
mod tests;
