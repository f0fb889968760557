//! The Pareto front of hits and writes.

use super::Contender;
use std::cmp::Reverse;

/// The policies that no other is as good as in both respects and better in one, from most hits to
/// fewest writes; equals stay together, in their order.
pub(super) fn front<'a>(contenders: &[Contender<'a>]) -> Vec<&'a str> {
    let mut points: Vec<_> = contenders
        .iter()
        .map(|one| (Reverse(one.outcome.hits()), one.outcome.writes_due(), one.policy))
        .collect();
    points.sort_by_key(|(hits, writes, _)| (*hits, *writes));
    // From most hits on, a point is on the front if it has fewer writes than all before it, or
    // equals the last one that is.
    let mut last: Option<(Reverse<u64>, u64)> = None;
    points.retain(|(hits, writes, _)| {
        let stays = last.is_none_or(|last| *writes < last.1 || (*hits, *writes) == last);
        if stays {
            last = Some((*hits, *writes));
        }
        stays
    });
    points.into_iter().map(|(_, _, policy)| policy).collect()
}
