use super::*;
use crate::sift::model::{
    FileModel,
    testing::{TestLayer, constant, facts as test_facts, perceptron},
};
use proptest::prelude::*;

/// The definition, in f64.
fn naive(layers: &[TestLayer], names: &[&str], row: &[f32]) -> f64 {
    let mut now: Vec<f64> = row.iter().map(|value| f64::from(*value)).collect();
    for (layer, name) in layers.iter().zip(names) {
        let out = layer.bias.len();
        let sums = (0..out).map(|place| {
            let products = now.iter().enumerate();
            let sum: f64 = products
                .map(|(index, value)| value * f64::from(layer.weight[index * out + place]))
                .sum();
            sum + f64::from(layer.bias[place])
        });
        now = sums
            .map(|sum| match *name {
                "tanh" => sum.tanh(),
                "relu" => sum.max(0.0),
                _ => sum,
            })
            .collect();
    }
    match names[names.len() - 1] {
        "softmax" => now[1].exp() / (now[0].exp() + now[1].exp()),
        "sigmoid" => 1.0 / (1.0 + (-now[0]).exp()),
        _ => now[0].clamp(0.0, 1.0),
    }
}

fn layer(inputs: usize, outputs: usize) -> impl Strategy<Value = TestLayer> {
    let numbers = |count| proptest::collection::vec(-0.5_f32..0.5, count);
    (numbers(inputs * outputs), numbers(outputs))
        .prop_map(|(weight, bias)| TestLayer { weight, bias })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any number of rows, in one call or in one for each, gives the numbers of the definition.
    #[test]
    fn scores_equal_those_of_the_naive_model(
        (layers, names) in prop_oneof![
            (layer(10, 24), layer(24, 9), layer(9, 2))
                .prop_map(|(a, b, c)| (vec![a, b, c], "tanh,relu,softmax")),
            layer(10, 1).prop_map(|a| (vec![a], "sigmoid")),
            layer(10, 1).prop_map(|a| (vec![a], "clamp")),
        ],
        rows in (0_usize..150).prop_flat_map(|count| {
            proptest::collection::vec(-4.0_f32..4.0, count * 10)
        }),
    ) {
        let model = FileModel::from_bytes(&perceptron(test_facts(1, 4), names, &layers)).unwrap();
        let names: Vec<&str> = names.split(',').collect();
        let mut scores = vec![f32::NAN; rows.len() / 10];
        model.score_rows(&rows, &mut scores);
        for (row, score) in rows.chunks(10).zip(scores) {
            let expected = naive(&layers, &names, row);
            prop_assert!((f64::from(score) - expected).abs() < 1e-5, "{score} {expected}");
            prop_assert!((f64::from(model.score(row)) - expected).abs() < 1e-5);
        }
    }

    #[test]
    fn tanh_is_exact_to_a_millionth(value in prop_oneof![-10.0_f32..10.0, any::<f32>()]) {
        prop_assume!(!value.is_nan());
        let error = f64::from(tanh(value)) - f64::from(value).tanh();
        prop_assert!(error.abs() < 1e-6, "{value}: {error}");
    }
}

fn small(names: &str, facts: BTreeMap<String, String>) -> Vec<u8> {
    let out = if names == "softmax" { 2 } else { 1 };
    let inputs = facts["units"].parse::<usize>().unwrap() + 6;
    let layer = TestLayer { weight: vec![0.1; inputs * out], bias: vec![0.1; out] };
    perceptron(facts, names, &[layer])
}

fn refusal(bytes: &[u8]) -> String {
    FileModel::from_bytes(bytes).unwrap_err().to_string()
}

#[test]
fn a_models_facts_are_read() {
    let mut facts = test_facts(2, 4);
    facts.insert("threshold".into(), "0.25".into());
    let model = FileModel::from_bytes(&small("softmax", facts)).unwrap();
    let constant = FileModel::from_bytes(&constant(1, 20, 0.75)).unwrap();
    assert_eq!(constant.score(&[3.0; 26]), 0.75);
    assert_eq!((model.threshold(), model.phase() as usize, model.kind()), (0.25, 1, "perceptron"));
    assert_eq!((model.features().units, model.features().unit_us), (4, 1_000_000));
}

// Promises: Sift 8.
#[test]
fn models_that_cannot_run_as_trained_are_refused() {
    for (key, value, error) in [
        ("schema", "999", "features of version 999"),
        ("phase", "3", "`phase`"),
        ("units", "101", "`units`"),
        ("unit_us", "0", "`unit_us`"),
        ("threshold", "NaN", "`threshold`"),
        ("threshold", "1.5", "`threshold`"),
        ("transform", "square", "`transform`"),
        ("sha256", "00", "SHA-256"),
    ] {
        let mut facts = test_facts(1, 4);
        facts.insert(key.into(), value.into());
        let bytes = small("clamp", facts);
        assert!(refusal(&bytes).contains(error), "{key}={value}: {}", refusal(&bytes));
    }
    for names in ["", "relu", "sigmoid,sigmoid", "tanh,softmax"] {
        FileModel::from_bytes(&small(names, test_facts(1, 4))).unwrap_err();
    }
    for number in [f32::NAN, f32::INFINITY] {
        let layer = TestLayer { weight: vec![number; 10], bias: vec![0.0] };
        let bytes = perceptron(test_facts(1, 4), "sigmoid", &[layer]);
        assert!(refusal(&bytes).contains("not finite"), "{}", refusal(&bytes));
    }
    let layer = TestLayer { weight: vec![0.0; 20], bias: vec![0.0; 2] };
    let bytes = perceptron(test_facts(1, 5), "softmax", &[layer]);
    assert!(refusal(&bytes).contains("layer.0.weight"), "{}", refusal(&bytes));
    assert_eq!(FileModel::from_bytes(b"PK").unwrap_err(), ModelError::NoModel);
}

/// Every damaged byte is found, and no damage panics.
// Promises: Sift 8.
#[test]
fn a_changed_byte_anywhere_is_found() {
    let bytes = small("softmax", test_facts(1, 4));
    FileModel::from_bytes(&bytes).unwrap();
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        if let Ok(model) = FileModel::from_bytes(&changed) {
            panic!("byte {at} was changed: {model:?}");
        }
        FileModel::from_bytes(&bytes[..at]).unwrap_err();
    }
}
