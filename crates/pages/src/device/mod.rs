//! Modelled storage devices. They take requests and return the completion time of each and the wear
//! of the flash.
//!
//! There are four models, each in its file: [`open_unit`] for cards and old eMMC, [`page_mapped`]
//! for newer eMMC and UFS, [`disk`] for a hard disk, and [`latency`] for a constant time a page.
//! The constants of a device are a [`Profile`], each in its file in [`profile`].
//!
//! A device has no clock: each request has its time, and background work of the device happens in
//! between. [`Clocks`] runs a device twice over the same requests, as fast as it can and at
//! recorded times.

use flashsift_events::{address::Lba, io::Io, page::PAGE_BYTES};
use serde::{Deserialize, Serialize};

mod clocks;
pub mod disk;
pub mod latency;
pub mod lifetime;
pub mod open_unit;
pub mod page_mapped;
pub mod profile;
pub mod wear;

pub use clocks::{Clocks, DeviceTimes};
pub use profile::{LabelledProfile, Model, Profile, ProfileError, ProfileSelection};
pub use wear::Wear;

/// A modelled device. Requests are served in the order of arrival.
pub trait Device {
    /// Serves a request that arrives at `at_ns`, regardless of [`Io::at_us`]; never earlier than
    /// its predecessor. Returns the completion time. Addresses beyond the end of the device wrap
    /// around.
    fn serve(&mut self, io: &Io, at_ns: u64) -> u64;
    /// Discards the content of these pages. It takes no time.
    fn discard(&mut self, lba: Lba, pages: u32);
    /// Returns the wear since the device was prepared.
    fn wear(&self) -> Wear;
    /// Checks the internal state.
    ///
    /// # Panics
    ///
    /// The state is inconsistent.
    fn check(&self);
}

/// Content of a device before its first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fill {
    /// Empty, as a new device.
    Empty,
    /// Data everywhere, written once from the first page to the last.
    InOrder,
    /// Data everywhere, overwritten at random until the device is in the steady state: garbage
    /// collection runs from the first writes on.
    Random,
}

/// A device of any of the models.
#[derive(Clone)]
pub struct AnyDevice(Any);

#[derive(Clone)]
enum Any {
    OpenUnit(Box<open_unit::OpenUnit>),
    PageMapped(page_mapped::PageMapped),
    Latency(latency::Latency),
    Disk(disk::HardDisk),
}

impl AnyDevice {
    /// Creates a device of this profile, filled as the profile says.
    ///
    /// # Errors
    ///
    /// A constant of the profile is out of its bounds, or the device is too large for a program of
    /// 32 bits.
    pub fn new(profile: &Profile) -> Result<Self, ProfileError> {
        profile.check_in(usize::BITS)?;
        Ok(Self(match &profile.model {
            Model::OpenUnit(params) => Any::OpenUnit(Box::new(open_unit::OpenUnit::new(params))),
            Model::PageMapped(params) => Any::PageMapped(page_mapped::PageMapped::new(params)),
            Model::Latency(params) => Any::Latency(latency::Latency::new(params)),
            Model::Disk(params) => Any::Disk(disk::HardDisk::new(params)),
        }))
    }

    fn device(&self) -> &dyn Device {
        match &self.0 {
            Any::OpenUnit(device) => &**device,
            Any::PageMapped(device) => device,
            Any::Latency(device) => device,
            Any::Disk(device) => device,
        }
    }

    fn device_mut(&mut self) -> &mut dyn Device {
        match &mut self.0 {
            Any::OpenUnit(device) => &mut **device,
            Any::PageMapped(device) => device,
            Any::Latency(device) => device,
            Any::Disk(device) => device,
        }
    }
}

/// A device before its first request, as the start of any number of runs.
pub struct Prepared {
    profile: Profile,
}

impl Prepared {
    /// Prepares a device as the profile says.
    ///
    /// # Errors
    ///
    /// A constant of the profile is out of its bounds, or the device is too large for a program of
    /// 32 bits.
    pub fn new(profile: &Profile) -> Result<Self, ProfileError> {
        profile.check_in(usize::BITS)?;
        Ok(Self { profile: profile.clone() })
    }

    /// Returns a device of its own for one run. That is cheaper than to copy one, because tables
    /// that are not used yet are not touched.
    pub fn new_device(&self) -> AnyDevice {
        AnyDevice::new(&self.profile).expect("the profile was checked")
    }
}

impl Device for AnyDevice {
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

/// Nanoseconds of a duration in microseconds that [`Profile::check`] has checked.
fn ns(us: f64) -> u64 {
    (us * 1e3).round() as u64
}

/// Number of whole pages in a size that [`Profile::check`] has checked.
fn pages(bytes: u64) -> u32 {
    u32::try_from(bytes / PAGE_BYTES).expect("a profile's sizes are checked")
}

/// A clear bit for each of `n` items, in words, without touching memory.
fn bits(n: usize) -> Vec<u64> {
    vec![0; n.div_ceil(64)]
}

#[cfg(test)]
mod testing;
