//! CLOCK-Pro+: CLOCK-Pro whose target for cold pages follows the utility of hot and cold pages.
//!
//! Li, "CLOCK-Pro+: Improving CLOCK-Pro Cache Replacement with Utility-Driven Adaptation", SYSTOR
//! '19. Pages and hands are those of `clockpro`; only m_c, the target for resident cold pages,
//! changes by another rule, borrowed from CAR. Let D be the number of demoted pages, which HAND_hot
//! made cold and which were not accessed since, and N the number of non-resident pages.
//!
//! - An access to a non-resident page would have hit with more cold pages: m_c rises by D/N, at
//!   least by one.
//! - If a hand finds the bit of a demoted page set, the page would better have stayed hot: m_c
//!   falls by N/D, at least by one, and the page is no longer demoted.
//! - Accesses to resident pages in their test periods, and test periods that end, change nothing.
//!
//! We had the author's rules only from Caffeine's simulator (`ClockProPlusPolicy.java`, which cites
//! the author's program), not from the paper. From there come the quotients rounded down, the two
//! counts, which include the page itself, and the bounds of m_c, 1 % and 50 % of the memory, here
//! each at least one page. The start, removals and drains are as in `clockpro`, and so is a page
//! that turns hot when HAND_hot finds no other page to make cold. Caffeine's simulator then keeps
//! it cold, and ignores an access to the page accessed just before.

use super::{Kind, Policy, PolicySpec, clockpro::ClockPro};

/// The same machine, with its other rule.
pub(super) type ClockProPlus = ClockPro<true>;

pub(super) const SPEC: PolicySpec = PolicySpec {
    name: "clockproplus",
    paper: "Li, \"CLOCK-Pro+: Improving CLOCK-Pro Cache Replacement with Utility-Driven Adaptation\", \
        SYSTOR '19",
    what: "clockpro; hits on demoted and on evicted pages balance hot and cold ones",
    goal: "hits, by the distance between uses, and by recency where that has more hits",
    time: "a hit sets a bit; a miss moves hands, each a lap at most, O(1) on average on the traces measured",
    memory: "35 bytes a frame, 4 bytes a page of the trace",
    memory_bytes: |size| 35 * size.frames + 4 * size.pages,
    when: "like clockpro, where recency matters, too",
    params: &[],
    kind: Kind::Online,
    slow: false,
    by_place: <ClockProPlus as Policy>::WANTS_ADDRESSES,
    policy: super::only::<ClockProPlus>,
    objects: None,
    #[cfg(any(test, feature = "naive"))]
    naive: |setup| Box::new(super::clockpro::model::ClockPro::new(setup.frames as usize, true)),
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<ClockProPlus>,
};

#[cfg(test)]
mod tests {
    use crate::policy::{conformance::pushed_out, naive::Act::Read};
    use flashsift_events::page::Page;

    /// Four frames, by hand: 0, 1 and 2 come in hot, 3 cold. 4 evicts 3, which comes back and
    /// evicts 4: m_c rises to 2, and HAND_hot makes 0 and 1 cold. Then 0 is hit: when HAND_cold
    /// reaches it for 5, m_c falls to 1 again, and 1 is evicted.
    #[test]
    fn a_hit_on_a_demoted_page_lowers_the_target() {
        let reads: Vec<_> = [0, 1, 2, 3, 4, 3, 0, 5, 6, 7].into_iter().map(Read).collect();
        assert_eq!(pushed_out("clockproplus", 4, &reads)[..3], [3, 4, 1].map(Page));
    }
}
