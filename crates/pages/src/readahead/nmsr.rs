//! The native maximum size of read-ahead, NMSR (Liang et al., section 4.1, equations 1 and 2).

/// Returns the smallest maximum, in pages and a power of two, with which a sequential read of
/// `request_pages_max` pages takes as few prefetches as with any maximum.
///
/// Equation 1 gives the least number of prefetches, if each doubles the one before and the first
/// is 4 pages; equation 2 the smallest maximum with which so many reach the end of the request.
/// The paper names powers of two only, and its example (32 pages: 16) needs it: the equation alone
/// would give 10.
pub fn native_maximum(request_pages_max: u64) -> u64 {
    let reached = |prefetches: u32, max: u64| -> u64 {
        (0..prefetches).map(|n| (4_u64 << n.min(58)).min(max)).fold(0, u64::saturating_add)
    };
    let prefetches = (1..64).find(|n| reached(*n, u64::MAX) >= request_pages_max).unwrap_or(64);
    (2..63)
        .map(|power| 1 << power)
        .find(|max| reached(prefetches, *max) >= request_pages_max)
        .unwrap_or(1 << 62)
}

#[cfg(test)]
mod tests {
    use super::native_maximum;

    /// The paper's example: requests of at most 32 pages need 16, not 32.
    // Promises: Read-ahead 7.
    #[test]
    fn the_papers_maximum_is_16() {
        assert_eq!(native_maximum(32), 16);
    }

    // Promises: Read-ahead 7.
    #[test]
    fn agrees_with_a_search_over_all_sizes() {
        for wanted in 1..2000_u64 {
            let prefetches = |max: u64| {
                let (mut sum, mut size, mut n) = (0, 4, 0);
                while sum < wanted {
                    (sum, size, n) = (sum + size.min(max), 2 * size, n + 1);
                }
                n
            };
            let found = native_maximum(wanted);
            assert!(found.is_power_of_two() && found >= 4, "{wanted}: {found}");
            assert_eq!(prefetches(found), prefetches(u64::MAX / 4), "{wanted}");
            assert!(found == 4 || prefetches(found / 2) > prefetches(found), "{wanted}: {found}");
        }
    }
}
