//! Sums up the request log of a web server that ran beside a recording.
//!
//! A cache file that was dropped shows as the same URL sent in full once more, so the log says what
//! a cache design costs in traffic.

use crate::{Error, annotations::Served};
use flashsift_events::event::Micros;
use serde::Deserialize;
use std::{collections::HashSet, io::BufRead, ops::RangeInclusive};

/// One line of the log, a JSON object. Other keys are ignored.
#[derive(Deserialize)]
struct Request {
    /// CLOCK_BOOTTIME at the end of the answer, microseconds.
    boottime_us: Micros,
    method: String,
    url: String,
    status: u16,
    /// Bytes of the body that were sent.
    bytes: u64,
}

impl Request {
    /// Whether the answer holds all of what the URL stands for.
    fn is_full(&self) -> bool {
        self.method == "GET" && self.status == 200
    }
}

/// Sums up the requests that ended within these times of CLOCK_BOOTTIME, in the order of the lines.
/// A request counts as `again` if it is a `GET` answered with 200, and an earlier one of the same
/// URL within these times was, too.
///
/// # Errors
///
/// The log cannot be read, or a line is not such an object. The error names the line.
pub fn sum(log: impl BufRead, within: RangeInclusive<Micros>) -> Result<Served, Error> {
    let mut served = Served::default();
    let mut sent: HashSet<String> = HashSet::new();
    for (n, line) in (1..).zip(log.lines()) {
        let at = |what: String| Error::Lacks(format!("line {n}: {what}"));
        let line = line.map_err(|error| at(error.to_string()))?;
        if line.trim().is_empty() {
            continue;
        }
        let request: Request =
            serde_json::from_str(&line).map_err(|error| at(error.to_string()))?;
        if !within.contains(&request.boottime_us) {
            served.outside += 1;
            continue;
        }
        let more = |sum: u64| {
            let too_many = || at("the bytes of all answers exceed 64 bits".to_owned());
            sum.checked_add(request.bytes).ok_or_else(too_many)
        };
        served.requests += 1;
        served.bytes = more(served.bytes)?;
        if request.is_full() && sent.contains(&request.url) {
            served.again_requests += 1;
            served.again_bytes = more(served.again_bytes)?;
        } else if request.is_full() {
            sent.insert(request.url);
        }
    }
    Ok(served)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(lines: &[&str]) -> Result<Served, String> {
        sum(lines.join("\n").as_bytes(), 100..=200).map_err(|error| error.to_string())
    }

    fn line(boottime_us: u64, method: &str, url: &str, status: u16, bytes: u64) -> String {
        format!(
            r#"{{"boottime_us":{boottime_us},"method":"{method}","url":"{url}","status":{status},"bytes":{bytes},"x":1}}"#
        )
    }

    // Promises: Traces 25.
    #[test]
    fn only_full_answers_of_a_url_sent_before_count_as_again() {
        let lines = [
            line(99, "GET", "/a", 200, 1), // before the trace
            line(100, "GET", "/a", 200, 10),
            line(110, "GET", "/b", 206, 20), // a part
            line(120, "GET", "/a", 304, 0),  // not modified
            line(130, "HEAD", "/a", 200, 0),
            line(140, "GET", "/a?x", 200, 40), // another URL
            line(150, "GET", "/b", 200, 80),   // in full for the first time
            line(200, "GET", "/a", 200, 160),
            String::new(),
            line(201, "GET", "/a", 200, 1), // after the trace
        ];
        let served = served(&lines.each_ref().map(String::as_str)).unwrap();
        let (requests, bytes) = (7, 310);
        let expected = Served { requests, bytes, again_requests: 1, again_bytes: 160, outside: 2 };
        assert_eq!(served, expected);
    }

    // Promises: Traces 25.
    #[test]
    fn lines_that_are_no_requests_are_errors() {
        let whole = line(100, "GET", "/a", 200, u64::MAX);
        for (lines, error) in [
            (&["", "x"][..], "line 2: expected value"),
            (&["{}"], "line 1: missing field"),
            (&[r#"{"boottime_us":-1,"method":"","url":"","status":1,"bytes":1}"#], "line 1: "),
            (&[&whole, &line(100, "GET", "/b", 200, 1)], "line 2: the bytes of all"),
        ] {
            let found = served(lines).unwrap_err();
            assert!(found.starts_with(error), "{found}");
        }
    }
}
