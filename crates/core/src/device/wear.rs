//! What writes cost the flash, and how long it lasts.

use serde::Serialize;

/// What a device's flash has had to bear. Pages are of 4 KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wear {
    /// Pages written by the host.
    pub host_pages: u64,
    /// Pages programmed, whatever for.
    pub programs: u64,
    /// Of these, pages that the device copied on its own account.
    pub copies: u64,
    /// Erases, of whatever the model erases: units or blocks.
    pub erases: u64,
    /// Copies that what was written makes inevitable and that are still to come: open units have to be closed, and what is in
    /// an SLC cache has to leave it. So nobody saves wear by ending early.
    pub copies_due: u64,
}

impl Wear {
    /// Pages programmed, or bound to be, for each page that the host wrote; `None` if it wrote none.
    pub fn write_amplification(&self) -> Option<f64> {
        (self.host_pages > 0).then(|| (self.programs + self.copies_due) as f64 / self.host_pages as f64)
    }
}

/// What CacheSifter's equation 3 (after Cai et al.) takes, with n = 1: one error correction for life.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Endurance {
    /// Program/erase cycles that a block stands: PEC.
    pub cycles: f64,
    /// Flash beyond what the device offers, as a share of that: OP.
    pub over_provisioning: f64,
    /// How often the whole device is written a day: DWPD.
    pub drive_writes_per_day: f64,
    /// WA.
    pub write_amplification: f64,
    /// Bytes stored for each byte written, by a device that compresses: R; 1 for those that do not.
    pub compression: f64,
}

impl Endurance {
    /// Years.
    pub fn lifetime_years(&self) -> f64 {
        self.cycles * (1.0 + self.over_provisioning)
            / (365.0 * self.drive_writes_per_day * self.write_amplification * self.compression)
    }
}

/// How much longer flash lives of which so much is programmed instead of `before`: 1 / (1 − reduction) − 1, all else being equal.
/// 1.137 is 113.7 %. `None` where nothing is programmed any more.
pub fn lifetime_gain(before: f64, after: f64) -> Option<f64> {
    (after > 0.0).then(|| before / after - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CacheSifter §6.1: I/O less by 53.2 and 54.7 % makes 113.7 and 120.8 % of lifetime.
    #[test]
    fn cachesifters_figures() {
        for (reduction, gain) in [(0.532, 1.137), (0.547, 1.208)] {
            assert!((lifetime_gain(1.0, 1.0 - reduction).unwrap() - gain).abs() < 5e-4);
        }
        assert_eq!(lifetime_gain(1.0, 0.0), None);
        assert_eq!(lifetime_gain(1.0, 2.0), Some(-0.5));
    }

    /// 3650 full cycles of exactly the device, one a day, are ten years; each factor does what its name says.
    #[test]
    fn equation_three() {
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

    #[test]
    fn what_is_due_counts_as_done() {
        let wear = Wear { host_pages: 10, programs: 12, copies: 2, erases: 1, copies_due: 8 };
        assert_eq!(wear.write_amplification(), Some(2.0));
        assert_eq!(Wear::default().write_amplification(), None);
    }
}
