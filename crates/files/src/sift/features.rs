//! Features of a new file: its accesses in the first K units of time of its life.
//!
//! One extractor serves training, simulation and mounts, so a model sees the same numbers in each.
//! CacheSifter (Liang et al., FAST '22, Section 4.1) defines K + 6 values for a file:
//!
//! - K sums of the bytes that were read and written, one for each unit of time;
//! - bytes read, number of reads, bytes written and number of writes in the K units;
//! - the maximum size of the file in the K units, bytes;
//! - the active period: the last access minus the first one, in units. If a file is accessed once,
//!   its last access counts as made at K (Section 4.1), so the value is K minus the access's time.
//!
//! The paper leaves open: an access is a read or write of at least one byte; a file without an
//! access has an active period of 0; the time of an access counts from the file's creation; an
//! access before the creation, by a clock that jumps, counts as made at the creation.
//!
//! Sums and sizes saturate at 4 GiB − 1 and counts at 2³² − 1, so that a window takes at most 480
//! bytes. Scaling belongs to the model: see [`super::model`].

use flashsift_events::event::{Action, Event, Micros};

pub mod examples;
#[cfg(test)]
mod naive;

/// Most units of time in a window.
/// Table 3 of the paper has up to 100.
pub const MAX_UNITS: usize = 100;
/// Values beside the sums of the units.
pub const SUMMARIES: usize = 6;
/// Most values of a file.
pub const MAX_VALUES: usize = MAX_UNITS + SUMMARIES;
/// Version of the definition of the values. A model of another version is refused.
pub const SCHEMA: u32 = 1;

/// The window over which features are collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureConfig {
    /// Number of units of time: K.
    pub units: u8,
    /// Length of a unit, µs.
    pub unit_us: u32,
}

impl FeatureConfig {
    /// The paper's window of the first phase: 20 units of 1 s.
    pub const FIRST: Self = Self { units: 20, unit_us: 1_000_000 };
    /// The paper's window of the second phase: 60 units of 1 s.
    pub const SECOND: Self = Self { units: 60, unit_us: 1_000_000 };

    /// Returns the number of values of a file.
    pub fn values(&self) -> usize {
        usize::from(self.units) + SUMMARIES
    }

    /// Returns the length of the window, µs.
    pub fn window_us(&self) -> Micros {
        Micros::from(self.units) * Micros::from(self.unit_us)
    }

    /// Returns the name of each value, in order.
    pub fn names(&self) -> Vec<String> {
        let units = (0..self.units).map(|unit| format!("unit_{unit}_bytes"));
        let summaries =
            ["read_bytes", "reads", "written_bytes", "writes", "max_size_bytes", "active_units"];
        units.chain(summaries.into_iter().map(Into::into)).collect()
    }

    fn is_valid(&self) -> bool {
        (1..=MAX_UNITS).contains(&self.units.into())
            && self.unit_us > 0
            && self.window_us() <= u32::MAX.into()
    }
}

/// The two phases of categorisation, in the order in which they happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// BAR, or any other category (the positive class).
    First,
    /// Transient or Long-living (the positive class).
    Second,
}

/// The windows of both phases. They begin together and have the same unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    unit_us: u32,
    units: [u8; 2],
}

impl Default for Windows {
    /// The paper's: 20 and 60 units of 1 s.
    fn default() -> Self {
        Self { unit_us: 1_000_000, units: [20, 60] }
    }
}

impl Windows {
    /// Returns these windows. `None` if their units differ, the second is shorter than the first,
    /// one has no unit or more than [`MAX_UNITS`], or lasts longer than 2³² − 1 µs.
    pub fn new(first: FeatureConfig, second: FeatureConfig) -> Option<Self> {
        let fits = first.is_valid()
            && second.is_valid()
            && first.unit_us == second.unit_us
            && first.units <= second.units;
        fits.then_some(Self { unit_us: first.unit_us, units: [first.units, second.units] })
    }

    /// Returns the window of a phase.
    pub fn config(&self, phase: Phase) -> FeatureConfig {
        FeatureConfig { units: self.units[phase as usize], unit_us: self.unit_us }
    }
}

/// The direction of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The application read.
    Read,
    /// The application wrote.
    Write,
}

/// The accesses to one file in the windows of both phases. It takes no heap memory.
#[derive(Clone, Debug)]
pub struct FileWindow {
    born_us: Micros,
    size_bytes: u64,
    windows: Windows,
    /// Time of the first access after the creation, µs; `u32::MAX` before it.
    first_us: u32,
    unit_bytes: [u32; MAX_UNITS],
    totals: [Totals; 2],
}

