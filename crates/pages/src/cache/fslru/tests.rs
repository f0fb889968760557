use super::{
    super::testing::{self, Act, Call, Calls},
    *,
};
use crate::nvm::{Counting, PAGE_LINES};
use flashsift_events::dice::Dice;
use naive::Naive;

mod naive;

/// The cache makes the same calls, counts the same lines and holds the same pages as its model,
/// step by step, over 1,000 random histories with removals, syncs of ranges and requests past the
/// cache, from 3 frames to more frames than pages.
// Promises: Non-volatile memory 1.
#[test]
fn fslru_agrees_with_its_model() {
    for seed in 0..1000 {
        let mut dice = Dice::new(seed);
        let (settings, pages, frames) = testing::setting(&mut dice, Fslru::<Counting>::FRAMES_MIN);
        let dram = Fslru::<Counting>::dram_frames(frames, settings);
        let memory = Counting::new(frames - dram);
        let mut cache = Fslru::new(pages, frames, settings, memory);
        let mut model = Naive::new(dram, frames - dram, settings);
        let case = format!("seed {seed}, {pages} pages, {frames} frames, {settings:?}");
        testing::compare(&mut dice, pages, &mut cache, &mut model, &case);
    }
}

fn step(cache: &mut Fslru<Counting>, act: Act) -> (bool, Vec<Call>) {
    let mut calls = Calls::default();
    let hit = match act {
        Act::Access(page, op, bytes) => {
            let access = Access::new(Page(page), op);
            let details = Details { bytes, ..Details::WHOLE };
            cache.access(access, details, &mut calls)
        }
        Act::Sync(pages, why) => {
            cache.sync(pages, why, &mut calls);
            false
        }
        Act::Drop(..) | Act::Direct(..) | Act::Drain => unreachable!("no test has them"),
    };
    cache.check();
    (hit, calls.0)
}

fn cache(frames: u32) -> Fslru<Counting> {
    let settings = Settings::default();
    let dram = Fslru::<Counting>::dram_frames(frames, settings);
    Fslru::new(100, frames, settings, Counting::new(frames - dram))
}

fn write(page: u32, from: u16, to: u16) -> Act {
    Act::Access(page, Op::Write, Bytes { from, to })
}

fn fsync(page: u32) -> Act {
    Act::Sync(page..page + 1, Why::Sync)
}

/// DRAM has a tenth of the frames, at least one; two are left to non-volatile memory.
#[test]
fn dram_has_a_tenth_of_the_frames() {
    let dram = |frames| Fslru::<Counting>::dram_frames(frames, Settings::default());
    assert_eq!([3, 10, 25, 1000].map(dram), [1, 1, 3, 100]);
    let all = Settings { dram_share: 1.0, ..Settings::default() };
    assert_eq!(Fslru::<Counting>::dram_frames(10, all), 8);
}

/// An fsync writes nothing to storage. The first one copies the page; a later one copies the
/// changed bytes twice, as undo copy and in place, or the whole page if more than 2048 bytes
/// changed.
// Promises: Non-volatile memory 2.
#[test]
fn an_fsync_copies_what_changed() {
    let mut cache = cache(10);
    step(&mut cache, write(0, 0, 4096));
    let written = |cache: &Fslru<Counting>| cache.traffic().nvm_written_lines;
    let (_, calls) = step(&mut cache, fsync(0));
    assert_eq!((calls, written(&cache)), (vec![Call::Durable(0)], PAGE_LINES + 1));
    for (from, to, lines) in [(100, 300, 2 * 4 + 2), (0, 2048, 2 * 32 + 2), (0, 2049, 64 + 2)] {
        let before = written(&cache);
        step(&mut cache, write(0, from, to));
        step(&mut cache, fsync(0));
        assert_eq!(written(&cache) - before, lines, "{from}..{to}");
    }
    assert_eq!(cache.traffic().nvm_left, 1);
}

/// A durable page that leaves is written to storage, then storage is flushed. A dirty page that was
/// never durable is written without a FLUSH; the next fsync of it sends one.
// Promises: Non-volatile memory 3.
#[test]
fn storage_is_flushed_before_a_durable_page_leaves() {
    let mut cache = cache(3);
    step(&mut cache, write(0, 0, 4096));
    step(&mut cache, fsync(0));
    step(&mut cache, write(1, 0, 4096));
    // Page 1 leaves DRAM for the only frame of page 0.
    let (_, calls) = step(&mut cache, write(2, 0, 4096));
    assert_eq!(calls, [Call::Write(0, Why::Evict), Call::Flush]);
    let (_, calls) = step(&mut cache, write(3, 0, 4096));
    assert_eq!(calls, [Call::Write(1, Why::Evict)]);
    assert_eq!(step(&mut cache, fsync(0)).1, []);
    assert_eq!(step(&mut cache, fsync(1)).1, [Call::Flush]);
    assert_eq!(step(&mut cache, fsync(1)).1, []);
}

/// A page stays dirty when its older durable version leaves for storage.
// Promises: Non-volatile memory 3.
#[test]
fn an_older_version_leaves_for_storage() {
    let settings = Settings { dram_share: 0.5, ..Settings::default() };
    let mut cache = Fslru::new(100, 4, settings, Counting::new(2));
    step(&mut cache, write(0, 0, 4096));
    step(&mut cache, fsync(0));
    step(&mut cache, write(0, 0, 8));
    step(&mut cache, write(1, 0, 4096));
    // The fsync needs the only frame, which has the durable version of page 0.
    let (_, calls) = step(&mut cache, fsync(1));
    assert_eq!(calls, [Call::Older(0, Why::Evict), Call::Flush, Call::Durable(1)]);
    assert!(cache.is_dirty(Page(0)) && !cache.is_dirty(Page(1)));
}
