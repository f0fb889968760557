//! Modelled storage devices: machines that take requests and say when each is done, and what it cost the flash.
//!
//! Three models, a file each: [`open_unit`] for cards and old eMMC, [`page_mapped`] for newer eMMC and UFS, [`latency`] for a
//! constant time a page. What a model needs to know of a device is a [`Profile`], one file each in [`profile`].
//!
//! A device has no clock: a request comes with its time, and what the device does on its own account happens in between.
//! [`Clocks`] runs a device twice over the same requests, as fast as it can and at the times that were recorded.

use crate::{back::Io, layout::Lba, page::PAGE_BYTES};
use serde::{Deserialize, Serialize};

mod clocks;
pub mod latency;
pub mod open_unit;
pub mod page_mapped;
pub mod profile;
pub mod wear;

pub use clocks::{Clocks, Times};
pub use profile::{LabelledProfile, Model, Profile, ProfileError, Selection};
pub use wear::Wear;

/// A device under a model. Requests are served in the order in which they come.
pub trait Device {
    /// Serves a request that comes at `at_ns`, whatever [`Io::at_us`] says; never earlier than one before it. When it is done.
    /// Addresses beyond the end of the device begin again at its beginning.
    fn serve(&mut self, io: &Io, at_ns: u64) -> u64;
    /// The content of these pages is no longer wanted. Takes no time.
    fn discard(&mut self, lba: Lba, pages: u32);
    /// What the flash has had to bear since the device was prepared.
    fn wear(&self) -> Wear;
    /// Panics unless the device's own books agree.
    fn check(&self);
}

/// What a device holds before its first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fill {
    /// Nothing: as it leaves the factory.
    Empty,
    /// Data everywhere, written once from the first page to the last.
    InOrder,
    /// Data everywhere, written over at random until no more free space is left than the device keeps for itself.
    Random,
}

/// Any of the models.
#[derive(Clone)]
pub struct Machine(Any);

#[derive(Clone)]
enum Any {
    OpenUnit(Box<open_unit::OpenUnit>),
    PageMapped(page_mapped::PageMapped),
    Latency(latency::Latency),
}

impl Machine {
    /// A device of this profile, prepared as that says.
    pub fn new(profile: &Profile) -> Result<Self, ProfileError> {
        profile.check()?;
        Ok(Self(match &profile.model {
            Model::OpenUnit(params) => Any::OpenUnit(Box::new(open_unit::OpenUnit::new(params))),
            Model::PageMapped(params) => Any::PageMapped(page_mapped::PageMapped::new(params)),
            Model::Latency(params) => Any::Latency(latency::Latency::new(params)),
        }))
    }

    fn device(&self) -> &dyn Device {
        match &self.0 {
            Any::OpenUnit(device) => &**device,
            Any::PageMapped(device) => device,
            Any::Latency(device) => device,
        }
    }

    fn device_mut(&mut self) -> &mut dyn Device {
        match &mut self.0 {
            Any::OpenUnit(device) => &mut **device,
            Any::PageMapped(device) => device,
            Any::Latency(device) => device,
        }
    }
}

/// A device as it is before its first request, to begin with any number of times.
pub struct Prepared {
    profile: Profile,
    /// Where preparing takes long, the result. Elsewhere making another is cheaper than copying: what is not used is not touched.
    machine: Option<Machine>,
}

impl Prepared {
    /// Prepares it, as the profile says.
    pub fn new(profile: &Profile) -> Result<Self, ProfileError> {
        let machine = Machine::new(profile)?;
        let keep = profile.model.fill() == Some(Fill::Random);
        Ok(Self { profile: profile.clone(), machine: keep.then_some(machine) })
    }

    /// One of its own.
    pub fn machine(&self) -> Machine {
        match &self.machine {
            Some(machine) => machine.clone(),
            None => Machine::new(&self.profile).expect("it was made once already"),
        }
    }
}

impl Device for Machine {
    fn serve(&mut self, io: &Io, at_ns: u64) -> u64 {
        self.device_mut().serve(io, at_ns)
    }
    fn discard(&mut self, lba: Lba, pages: u32) {
        self.device_mut().discard(lba, pages);
    }
    fn wear(&self) -> Wear {
        self.device().wear()
    }
    fn check(&self) {
        self.device().check();
    }
}

/// Nanoseconds of a duration that a profile gives in microseconds, checked by [`Profile::check`].
fn ns(us: f64) -> u64 {
    (us * 1e3).round() as u64
}

/// Whole pages in so many bytes, likewise checked.
fn pages(bytes: u64) -> u32 {
    u32::try_from(bytes / PAGE_BYTES).expect("a profile's sizes are checked")
}

/// A bit for each of many, in words; all clear, without touching memory.
fn bits(n: usize) -> Vec<u64> {
    vec![0; n.div_ceil(64)]
}

#[cfg(test)]
mod testing;
