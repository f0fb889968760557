//! Trees of LightGBM, from its own text, in flat arrays.
//!
//! The header line `flashsift={…}` is JSON that maps facts to texts. SHA-256 is taken of the whole
//! text without this line, and then of every fact but itself, by name, as `name NUL value NUL`.
//!
//! Features are 32-bit, so a threshold of LightGBM, which is 64-bit, becomes the largest 32-bit
//! number that is not above it: every comparison has the same result.

use super::{Facts, ModelError, facts, hash_is};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

const NODES_MAX: usize = 1 << 22;
/// Rows that go down a tree together: the processor overlaps their loads.
const LANES: usize = 8;

#[derive(Clone, Debug)]
pub(super) struct Trees {
    nodes: Vec<Node>,
    /// Root and depth of each tree.
    roots: Vec<(u32, u32)>,
    /// The value of each leaf; the tree's constant for a tree of one leaf.
    leaves: Vec<f64>,
    /// Factor of the sum: 1, or for a random forest 1 / number of trees.
    factor: f64,
    /// The steepness of the logistic function.
    sigmoid: f64,
}

/// A node, or a leaf: a leaf leads to itself, so that all rows can go down the same number of
/// steps.
#[derive(Clone, Copy, Debug)]
struct Node {
    threshold: f32,
    feature: u32,
    /// Left and right successor.
    next: [u32; 2],
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
            Self { nodes: Vec::new(), roots: Vec::new(), leaves: Vec::new(), factor: 1.0, sigmoid };
        for part in parts {
            trees.add(&Text::new(part), inputs)?;
        }
        if trees.roots.is_empty() {
            return Err(damaged("the model has no tree"));
        }
        if averages {
            trees.factor = 1.0 / trees.roots.len() as f64;
        }
        Ok(trees)
    }

    fn add(&mut self, text: &Text<'_>, inputs: usize) -> Result<(), ModelError> {
        let leaves: usize = text.one("num_leaves")?;
        if leaves == 0 || leaves > NODES_MAX || self.nodes.len() + 2 * leaves > NODES_MAX {
            return Err(damaged(format!("a tree with {leaves} leaves")));
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
        let base = self.nodes.len();
        // Leaf L of all trees has the node `base` + inner + its number in the tree.
        let place = |child: i64| match usize::try_from(child) {
            Ok(node) => (node < inner).then_some(base + node),
            Err(_) => usize::try_from(!child)
                .ok()
                .filter(|leaf| *leaf < leaves)
                .map(|leaf| base + inner + leaf),
        };
        for node in 0..inner {
            let mut next = [0; 2];
            for (next, children) in next.iter_mut().zip(&children) {
                *next = place(children[node])
                    .ok_or_else(|| damaged("a successor that the tree does not have"))?
                    as u32;
            }
            let threshold = round_down(thresholds[node]);
            self.nodes.push(Node { threshold, feature: features[node], next });
        }
        for leaf in 0..leaves {
            let itself = (base + inner + leaf) as u32;
            self.nodes.push(Node { threshold: 0.0, feature: 0, next: [itself; 2] });
        }
        self.leaves.resize(base + inner, 0.0);
        self.leaves.extend(values);
        let depth = self.depth(base, inner)?;
        self.roots.push((base as u32, depth));
        Ok(())
    }

    /// Returns the number of steps from the root at `base` to the farthest of its leaves. Fails if
    /// the nodes are no tree.
    fn depth(&self, base: usize, inner: usize) -> Result<u32, ModelError> {
        let mut seen = vec![false; self.nodes.len() - base];
        let mut todo = vec![(base, 0)];
        let mut deepest = 0;
        while let Some((node, depth)) = todo.pop() {
            if std::mem::replace(&mut seen[node - base], true) {
                return Err(damaged("a node with two predecessors"));
            }
            deepest = deepest.max(depth);
            if node < base + inner {
                todo.extend(self.nodes[node].next.map(|next| (next as usize, depth + 1)));
            }
        }
        Ok(deepest)
    }

    pub(super) fn score_rows(&self, rows: &[f32], width: usize, scores: &mut [f32]) {
        for (rows, scores) in rows.chunks(LANES * width).zip(scores.chunks_mut(LANES)) {
            let mut sums = [0.0; LANES];
            if scores.len() == LANES {
                self.sum::<LANES>(rows, width, &mut sums);
            } else {
                for (row, sum) in rows.chunks(width).zip(&mut sums) {
                    let mut one = [0.0];
                    self.sum::<1>(row, width, &mut one);
                    *sum = one[0];
                }
            }
            for (score, sum) in scores.iter_mut().zip(sums) {
                let raw = sum * self.factor;
                *score = (1.0 / (1.0 + (-self.sigmoid * raw).exp())) as f32;
            }
        }
    }

    fn sum<const N: usize>(&self, rows: &[f32], width: usize, sums: &mut [f64; N]) {
        for (root, depth) in &self.roots {
            let mut at = [*root; N];
            for _ in 0..*depth {
                for (lane, at) in at.iter_mut().enumerate() {
                    let node = &self.nodes[*at as usize];
                    let value = rows[lane * width + node.feature as usize];
                    *at = node.next[usize::from(value > node.threshold)];
                }
            }
            for (sum, at) in sums.iter_mut().zip(at) {
                *sum += self.leaves[at as usize];
            }
        }
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
