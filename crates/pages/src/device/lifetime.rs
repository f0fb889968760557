//! Years that flash lasts at the rate at which a trace writes, with everything they assume.
//!
//! The years are those of CacheSifter's equation 3 ([`Endurance`]). They take every day to be like
//! the trace, without pause: its bytes are scaled from its duration to a day. A trace of less than
//! [`GUESS_BELOW_US`] makes this a guess, and [`Lifetime::guess`] says so. Memory cards publish no
//! endurance, so they never have a lifetime.

use super::{
    Profile,
    profile::StorageKind,
    wear::{Endurance, NotShown},
};
use serde::Serialize;
use std::fmt;

/// Duration below which a scaling to a day is a guess: one hour.
pub const GUESS_BELOW_US: u64 = 3_600_000_000;

/// The sentence on such a scaling.
pub const GUESS: &str = "Less than an hour was scaled to a day: it is a guess.";

/// Duration below which nothing can be scaled to a day: one minute. The kernel writes dirty pages
/// after 30 s.
pub const TOO_SHORT_BELOW_US: u64 = 60_000_000;

/// The sentence on such a scaling.
pub const TOO_SHORT: &str =
    "Less than a minute is too short to scale to a day: take no figure of a day from it.";

/// Returns the warning about figures of a day that are scaled from an observation, if it needs one.
pub fn scaling_warning(observed_us: u64) -> Option<&'static str> {
    let is_guess = (observed_us < GUESS_BELOW_US).then_some(GUESS);
    if observed_us < TOO_SHORT_BELOW_US { Some(TOO_SHORT) } else { is_guess }
}

const DAY_US: f64 = 86_400e6;

/// Bytes written in a day, scaled from an observation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DailyWrites {
    /// Bytes written in a day at the observed rate.
    pub bytes_per_day: f64,
    /// Duration of the observation, microseconds.
    pub observed_us: u64,
}

impl DailyWrites {
    /// Scales the bytes written in `observed_us` microseconds to a day; `None` without a duration.
    pub fn new(written_bytes: u64, observed_us: u64) -> Option<Self> {
        let days = observed_us as f64 / DAY_US;
        (days > 0.0).then(|| Self { bytes_per_day: written_bytes as f64 / days, observed_us })
    }

    /// Returns gigabytes (10⁹ bytes) written in a day.
    pub fn gb_per_day(&self) -> f64 {
        self.bytes_per_day / 1e9
    }

    /// Returns writes of the whole device in a day (DWPD).
    pub fn drive_writes_per_day(&self, capacity_bytes: u64) -> f64 {
        self.bytes_per_day / capacity_bytes as f64
    }

    /// Returns whether the observation is too short to speak of days.
    pub fn is_guess(&self) -> bool {
        self.observed_us < GUESS_BELOW_US
    }
}

/// Origin of a write amplification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AmplificationFrom {
    /// The run showed it.
    Run,
    /// The device's own: that of uniform random writes everywhere, in the steady state
    /// ([`super::page_mapped::PageMappedParams::random_write_amplification`]).
    RandomWrites,
    /// The caller assumed it.
    Assumed,
}

/// Write amplification, and its origin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Amplification {
    /// Pages programmed for each page written.
    pub value: f64,
    /// Its origin.
    pub from: AmplificationFrom,
}

/// The flash of a device, as far as its lifetime depends on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flash {
    /// Capacity in bytes.
    pub capacity_bytes: u64,
    /// Program/erase cycles that a block endures.
    pub cycles: f64,
    /// Flash beyond the capacity, as a share of it.
    pub over_provisioning: f64,
    /// Write amplification.
    pub amplification: Amplification,
}

/// The reason for which there is no lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLifetime {
    /// A memory card.
    MemoryCard,
    /// The profile states no cycles.
    NoCycles,
    /// The profile has no capacity.
    NoCapacity,
    /// Neither the run nor the profile tells the write amplification.
    NoAmplification,
    /// The trace has no times, or no duration.
    NoDuration,
    /// The trace writes nothing.
    NothingWritten,
}

impl NoLifetime {
    /// Returns the reason in words.
    pub fn as_text(self) -> &'static str {
        match self {
            Self::MemoryCard => "no endurance figure: memory cards publish none",
            Self::NoCycles => "no endurance figure: the profile has no cycles",
            Self::NoCapacity => "the profile has no capacity",
            Self::NoAmplification => {
                "the write amplification depends on the order of the writes: compare --device \
                 finds it"
            }
            Self::NoDuration => "the trace has no duration",
            Self::NothingWritten => "nothing is written",
        }
    }

    /// Whether the reason is that nothing tells how much the flash endures.
    pub fn is_no_endurance(self) -> bool {
        matches!(self, Self::MemoryCard | Self::NoCycles)
    }
}

impl fmt::Display for NoLifetime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_text())
    }
}

impl std::error::Error for NoLifetime {}

impl Flash {
    /// Takes the constants of a profile. `shown`: the write amplification that a run showed; if it
    /// showed none, the device's own for random writes is taken.
    ///
    /// # Errors
    /// The profile or the run lacks a value.
    pub fn new(profile: &Profile, shown: Result<f64, NotShown>) -> Result<Self, NoLifetime> {
        if profile.kind == StorageKind::Sd {
            return Err(NoLifetime::MemoryCard);
        }
        let model = &profile.model;
        let amplification = match shown {
            Ok(value) => Some(Amplification { value, from: AmplificationFrom::Run }),
            Err(_) => model
                .random_write_amplification()
                .map(|value| Amplification { value, from: AmplificationFrom::RandomWrites }),
        };
        Ok(Self {
            cycles: profile.cycles.ok_or(NoLifetime::NoCycles)?,
            capacity_bytes: model.capacity_bytes().ok_or(NoLifetime::NoCapacity)?,
            over_provisioning: model.over_provisioning(),
            amplification: amplification.ok_or(NoLifetime::NoAmplification)?,
        })
    }
}

