//! A multi-layer perceptron, from safetensors.
//!
//! Tensors, all `F32`: `mean` and `scale` \[inputs\]; for each layer N from 0 `layer.N.weight`
//! \[inputs, outputs\] and `layer.N.bias` \[outputs\]. The input x becomes (t(x) − mean) · scale,
//! with t by the fact `transform`: `identity`, `log1p`, or `unit`, which divides a row by its
//! Euclidean length, as the kernel of CacheSifter's authors does. The fact `activations` names each
//! layer's function, with commas between them. The last layer has `softmax` over two outputs, of
//! which the second is the positive class, or over one output `sigmoid`, or `clamp` to 0…1.
//!
//! SHA-256 is taken of every fact but itself, by name, as `name NUL value NUL`, and then of every
//! tensor, by name, as `name NUL`, each dimension as `decimal NUL`, and its bytes.

use super::{Facts, ModelError, facts, hash_is};
use ndarray::{Array2, ArrayView2, ArrayViewMut2, linalg::general_mat_mul};
use safetensors::{Dtype, SafeTensors};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Rows that are scored together: their values between layers stay in the cache of a core.
const BLOCK: usize = 64;
const LAYERS_MAX: usize = 16;
const WIDTH_MAX: usize = 1 << 14;

#[derive(Clone, Debug)]
pub(super) struct Mlp {
    transform: Transform,
    mean: Vec<f32>,
    scale: Vec<f32>,
    layers: Vec<Layer>,
    end: End,
}

#[derive(Clone, Debug)]
struct Layer {
    /// \[inputs, outputs\], by rows.
    weight: Array2<f32>,
    bias: Vec<f32>,
    activation: Activation,
}

/// The function of a row before it is standardised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transform {
    Identity,
    Log1p,
    /// A row without an access stays.
    Unit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activation {
    Identity,
    Tanh,
    Relu,
}

/// The function of the last layer, which makes its outputs a probability.
#[derive(Clone, Copy, Debug)]
enum End {
    Softmax,
    Sigmoid,
    Clamp,
}

pub(super) fn parse(bytes: &[u8]) -> Result<(Facts, Mlp), ModelError> {
    let damaged = |error: safetensors::SafeTensorError| ModelError::Damaged(error.to_string());
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
    let texts: BTreeMap<String, String> =
        header.metadata().clone().unwrap_or_default().into_iter().collect();
    // The schema comes first: another version may define all else differently.
    let facts = facts(&texts)?;
    let file = SafeTensors::deserialize(bytes).map_err(damaged)?;
    check_hash(&texts, &file)?;
    let inputs = facts.config.values();
    let transform = match texts.get("transform").map(String::as_str) {
        Some("log1p") => Transform::Log1p,
        Some("identity") => Transform::Identity,
        Some("unit") => Transform::Unit,
        _ => return Err(ModelError::Fact("transform")),
    };
    let names: Vec<&str> =
        texts.get("activations").ok_or(ModelError::Fact("activations"))?.split(',').collect();
    let (last, hidden) = names.split_last().ok_or(ModelError::Fact("activations"))?;
    let (end, outputs) = match *last {
        "softmax" => (End::Softmax, 2),
        "sigmoid" => (End::Sigmoid, 1),
        "clamp" => (End::Clamp, 1),
        _ => return Err(ModelError::Fact("activations")),
    };
    if names.len() > LAYERS_MAX {
        return Err(ModelError::Unsupported(format!("more than {LAYERS_MAX} layers")));
    }
    let mut layers = Vec::with_capacity(names.len());
    let mut width = inputs;
    for (number, name) in hidden.iter().copied().chain([""]).enumerate() {
        let activation = match name {
            "tanh" => Activation::Tanh,
            "relu" => Activation::Relu,
            "identity" | "" => Activation::Identity,
            _ => return Err(ModelError::Fact("activations")),
        };
        let bias = tensor(&file, &format!("layer.{number}.bias"), &[None])?.1;
        let out = bias.len();
        let weight = tensor(&file, &format!("layer.{number}.weight"), &[Some(width), Some(out)])?.1;
        let weight = Array2::from_shape_vec((width, out), weight)
            .map_err(|error| ModelError::Damaged(error.to_string()))?;
        layers.push(Layer { weight, bias, activation });
        width = out;
    }
    if width != outputs {
        return Err(ModelError::Unsupported(format!("`{last}` over {width} outputs")));
    }
    let mean = tensor(&file, "mean", &[Some(inputs)])?.1;
    let scale = tensor(&file, "scale", &[Some(inputs)])?.1;
    Ok((facts, Mlp { transform, mean, scale, layers, end }))
}

fn check_hash(texts: &BTreeMap<String, String>, file: &SafeTensors<'_>) -> Result<(), ModelError> {
    let mut hasher = Sha256::new();
    for (key, value) in texts.iter().filter(|(key, _)| *key != "sha256") {
        for text in [key, value] {
            hasher.update(text);
            hasher.update([0]);
        }
    }
    let tensors: BTreeMap<String, _> = file.tensors().into_iter().collect();
    for (name, tensor) in tensors {
        hasher.update(name);
        hasher.update([0]);
        for dimension in tensor.shape() {
            hasher.update(dimension.to_string());
            hasher.update([0]);
        }
        hasher.update(tensor.data());
    }
    hash_is(hasher, texts.get("sha256"))
}

