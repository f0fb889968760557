//! The cache sizes of a study.

use super::error::StudyError;
use flashsift_caches::cache::FRAMES_MAX;

/// Returns the sizes, in frames and ascending, of a study that names none: the five powers of two
/// below the number of pages that the trace touches.
pub fn default_frames(pages: u32) -> Vec<u32> {
    let largest = (1 << (pages.max(2) - 1).ilog2()).min(FRAMES_MAX);
    (0..5).rev().map(|halvings| largest >> halvings).filter(|frames| *frames > 0).collect()
}

/// Returns the sizes asked for, or the default sizes; ascending, each once.
pub(super) fn chosen(asked: &[u32], pages: u32) -> Result<Vec<u32>, StudyError> {
    let mut frames = if asked.is_empty() { default_frames(pages) } else { asked.to_vec() };
    if let Some(wrong) = frames.iter().find(|frames| !(1..=FRAMES_MAX).contains(*frames)) {
        return Err(StudyError::Frames(*wrong));
    }
    frames.sort_unstable();
    frames.dedup();
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_sizes_lie_below_the_pages_touched() {
        assert_eq!(default_frames(1000), [32, 64, 128, 256, 512]);
        assert_eq!(default_frames(1024), [32, 64, 128, 256, 512]);
        assert_eq!(default_frames(1025), [64, 128, 256, 512, 1024]);
        assert_eq!(
            [0, 1, 2, 3, 5].map(default_frames),
            [vec![1], vec![1], vec![1], vec![1, 2], vec![1, 2, 4]]
        );
        assert_eq!(default_frames(u32::MAX).last(), Some(&FRAMES_MAX));
    }

    #[test]
    fn sizes_asked_for_are_sorted_and_checked() {
        assert_eq!(chosen(&[64, 1, 64, 8], 1000), Ok(vec![1, 8, 64]));
        assert_eq!(chosen(&[], 1000), Ok(default_frames(1000)));
        assert_eq!(chosen(&[8, 0], 1000), Err(StudyError::Frames(0)));
        assert_eq!(chosen(&[FRAMES_MAX + 1], 1000), Err(StudyError::Frames(FRAMES_MAX + 1)));
    }
}
