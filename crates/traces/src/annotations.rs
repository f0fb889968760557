//! Notes that commands add to a stored trace: the part of the traces that it belongs to, restored
//! pauses, and the answers of a web server.

use flashsift_events::event::Micros;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// The notes, each optional.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Annotations {
    /// The part of the traces that the trace belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<Split>,
    /// Pauses that were cut while recording and put back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<Restored>,
    /// The requests that a web server answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served: Option<Served>,
}

/// The part of the traces that a trace belongs to. Results on `Test` traces count only for designs
/// that were not fitted to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// Models learn from it.
    Train,
    /// Parameters are chosen by results on it.
    Tune,
    /// Held apart: it only judges.
    Test,
}

impl Split {
    /// Every part.
    pub const ALL: [Self; 3] = [Self::Train, Self::Tune, Self::Test];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Tune => "tune",
            Self::Test => "test",
        }
    }
}

impl FromStr for Split {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|split| split.name().eq_ignore_ascii_case(text))
            .ok_or_else(|| "not one of train, tune and test".to_owned())
    }
}

/// Pauses of a recording that were put back ([`crate::pauses`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    /// Number of pauses.
    pub pauses: u64,
    /// Their sum in microseconds.
    pub restored_us: Micros,
    /// Pauses that ended before the first event or after the last one: they change nothing.
    pub outside: u64,
}

/// Requests that a web server answered during the trace ([`crate::served`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// Number of requests.
    pub requests: u64,
    /// Bytes of all answers.
    pub bytes: u64,
    /// Requests that sent a URL in full that had been sent in full before.
    pub again_requests: u64,
    /// Bytes of these answers.
    pub again_bytes: u64,
    /// Requests before the first event or after the last one, which no other number counts.
    pub outside: u64,
}

/// The use of a trace that fits a design to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A model learns from it.
    Train,
    /// Parameters are chosen by results on it.
    Tune,
}

/// A trace that is held apart was about to be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{trace} is held apart for tests, and to {purpose} on it would make its results worthless: \
     take another trace, or give --force"
)]
pub struct HeldApart {
    trace: String,
    purpose: Purpose,
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Train => "train",
            Self::Tune => "tune",
        })
    }
}

/// Checks that a trace may be used to train or to tune. Only test traces are refused: a trace of no
/// part, or of the other parts, may serve both purposes. `trace` is its name for the error.
///
/// # Errors
///
/// The trace is held apart for tests, and `force` is not set.
pub fn require_split(
    trace: &str,
    split: Option<Split>,
    purpose: Purpose,
    force: bool,
) -> Result<(), HeldApart> {
    match split {
        Some(Split::Test) if !force => Err(HeldApart { trace: trace.to_owned(), purpose }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Promises: Traces 26.
    #[test]
    fn a_trace_held_apart_is_neither_trained_nor_tuned_on() {
        for purpose in [Purpose::Train, Purpose::Tune] {
            for split in [None, Some(Split::Train), Some(Split::Tune)] {
                assert_eq!(require_split("t", split, purpose, false), Ok(()), "{split:?}");
            }
            let test = Some(Split::Test);
            let error = require_split("t", test, purpose, false).unwrap_err().to_string();
            assert!(error.starts_with("t is held apart for tests"), "{error}");
            assert!(error.contains(&format!("to {purpose} on it")), "{error}");
            assert_eq!(require_split("t", test, purpose, true), Ok(()), "forced");
        }
        for split in Split::ALL {
            assert_eq!(split.name().parse(), Ok(split));
            let stored = serde_json::to_string(&split).unwrap();
            assert_eq!(stored, format!("\"{}\"", split.name()));
        }
        assert_eq!("Test".parse(), Ok(Split::Test));
        assert!("tests".parse::<Split>().is_err());
    }
}
