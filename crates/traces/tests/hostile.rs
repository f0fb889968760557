//! For any input, a reader gives events and counts, or an error with a message: never a panic, and
//! never an event that no system can have carried out.
//!
//! `FLASHSIFT_SEED=N` repeats a failure of the random part, `FLASHSIFT_ROUNDS=N` makes it longer.

use crate::checked;
use flashsift_traces::{
    Error,
    format::{self, ALL, FormatSpec},
    input::LINE_BYTES_MAX,
    open::{self, Limits},
};
use rand::{RngExt, SeedableRng, seq::IndexedRandom};
use rand_pcg::Pcg64Mcg;

/// Prints the input's name, if reading it panics.
struct Case<'a> {
    spec: &'a FormatSpec,
    what: &'a str,
    bytes: &'a [u8],
}

impl Drop for Case<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let shown = &self.bytes[..self.bytes.len().min(4096)];
            eprintln!("{}: {}\n{}", self.spec.name, self.what, shown.escape_ascii());
        }
    }
}

fn read(spec: &'static FormatSpec, what: &str, bytes: &[u8]) -> Result<open::Outcome, Error> {
    let _case = Case { spec, what, bytes };
    let _ = format::detected(bytes);
    checked::read(Some(spec), bytes, &Limits::default())
}

/// Checks that the size of reads changes nothing. Columns are named to the reader of CSV, too.
fn same_by_byte(spec: &'static FormatSpec, what: &str, bytes: &[u8]) {
    let _case = Case { spec, what, bytes };
    checked::same_by_byte(spec, "", bytes);
    if spec.name == "csv" {
        let columns = "time=at_us,op=action,file=name,offset=offset,len=len,pid=pid,unit=us";
        checked::same_by_byte(spec, columns, bytes);
    }
}

fn samples() -> impl Iterator<Item = (&'static FormatSpec, Vec<u8>)> {
    ALL.iter().map(|spec| (spec, (spec.sample)()))
}

// Promises: Traces 1.
#[test]
fn samples_are_recognised_and_read() {
    for (spec, sample) in samples() {
        assert_eq!(format::detected(&sample).unwrap().name, spec.name);
        let outcome = read(spec, "sample", &sample).unwrap();
        assert_eq!(outcome.skipped.damaged(), 0, "{}: {}", spec.name, outcome.skipped);
        assert!(sample.len() < 64 << 10, "{}: a sample is small", spec.name);
    }
}

/// Every format has a fuzz target.
// Promises: Traces 3.
#[test]
fn each_format_has_a_fuzz_target() {
    let fuzz = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let listed = std::fs::read_to_string(fuzz.join("Cargo.toml")).expect("the fuzz workspace");
    for spec in ALL {
        let target = spec.name.replace('-', "_");
        assert!(listed.contains(&format!("name = \"{target}\"")), "fuzz/Cargo.toml lacks {target}");
        let code = std::fs::read_to_string(fuzz.join(format!("fuzz_targets/{target}.rs")))
            .unwrap_or_default();
        assert!(code.contains(&format!("\"{}\"", spec.name)), "fuzz_targets/{target}.rs");
    }
}

#[test]
fn empty_inputs_are_refused() {
    for spec in ALL {
        assert!(matches!(read(spec, "empty", b""), Err(Error::Empty)), "{}", spec.name);
        assert!(read(spec, "a line end", b"\n").is_err(), "{}", spec.name);
    }
}

// Promises: Traces 3.
#[test]
fn every_truncation_of_a_sample_is_handled() {
    for (spec, sample) in samples() {
        for end in 0..sample.len().min(2048) {
            let _ = read(spec, &format!("cut at {end}"), &sample[..end]);
        }
    }
}

// Promises: Traces 3.
#[test]
fn every_changed_byte_of_a_sample_is_handled() {
    for (spec, sample) in samples() {
        for n in 0..sample.len().min(2048) {
            // Each byte becomes three of them, and its neighbours the others.
            let others = [0, 0xff, b'\n', b' ', b'9', b'-', b'"', sample[n] ^ 1, sample[n] ^ 0x80];
            let (skip, step) = if is_long() { (0, 1) } else { (n % 3, 3) };
            for byte in others.into_iter().skip(skip).step_by(step) {
                let mut bytes = sample.clone();
                bytes[n] = byte;
                let what = format!("byte {n} is {byte:#x}");
                let _ = read(spec, &what, &bytes);
                same_by_byte(spec, &what, &bytes);
            }
        }
    }
}

