//! The state of `flashsift top`: rows from readings, the chosen one, and their order.

use flashsift_mount::Status;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// One reading of all mounts.
pub(super) struct Sample {
    pub(super) at: Instant,
    pub(super) mounts: Vec<Asked>,
}

/// A mount, and its answer or the reason why there is none.
pub(super) struct Asked {
    pub(super) mountpoint: PathBuf,
    pub(super) backing: PathBuf,
    pub(super) status: Result<Status, String>,
}

/// A key that means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Up,
    Down,
    Sort,
}

/// The order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Name,
    Written,
    Dropped,
    Flash,
}

impl Sort {
    pub(super) fn name(self) -> &'static str {
        match self {
            Sort::Name => "name",
            Sort::Written => "bytes written",
            Sort::Dropped => "bytes dropped",
            Sort::Flash => "bytes on flash",
        }
    }

    fn next(self) -> Sort {
        match self {
            Sort::Name => Sort::Written,
            Sort::Written => Sort::Dropped,
            Sort::Dropped => Sort::Flash,
            Sort::Flash => Sort::Name,
        }
    }
}

/// Bytes since the mount began; `held`: now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) written: Option<u64>,
    pub(super) held: Option<u64>,
    pub(super) dropped: Option<u64>,
    pub(super) again: Option<u64>,
    pub(super) flash: Option<u64>,
}

impl Totals {
    fn new(status: &Status) -> Totals {
        let writes = status.writes.as_ref();
        let counts = status.sift.as_ref().map(|sift| &sift.counts);
        Totals {
            written: writes.map(|writes| writes.requested_bytes),
            held: counts.map(|counts| counts.held.bytes),
            dropped: counts.map(|counts| counts.dropped.bytes),
            again: counts.map(|counts| counts.created_again.bytes),
            flash: writes.map(|writes| writes.flash_bytes),
        }
    }
}

/// Bytes a second since the reading before; `None`: unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Rates {
    #[serde(rename = "requested_bytes_per_s")]
    pub(super) written: Option<u64>,
    #[serde(rename = "dropped_bytes_per_s")]
    pub(super) dropped: Option<u64>,
    #[serde(rename = "created_again_bytes_per_s")]
    pub(super) again: Option<u64>,
    #[serde(rename = "flash_bytes_per_s")]
    pub(super) flash: Option<u64>,
}

impl Rates {
    fn between(before: &Totals, now: &Totals, elapsed_s: f64) -> Rates {
        // Less than before: it was mounted anew.
        let rate = |before: Option<u64>, now: Option<u64>| {
            let bytes = now?.checked_sub(before?)?;
            (elapsed_s > 0.0).then(|| (bytes as f64 / elapsed_s) as u64)
        };
        Rates {
            written: rate(before.written, now.written),
            dropped: rate(before.dropped, now.dropped),
            again: rate(before.again, now.again),
            flash: rate(before.flash, now.flash),
        }
    }
}

/// A mount on the screen.
pub(super) struct Row {
    pub(super) mountpoint: PathBuf,
    pub(super) backing: PathBuf,
    pub(super) status: Result<Status, String>,
    pub(super) totals: Totals,
    pub(super) rates: Rates,
}

/// Everything that a frame shows.
pub(super) struct State {
    pub(super) rows: Vec<Row>,
    pub(super) sort: Sort,
    pub(super) has_colour: bool,
    chosen: Option<PathBuf>,
    read_at: Option<Instant>,
}

#[derive(Serialize)]
pub(super) struct JsonFrame<'a> {
    mounts: Vec<JsonRow<'a>>,
}

#[derive(Serialize)]
struct JsonRow<'a> {
    mountpoint: &'a Path,
    backing: &'a Path,
    rates: Rates,
    status: Option<&'a Status>,
    error: Option<&'a str>,
}

impl State {
    pub(super) fn new(has_colour: bool) -> State {
        State { rows: Vec::new(), sort: Sort::Name, has_colour, chosen: None, read_at: None }
    }

    /// Shows this reading, with rates since the one before.
    pub(super) fn take(&mut self, sample: Sample) {
        let elapsed_s =
            self.read_at.map_or(0.0, |before| sample.at.duration_since(before).as_secs_f64());
        let rows = sample.mounts.into_iter().map(|Asked { mountpoint, backing, status }| {
            let totals = status.as_ref().map_or_else(|_| Totals::default(), Totals::new);
            let before = self.rows.iter().find(|row| row.mountpoint == mountpoint);
            let rates = before.map_or_else(Rates::default, |before| {
                Rates::between(&before.totals, &totals, elapsed_s)
            });
            Row { mountpoint, backing, status, totals, rates }
        });
        self.rows = rows.collect();
        self.read_at = Some(sample.at);
        self.order();
        if !self.rows.iter().any(|row| Some(&row.mountpoint) == self.chosen.as_ref()) {
            self.chosen = self.rows.first().map(|row| row.mountpoint.clone());
        }
    }

    fn order(&mut self) {
        let sort = self.sort;
        self.rows.sort_by(|a, b| {
            let by = |row: &Row| match sort {
                Sort::Name => None,
                Sort::Written => row.totals.written,
                Sort::Dropped => row.totals.dropped,
                Sort::Flash => row.totals.flash,
            };
            by(b).cmp(&by(a)).then_with(|| a.mountpoint.cmp(&b.mountpoint))
        });
    }

    /// Place of the chosen row.
    pub(super) fn chosen(&self) -> Option<usize> {
        self.rows.iter().position(|row| Some(&row.mountpoint) == self.chosen.as_ref())
    }

    pub(super) fn press(&mut self, key: Key) {
        let at = self.chosen().unwrap_or(0);
        let to = match key {
            Key::Up => at.saturating_sub(1),
            Key::Down => (at + 1).min(self.rows.len().saturating_sub(1)),
            Key::Sort => {
                self.sort = self.sort.next();
                return self.order();
            }
            Key::Quit => return,
        };
        self.chosen = self.rows.get(to).map(|row| row.mountpoint.clone());
    }

    pub(super) fn json(&self) -> JsonFrame<'_> {
        let row = |row| {
            let Row { mountpoint, backing, status, rates, .. }: &Row = row;
            let error = status.as_ref().err().map(String::as_str);
            JsonRow { mountpoint, backing, rates: *rates, status: status.as_ref().ok(), error }
        };
        JsonFrame { mounts: self.rows.iter().map(row).collect() }
    }
}
