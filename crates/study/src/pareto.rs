//! The Pareto front of hits and writes.

use std::cmp::Reverse;

/// Returns the points on the front: no other point is as good in hits and writes and better in one
/// of them. They are sorted from most hits to fewest writes; equal points keep their order.
pub(super) fn front<T>(mut points: Vec<(u64, u64, T)>) -> Vec<T> {
    points.sort_by_key(|(hits, writes, _)| (Reverse(*hits), *writes));
    // In order of falling hits, a point is on the front if it has fewer writes than every point
    // before it, or equals the last point on the front.
    let mut last: Option<(u64, u64)> = None;
    points.retain(|(hits, writes, _)| {
        let stays = last.is_none_or(|last| *writes < last.1 || (*hits, *writes) == last);
        if stays {
            last = Some((*hits, *writes));
        }
        stays
    });
    points.into_iter().map(|(_, _, point)| point).collect()
}
