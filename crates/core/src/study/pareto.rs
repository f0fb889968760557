//! The Pareto front of hits and writes.

use std::cmp::Reverse;

/// Of hits and writes, the points that no other is as good as in both and better in one: from most
/// hits to fewest writes, equals in their order.
pub(super) fn front<T>(mut points: Vec<(u64, u64, T)>) -> Vec<T> {
    points.sort_by_key(|(hits, writes, _)| (Reverse(*hits), *writes));
    // From most hits on, a point is on the front if it has fewer writes than all before it, or
    // equals the last one that is.
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
