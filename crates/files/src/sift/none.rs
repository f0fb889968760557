//! No sifter: every file is on flash from the start.

use super::{Birth, Blocked, Decision, Reason, Sift, Spec};
use flashsift_events::{
    event::{Create, Event, FileId, Micros},
    params::{Param, ParamKind},
};

pub(super) const SPEC: Spec = Spec {
    name: "none",
    paper: "flashsift: the baseline",
    what: "puts every file on flash from the start",
    params: &[Param {
        name: EXPIRE,
        what: "age at which the kernel writes dirty files (vm.dirty_expire_centisecs); with \
               another one than 30s, no more waits than fits into the RAM that a sifter would have",
        kind: ParamKind::Duration {
            default_us: 30_000_000,
            min_us: 1_000_000,
            max_us: 86_400_000_000,
        },
    }],
    offline: |_| false,
    build: |_, _| Ok(Box::new(NoSifter)),
};

/// The parameter of the age at which the kernel writes files back.
pub(super) const EXPIRE: &str = "expire";

/// Puts every file on flash from the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSifter;

impl Sift for NoSifter {
    fn birth(&mut self, _: Micros, _: &Create<'_>) -> Birth {
        Birth::Flash(Reason::All)
    }

    fn handle(&mut self, _: Micros, _: &Event<'_>) {}

    fn done(&mut self, _: Micros, _: FileId, _: Result<(), Blocked>) {}

    fn need_space(&mut self, _: Micros, _: u64) {}

    fn resize(&mut self, _: Micros, _: u64) {}

    fn held_bytes(&self) -> u64 {
        0
    }

    fn oldest_us(&self, _: Micros) -> Option<Micros> {
        None
    }

    fn next_deadline(&self) -> Option<Micros> {
        None
    }

    fn handle_deadline(&mut self, _: Micros) {}

    fn poll(&mut self) -> Option<Decision> {
        None
    }

    fn check(&self) {}
}