/// Years that flash lasts, with the values that they were computed from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Lifetime {
    /// Years that the flash lasts if every day is like the trace, without pause.
    pub years: f64,
    /// Gigabytes (10⁹ bytes) written in a day.
    pub gb_per_day: f64,
    /// Capacity in bytes.
    pub capacity_bytes: u64,
    /// Duration that was scaled to a day, in seconds.
    pub observed_s: f64,
    /// The duration is too short to speak of days: below an hour.
    pub guess: bool,
    /// Origin of the write amplification.
    pub write_amplification_from: AmplificationFrom,
    /// Terms of the equation.
    #[serde(flatten)]
    pub endurance: Endurance,
}

/// Returns the lifetime of flash that gets `written_bytes` in `observed_us` microseconds, over and
/// over.
///
/// # Errors
/// [`NoLifetime::NothingWritten`] or [`NoLifetime::NoDuration`].
pub fn lifetime(
    written_bytes: u64,
    observed_us: u64,
    flash: &Flash,
) -> Result<Lifetime, NoLifetime> {
    let daily = DailyWrites::new(written_bytes, observed_us).ok_or(NoLifetime::NoDuration)?;
    if written_bytes == 0 {
        return Err(NoLifetime::NothingWritten);
    }
    let endurance = Endurance {
        cycles: flash.cycles,
        over_provisioning: flash.over_provisioning,
        drive_writes_per_day: daily.drive_writes_per_day(flash.capacity_bytes),
        write_amplification: flash.amplification.value,
        compression: 1.0,
    };
    Ok(Lifetime {
        years: endurance.lifetime_years(),
        gb_per_day: daily.gb_per_day(),
        capacity_bytes: flash.capacity_bytes,
        observed_s: observed_us as f64 / 1e6,
        guess: daily.is_guess(),
        write_amplification_from: flash.amplification.from,
        endurance,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{ProfileSelection, profile::ALL};

    fn profile(name: &str) -> Profile {
        Profile::from(&ProfileSelection::parse(name).unwrap())
    }

    const FLASH: Flash = Flash {
        capacity_bytes: 64_000_000_000,
        cycles: 3000.0,
        over_provisioning: 0.0,
        amplification: Amplification { value: 2.0, from: AmplificationFrom::Assumed },
    };

    /// 8 GB in six hours are 32 GB a day, half of a device of 64 GB. Written twice by
    /// amplification, that is one cycle a day: 3000 cycles last 8.2 years.
    // Promises: Devices 7.
    #[test]
    fn years_by_hand() {
        let hours = 3_600_000_000;
        let life = lifetime(8_000_000_000, 6 * hours, &FLASH).unwrap();
        assert_eq!((life.gb_per_day, life.endurance.drive_writes_per_day), (32.0, 0.5));
        assert!((life.years - 3000.0 / 365.0).abs() < 1e-9);
        assert!(!life.guess && life.observed_s == 21_600.0);
        let twice = lifetime(16_000_000_000, 6 * hours, &FLASH).unwrap();
        assert_eq!(twice.years * 2.0, life.years);
        assert!(lifetime(1, hours - 1, &FLASH).unwrap().guess);
        assert!(!lifetime(1, hours, &FLASH).unwrap().guess);
    }

    #[test]
    fn without_writes_or_a_duration_there_are_no_years() {
        assert_eq!(lifetime(0, 1, &FLASH), Err(NoLifetime::NothingWritten));
        assert_eq!(lifetime(1, 0, &FLASH), Err(NoLifetime::NoDuration));
        assert_eq!(DailyWrites::new(1, 0), None);
    }

    /// A memory card has no lifetime, whatever its profile says; nor has a device without cycles.
    // Promises: Devices 8.
    #[test]
    fn memory_cards_have_no_lifetime() {
        let card = profile("microsd-2012");
        assert!(card.cycles.is_some());
        assert_eq!(Flash::new(&card, Ok(1.0)), Err(NoLifetime::MemoryCard));
        let plain = profile("latency-100-800");
        assert_eq!(Flash::new(&plain, Ok(1.0)), Err(NoLifetime::NoCycles));
        for why in [NoLifetime::MemoryCard, NoLifetime::NoCycles] {
            assert!(why.is_no_endurance() && why.to_string().starts_with("no endurance figure"));
        }
    }

    /// The run's write amplification comes first, then that of random writes; devices with open
    /// units have none, because it depends on the order of the writes.
    // Promises: Devices 7.
    #[test]
    fn the_write_amplification_of_the_run_comes_first() {
        let shown = Flash::new(&profile("ufs-3.1"), Ok(1.5)).unwrap().amplification;
        assert_eq!(shown, Amplification { value: 1.5, from: AmplificationFrom::Run });
        let not = Err(NotShown::TooFewCollected { collected: 0 });
        let own = Flash::new(&profile("ufs-3.1"), not).unwrap().amplification;
        assert_eq!(own.from, AmplificationFrom::RandomWrites);
        assert!(own.value > 2.0, "{own:?}");
        assert_eq!(Flash::new(&profile("emmc1-2012"), not), Err(NoLifetime::NoAmplification));
        assert!(Flash::new(&profile("emmc1-2012"), Ok(2.0)).is_ok());
        for spec in ALL {
            let found = Flash::new(&(spec.profile)(), not);
            assert!(found.is_err() || found.unwrap().amplification.value >= 1.0, "{}", spec.name);
        }
    }
}
