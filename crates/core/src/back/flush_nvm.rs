//! Flush-NVM (Lim & Bahn, IEEE Access 2021, §IV), the hybrid flush paper's baseline: every page
//! that is written back goes to the buffer, and the page flushed least recently leaves it.

use super::nvm_order::Order;
use crate::{
    page::Frame,
    structure::Lists,
    system::{BUFFER_PARAMS, SystemKind, SystemSpec},
};

pub(crate) const SPEC: SystemSpec = SystemSpec {
    name: "flush-nvm",
    paper: "Lim & Bahn, IEEE Access 2021 (Flush-NVM)",
    what: "dirty pages go to a non-volatile buffer, which the one flushed least recently leaves",
    params: BUFFER_PARAMS,
    kind: SystemKind::Buffer(|slots| Box::new(FlushNvm::new(slots))),
};

/// Slots from the least to the most recently flushed.
pub(crate) struct FlushNvm(Lists<Frame, 1>);

impl FlushNvm {
    pub(crate) fn new(slots: u32) -> Self {
        Self(Lists::new(slots))
    }
}

impl Order for FlushNvm {
    fn admits(&self, _: u32) -> bool {
        true
    }

    fn flushed(&mut self, slot: Frame, _: u32) {
        self.0.remove(slot);
        self.0.push_newest(0, slot);
    }

    fn remove(&mut self, slot: Frame) {
        self.0.remove(slot);
    }

    fn victim(&self, _: [Option<Frame>; 2]) -> Frame {
        self.0.oldest(0).expect("a slot is in use")
    }

    fn check(&self, used: usize) {
        self.0.check();
        assert_eq!(self.0.iter(0).count(), used, "the order holds the slots in use");
    }
}