/// Sums over one window. Times count from the creation, µs.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    read_bytes: u32,
    reads: u32,
    written_bytes: u32,
    writes: u32,
    max_size_bytes: u32,
    last_us: u32,
}

impl FileWindow {
    /// Begins with a file created at this time.
    pub fn new(born_us: Micros, windows: Windows) -> Self {
        Self {
            born_us,
            size_bytes: 0,
            windows,
            first_us: u32::MAX,
            unit_bytes: [0; MAX_UNITS],
            totals: [Totals::default(); 2],
        }
    }

    /// Returns the time of the file's creation.
    pub fn born_us(&self) -> Micros {
        self.born_us
    }

    /// Returns the file's present size, bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Returns the time at which the window of a phase ends.
    pub fn ends_us(&self, phase: Phase) -> Micros {
        self.born_us.saturating_add(self.windows.config(phase).window_us())
    }

    /// Takes an event of this file. Other events than accesses and truncations change nothing.
    pub fn handle(&mut self, event: &Event<'_>) {
        match event.action {
            Action::Read { len, .. } | Action::Direct { len, write: false, .. } => {
                self.access(event.at_us, Direction::Read, len, self.size_bytes);
            }
            Action::Write { offset, len, .. } | Action::Direct { offset, len, write: true, .. } => {
                let size_bytes = self.size_bytes.max(offset.saturating_add(len));
                self.access(event.at_us, Direction::Write, len, size_bytes);
            }
            Action::Truncate { size, .. } => self.resize(event.at_us, size),
            _ => {}
        }
    }

    /// Takes an access after which the file has `size_bytes`. An access to 0 bytes is none.
    pub fn access(&mut self, at_us: Micros, direction: Direction, bytes: u64, size_bytes: u64) {
        if bytes == 0 {
            return;
        }
        let bytes = saturated(bytes);
        let age_us = saturated(at_us.saturating_sub(self.born_us));
        self.first_us = self.first_us.min(age_us);
        for (totals, units) in self.totals.iter_mut().zip(self.windows.units) {
            if age_us / self.windows.unit_us >= units.into() {
                continue;
            }
            let (sum, count) = match direction {
                Direction::Read => (&mut totals.read_bytes, &mut totals.reads),
                Direction::Write => (&mut totals.written_bytes, &mut totals.writes),
            };
            *sum = sum.saturating_add(bytes);
            *count = count.saturating_add(1);
            totals.last_us = totals.last_us.max(age_us);
        }
        if let Some(unit) = self.unit_bytes.get_mut((age_us / self.windows.unit_us) as usize) {
            *unit = unit.saturating_add(bytes);
        }
        self.resize(at_us, size_bytes);
    }

    /// Takes a truncation of the file to this size.
    pub fn resize(&mut self, at_us: Micros, size_bytes: u64) {
        self.size_bytes = size_bytes;
        let age_us = saturated(at_us.saturating_sub(self.born_us));
        for (totals, units) in self.totals.iter_mut().zip(self.windows.units) {
            if age_us / self.windows.unit_us < units.into() {
                totals.max_size_bytes = totals.max_size_bytes.max(saturated(size_bytes));
            }
        }
    }

    /// Writes the values of a phase to `values`. They are never negative, infinite or NaN. Accesses
    /// after the window's end do not change them.
    ///
    /// # Panics
    /// If `values` does not have as many places as the phase has values.
    pub fn values(&self, phase: Phase, values: &mut [f32]) {
        let config = self.windows.config(phase);
        assert_eq!(values.len(), config.values(), "one place for each value");
        let totals = &self.totals[phase as usize];
        let (units, summaries) = values.split_at_mut(config.units.into());
        for (value, bytes) in units.iter_mut().zip(self.unit_bytes) {
            *value = bytes as f32;
        }
        let active_us = match u64::from(totals.reads) + u64::from(totals.writes) {
            0 => 0,
            1 => config.window_us() - Micros::from(totals.last_us),
            _ => Micros::from(totals.last_us - self.first_us),
        };
        summaries.copy_from_slice(&[
            totals.read_bytes as f32,
            totals.reads as f32,
            totals.written_bytes as f32,
            totals.writes as f32,
            totals.max_size_bytes as f32,
            (active_us as f64 / f64::from(config.unit_us)) as f32,
        ]);
    }
}

