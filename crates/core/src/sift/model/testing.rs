//! Model files for tests.

use super::SCHEMA;
use sha2::{Digest, Sha256};
use std::{collections::BTreeMap, fmt::Write};

/// One layer: weights \[inputs, outputs\] by rows, and biases.
#[derive(Clone, Debug)]
pub(crate) struct TestLayer {
    pub(crate) weight: Vec<f32>,
    pub(crate) bias: Vec<f32>,
}

/// Returns the facts of a model for this phase, with the threshold 0.5 and units of 1 s.
pub(crate) fn facts(phase: u8, units: u8) -> BTreeMap<String, String> {
    let facts = [
        ("schema", SCHEMA.to_string()),
        ("phase", phase.to_string()),
        ("units", units.to_string()),
        ("unit_us", "1000000".into()),
        ("threshold", "0.5".into()),
    ];
    facts.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Returns the safetensors of a perceptron with these facts, which lack `transform`,
/// `activations` and the hash.
pub(crate) fn perceptron(
    mut facts: BTreeMap<String, String>,
    activations: &str,
    layers: &[TestLayer],
) -> Vec<u8> {
    facts.entry("transform".into()).or_insert_with(|| "identity".into());
    facts.insert("activations".into(), activations.into());
    let inputs = layers[0].weight.len() / layers[0].bias.len();
    let mut tensors = vec![
        ("mean".to_owned(), vec![inputs], vec![0.0; inputs]),
        ("scale".to_owned(), vec![inputs], vec![1.0; inputs]),
    ];
    let mut width = inputs;
    for (number, layer) in layers.iter().enumerate() {
        let out = layer.bias.len();
        tensors.push((format!("layer.{number}.weight"), vec![width, out], layer.weight.clone()));
        tensors.push((format!("layer.{number}.bias"), vec![out], layer.bias.clone()));
        width = out;
    }
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    let mut hasher = Sha256::new();
    for (key, value) in facts.iter().filter(|(key, _)| *key != "sha256") {
        hasher.update(format!("{key}\0{value}\0"));
    }
    let mut data = Vec::new();
    let mut header = serde_json::Map::new();
    for (name, shape, numbers) in &tensors {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        hasher.update(format!("{name}\0"));
        shape.iter().for_each(|dimension| hasher.update(format!("{dimension}\0")));
        hasher.update(&bytes);
        let offsets = [data.len(), data.len() + bytes.len()];
        header.insert(
            name.clone(),
            serde_json::json!({ "dtype": "F32", "shape": shape, "data_offsets": offsets }),
        );
        data.extend(bytes);
    }
    facts.entry("sha256".into()).or_insert_with(|| hex(hasher));
    header.insert("__metadata__".into(), serde_json::json!(facts));
    let header = serde_json::Value::from(header).to_string();
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat()
}

/// Returns a model that gives every file this score.
pub(crate) fn constant(phase: u8, units: u8, score: f32) -> Vec<u8> {
    let inputs = usize::from(units) + 6;
    let layer = TestLayer { weight: vec![0.0; inputs], bias: vec![score] };
    perceptron(facts(phase, units), "clamp", &[layer])
}

/// Adds the line of facts to a text of LightGBM.
pub(crate) fn with_facts(text: &str, mut facts: BTreeMap<String, String>) -> String {
    let mut hasher = Sha256::new();
    hasher.update(text);
    for (key, value) in facts.iter().filter(|(key, _)| *key != "sha256") {
        hasher.update(format!("{key}\0{value}\0"));
    }
    facts.entry("sha256".into()).or_insert_with(|| hex(hasher));
    let line = format!("flashsift={}\n", serde_json::json!(facts));
    text.replacen("version=v4\n", &format!("version=v4\n{line}"), 1)
}

fn hex(hasher: Sha256) -> String {
    hasher.finalize().iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}
