//! A set of frames from which samples are drawn.

use crate::page::{Frame, Id};

/// Frames in no order, with random draws that repeat from run to run.
pub struct Resident {
    frames: Vec<Frame>,
    /// By frame: its index in `frames`.
    place: Vec<u32>,
    state: u64,
}

impl Resident {
    /// Returns an empty set for frames below `slots`.
    pub fn new(slots: u32) -> Self {
        Self { frames: Vec::new(), place: vec![0; slots as usize], state: 0 }
    }

    /// Adds a frame that is not in the set.
    #[inline(always)]
    pub fn insert(&mut self, frame: Frame) {
        self.place[frame.index() as usize] = self.frames.len() as u32;
        self.frames.push(frame);
    }

    /// Removes a frame. The last one takes its index.
    #[inline(always)]
    pub fn remove(&mut self, frame: Frame) {
        let at = self.place[frame.index() as usize];
        self.frames.swap_remove(at as usize);
        if let Some(moved) = self.frames.get(at as usize) {
            self.place[moved.index() as usize] = at;
        }
    }

    /// Returns how many frames the set holds.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Returns whether the set holds no frame.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns a frame at random; `None` of an empty set.
    #[inline(always)]
    pub fn draw(&mut self) -> Option<Frame> {
        if self.frames.is_empty() {
            return None;
        }
        let n = random(&mut self.state) >> 32;
        // A multiplication in place of a remainder; the bias is below 1 in 2^32 / len.
        Some(self.frames[((n * self.frames.len() as u64) >> 32) as usize])
    }

    /// Returns a random number for other choices of the same policy.
    #[inline(always)]
    pub fn random(&mut self) -> u64 {
        random(&mut self.state)
    }

    /// Checks that the two directions agree.
    ///
    /// # Panics
    ///
    /// They disagree.
    pub fn check(&self) {
        for (at, frame) in self.frames.iter().enumerate() {
            assert_eq!(self.place[frame.index() as usize], at as u32, "{frame:?} is where it lies");
        }
    }
}

/// SplitMix64 (Steele, Lea & Flood, OOPSLA '14): the next of a sequence of numbers that is the same
/// in each run.
#[inline(always)]
pub fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Frames come and go as in a set; each is drawn, and none that left.
    #[test]
    fn every_frame_is_drawn_and_no_other() {
        let mut state = 7;
        let (mut resident, mut model) = (Resident::new(40), BTreeSet::new());
        for _ in 0..2000 {
            let frame = Frame((random(&mut state) % 40) as u32);
            match model.remove(&frame.0) {
                true => resident.remove(frame),
                false => {
                    model.insert(frame.0);
                    resident.insert(frame);
                }
            }
            resident.check();
            assert_eq!(resident.len(), model.len());
            assert_eq!(resident.is_empty(), model.is_empty());
        }
        let drawn: BTreeSet<u32> = (0..2000).filter_map(|_| resident.draw()).map(|f| f.0).collect();
        assert_eq!(drawn, model);
    }
}
