//! Trees of LightGBM, from its own text, in flat arrays.
//!
//! The header line `flashsift={…}` is JSON that maps facts to texts. SHA-256 is taken of the whole
//! text without this line, and then of every fact but itself, by name, as `name NUL value NUL`.
//!
//! Features are 32-bit, so a threshold of LightGBM, which is 64-bit, becomes the largest 32-bit
//! number that is not above it: every comparison has the same result.
//!
//! Scoring follows QuickScorer (Lucchese et al., SIGIR '15): the leaves of a tree are numbered from
//! left to right, and each has a bit. A node whose comparison leads to the right clears the bits of
//! the leaves on its left. When all nodes have done so, the lowest bit is that of the leaf that a
//! walk from the root would reach. No step depends on the one before, so the compiler compares
//! several files at once.

use super::{Facts, ModelError, facts, hash_is};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Most leaves of a tree: one bit for each.
const LEAVES_MAX: usize = 32;
const TREES_MAX: usize = 1 << 16;
/// Files that are compared at once.
const LANES: usize = 8;

#[derive(Clone, Debug)]
pub(super) struct Trees {
    nodes: Vec<Node>,
    /// For each tree the ends of its nodes and of its leaves.
    ends: Vec<(u32, u32)>,
    /// The values of the leaves, from left to right.
    leaves: Vec<f64>,
    /// Factor of the sum: 1, or for a random forest 1 / number of trees.
    factor: f64,
    /// The steepness of the logistic function.
    sigmoid: f64,
}

/// A comparison. Above the threshold it leads to the right.
#[derive(Clone, Copy, Debug)]
struct Node {
    threshold: f32,
    feature: u32,
    /// The leaves that stay possible if it leads to the right.
    right: u32,
}

/// One tree as the text has it. A negative child `c` is leaf `!c`.
struct Text<'a> {
    fields: BTreeMap<&'a str, &'a str>,
}

pub(super) fn parse(bytes: &[u8]) -> Result<(Facts, Trees), ModelError> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| ModelError::Damaged("the text is not UTF-8".into()))?;
    let line = text
        .split_inclusive('\n')
        .find(|line| line.starts_with("flashsift="))
        .ok_or(ModelError::Unsupported("LightGBM's text without the line `flashsift=`".into()))?;
    let texts: BTreeMap<String, String> =
        serde_json::from_str(line["flashsift=".len()..].trim())
            .map_err(|error| ModelError::Damaged(format!("the line `flashsift=`: {error}")))?;
    let facts = facts(&texts)?;
    let mut hasher = Sha256::new();
    let mut found = false;
    for other in text.split_inclusive('\n') {
        if !found && other.starts_with("flashsift=") {
            found = true;
        } else {
            hasher.update(other);
        }
    }
    for (key, value) in texts.iter().filter(|(key, _)| *key != "sha256") {
        for text in [key, value] {
            hasher.update(text);
            hasher.update([0]);
        }
    }
    hash_is(hasher, texts.get("sha256"))?;
    Ok((facts, Trees::parse(text, facts.config.values())?))
}

fn damaged(text: impl Into<String>) -> ModelError {
    ModelError::Damaged(text.into())
}

impl Trees {
    fn parse(text: &str, inputs: usize) -> Result<Self, ModelError> {
        let (body, _) =
            text.split_once("end of trees").ok_or_else(|| damaged("`end of trees` is missing"))?;
        let mut parts = body.split("\nTree=");
        let header = Text::new(parts.next().unwrap_or_default());
        let is = |key: &str, expected: &str| header.fields.get(key) == Some(&expected);
        if !is("num_class", "1") || !is("num_tree_per_iteration", "1") {
            return Err(ModelError::Unsupported("more than two classes".into()));
        }
        if header.one::<usize>("max_feature_idx")? + 1 != inputs {
            return Err(ModelError::Unsupported(format!("features other than the {inputs}")));
        }
        let objective = *header.fields.get("objective").unwrap_or(&"none");
        let sigmoid = objective
            .strip_prefix("binary sigmoid:")
            .and_then(|number| number.parse().ok())
            .filter(|number: &f64| number.is_finite())
            .ok_or_else(|| ModelError::Unsupported(format!("the objective `{objective}`")))?;
        let averages = header.fields.contains_key("average_output");
        let mut trees =
            Self { nodes: Vec::new(), ends: Vec::new(), leaves: Vec::new(), factor: 1.0, sigmoid };
        for part in parts {
            trees.add(&Text::new(part), inputs)?;
        }
        if trees.ends.is_empty() {
            return Err(damaged("the model has no tree"));
        }
        if averages {
            trees.factor = 1.0 / trees.ends.len() as f64;
        }
        Ok(trees)
    }

