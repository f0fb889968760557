use super::{super::testing, *};
use crate::nvm::Counting;
use flashsift_events::dice::Dice;
use naive::Naive;

mod naive;

/// The cache makes the same calls, counts the same lines and holds the same pages as its model,
/// step by step, over 1,000 random histories with removals, syncs of ranges and requests past the
/// cache, from 2 frames to more frames than pages.
// Promises: Non-volatile memory 1.
#[test]
fn nvlru_agrees_with_its_model() {
    for seed in 0..1000 {
        let mut dice = Dice::new(seed);
        let (settings, pages, frames) = testing::setting(&mut dice, Nvlru::<Counting>::FRAMES_MIN);
        let mut cache = Nvlru::new(pages, frames, settings, Counting::new(frames));
        let mut model = Naive::new(frames, settings);
        let case = format!("seed {seed}, {pages} pages, {frames} frames, {settings:?}");
        testing::compare(&mut dice, pages, &mut cache, &mut model, &case);
    }
}
