//! What the models need to know of a device: one file each, and the one list of them.
//!
//! Every constant has its source: what measured it, or a data sheet by its name. `assumed` is what nobody told us; `fit of …` what
//! was computed from the source so that the model gives its figures; then meeting these proves nothing.

use super::{Fill, latency, open_unit, page_mapped};
use crate::{
    page::PAGE_BYTES,
    params::{self, Kind as ParamKind, Listed, Param},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

mod emmc1_2012;
mod emmc2_2012;
mod emmc_5_1;
mod latency_100_800;
mod microsd_2012;
mod ufs_2_1;
mod ufs_3_1;
mod ufs_4_0;

/// Every profile.
pub const ALL: &[Spec] = &[
    microsd_2012::SPEC,
    emmc1_2012::SPEC,
    emmc2_2012::SPEC,
    emmc_5_1::SPEC,
    ufs_2_1::SPEC,
    ufs_3_1::SPEC,
    ufs_4_0::SPEC,
    latency_100_800::SPEC,
];

/// A profile of the list.
pub struct Spec {
    /// As `--device` takes it.
    pub name: &'static str,
    /// What `name:key=value` takes.
    pub params: &'static [Param],
    /// The profile without parameters.
    pub profile: fn() -> Profile,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// One line for people.
    pub what: String,
    /// What can be known of its wear.
    pub kind: Kind,
    /// Program/erase cycles that a block stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles: Option<f64>,
    /// How it works.
    pub model: Model,
    /// Where each constant comes from, by its name.
    #[serde(default)]
    pub sources: BTreeMap<String, String>,
}

/// What a device is, as far as its wear goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A memory card: it has no wear register, and nobody knows what life it has left.
    Sd,
    /// eMMC.
    Emmc,
    /// UFS.
    Ufs,
    /// None of these.
    Other,
}

/// A model with its constants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// [`open_unit`].
    OpenUnit(open_unit::Params),
    /// [`page_mapped`].
    PageMapped(page_mapped::Params),
    /// [`latency`].
    Latency(latency::Params),
}

impl Model {
    /// Bytes offered; `None` where there is no end.
    pub fn capacity_bytes(&self) -> Option<u64> {
        match self {
            Self::OpenUnit(params) => Some(params.capacity_bytes),
            Self::PageMapped(params) => Some(params.capacity_bytes),
            Self::Latency(_) => None,
        }
    }

    /// Flash beyond that, as a share of it. Open units come on top, but are too few to count.
    pub fn over_provisioning(&self) -> f64 {
        match self {
            Self::PageMapped(params) => params.over_provisioning,
            Self::OpenUnit(_) | Self::Latency(_) => 0.0,
        }
    }

    /// What it holds before; `None` where that makes no difference.
    pub fn fill(&self) -> Option<Fill> {
        match self {
            Self::OpenUnit(params) => Some(params.fill),
            Self::PageMapped(params) => Some(params.fill),
            Self::Latency(_) => None,
        }
    }

    fn change(&mut self, fill: Option<Fill>, capacity_bytes: Option<u64>) {
        let (own_fill, own_bytes) = match self {
            Self::OpenUnit(params) => (&mut params.fill, &mut params.capacity_bytes),
            Self::PageMapped(params) => (&mut params.fill, &mut params.capacity_bytes),
            Self::Latency(_) => return,
        };
        *own_fill = fill.unwrap_or(*own_fill);
        *own_bytes = capacity_bytes.unwrap_or(*own_bytes);
    }
}

/// A profile that is no device.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum ProfileError {
    /// A constant out of its bounds.
    #[error("{name} is {value}; it has to be {bounds}")]
    Bounds {
        /// Which.
        name: &'static str,
        /// What it is.
        value: f64,
        /// What it may be.
        bounds: &'static str,
    },
    /// Sizes that do not fit one another.
    #[error("{0}")]
    Sizes(&'static str),
}

/// The largest device: its pages have numbers of 32 bits, with room for what is not offered.
const CAPACITY_BYTES_MAX: u64 = 4 << 40;
const US_MAX: f64 = 1e8;

impl Profile {
    /// Of a model, with nothing known but that.
    pub fn of(model: Model) -> Self {
        Self { what: String::new(), kind: Kind::Other, cycles: None, model, sources: BTreeMap::new() }
    }

    /// Whether it can be made a machine.
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
            within("capacity_bytes", bytes as f64, min, CAPACITY_BYTES_MAX as f64, "8 192 bytes to 4 TiB")?;
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
                if let Some(says) = page_mapped::wrong_sizes(params) {
                    return Err(ProfileError::Sizes(says));
                }
            }
            Model::Latency(params) => {
                time("read_us", params.read_us)?;
                time("write_us", params.write_us)?;
            }
        }
        Ok(())
    }
}

/// What all devices that hold data take.
const PARAMS: &[Param] = &[
    Param {
        name: "fill",
        what: "what it holds before the first request",
        kind: ParamKind::Word(&["in-order", "empty", "random"]),
    },
    Param {
        name: "gib",
        what: "how much of the device is modelled, in GiB; 0: all that it offers",
        kind: ParamKind::Number { default: 0.0, min: 0.0, max: 4096.0 },
    },
];

/// A profile of the list with its parameters.
pub type Selection = params::Selection<Spec>;

impl Listed for Spec {
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

impl From<&Selection> for LabelledProfile {
    fn from(selection: &Selection) -> Self {
        Self { label: selection.label(), profile: selection.profile() }
    }
}

impl Selection {
    /// Every profile of the list, with its defaults.
    pub fn all() -> Vec<Self> {
        ALL.iter().map(Self::default_of).collect()
    }

    /// The profile, changed as the parameters say.
    pub fn profile(&self) -> Profile {
        let mut profile = (self.spec.profile)();
        if !self.spec.params.is_empty() {
            let fill = match self.params.word(PARAMS, "fill") {
                "empty" => Fill::Empty,
                "random" => Fill::Random,
                _ => Fill::InOrder,
            };
            let gib = self.params.number(PARAMS, "gib");
            profile.model.change(Some(fill), (gib > 0.0).then_some((gib * f64::from(1 << 30)) as u64));
        }
        profile
    }
}

/// The sources of constants, from pairs.
fn sources<const N: usize>(each: [(&str, &str); N]) -> BTreeMap<String, String> {
    each.map(|(name, source)| (name.to_owned(), source.to_owned())).into()
}

#[cfg(test)]
mod tests;
