//! The addresses of pages on a device, and the order of cached pages by them.
//!
//! A page that has a place is ordered by it. A page that gets its place only at write-back is
//! ordered behind the place of a neighbour until then.

/// Place on the device, in 4 KiB units.
pub type Lba = u64;

/// The place of a page on the device, or the place behind which a page without one is ordered.
///
/// Addresses are ordered by place. A page without a place comes after the page at the place before
/// it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(u64);

impl Address {
    /// The address behind every place.
    pub const LAST: Self = Self(u64::MAX);

    /// The address of a page at this place.
    #[inline(always)]
    pub fn at(lba: Lba) -> Self {
        Self(lba << 1)
    }

    /// The address of a page that has no place yet, directly behind this one.
    #[inline(always)]
    pub fn behind(lba: Lba) -> Self {
        Self(lba << 1 | 1)
    }

    /// The address directly behind this one.
    #[inline(always)]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The first place that is not before this address.
    #[inline(always)]
    pub fn first_place(self) -> Lba {
        self.0.div_ceil(2)
    }

    /// The last place that is not behind this address.
    #[inline(always)]
    pub fn last_place(self) -> Lba {
        self.0 >> 1
    }

    /// The place of the page, if it has one.
    #[inline(always)]
    pub fn lba(self) -> Option<Lba> {
        (self.0 & 1 == 0).then_some(self.0 >> 1)
    }
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.lba() {
            Some(lba) => write!(f, "at {lba}"),
            None if *self == Self::LAST => write!(f, "last"),
            None => write!(f, "behind {}", self.0 >> 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    /// A page without a place is ordered between the page at the place before it and the next page.
    #[test]
    fn addresses_are_ordered_by_place() {
        let ordered = [
            Address::at(0),
            Address::behind(0),
            Address::at(1),
            Address::at(1 << 40),
            Address::behind(1 << 40),
            Address::LAST,
        ];
        assert!(ordered.is_sorted_by(|one, next| one < next));
        let places = [Some(0), None, Some(1), Some(1 << 40), None, None];
        assert_eq!(ordered.map(Address::lba), places);
    }
}