    fn add(&mut self, text: &Text<'_>, inputs: usize) -> Result<(), ModelError> {
        let leaves: usize = text.one("num_leaves")?;
        if leaves == 0 || leaves > LEAVES_MAX || self.ends.len() >= TREES_MAX {
            return Err(ModelError::Unsupported(format!(
                "a tree with {leaves} leaves, where at most {LEAVES_MAX} are possible, or more \
                 than {TREES_MAX} trees"
            )));
        }
        if text.one::<usize>("num_cat")? != 0 || text.fields.get("is_linear") == Some(&"1") {
            return Err(ModelError::Unsupported("categories or linear leaves".into()));
        }
        let values: Vec<f64> = text.many("leaf_value", leaves)?;
        if values.iter().any(|value| !value.is_finite()) {
            return Err(ModelError::NotFinite("the value of a leaf".into()));
        }
        let inner = leaves - 1;
        let features: Vec<u32> = text.many("split_feature", inner)?;
        let thresholds: Vec<f64> = text.many("threshold", inner)?;
        let decisions: Vec<u8> = text.many("decision_type", inner)?;
        let children: [Vec<i64>; 2] =
            [text.many("left_child", inner)?, text.many("right_child", inner)?];
        if thresholds.iter().any(|threshold| threshold.is_nan()) {
            return Err(ModelError::NotFinite("a threshold".into()));
        }
        // Bit 0: categories. Bits 2 and 3: what counts as missing; 1 is zero, 2 is NaN. No feature
        // is NaN.
        if decisions.iter().any(|decision| decision & 1 != 0 || (decision >> 2) & 3 == 1) {
            return Err(ModelError::Unsupported("categories, or zero as missing".into()));
        }
        if features.iter().any(|feature| *feature as usize >= inputs) {
            return Err(damaged("a feature that the model does not have"));
        }
        let mut walk = Walk { children: &children, below: vec![None; inner], order: Vec::new() };
        let root = if inner > 0 { 0 } else { !0 };
        walk.visit(root, leaves)?;
        if walk.order.len() != leaves {
            return Err(damaged("a leaf with no predecessor"));
        }
        for node in 0..inner {
            let left = walk.below[node].ok_or_else(|| damaged("a node with no predecessor"))?;
            let threshold = round_down(thresholds[node]);
            self.nodes.push(Node { threshold, feature: features[node], right: !left });
        }
        self.leaves.extend(walk.order.iter().map(|leaf| values[*leaf]));
        self.ends.push((self.nodes.len() as u32, self.leaves.len() as u32));
        Ok(())
    }

    pub(super) fn score_rows(&self, rows: &[f32], width: usize, scores: &mut [f32]) {
        let whole = scores.len() / LANES * LANES;
        let (blocks, others) = rows.split_at(whole * width);
        let (block_scores, other_scores) = scores.split_at_mut(whole);
        self.score_blocks::<LANES>(blocks, width, block_scores);
        self.score_blocks::<1>(others, width, other_scores);
    }