/// Returns the shape and the numbers of a tensor of this shape; `None` is any length.
fn tensor(
    file: &SafeTensors<'_>,
    name: &str,
    expected: &[Option<usize>],
) -> Result<(Vec<usize>, Vec<f32>), ModelError> {
    let damaged = |error: String| ModelError::Damaged(format!("tensor `{name}`: {error}"));
    let view = file.tensor(name).map_err(|error| damaged(error.to_string()))?;
    let shape = view.shape();
    let fits = shape.len() == expected.len()
        && shape.iter().zip(expected).all(|(is, expected)| {
            (1..=WIDTH_MAX).contains(is) && expected.is_none_or(|expected| expected == *is)
        });
    if view.dtype() != Dtype::F32 || !fits {
        return Err(damaged(format!("{:?} {shape:?}, not F32 of {expected:?}", view.dtype())));
    }
    let numbers: Vec<f32> = view
        .data()
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        .collect();
    if numbers.iter().any(|number| !number.is_finite()) {
        return Err(ModelError::NotFinite(format!("in tensor `{name}`")));
    }
    Ok((shape.to_vec(), numbers))
}

impl Mlp {
    pub(super) fn score_rows(&self, rows: &[f32], scores: &mut [f32]) {
        let inputs = self.mean.len();
        let widest = self.layers.iter().map(|layer| layer.bias.len()).max().unwrap_or(0);
        let block = BLOCK.min(scores.len());
        let mut now = vec![0.0; block * widest.max(inputs)];
        let mut next = now.clone();
        for (rows, scores) in rows.chunks(BLOCK * inputs).zip(scores.chunks_mut(BLOCK)) {
            self.scale(rows, &mut now[..rows.len()]);
            let mut width = inputs;
            for layer in &self.layers {
                let out = layer.bias.len();
                layer.run(&now[..scores.len() * width], &mut next[..scores.len() * out]);
                std::mem::swap(&mut now, &mut next);
                width = out;
            }
            for (score, row) in scores.iter_mut().zip(now.chunks(width)) {
                *score = match self.end {
                    End::Softmax => sigmoid(row[1] - row[0]),
                    End::Sigmoid => sigmoid(row[0]),
                    End::Clamp => row[0].clamp(0.0, 1.0),
                };
            }
        }
    }

    fn scale(&self, rows: &[f32], scaled: &mut [f32]) {
        let inputs = self.mean.len();
        for (row, scaled) in rows.chunks(inputs).zip(scaled.chunks_mut(inputs)) {
            // Squares of sums of bytes are large.
            let length = match self.transform {
                Transform::Unit => {
                    row.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt() as f32
                }
                _ => 0.0,
            };
            for (index, (value, scaled)) in row.iter().zip(scaled).enumerate() {
                let value = match self.transform {
                    Transform::Log1p => value.ln_1p(),
                    Transform::Unit if length > 0.0 => value / length,
                    _ => *value,
                };
                *scaled = (value - self.mean[index]) * self.scale[index];
            }
        }
    }
}

impl Layer {
    fn run(&self, rows: &[f32], outputs: &mut [f32]) {
        let (width, out) = self.weight.dim();
        let count = rows.len() / width;
        for row in outputs.chunks_mut(out) {
            row.copy_from_slice(&self.bias);
        }
        if count < 4 {
            // To pack the weights for a product of matrices costs more than these products.
            let weight = self.weight.as_slice().expect("weights lie by rows");
            for (row, sums) in rows.chunks(width).zip(outputs.chunks_mut(out)) {
                for (value, weights) in row.iter().zip(weight.chunks(out)) {
                    for (sum, weight) in sums.iter_mut().zip(weights) {
                        *sum += value * weight;
                    }
                }
            }
        } else {
            let rows = ArrayView2::from_shape((count, width), rows).expect("whole rows");
            let mut sums =
                ArrayViewMut2::from_shape((count, out), &mut *outputs).expect("whole rows");
            general_mat_mul(1.0, &rows, &self.weight, 1.0, &mut sums);
        }
        match self.activation {
            Activation::Identity => {}
            Activation::Tanh => outputs.iter_mut().for_each(|value| *value = tanh(*value)),
            Activation::Relu => outputs.iter_mut().for_each(|value| *value = value.max(0.0)),
        }
    }
}

fn sigmoid(value: f32) -> f32 {
    1.0 / (1.0 + (-value).exp())
}

/// The hyperbolic tangent by a rational function (Eigen's `ptanh`), with an error below 1e-6. It
/// has no branch, so the compiler computes several at once, many times faster than `f32::tanh`.
#[inline]
fn tanh(value: f32) -> f32 {
    // Beyond this the result is 1 in f32.
    let x = value.clamp(-7.905_311, 7.905_311);
    let square = x * x;
    let mut top = -2.760_768_5e-16_f32;
    for factor in
        [2.000_188e-13, -8.604_672e-11, 5.122_297e-8, 1.485_722_3e-5, 6.372_619e-4, 4.893_524_6e-3]
    {
        top = top * square + factor;
    }
    let mut bottom = 1.198_258_4e-6_f32;
    for factor in [1.185_347e-4, 2.268_434_6e-3, 4.893_525e-3] {
        bottom = bottom * square + factor;
    }
    x * top / bottom
}

#[cfg(test)]
mod tests;
