//! `--sift-models`: time of a sifter's model for a file, beside products of matrices.

use crate::{Report, median, thread_cpu_s};
use anyhow::Context;
use flashsift_files::sift::model::{FileModel, testing};
use ndarray::{Array2, linalg::general_mat_mul};
use std::hint::black_box;

const UNITS: u8 = 20;
/// Files that are scored together.
const FILES: usize = 256;
const REPEATS: usize = 400;
/// The paper's perceptron: hidden layers.
const SIZES: [usize; 3] = [512, 200, 2];
/// Trees and their leaves, as `flashsift train` makes them.
const TREES: (usize, usize) = (50, 8);

pub(crate) fn report(report: &mut Report, rounds: usize) -> anyhow::Result<()> {
    let perceptron = FileModel::from_bytes(&testing::random_perceptron(UNITS, &SIZES, 1))
        .context("a perceptron at random")?;
    let (count, leaves) = TREES;
    let trees = FileModel::from_bytes(testing::random_trees(UNITS, count, leaves, 1).as_bytes())
        .context("trees at random")?;
    let width = perceptron.features().values();
    // Below 4, where the thresholds of the trees are.
    let rows: Vec<f32> =
        (0..FILES * width).map(|index| (index * 7919 % 100_003) as f32 / 25_000.0).collect();
    let mut products = Products::new(width);
    let (mut ours, mut theirs, mut forest) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(us_a_file(|| score(&perceptron, &rows)));
        theirs.push(us_a_file(|| products.run()));
        forest.push(us_a_file(|| score(&trees, &rows)));
    }
    let [ours, theirs, forest] = [ours, theirs, forest].map(|mut times| median(&mut times));
    report.line(&format!(
        "One core, {FILES} files at a time:\n\n| model | µs a file | required |\n|---|---:|---|\n\
         | perceptron {width}-512-200-2-2 | {ours:.2} | at most 1.5 times the next line |\n\
         | the same products of matrices by matrixmultiply | {theirs:.2} | |\n\
         | {count} trees of {leaves} leaves | {forest:.3} | 0.3 |\n\n\
         The perceptron takes {:.2} times as long as the products, which it has done by \
         matrixmultiply, too: the rest is scaling and tanh.\n",
        ours / theirs
    ));
    Ok(())
}

fn us_a_file(mut run: impl FnMut()) -> f64 {
    let before = thread_cpu_s();
    (0..REPEATS).for_each(|_| run());
    (thread_cpu_s() - before) * 1e6 / (REPEATS * FILES) as f64
}

fn score(model: &FileModel, rows: &[f32]) {
    let mut scores = [0.0; FILES];
    model.score_rows(black_box(rows), &mut scores);
    black_box(scores);
}

/// The products of the perceptron, and nothing else of it.
struct Products {
    weights: Vec<Array2<f32>>,
    values: Vec<Array2<f32>>,
}

impl Products {
    fn new(inputs: usize) -> Self {
        let widths = [&[inputs][..], &SIZES, &[2]].concat();
        let weights = widths.windows(2).map(|pair| Array2::from_elem((pair[0], pair[1]), 0.01));
        let values = widths.iter().map(|width| Array2::from_elem((FILES, *width), 0.5));
        Self { weights: weights.collect(), values: values.collect() }
    }

    fn run(&mut self) {
        for (layer, weight) in self.weights.iter().enumerate() {
            let (before, after) = self.values.split_at_mut(layer + 1);
            general_mat_mul(1.0, &before[layer], weight, 0.0, &mut after[0]);
        }
        black_box(&self.values);
    }
}