fn saturated(number: u64) -> u32 {
    number.try_into().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_events::event::FileId;
    use proptest::prelude::*;

    const SECOND: Micros = 1_000_000;

    fn values(window: &FileWindow, phase: Phase) -> Vec<f32> {
        let mut values = vec![f32::NAN; window.windows.config(phase).values()];
        window.values(phase, &mut values);
        values
    }

    #[test]
    fn a_window_takes_at_most_480_bytes() {
        assert!(size_of::<FileWindow>() <= 480, "{} bytes", size_of::<FileWindow>());
    }

    /// Section 4.1 of the paper, by hand.
    // Promises: Sift 8.
    #[test]
    fn a_file_read_once_after_its_download_has_the_papers_values() {
        let mut window = FileWindow::new(5 * SECOND, Windows::default());
        window.access(5 * SECOND, Direction::Write, 4096, 4096);
        window.access(6 * SECOND - 1, Direction::Write, 100, 4196);
        window.access(7 * SECOND + SECOND / 2, Direction::Read, 4196, 4196);
        window.access(30 * SECOND, Direction::Read, 10, 4196);
        let first = values(&window, Phase::First);
        assert_eq!(first[..4], [4196.0, 0.0, 4196.0, 0.0]);
        assert_eq!(first[20..], [4196.0, 1.0, 4196.0, 2.0, 4196.0, 2.5]);
        let second = values(&window, Phase::Second);
        assert_eq!(second[25], 10.0);
        assert_eq!(second[60..], [4206.0, 2.0, 4196.0, 2.0, 4196.0, 25.0]);
    }

    #[test]
    fn a_file_accessed_once_is_active_until_the_window_ends() {
        let mut window = FileWindow::new(0, Windows::default());
        assert!(values(&window, Phase::First).iter().all(|value| *value == 0.0));
        window.access(3 * SECOND, Direction::Write, 1, 1);
        assert_eq!(values(&window, Phase::First)[25], 17.0);
        assert_eq!(values(&window, Phase::Second)[65], 57.0);
    }

    #[test]
    fn sums_saturate_at_4_gib() {
        let mut window = FileWindow::new(0, Windows::default());
        for _ in 0..3 {
            window.access(0, Direction::Read, 3 << 30, u64::MAX);
        }
        let first = values(&window, Phase::First);
        assert_eq!([first[0], first[20], first[24]], [u32::MAX as f32; 3]);
    }

    #[test]
    fn events_of_a_file_become_accesses() {
        let file = FileId(1);
        let mut window = FileWindow::new(0, Windows::default());
        let actions = [
            Action::Write { file, open: None, offset: 10, len: 5, sync: false },
            Action::Truncate { file, size: 100 },
            Action::Direct { file, open: None, offset: 0, len: 8, write: false },
            Action::Read { file, open: None, offset: 0, len: 0 },
            Action::Close { file, open: None },
        ];
        for action in actions {
            window.handle(&Event { at_us: 0, pid: 0, tid: 0, action });
        }
        assert_eq!(values(&window, Phase::First)[20..], [8.0, 1.0, 5.0, 1.0, 100.0, 0.0]);
    }

    #[test]
    fn windows_that_do_not_fit_together_are_refused() {
        let (first, second) = (FeatureConfig::FIRST, FeatureConfig::SECOND);
        assert_eq!(Windows::new(first, second), Some(Windows::default()));
        assert!(Windows::new(first, first).is_some());
        assert_eq!(Windows::new(second, first), None);
        for bad in [
            FeatureConfig { units: 101, ..second },
            FeatureConfig { unit_us: 1, ..second },
            FeatureConfig { units: 60, unit_us: u32::MAX },
        ] {
            assert_eq!(Windows::new(first, bad), None, "{bad:?}");
        }
        let none = FeatureConfig { unit_us: 0, ..first };
        assert_eq!(Windows::new(none, none), None);
        assert_eq!(first.names().len(), first.values());
    }

    proptest! {
        /// Each value is that of the naive model, which keeps all accesses.
        // Promises: Sift 8.
        #[test]
        fn values_equal_those_of_the_naive_model(
            born_us in 0..10 * SECOND,
            unit_us in 1_u32..3_000_000,
            (first, second) in (1_u8..=60, 1_u8..=60).prop_map(|(a, b)| (a.min(b), a.max(b))),
            mut accesses in proptest::collection::vec(naive::any_access(), 0..40),
        ) {
            let windows = Windows::new(
                FeatureConfig { units: first, unit_us },
                FeatureConfig { units: second, unit_us },
            )
            .unwrap();
            accesses.sort_by_key(|access| access.at_us);
            let mut window = FileWindow::new(born_us, windows);
            for access in &accesses {
                match access.direction {
                    Some(direction) => {
                        window.access(access.at_us, direction, access.bytes, access.size_bytes);
                    }
                    None => window.resize(access.at_us, access.size_bytes),
                }
            }
            for phase in [Phase::First, Phase::Second] {
                let expected = naive::values(born_us, &windows.config(phase), &accesses);
                prop_assert_eq!(values(&window, phase), expected);
            }
        }
    }
}
