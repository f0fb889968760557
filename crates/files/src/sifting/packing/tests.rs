//! The bound beside the optimum of the linear program, and beside every choice of whole stays.

use super::*;
use flashsift_events::dice::Dice;

/// Returns the most that parts of these stays are worth: the simplex method on the whole table,
/// with Bland's rule.
fn optimum(stays: &[Stay], ram_bytes: f64) -> f64 {
    let n = stays.len();
    let mut rows: Vec<Vec<f64>> = Vec::new();
    let mut row = |coefficients: Vec<f64>, limit: f64| {
        let slack = rows.len();
        let mut row = coefficients;
        row.resize(n + 2 * n + 1, 0.0);
        row[n + slack] = 1.0;
        row[3 * n] = limit;
        rows.push(row);
    };
    // RAM is full at most when a stay begins.
    for moment in stays.iter().map(|stay| stay.first) {
        let ram = |stay: &Stay| match (stay.first..=stay.last).contains(&moment) {
            true => stay.ram_bytes,
            false => 0.0,
        };
        row(stays.iter().map(ram).collect(), ram_bytes);
    }
    for one in 0..n {
        row((0..n).map(|other| f64::from(u8::from(one == other))).collect(), 1.0);
    }
    let mut goal: Vec<f64> = stays.iter().map(|stay| -stay.worth_bytes).collect();
    goal.resize(3 * n + 1, 0.0);
    let mut basis: Vec<usize> = (n..3 * n).collect();
    while let Some(enters) = (0..3 * n).find(|column| goal[*column] < -1e-7) {
        let ratio = |row: usize| rows[row][3 * n] / rows[row][enters];
        let leaves = (0..rows.len())
            .filter(|row| rows[*row][enters] > 1e-9)
            .min_by(|a, b| ratio(*a).total_cmp(&ratio(*b)).then(basis[*a].cmp(&basis[*b])))
            .expect("every part is at most 1");
        let pivot = rows[leaves][enters];
        rows[leaves].iter_mut().for_each(|value| *value /= pivot);
        let pivoted = rows[leaves].clone();
        let others = rows.iter_mut().enumerate().filter(|(row, _)| *row != leaves);
        for other in others.map(|(_, row)| row).chain([&mut goal]) {
            let factor = other[enters];
            other.iter_mut().zip(&pivoted).for_each(|(value, pivot)| *value -= factor * pivot);
        }
        basis[leaves] = enters;
    }
    goal[3 * n]
}

/// Returns the most that whole stays are worth.
fn best_whole(stays: &[Stay], ram_bytes: f64) -> f64 {
    let fits = |chosen: &u32| {
        let held = |moment: u32| {
            let at = |n: &usize| (stays[*n].first..=stays[*n].last).contains(&moment);
            let chosen = (0..stays.len()).filter(|n| chosen & (1 << n) != 0);
            chosen.filter(at).map(|n| stays[n].ram_bytes).sum::<f64>()
        };
        stays.iter().all(|stay| held(stay.first) <= ram_bytes)
    };
    let worth = |chosen: u32| -> f64 {
        (0..stays.len()).filter(|n| chosen & (1 << n) != 0).map(|n| stays[n].worth_bytes).sum()
    };
    (0..1 << stays.len()).filter(fits).map(worth).fold(0.0, f64::max)
}

/// Up to 12 stays of up to 20 pages, of which every page is worth at least `share` of its RAM.
fn random(dice: &mut Dice, share: f64) -> (Vec<Stay>, f64) {
    let n = 1 + dice.below(12);
    let stays = (0..n).map(|_| {
        let first = dice.below(20);
        let ram_bytes = f64::from(1 + dice.below(20)) * 4096.0;
        let part = share + (1.0 - share) * f64::from(dice.below(101)) / 100.0;
        let last = first + dice.below(15);
        Stay { first, last, worth_bytes: ram_bytes * part, ram_bytes }
    });
    let stays = stays.collect();
    (stays, f64::from(1 + dice.below(60)) * 4096.0)
}

/// If all stays are worth their RAM, the bound is the optimum.
// Promises: Sift 9.
#[test]
fn the_bound_of_equal_worth_is_the_optimum() {
    for seed in 0..3000 {
        let (stays, ram_bytes) = random(&mut Dice::new(seed), 1.0);
        let (found, wanted) = (upper_bound(&stays, ram_bytes), optimum(&stays, ram_bytes));
        assert!((found - wanted).abs() < 1e-3, "seed {seed}: {found}, not {wanted}: {stays:?}");
    }
}

/// No choice is worth more than the bound, whatever the stays are worth.
// Promises: Sift 9.
#[test]
fn no_choice_is_worth_more_than_the_bound() {
    for seed in 0..3000 {
        let mut dice = Dice::new(seed);
        let share = f64::from(dice.below(11)) / 10.0;
        let (stays, ram_bytes) = random(&mut dice, share);
        let found = upper_bound(&stays, ram_bytes);
        let parts = optimum(&stays, ram_bytes);
        let whole = best_whole(&stays, ram_bytes);
        let at = format!("seed {seed}: {stays:?} in {ram_bytes}");
        assert!(whole <= parts + 1e-3, "the simplex method errs, {at}");
        assert!(parts <= found + 1e-3, "{parts} > {found}, {at}");
    }
}

/// With files of one page or more, whose RAM is 1.4 times their worth at most, the bound is close.
#[test]
fn the_bound_is_close_to_the_optimum() {
    let (mut sum, mut most) = (0.0, 1.0_f64);
    for seed in 0..3000 {
        let (stays, ram_bytes) = random(&mut Dice::new(seed), 0.7);
        let share = upper_bound(&stays, ram_bytes) / optimum(&stays, ram_bytes);
        most = most.max(share);
        sum += share - 1.0;
    }
    assert!(sum / 3000.0 < 0.004, "{}", sum / 3000.0);
    assert!(most < 1.2, "{most}");
}

#[test]
fn without_stays_nothing_is_worth_anything() {
    assert_eq!(upper_bound(&[], 4096.0), 0.0);
    let stay = Stay { first: 3, last: 9, worth_bytes: 4096.0, ram_bytes: 5632.0 };
    assert_eq!(upper_bound(&[stay; 3], 1e6), 3.0 * 4096.0);
    assert_eq!(upper_bound(&[stay; 3], 0.0), 0.0);
}
