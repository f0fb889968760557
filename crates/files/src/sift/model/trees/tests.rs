use super::*;
use crate::sift::model::{
    FileModel,
    testing::{facts as test_facts, with_facts},
};
use proptest::prelude::*;

/// A tree as it is drawn.
#[derive(Clone, Debug)]
enum Drawn {
    Leaf(f64),
    Split { feature: usize, threshold: f64, children: Box<[Drawn; 2]> },
}

impl Drawn {
    fn value(&self, row: &[f32]) -> f64 {
        match self {
            Drawn::Leaf(value) => *value,
            Drawn::Split { feature, threshold, children } => {
                children[usize::from(f64::from(row[*feature]) > *threshold)].value(row)
            }
        }
    }

    /// Returns the tree in the words of LightGBM 4.
    fn text(&self, number: usize) -> String {
        fn number_of(tree: &Drawn, nodes: &mut Vec<[String; 4]>, leaves: &mut Vec<String>) -> i64 {
            match tree {
                Drawn::Leaf(value) => {
                    leaves.push(value.to_string());
                    !(leaves.len() as i64 - 1)
                }
                Drawn::Split { feature, threshold, children } => {
                    let at = nodes.len();
                    nodes.push([feature.to_string(), threshold.to_string(), "".into(), "".into()]);
                    for (side, child) in children.iter().enumerate() {
                        nodes[at][2 + side] = number_of(child, nodes, leaves).to_string();
                    }
                    at as i64
                }
            }
        }
        let (mut nodes, mut leaves) = (Vec::new(), Vec::new());
        number_of(self, &mut nodes, &mut leaves);
        let column =
            |index: usize| nodes.iter().map(|node| &*node[index]).collect::<Vec<_>>().join(" ");
        let types = vec!["2"; nodes.len()].join(" ");
        format!(
            "Tree={number}\nnum_leaves={}\nnum_cat=0\nsplit_feature={}\nthreshold={}\n\
             decision_type={types}\nleft_child={}\nright_child={}\nleaf_value={}\nis_linear=0\n\
             shrinkage=0.1\n\n",
            leaves.len(),
            column(0),
            column(1),
            column(2),
            column(3),
            leaves.join(" "),
        )
    }
}

fn drawn() -> impl Strategy<Value = Drawn> {
    (-1.0..1.0).prop_map(Drawn::Leaf).prop_recursive(5, 24, 2, |child| {
        let threshold = prop_oneof![-2.0..2.0, Just(0.5), Just(0.1)];
        (0_usize..10, threshold, [child.clone(), child]).prop_map(
            |(feature, threshold, children)| Drawn::Split {
                feature,
                threshold,
                children: Box::new(children),
            },
        )
    })
}

fn text(trees: &[Drawn], averages: bool) -> String {
    let names = (0..10).map(|index| format!("f{index}")).collect::<Vec<_>>().join(" ");
    let trees: String = trees.iter().enumerate().map(|(number, tree)| tree.text(number)).collect();
    format!(
        "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0\n\
         max_feature_idx=9\nobjective=binary sigmoid:1\nfeature_names={names}\n{}tree_sizes=1\n\n\
         {trees}end of trees\n\nfeature_importances:\n\nparameters:\n[boosting: gbdt]\n",
        if averages { "average_output\n" } else { "" },
    )
}

fn model(text: &str) -> Result<FileModel, ModelError> {
    FileModel::from_bytes(with_facts(text, test_facts(1, 4)).as_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn scores_equal_those_of_the_drawn_trees(
        trees in proptest::collection::vec(drawn(), 1..12),
        averages: bool,
        rows in (0_usize..40).prop_flat_map(|count| {
            let value = prop_oneof![-3.0_f32..3.0, Just(0.5), Just(0.1), Just(f32::MAX)];
            proptest::collection::vec(value, count * 10)
        }),
    ) {
        let model = model(&text(&trees, averages)).unwrap();
        let mut scores = vec![f32::NAN; rows.len() / 10];
        model.score_rows(&rows, &mut scores);
        for (row, score) in rows.chunks(10).zip(scores) {
            let sum: f64 = trees.iter().map(|tree| tree.value(row)).sum();
            let raw = if averages { sum / trees.len() as f64 } else { sum };
            let expected = 1.0 / (1.0 + (-raw).exp());
            prop_assert!((f64::from(score) - expected).abs() < 1e-6, "{score} {expected}");
            prop_assert_eq!(score, model.score(row));
        }
    }

    #[test]
    fn a_threshold_is_rounded_so_that_no_comparison_changes(
        threshold in prop_oneof![any::<f64>(), -4.0..4.0],
        value: f32,
    ) {
        prop_assume!(!threshold.is_nan() && !value.is_nan());
        prop_assert_eq!(value <= round_down(threshold), f64::from(value) <= threshold);
        let near = round_down(threshold);
        prop_assert_eq!(near <= round_down(threshold), f64::from(near) <= threshold);
    }
}

// Promises: Sift 8.
#[test]
fn texts_that_are_not_such_trees_are_refused() {
    let split = |feature, threshold| Drawn::Split {
        feature,
        threshold,
        children: Box::new([Drawn::Leaf(0.5), Drawn::Leaf(-0.5)]),
    };
    let good = text(&[split(1, 0.5)], false);
    model(&good).unwrap();
    for (from, to, error) in [
        ("num_class=1", "num_class=3", "classes"),
        ("max_feature_idx=9", "max_feature_idx=8", "features"),
        ("binary sigmoid:1", "regression", "objective"),
        ("num_cat=0", "num_cat=1", "categories"),
        ("is_linear=0", "is_linear=1", "linear"),
        ("decision_type=2", "decision_type=1", "categories"),
        ("decision_type=2", "decision_type=4", "missing"),
        ("split_feature=1", "split_feature=10", "a feature"),
        ("left_child=-1", "left_child=0", "predecessors"),
        ("left_child=-1", "left_child=-2", "predecessors"),
        ("left_child=-1", "left_child=5", "successor"),
        ("left_child=-1", "left_child=-9223372036854775808", "successor"),
        ("threshold=0.5", "threshold=nan", "threshold"),
        ("threshold=0.5", "threshold=0.5 1", "`threshold`"),
        ("leaf_value=0.5", "leaf_value=inf", "leaf"),
        ("num_leaves=2", "num_leaves=0", "0 leaves"),
        ("num_leaves=2", "num_leaves=33", "33 leaves"),
        ("num_leaves=2", "num_leaves=18446744073709551615", "leaves"),
        ("end of trees", "end", "end of trees"),
        ("Tree=0", "Three=0", "no tree"),
    ] {
        assert!(good.contains(from), "{from}");
        let refusal = model(&good.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(refusal.contains(error), "{to}: {refusal}");
    }
    let plain = FileModel::from_bytes(good.as_bytes()).unwrap_err().to_string();
    assert!(plain.contains("flashsift="), "{plain}");
}

// Promises: Sift 8.
#[test]
fn a_changed_byte_anywhere_is_found() {
    let tree = Drawn::Split {
        feature: 1,
        threshold: 0.5,
        children: Box::new([Drawn::Leaf(0.5), Drawn::Leaf(-0.5)]),
    };
    let bytes = with_facts(&text(&[tree], false), test_facts(1, 4)).into_bytes();
    FileModel::from_bytes(&bytes).unwrap();
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        if let Ok(model) = FileModel::from_bytes(&changed) {
            panic!("byte {at} was changed: {model:?}");
        }
    }
}
