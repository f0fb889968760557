//! Numbers of opens and names in two bytes.

/// A number that can be counted down exactly unless it once reached 65,535, where it stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count(u16);

impl Count {
    pub(super) fn new(count: u16) -> Self {
        Self(count)
    }

    pub(super) fn up(&mut self) {
        self.0 = self.0.saturating_add(1);
    }

    pub(super) fn down(&mut self) {
        self.0 = if self.0 == u16::MAX { u16::MAX } else { self.0.saturating_sub(1) };
    }

    pub(super) fn get(self) -> u16 {
        self.0
    }

    pub(super) fn is_zero(self) -> bool {
        self.0 == 0
    }

    pub(super) fn is_one(self) -> bool {
        self.0 == 1
    }
}
