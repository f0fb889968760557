//! Parses and formats sizes (`64MiB` or `64M`, binary; `64MB`, decimal) and counts (`20M`,
//! decimal).

use flashsift_caches::{cache::FRAMES_MAX, trace::Unit};
use flashsift_events::{
    duration::{DurationError, parse_us},
    page::PAGE_BYTES,
};
use flashsift_pages::system;
use std::{num::NonZeroUsize, time::Duration};

pub(crate) use flashsift_events::show::{
    bytes, count, counted, duration, memory, share, significant,
};

/// Parses bytes, at least one page: `64MiB`, `64M`, `65536`, or `64MB` of 1,000,000 bytes each.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let unit = text.trim_ascii_end().to_ascii_lowercase();
    let is_decimal = ["kb", "mb", "gb", "tb", "pb", "eb"].iter().any(|end| unit.ends_with(end));
    let config = match is_decimal {
        true => parse_size::Config::new().with_decimal(),
        false => parse_size::Config::new().with_binary(),
    };
    let bytes = config.parse_size(text).map_err(|_| {
        "not a size: write it as 64MiB or 64M (of 1024 × 1024 bytes), 64MB (of 1000 × 1000), or as \
         a number of bytes"
    })?;
    if bytes < PAGE_BYTES {
        Err(format!("less than one page of {PAGE_BYTES} bytes"))
    } else {
        Ok(bytes)
    }
}

/// Parses the size of the longest request into pages; `off` is one page.
pub(crate) fn parse_request(text: &str) -> Result<u32, String> {
    const PAGES_MAX: u64 = 4096;
    if text == "off" {
        return Ok(1);
    }
    let pages = parse_bytes(text)? / PAGE_BYTES;
    u32::try_from(pages)
        .ok()
        .filter(|pages| u64::from(*pages) <= PAGES_MAX)
        .ok_or_else(|| format!("a request is at most {}", bytes(PAGES_MAX * PAGE_BYTES)))
}

/// Parses a number of at least 1: `100000`, `100k`, `20M`.
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    let count = parse_size::Config::new()
        .with_decimal()
        .parse_size(text)
        .map_err(|_| "not a number: write it as 100000, 100k or 20M")?;
    if count == 0 { Err("it is at least 1".to_owned()) } else { Ok(count) }
}

/// Parses a number of threads.
pub(crate) fn parse_threads(text: &str) -> Result<NonZeroUsize, String> {
    let threads = text.parse::<usize>().map_err(|_| "not a number of threads")?;
    NonZeroUsize::new(threads).ok_or_else(|| "at least one thread has to run".to_owned())
}

/// Parses a time as [`parse_us`] does: `90s`, `10m`, `1h`; a number alone is in seconds.
pub(crate) fn parse_time(text: &str) -> Result<Duration, DurationError> {
    let is_number = text.ends_with(|c: char| c.is_ascii_digit());
    let with_unit = if is_number { format!("{text}s") } else { text.to_owned() };
    parse_us(&with_unit).map(Duration::from_micros)
}

/// A cache size as people read it: memory, or a number of objects.
pub(crate) fn of_cache(frames: u32, unit: Unit) -> String {
    match unit {
        Unit::Page => memory(frames.into()),
        Unit::Request => counted(frames.into(), "object"),
    }
}

/// Parses a cache size given as memory, into frames.
pub(crate) fn parse_memory(text: &str) -> Result<u32, String> {
    let largest = bytes(u64::from(FRAMES_MAX) * PAGE_BYTES);
    system::frames_in(parse_bytes(text)?).ok_or_else(|| format!("a cache is one page to {largest}"))
}

/// A cache size: memory, or a share of the pages of the trace, or of the bytes of its objects.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CacheSize {
    Bytes(u64),
    Share(f64),
}

impl CacheSize {
    /// Returns the frames for a trace that touches this many pages; at least one.
    pub(crate) fn frames(self, touched_pages: u32) -> u32 {
        match self {
            Self::Bytes(bytes) => system::frames_in(bytes).unwrap_or(1),
            Self::Share(share) => {
                ((f64::from(touched_pages) * share).round() as u32).clamp(1, FRAMES_MAX)
            }
        }
    }
}

/// Parses a share in percent.
pub(crate) fn parse_share(text: &str) -> Result<f64, String> {
    let percent = text.trim_end().strip_suffix('%').and_then(|percent| percent.trim().parse().ok());
    let valid = percent.filter(|percent: &f64| percent.is_finite() && *percent >= 0.0);
    valid.map(|percent| percent / 100.0).ok_or_else(|| "not a share in percent: 5%".to_owned())
}

