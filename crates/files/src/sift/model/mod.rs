//! Models that score a file by its features: the probability of a phase's positive class.
//!
//! A model file holds all that scoring needs: the window of the features, their scaling, the
//! weights or trees, and the threshold from which a score counts as positive. Two kinds exist.
//!
//! - **safetensors**: a multi-layer perceptron (`mlp.rs`). Linear and logistic regression are
//!   perceptrons of one layer. Facts are in the file's `__metadata__`.
//! - **LightGBM's own text** (`trees.rs`): boosted trees and random forests. Facts are JSON in a
//!   header line `flashsift={…}`. LightGBM ignores header lines that it does not know, so the file
//!   is complete and LightGBM still reads it.
//!
//! | fact | meaning |
//! |---|---|
//! | `schema` | [`SCHEMA`] of the features |
//! | `phase` | `1` or `2` |
//! | `units`, `unit_us` | the window of the features ([`FeatureConfig`]) |
//! | `threshold` | a score of at least this is positive, from 0 to 1 |
//! | `sha256` | of the file's content, as each kind defines it; finds damage, not forgery |
//!
//! A model that is damaged, has another schema, or contains NaN or an infinite number is refused.

use super::features::{FeatureConfig, MAX_UNITS, Phase, SCHEMA};
use std::collections::BTreeMap;

mod mlp;
#[cfg(any(test, feature = "naive"))]
pub mod testing;
mod trees;

/// Largest model file, bytes.
pub const MODEL_BYTES_MAX: usize = 64 << 20;

/// A model of either kind.
#[derive(Clone, Debug)]
pub struct FileModel {
    facts: Facts,
    scorer: Scorer,
}

#[derive(Clone, Debug)]
enum Scorer {
    Mlp(mlp::Mlp),
    Trees(trees::Trees),
}

/// The facts that both kinds of file contain.
#[derive(Clone, Copy, Debug)]
struct Facts {
    phase: Phase,
    config: FeatureConfig,
    threshold: f32,
}

/// The reason for which a model is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// Neither kind of file.
    #[error("this is no model: neither safetensors nor the text of LightGBM")]
    NoModel,
    /// The file is larger than [`MODEL_BYTES_MAX`].
    #[error("the model has {0} bytes; a model has at most {MODEL_BYTES_MAX}")]
    TooLarge(usize),
    /// The file does not have the form of its kind.
    #[error("the model is damaged: {0}")]
    Damaged(String),
    /// A fact is missing, or is no value for it.
    #[error("the model lacks its `{0}`, or the value is none for it; `flashsift train` writes it")]
    Fact(&'static str),
    /// The features are defined in another way.
    #[error("the model is for features of version {0}, not {SCHEMA}: train it again")]
    Schema(String),
    /// The content is not that of which the hash was taken.
    #[error("the model is damaged: its SHA-256 is not that of its content")]
    Hash,
    /// A number is NaN or infinite.
    #[error("the model contains a number that is not finite: {0}")]
    NotFinite(String),
    /// Part of the file that this program cannot run.
    #[error("the model is not one that flashsift runs: {0}")]
    Unsupported(String),
}

impl FileModel {
    /// Reads a model file of either kind.
    ///
    /// # Errors
    /// [`ModelError`], if the model cannot be run exactly as it was trained.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ModelError> {
        if bytes.len() > MODEL_BYTES_MAX {
            return Err(ModelError::TooLarge(bytes.len()));
        }
        if bytes.starts_with(b"tree\n") {
            let (facts, trees) = trees::parse(bytes)?;
            Ok(Self { facts, scorer: Scorer::Trees(trees) })
        } else if bytes.get(8) == Some(&b'{') {
            let (facts, mlp) = mlp::parse(bytes)?;
            Ok(Self { facts, scorer: Scorer::Mlp(mlp) })
        } else {
            Err(ModelError::NoModel)
        }
    }

    /// Returns the probability of the positive class, from 0 to 1. For several files,
    /// [`FileModel::score_rows`] is faster.
    ///
    /// # Panics
    /// If there are not as many values as [`FileModel::features`] has.
    pub fn score(&self, values: &[f32]) -> f32 {
        let mut score = [0.0];
        self.score_rows(values, &mut score);
        score[0]
    }

    /// Scores several files. `rows` holds the values of each after those of the one before;
    /// `scores` gets a probability for each.
    ///
    /// # Panics
    /// If `rows` does not have the values of exactly as many files as there are scores.
    pub fn score_rows(&self, rows: &[f32], scores: &mut [f32]) {
        let width = self.facts.config.values();
        assert_eq!(rows.len(), width * scores.len(), "{width} values for each score");
        match &self.scorer {
            Scorer::Mlp(mlp) => mlp.score_rows(rows, scores),
            Scorer::Trees(trees) => trees.score_rows(rows, width, scores),
        }
    }

    /// Returns the score from which a file is of the positive class.
    pub fn threshold(&self) -> f32 {
        self.facts.threshold
    }

    /// Returns the phase that the model was trained for.
    pub fn phase(&self) -> Phase {
        self.facts.phase
    }

    /// Returns the window of the features.
    pub fn features(&self) -> &FeatureConfig {
        &self.facts.config
    }

    /// Returns the kind of model, in a word or two.
    pub fn kind(&self) -> &'static str {
        match self.scorer {
            Scorer::Mlp(_) => "perceptron",
            Scorer::Trees(_) => "trees",
        }
    }
}

/// Reads the facts from their texts. `sha256` is left to the caller.
fn facts(texts: &BTreeMap<String, String>) -> Result<Facts, ModelError> {
    fn number<T: std::str::FromStr>(
        texts: &BTreeMap<String, String>,
        key: &'static str,
    ) -> Result<T, ModelError> {
        texts.get(key).and_then(|text| text.parse().ok()).ok_or(ModelError::Fact(key))
    }
    let schema = texts.get("schema").ok_or(ModelError::Fact("schema"))?;
    if *schema != SCHEMA.to_string() {
        return Err(ModelError::Schema(schema.clone()));
    }
    let phase = match texts.get("phase").map(String::as_str) {
        Some("1") => Phase::First,
        Some("2") => Phase::Second,
        _ => return Err(ModelError::Fact("phase")),
    };
    let units: u8 = number(texts, "units")?;
    let unit_us: u32 = number(texts, "unit_us")?;
    if units == 0 || usize::from(units) > MAX_UNITS {
        return Err(ModelError::Fact("units"));
    }
    if unit_us == 0 || u64::from(unit_us) * u64::from(units) > u32::MAX.into() {
        return Err(ModelError::Fact("unit_us"));
    }
    let threshold: f32 = number(texts, "threshold")?;
    if !(0.0..=1.0).contains(&threshold) {
        return Err(ModelError::Fact("threshold"));
    }
    Ok(Facts { phase, config: FeatureConfig { units, unit_us }, threshold })
}

/// Returns whether a SHA-256 in hexadecimal digits is that of `hasher`.
fn hash_is(hasher: sha2::Sha256, expected: Option<&String>) -> Result<(), ModelError> {
    use sha2::Digest;
    use std::fmt::Write;
    let expected = expected.ok_or(ModelError::Fact("sha256"))?;
    let mut hex = String::with_capacity(64);
    for byte in hasher.finalize() {
        write!(hex, "{byte:02x}").expect("a String takes all text");
    }
    if hex == *expected { Ok(()) } else { Err(ModelError::Hash) }
}
