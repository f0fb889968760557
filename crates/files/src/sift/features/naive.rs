//! The definition of the features, computed from a list of all accesses.

use super::{Direction, FeatureConfig};
use flashsift_events::event::Micros;
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
pub(super) struct Touch {
    pub(super) at_us: Micros,
    /// `None`: a truncation.
    pub(super) direction: Option<Direction>,
    pub(super) bytes: u64,
    pub(super) size_bytes: u64,
}

pub(super) fn any_access() -> impl Strategy<Value = Touch> {
    let direction =
        prop_oneof![Just(Some(Direction::Read)), Just(Some(Direction::Write)), Just(None)];
    let bytes = prop_oneof![4 => 0..10_000_u64, 1 => any::<u64>()];
    let size = prop_oneof![4 => 0..10_000_u64, 1 => any::<u64>()];
    (0..100_000_000_u64, direction, bytes, size).prop_map(
        |(at_us, direction, bytes, size_bytes)| Touch { at_us, direction, bytes, size_bytes },
    )
}

pub(super) fn values(born_us: Micros, config: &FeatureConfig, touches: &[Touch]) -> Vec<f32> {
    let cap = |number: u128| number.min(u32::MAX.into()) as f32;
    let age = |touch: &Touch| touch.at_us.saturating_sub(born_us);
    let inside: Vec<&Touch> =
        touches.iter().filter(|touch| age(touch) < config.window_us()).collect();
    let accesses: Vec<&Touch> = inside
        .iter()
        .copied()
        .filter(|touch| touch.direction.is_some() && touch.bytes > 0)
        .collect();
    let sum = |filter: &dyn Fn(&Touch) -> bool| {
        let bytes = |touch: &&&Touch| u128::from(touch.bytes.min(u32::MAX.into()));
        cap(accesses.iter().filter(|touch| filter(touch)).map(|touch| bytes(&touch)).sum())
    };
    let mut values: Vec<f32> = (0..config.units)
        .map(|unit| sum(&|touch| age(touch) / u64::from(config.unit_us) == u64::from(unit)))
        .collect();
    for direction in [Direction::Read, Direction::Write] {
        let is = |touch: &Touch| touch.direction == Some(direction);
        values.extend([sum(&is), accesses.iter().filter(|touch| is(touch)).count() as f32]);
    }
    let sizes = inside.iter().filter(|touch| touch.direction.is_none() || touch.bytes > 0);
    values.push(cap(sizes.map(|touch| touch.size_bytes).max().unwrap_or(0).into()));
    let active_us = match accesses[..] {
        [] => 0,
        [once] => config.window_us() - age(once),
        [first, .., last] => age(last) - age(first),
    };
    values.push((active_us as f64 / f64::from(config.unit_us)) as f32);
    values
}
