//! Flush-NVM (Lim & Bahn, IEEE Access 2021, §IV), the hybrid flush paper's baseline: every page
//! that is written back goes to the buffer. The paper does not name the order in which pages leave
//! it. `order=lru`: the page flushed least recently; `order=fifo`: the page that came first.

use super::nvm_order::Order;
use crate::system::{BUFFER_PARAMS, SystemKind, SystemSpec};
use flashsift_events::{
    page::Frame,
    params::{Param, ParamKind},
    structure::Lists,
};

pub(crate) const SPEC: SystemSpec = SystemSpec {
    name: "flush-nvm",
    paper: "Lim & Bahn, IEEE Access 2021 (Flush-NVM)",
    what: "dirty pages go to a non-volatile buffer, which the one flushed least recently leaves",
    params: PARAMS,
    kind: SystemKind::Buffer(|slots, params| {
        Box::new(FlushNvm::new(slots, params.word(PARAMS, "order") == "fifo"))
    }),
};

const ORDER: Param = Param {
    name: "order",
    what: "whether a page that is flushed again is the last to leave (lru) or keeps its turn (fifo)",
    kind: ParamKind::Word(&["lru", "fifo"]),
};
const PARAMS: &[Param] =
    &[BUFFER_PARAMS[0], BUFFER_PARAMS[1], BUFFER_PARAMS[2], BUFFER_PARAMS[3], ORDER];

/// Slots in the order in which they leave.
pub(crate) struct FlushNvm {
    slots: Lists<Frame, 1>,
    is_fifo: bool,
}

impl FlushNvm {
    pub(crate) fn new(slots: u32, is_fifo: bool) -> Self {
        Self { slots: Lists::new(slots), is_fifo }
    }
}

impl Order for FlushNvm {
    fn admits(&self, _: u32) -> bool {
        true
    }

    fn flushed(&mut self, slot: Frame, _: u32) {
        if self.is_fifo && self.slots.contains(slot) {
            return;
        }
        self.slots.remove(slot);
        self.slots.push_newest(0, slot);
    }

    fn remove(&mut self, slot: Frame) {
        self.slots.remove(slot);
    }

    fn victim(&self, _: [Option<Frame>; 2]) -> Frame {
        self.slots.oldest(0).expect("a slot is in use")
    }

    fn check(&self, used: usize) {
        self.slots.check();
        assert_eq!(self.slots.iter(0).count(), used, "the order holds the slots in use");
    }
}
