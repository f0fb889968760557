//! Model files for tests and benchmarks.

use super::SCHEMA;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use sha2::{Digest, Sha256};
use std::{collections::BTreeMap, fmt::Write};

/// One layer of a perceptron.
#[derive(Clone, Debug)]
pub struct TestLayer {
    /// \[inputs, outputs\], by rows.
    pub weight: Vec<f32>,
    /// One for each output.
    pub bias: Vec<f32>,
}

/// Returns the facts of a model for this phase, with the threshold 0.5 and units of 1 s.
pub fn facts(phase: u8, units: u8) -> BTreeMap<String, String> {
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
pub fn perceptron(
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
pub fn constant(phase: u8, units: u8, score: f32) -> Vec<u8> {
    let inputs = usize::from(units) + 6;
    let layer = TestLayer { weight: vec![0.0; inputs], bias: vec![score] };
    perceptron(facts(phase, units), "clamp", &[layer])
}

/// Adds the line of facts to a text of LightGBM.
pub fn with_facts(text: &str, mut facts: BTreeMap<String, String>) -> String {
    let mut hasher = Sha256::new();
    hasher.update(text);
    for (key, value) in facts.iter().filter(|(key, _)| *key != "sha256") {
        hasher.update(format!("{key}\0{value}\0"));
    }
    facts.entry("sha256".into()).or_insert_with(|| hex(hasher));
    let line = format!("flashsift={}\n", serde_json::json!(facts));
    text.replacen("version=v4\n", &format!("version=v4\n{line}"), 1)
}

/// Returns a perceptron for phase 1 with these hidden layers, all tanh or ReLU, and weights at
/// random.
pub fn random_perceptron(units: u8, sizes: &[usize], seed: u64) -> Vec<u8> {
    let mut rng = Pcg64::seed_from_u64(seed);
    let mut width = usize::from(units) + 6;
    let mut layers = Vec::new();
    for out in sizes.iter().copied().chain([2]) {
        let bound = 1.0 / (width as f32).sqrt();
        let mut draw = |count| (0..count).map(|_| rng.random_range(-bound..bound)).collect();
        layers.push(TestLayer { weight: draw(width * out), bias: draw(out) });
        width = out;
    }
    let relus = vec!["relu"; sizes.len() - 1].join(",");
    let mut facts = facts(1, units);
    facts.insert("transform".into(), "log1p".into());
    perceptron(facts, &format!("tanh,{relus},softmax"), &layers)
}

/// Returns trees in LightGBM's text for phase 1. Each splits leaves at random until it has this
/// many.
pub fn random_trees(units: u8, count: usize, leaves: usize, seed: u64) -> String {
    let mut rng = Pcg64::seed_from_u64(seed);
    let inputs = usize::from(units) + 6;
    let mut trees = String::new();
    for number in 0..count {
        // The place of each leaf: the node above it, and its side.
        let mut children = vec![[-1_i64, -2]];
        let mut places = vec![(0, 0), (0, 1)];
        while places.len() < leaves {
            let leaf = rng.random_range(0..places.len());
            let (node, side) = places[leaf];
            let next = children.len();
            children[node][side] = next as i64;
            children.push([!(leaf as i64), !(places.len() as i64)]);
            places[leaf] = (next, 0);
            places.push((next, 1));
        }
        let nodes = children.len();
        let features = join((0..nodes).map(|_| rng.random_range(0..inputs)));
        let thresholds = join((0..nodes).map(|_| rng.random_range(0.0..4.0)));
        let values = join((0..leaves).map(|_| rng.random_range(-0.2..0.2)));
        let [left, right] = [0, 1].map(|side| join(children.iter().map(|child| child[side])));
        let types = join((0..nodes).map(|_| 2));
        write!(
            trees,
            "Tree={number}\nnum_leaves={leaves}\nnum_cat=0\nsplit_feature={features}\n\
             threshold={thresholds}\ndecision_type={types}\nleft_child={left}\n\
             right_child={right}\nleaf_value={values}\nis_linear=0\nshrinkage=1\n\n"
        )
        .expect("a String takes all text");
    }
    let text = format!(
        "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0\n\
         max_feature_idx={}\nobjective=binary sigmoid:1\n\n{trees}end of trees\n",
        inputs - 1
    );
    with_facts(&text, facts(1, units))
}

fn join<T: ToString>(items: impl Iterator<Item = T>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(" ")
}

fn hex(hasher: Sha256) -> String {
    hasher.finalize().iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("a String takes all text");
        hex
    })
}
