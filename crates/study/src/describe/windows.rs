//! Bytes written in 60 s: CacheSifter (FAST '22), Fig. 8, from which the paper derives the memory
//! for transient files.
//!
//! The trace is divided into windows of 60 s from its beginning; the last may be shorter. The paper
//! shows cache files; writes to created files and to all files are listed as well. The series
//! leaves out windows without writes. Where it would have more than a thousand rows, a row covers
//! several `windows`, with the sum of their bytes and the maximum of one window.

use super::{
    Audience, Characterisation, CharacterisationSpec, Found, Ledger, Need, Seen, Table, Value,
};
use flashsift_events::event::{Action, Event, Space};

pub(super) const SPEC: CharacterisationSpec = CharacterisationSpec {
    name: "windows",
    title: "Written in 60 s",
    paper: "Liang et al., CacheSifter: Fig. 8",
    paper_saw: "Applications produce at most 21 MB of cache files in 60 s; so the paper gives transient files 20 MB \
                of memory.",
    opens: false,
    needs: &[Need::Times, Need::Writes],
    build: |_| Box::new(Windows::default()),
};

const WINDOW_US: u64 = 60_000_000;
/// Largest number of rows of the series.
const SERIES: u64 = 1000;
const KINDS: [(&str, &str); 3] =
    [("all", "all files"), ("made", "files made in the trace"), ("cache", "cache files")];

/// Windows with writes, in order: number, bytes by kind.
#[derive(Default)]
struct Windows {
    written: Vec<(u64, [u64; 3])>,
}

impl Characterisation for Windows {
    fn event(&mut self, event: &Event, seen: &Seen<'_>) {
        let Action::Write { len: len @ 1.., .. } = event.action else { return };
        let window = event.at_us / WINDOW_US;
        if self.written.last().is_none_or(|(last, _)| *last != window) {
            self.written.push((window, [0; 3]));
        }
        let (_, sums) = self.written.last_mut().expect("there is one now");
        let files = &seen.ledger.files;
        let file = seen.file.map(|file| files.get(file));
        let made = file.is_some_and(|file| file.created_us.is_some());
        let cache = file.is_some_and(|file| files.is_cache(file));
        for (sum, counts) in sums.iter_mut().zip([true, made, cache]) {
            *sum = sum.saturating_add(if counts { len } else { 0 });
        }
    }

    fn held_bytes(&self) -> usize {
        self.written.len() * size_of::<(u64, [u64; 3])>()
    }

    fn finish(&mut self, ledger: &Ledger, _: usize) -> Result<Found, &'static str> {
        if self.written.is_empty() {
            return Err("no writes");
        }
        let kinds = if ledger.about.space == Space::Files { 3 } else { 1 };
        let windows = ledger.end_us / WINDOW_US + 1;
        let columns = [
            ("to", ""),
            ("mean_bytes", "mean"),
            ("median_bytes", "median"),
            ("p90_bytes", "90 %"),
            ("most_bytes", "most"),
        ];
        let mut table = Table::new("in_60_s", &columns);
        for (n, (id, label)) in KINDS.iter().enumerate().take(kinds) {
            let mut bytes: Vec<u64> = self.written.iter().map(|(_, sums)| sums[n]).collect();
            bytes.sort_unstable();
            if bytes.last() == Some(&0) {
                continue;
            }
            // Windows without writes come first.
            let idle = windows - bytes.len() as u64;
            let percentile = |percent: u64| {
                let at = (u128::from(windows) * u128::from(percent)).div_ceil(100) as u64 - 1;
                Value::Bytes(at.checked_sub(idle).map_or(0, |at| bytes[at as usize]))
            };
            let mean = Value::Bytes(
                bytes.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes)) / windows,
            );
            table.push([
                Value::label(id, label),
                mean,
                percentile(50),
                percentile(90),
                percentile(100),
            ]);
        }
        let mut columns = vec![("start_us", ""), ("windows", "")];
        columns.extend(
            [("all_bytes", ""), ("made_bytes", ""), ("cache_bytes", "")].iter().take(kinds),
        );
        columns.extend(
            [("all_most_bytes", ""), ("made_most_bytes", ""), ("cache_most_bytes", "")]
                .iter()
                .take(kinds),
        );
        let mut series = Table::new("windows", &columns).only_for(Audience::Programs);
        let a_row = windows.div_ceil(SERIES);
        for row in self.written.chunk_by(|(a, _), (b, _)| a / a_row == b / a_row) {
            let first = row[0].0 / a_row * a_row;
            let of = |n: usize| row.iter().map(move |(_, sums)| sums[n]);
            let sum = |n| Value::Bytes(of(n).fold(0, u64::saturating_add));
            let most = |n| Value::Bytes(of(n).max().unwrap_or(0));
            let when = [Value::TimeUs(first * WINDOW_US), Value::Count(a_row.min(windows - first))];
            let written = (0..kinds).map(sum).chain((0..kinds).map(most));
            series.push(when.into_iter().chain(written).collect::<Vec<_>>());
        }
        let most = |n: usize| self.written.iter().map(|(_, sums)| sums[n]).max().unwrap_or(0);
        let mut sentence = vec!["At most".into(), Value::Bytes(most(0)).into()];
        if kinds == 3 {
            sentence.extend([
                "are written in 60 s, at most".into(),
                Value::Bytes(most(2)).into(),
                "to cache files.".into(),
            ]);
        } else {
            sentence.push("are written in 60 s.".into());
        }
        Ok(Found::default().sentence(sentence).table(table).table(series))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;

    // Promises: Describe 14.
    #[test]
    fn windows_by_hand() {
        let events = [
            at(0, bind(1, "/cache/a")),
            at(0, create(2)),
            at(0, write(1, 0, 100)),
            at(59, write(2, 0, 200)),
            at(60, write(3, 0, 50)),
            // No writes from 120 to 179 s.
            at(180, write(1, 0, 1000)),
            at(239, read(1, 0, 1)),
        ];
        let found = describe("windows", &events);
        assert_eq!(column(&found, "in_60_s", "mean_bytes"), [1350 / 4, 50, 1100 / 4].map(bytes));
        assert_eq!(column(&found, "in_60_s", "median_bytes"), [50, 0, 0].map(bytes));
        assert_eq!(column(&found, "in_60_s", "most_bytes"), [1000, 200, 1000].map(bytes));
        assert_eq!(column(&found, "windows", "all_bytes"), [300, 50, 1000].map(bytes));
        assert_eq!(column(&found, "windows", "windows"), counts([1, 1, 1]));
    }

    /// 1001 minutes: two windows in a row.
    // Promises: Describe 14.
    #[test]
    fn a_long_series_gives_the_most_of_several() {
        let minutes = [(0, 5), (1, 7), (500, 3), (501, 2), (1000, 9)];
        let events: Vec<_> =
            minutes.map(|(minute, len)| at(minute * 60, write(1, 0, len))).to_vec();
        let found = describe("windows", &events);
        let starts = [0, 500, 1000].map(|minute| super::Value::TimeUs(minute * 60_000_000));
        assert_eq!(column(&found, "windows", "start_us"), starts);
        assert_eq!(column(&found, "windows", "windows"), counts([2, 2, 1]));
        assert_eq!(column(&found, "windows", "all_bytes"), [12, 5, 9].map(bytes));
        assert_eq!(column(&found, "windows", "all_most_bytes"), [7, 3, 9].map(bytes));
    }
}