/// Parses a cache size given as memory, or as a share of the trace's pages in percent.
pub(crate) fn parse_cache_size(text: &str) -> Result<CacheSize, String> {
    let Some(percent) = text.trim_end().strip_suffix('%') else {
        parse_memory(text)?;
        return parse_bytes(text).map(CacheSize::Bytes);
    };
    match percent.trim().parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(CacheSize::Share(percent / 100.0)),
        _ => Err("not a share of the trace's pages: it takes more than 0% to 100%".to_owned()),
    }
}

/// Parses a cache size given in frames.
pub(crate) fn parse_frames(text: &str) -> Result<u32, String> {
    let frames = u32::try_from(parse_count(text)?).ok().filter(|frames| *frames <= FRAMES_MAX);
    frames.ok_or_else(|| format!("a cache has 1 to {FRAMES_MAX} frames"))
}

/// A saved share in percent, with the minus sign of typography.
pub(crate) fn percent(share: f64) -> String {
    let percent = format!("{:.1}", (share * 100.0).abs());
    if share < 0.0 && percent != "0.0" { format!("−{percent}") } else { percent }
}

/// The shares that are saved in both halves of a time.
pub(crate) fn halves(shares: [f64; 2]) -> String {
    let [first, second] = shares.map(percent);
    format!("{first} % in the first half, {second} % in the second")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary_and_at_least_a_page() {
        assert_eq!(parse_bytes("64MiB"), Ok(64 << 20));
        assert_eq!(parse_bytes("64M"), Ok(64 << 20));
        assert_eq!(parse_bytes("4096"), Ok(4096));
        for bad in ["0", "4095", "-1", "", "MiB", "12 parsecs", "99999999999999999999G"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_count("20M"), Ok(20_000_000));
        assert_eq!(parse_bytes("64m"), Ok(64 << 20));
        assert_eq!(parse_bytes("64 mib"), Ok(64 << 20));
        assert!(parse_count("0").is_err());
    }

    /// `4MB` was once 4 MiB, 5 % more than the capacity of a card with that name.
    // Promises: Command line 8.
    #[test]
    fn decimal_sizes_are_decimal_and_shown_so() {
        for (text, bytes) in
            [("4MB", 4_000_000), ("4 mb", 4_000_000), ("1.5GB", 1_500_000_000), ("8kB", 8000)]
        {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for (text, shown) in [
            ("4MB", "4 MB"),
            ("4MiB", "4 MiB"),
            ("4M", "4 MiB"),
            ("1GB", "1 GB"),
            ("1.5GB", "1500 MB"),
            ("100KiB", "100 KiB"),
            ("4096", "4 KiB"),
        ] {
            assert_eq!(memory(parse_memory(text).unwrap_or(1).into()), shown, "{text}");
        }
    }

    #[test]
    fn a_size_or_number_that_is_none_says_how_to_write_it() {
        let error = parse_memory("abc").unwrap_err();
        assert!(error.starts_with("not a size: write it as 64MiB"), "{error}");
        assert_eq!(parse_threads("0").unwrap_err(), "at least one thread has to run");
        assert_eq!(parse_threads("many").unwrap_err(), "not a number of threads");
        assert_eq!(parse_threads("3").map(usize::from), Ok(3));
    }

    // Promises: Command line 5.
    #[test]
    fn a_cache_may_be_a_share_of_the_pages() {
        for text in ["10%", "10 %", "10.0%"] {
            let size = parse_cache_size(text).unwrap();
            assert_eq!((size.frames(1234), size.frames(1)), (123, 1), "{text}");
        }
        assert_eq!(parse_cache_size("100%").unwrap().frames(7), 7);
        assert_eq!(parse_cache_size("8K"), Ok(CacheSize::Bytes(8192)));
        assert_eq!((parse_share("0%"), parse_share("2.5 %")), (Ok(0.0), Ok(0.025)));
        for text in ["-1%", "nan%", "inf%", "%", "x%", "0.1"] {
            assert!(parse_share(text).is_err(), "{text}");
        }
        for text in ["0%", "101%", "-1%", "nan%", "%", "x%"] {
            assert!(parse_cache_size(text).unwrap_err().contains("0% to 100%"), "{text}");
        }
    }

    #[test]
    fn a_time_without_a_unit_is_of_seconds() {
        for (text, ms) in
            [("0.5", 500), ("60", 60_000), ("0.3s", 300), ("10m", 600_000), ("1h", 3_600_000)]
        {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for bad in ["0", "-1", "soon", "", "5x"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }
}