/// Replaces every number in a text sample, in turn, by one that does not fit.
// Promises: Traces 3, Traces 11.
#[test]
fn numbers_that_do_not_fit_are_handled() {
    const NUMBERS: [&str; 14] = [
        "18446744073709551615",
        "18446744073709551616",
        "9223372036854775807",
        "9223372036854775808",
        "4294967295",
        "4294967296",
        "2147483648",
        "99999999999999999999999999999999999999999",
        "-1",
        "-9223372036854775808",
        "0",
        "1e308",
        "1e999",
        "nan",
    ];
    for (spec, sample) in samples() {
        for (start, end) in numbers(&sample) {
            for number in NUMBERS {
                let bytes = [&sample[..start], number.as_bytes(), &sample[end..]].concat();
                let _ = read(spec, &format!("{number} at {start}"), &bytes);
            }
        }
    }
}

/// Returns the positions of the runs of digits.
fn numbers(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (n, byte) in bytes.iter().enumerate().take(4096) {
        match runs.last_mut() {
            _ if !byte.is_ascii_digit() => {}
            Some((_, end)) if *end == n => *end = n + 1,
            _ => runs.push((n, n + 1)),
        }
    }
    runs
}

// Promises: Traces 4.
#[test]
fn lines_of_many_megabytes_are_handled() {
    for (spec, sample) in samples() {
        for byte in [b'x', b' ', b'9', b'"', b'(', b'\\', 0, 0xff] {
            let long = vec![byte; 3 * LINE_BYTES_MAX];
            let cuts = [0, sample.len() / 2, sample.len().saturating_sub(3), sample.len()];
            for &cut in if is_long() { &cuts[..] } else { &cuts[1..2] } {
                let (before, after) = sample.split_at(cut);
                let bytes = [before, &long, b"\n", after].concat();
                let _ = read(spec, &format!("3 MiB of {byte:#x} at {cut}"), &bytes);
            }
        }
    }
}

// Promises: Traces 3.
#[test]
fn random_bytes_are_no_trace() {
    let mut random = random("random bytes");
    for spec in ALL {
        for round in 0..500 {
            let bytes: Vec<u8> =
                (0..random.random_range(0..4096)).map(|_| random.random()).collect();
            let _ = read(spec, &format!("round {round}"), &bytes);
            assert!(format::detected(&bytes).is_err(), "round {round}: random bytes are no trace");
        }
    }
}

/// A few thousand damaged samples for each reader: the errors that fuzzing finds first.
// Promises: Traces 3.
#[test]
fn damaged_samples_are_handled() {
    let mut random = random("damaged samples");
    let rounds = number("FLASHSIFT_ROUNDS").unwrap_or(1000);
    let all: Vec<_> = samples().collect();
    for (spec, sample) in &all {
        for round in 0..rounds {
            let mut bytes = sample.clone();
            for _ in 0..random.random_range(1..6) {
                damage(&mut bytes, &all, &mut random);
            }
            let what = format!("round {round}");
            let _ = read(spec, &what, &bytes);
            same_by_byte(spec, &what, &bytes);
        }
    }
}

fn damage(bytes: &mut Vec<u8>, all: &[(&FormatSpec, Vec<u8>)], random: &mut Pcg64Mcg) {
    let mut somewhere = |max: usize| random.random_range(0..=max);
    let (a, b) = (somewhere(bytes.len()), somewhere(bytes.len()));
    let (from, to) = (a.min(b), a.max(b).min(a.min(b) + 64));
    match somewhere(7) {
        0 => drop(bytes.drain(from..to)),
        1 => {
            let part = bytes[from..to].to_vec();
            bytes.splice(a.min(bytes.len())..a.min(bytes.len()), part);
        }
        2 => bytes.truncate(a),
        3 => {
            let (_, other) = all.choose(random).expect("there are formats");
            let part = random.random_range(0..=other.len());
            bytes.splice(from..to, other[part..].iter().take(128).copied());
        }
        4 => {
            const TOKENS: [&str; 12] = [
                "18446744073709551615",
                "-1",
                "",
                "\n",
                "\r\n",
                "<unfinished ...>",
                "resumed>",
                " = ",
                "\"",
                "\\",
                "0",
                "/dev/",
            ];
            bytes.splice(from..to, TOKENS.choose(random).expect("not empty").bytes());
        }
        5 => bytes[from..to].fill(random.random()),
        _ => {
            if let Some(byte) = bytes.get_mut(from) {
                *byte ^= 1 << random.random_range(0..8);
            }
        }
    }
}

pub(crate) fn random(test: &str) -> Pcg64Mcg {
    let seed = number("FLASHSIFT_SEED").unwrap_or(20_261_120);
    eprintln!("{test}: FLASHSIFT_SEED={seed}");
    Pcg64Mcg::seed_from_u64(seed)
}

/// Whether this is the long form, which `make soak` runs.
fn is_long() -> bool {
    number("FLASHSIFT_ROUNDS").is_some()
}

pub(crate) fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}