    fn score_blocks<const N: usize>(&self, rows: &[f32], width: usize, scores: &mut [f32]) {
        // The values of each feature lie together, so that one load gets those of several files.
        let mut columns = vec![[0.0; N]; width];
        for (rows, scores) in rows.chunks(N * width).zip(scores.chunks_mut(N)) {
            for (lane, row) in rows.chunks(width).enumerate() {
                for (column, value) in columns.iter_mut().zip(row) {
                    column[lane] = *value;
                }
            }
            for (score, sum) in scores.iter_mut().zip(self.sums(&columns)) {
                let raw = sum * self.factor;
                *score = (1.0 / (1.0 + (-self.sigmoid * raw).exp())) as f32;
            }
        }
    }

    fn sums<const N: usize>(&self, columns: &[[f32; N]]) -> [f64; N] {
        let mut sums = [0.0; N];
        let (mut node, mut leaf) = (0, 0);
        for (node_end, leaf_end) in &self.ends {
            let mut possible = [u32::MAX; N];
            for Node { threshold, feature, right } in &self.nodes[node..*node_end as usize] {
                // All ones, or all zeros: a branch would be predicted wrongly half of the time.
                let column = &columns[*feature as usize];
                for (possible, value) in possible.iter_mut().zip(column) {
                    *possible &= right | u32::from(value <= threshold).wrapping_neg();
                }
            }
            let leaves = &self.leaves[leaf..*leaf_end as usize];
            for (sum, possible) in sums.iter_mut().zip(possible) {
                *sum += leaves[possible.trailing_zeros() as usize];
            }
            (node, leaf) = (*node_end as usize, *leaf_end as usize);
        }
        sums
    }
}

/// Numbers the leaves of a tree from left to right.
struct Walk<'a> {
    children: &'a [Vec<i64>; 2],
    /// The bits of the leaves on the left of each node that was visited.
    below: Vec<Option<u32>>,
    /// The leaves from left to right.
    order: Vec<usize>,
}

impl Walk<'_> {
    /// Visits a node or leaf, and everything below it. A tree of N leaves is less than N deep.
    fn visit(&mut self, at: i64, leaves: usize) -> Result<(), ModelError> {
        let Ok(node) = usize::try_from(at) else {
            let leaf = usize::try_from(!at).ok().filter(|leaf| *leaf < leaves);
            let leaf = leaf.ok_or_else(|| damaged("a successor that the tree does not have"))?;
            if self.order.contains(&leaf) {
                return Err(damaged("a leaf with two predecessors"));
            }
            self.order.push(leaf);
            return Ok(());
        };
        match self.below.get_mut(node) {
            Some(below @ None) => *below = Some(0),
            Some(Some(_)) => return Err(damaged("a node with two predecessors")),
            None => return Err(damaged("a successor that the tree does not have")),
        }
        let before = self.order.len();
        self.visit(self.children[0][node], leaves)?;
        let bits = (before..self.order.len()).fold(0, |bits, leaf| bits | 1 << leaf);
        self.below[node] = Some(bits);
        self.visit(self.children[1][node], leaves)
    }
}

/// Returns the largest 32-bit number that is not above this one.
fn round_down(number: f64) -> f32 {
    let near = number as f32;
    if f64::from(near) > number { near.next_down() } else { near }
}

impl<'a> Text<'a> {
    fn new(text: &'a str) -> Self {
        let fields = text.lines().map(|line| line.split_once('=').unwrap_or((line, "")));
        Self { fields: fields.collect() }
    }

    fn one<T: std::str::FromStr>(&self, key: &str) -> Result<T, ModelError> {
        self.fields
            .get(key)
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| damaged(format!("`{key}` is missing or no number")))
    }

    fn many<T: std::str::FromStr>(&self, key: &str, count: usize) -> Result<Vec<T>, ModelError> {
        let text = self.fields.get(key).copied().unwrap_or_default();
        let numbers = text.split_ascii_whitespace().map(str::parse).collect::<Result<Vec<T>, _>>();
        numbers
            .ok()
            .filter(|numbers| numbers.len() == count)
            .ok_or_else(|| damaged(format!("`{key}` is not {count} numbers")))
    }
}

#[cfg(test)]
mod tests;
