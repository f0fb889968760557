//! Wear of the flash by writes, and its lifetime.

use serde::Serialize;

/// Wear of a device's flash. Pages are of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wear {
    /// Pages written by the host.
    pub host_pages: u64,
    /// Pages programmed for any reason.
    pub programs: u64,
    /// Of these, pages that the device copied by itself.
    pub copies: u64,
    /// Of the programs, pages of the mapping table.
    pub map_writes: u64,
    /// Erases of the unit that the model erases: units or blocks.
    pub erases: u64,
    /// Programs that are inevitable but not done yet: open units must be closed, the SLC cache must
    /// be emptied, and changed pages of the mapping table must be written back. Counting them keeps
    /// the end of a trace from hiding wear.
    pub copies_due: u64,
    /// Blocks that garbage collection freed; `None` for models without it.
    pub collected: Option<u64>,
}

/// Least number of collected blocks that shows a write amplification. Collections come one at a
/// time, so ten of them give their number within a tenth.
pub const COLLECTED_MIN: u64 = 10;

/// The reason for which a run shows no write amplification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotShown {
    /// The host wrote no page.
    #[error("nothing was written")]
    NothingWritten,
    /// Garbage collection freed fewer than [`COLLECTED_MIN`] blocks.
    #[error(
        "garbage collection freed {collected} of at least {COLLECTED_MIN} blocks: too little was \
         written"
    )]
    TooFewCollected {
        /// Number of blocks that it freed.
        collected: u64,
    },
}

impl Wear {
    /// Returns the pages programmed for each page that the host wrote, including the copies that
    /// are due.
    ///
    /// # Errors
    ///
    /// The run was too short to show it.
    pub fn write_amplification(&self) -> Result<f64, NotShown> {
        match self.collected {
            _ if self.host_pages == 0 => Err(NotShown::NothingWritten),
            Some(collected) if collected < COLLECTED_MIN => {
                Err(NotShown::TooFewCollected { collected })
            }
            _ => Ok((self.programs + self.copies_due) as f64 / self.host_pages as f64),
        }
    }
}

/// Terms of CacheSifter's equation 3 (after Cai et al.), with n = 1: one error correction for life.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Endurance {
    /// Program/erase cycles that a block endures: PEC.
    pub cycles: f64,
    /// Flash beyond the capacity, as a share of it: OP.
    pub over_provisioning: f64,
    /// Writes of the whole device in a day: DWPD.
    pub drive_writes_per_day: f64,
    /// Write amplification: WA.
    pub write_amplification: f64,
    /// Bytes stored for each byte written by a device that compresses: R; 1 for others.
    pub compression: f64,
}

impl Endurance {
    /// Returns the lifetime in years.
    pub fn lifetime_years(&self) -> f64 {
        self.cycles * (1.0 + self.over_provisioning)
            / (365.0 * self.drive_writes_per_day * self.write_amplification * self.compression)
    }
}

/// Returns the gain in lifetime if `after` pages are programmed instead of `before`: 1 / (1 −
/// reduction) − 1, all else being equal. A value of 1.137 is 113.7 %. `None` if nothing is
/// programmed any more.
pub fn lifetime_gain(before: f64, after: f64) -> Option<f64> {
    (after > 0.0).then(|| before / after - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CacheSifter §6.1: I/O reduced by 53.2 and 54.7 % gives 113.7 and 120.8 % more lifetime.
    // Promises: Devices 6.
    #[test]
    fn lifetimes_agree_with_cachesifters_figures() {
        for (reduction, gain) in [(0.532, 1.137), (0.547, 1.208)] {
            assert!((lifetime_gain(1.0, 1.0 - reduction).unwrap() - gain).abs() < 5e-4);
        }
        assert_eq!(lifetime_gain(1.0, 0.0), None);
        assert_eq!(lifetime_gain(1.0, 2.0), Some(-0.5));
    }

    /// 3650 full cycles at one a day are ten years; each factor has the effect of its name.
    // Promises: Devices 7.
    #[test]
    fn lifetimes_follow_equation_3() {
        let plain = Endurance {
            cycles: 3650.0,
            over_provisioning: 0.0,
            drive_writes_per_day: 1.0,
            write_amplification: 1.0,
            compression: 1.0,
        };
        let years = |endurance: Endurance| endurance.lifetime_years();
        assert_eq!(years(plain), 10.0);
        assert_eq!(years(Endurance { over_provisioning: 0.5, ..plain }), 15.0);
        assert_eq!(years(Endurance { drive_writes_per_day: 0.1, ..plain }), 100.0);
        assert_eq!(years(Endurance { write_amplification: 4.0, ..plain }), 2.5);
        assert_eq!(years(Endurance { compression: 0.5, ..plain }), 20.0);
    }

    // Promises: Devices 5, Devices 6.
    #[test]
    fn due_copies_count_as_done() {
        let wear =
            Wear { host_pages: 10, programs: 12, copies: 2, copies_due: 8, ..Wear::default() };
        assert_eq!(wear.write_amplification(), Ok(2.0));
    }

    // Promises: Devices 5.
    #[test]
    fn a_run_without_garbage_collection_shows_no_write_amplification() {
        let wear = |collected| Wear {
            host_pages: 10,
            programs: 10,
            collected: Some(collected),
            ..Wear::default()
        };
        assert_eq!(Wear::default().write_amplification(), Err(NotShown::NothingWritten));
        let few = wear(COLLECTED_MIN - 1).write_amplification().unwrap_err();
        assert_eq!(few, NotShown::TooFewCollected { collected: COLLECTED_MIN - 1 });
        assert!(few.to_string().contains("9 of at least 10 blocks"), "{few}");
        assert_eq!(wear(COLLECTED_MIN).write_amplification(), Ok(1.0));
    }
}
