//! Sizes as people write and read them: `64MiB` or `64M`, binary; and counts: `20M`, decimal.

use flashsift_core::{
    page::PAGE_BYTES,
    system::{self, FRAMES_MAX},
};

/// `64MiB`, `64M`, `65536`: bytes, at least one page.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    let bytes = parse_size::Config::new()
        .with_binary()
        .parse_size(text)
        .map_err(|error| format!("{error}; a size reads 64MiB, 64M or 67108864"))?;
    if bytes < PAGE_BYTES { Err(format!("less than one page of {PAGE_BYTES} bytes")) } else { Ok(bytes) }
}

/// `100000`, `100k`, `20M`: a number, at least 1.
pub(crate) fn parse_count(text: &str) -> Result<u64, String> {
    let count = parse_size::Config::new()
        .with_decimal()
        .parse_size(text)
        .map_err(|error| format!("{error}; a number reads 100000, 100k or 20M"))?;
    if count == 0 { Err("at least 1".to_owned()) } else { Ok(count) }
}

/// A cache size as memory, in frames.
pub(crate) fn parse_memory(text: &str) -> Result<u32, String> {
    let largest = bytes(u64::from(FRAMES_MAX) * PAGE_BYTES);
    system::frames_in(parse_bytes(text)?).ok_or_else(|| format!("a cache is one page to {largest}"))
}

/// A cache size in frames.
pub(crate) fn parse_frames(text: &str) -> Result<u32, String> {
    let frames = u32::try_from(parse_count(text)?).ok().filter(|frames| *frames <= FRAMES_MAX);
    frames.ok_or_else(|| format!("a cache has 1 to {FRAMES_MAX} frames"))
}

/// `4 MiB`, `36 KiB`, `1.5 GiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if value.fract() == 0.0 {
                format!("{value} {unit}")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// `1 234 567`: digits in groups, the same in every locale.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// `38 %`, `3.2 %`, `< 0.1 %`: two digits. Neither 0 nor all is claimed of what only comes near.
pub(crate) fn share(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        _ if percent == 0.0 || percent == 100.0 => format!("{percent:.0} %"),
        ..0.1 => "< 0.1 %".to_owned(),
        ..9.95 => format!("{percent:.1} %"),
        ..99.5 => format!("{percent:.0} %"),
        _ => "> 99 %".to_owned(),
    }
}

/// `320 ms`, `3.2 s`, `5 min 20 s`, `2 h 5 min`.
pub(crate) fn duration(us: u64) -> String {
    let seconds = us / 1_000_000;
    match seconds {
        0 if us > 0 => format!("{:.0} ms", (us as f64 / 1e3).ceil()),
        0..60 => format!("{:.1} s", us as f64 / 1e6),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
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
        assert!(parse_count("0").is_err());
    }

    #[test]
    fn people_read_them() {
        assert_eq!(bytes(4 << 20), "4 MiB");
        assert_eq!(bytes(36 * 1024), "36 KiB");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
        assert_eq!(count(1_234_567).replace('\u{202f}', " "), "1 234 567");
        assert_eq!(count(123), "123");
        assert_eq!(duration(320_000_000), "5 min 20 s");
        assert_eq!([0, 1, 319_100, 3_200_000].map(duration), ["0.0 s", "1 ms", "320 ms", "3.2 s"]);
        let shares = [0.0, 0.000_01, 0.032_1, 0.099_6, 0.384, 0.994, 0.999_999, 1.0].map(share);
        assert_eq!(shares, ["0 %", "< 0.1 %", "3.2 %", "10 %", "38 %", "99 %", "> 99 %", "100 %"]);
    }
}
