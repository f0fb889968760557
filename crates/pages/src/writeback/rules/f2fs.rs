//! F2FS writes no file data early.

use super::{Rule, RuleSpec, Urgent};
use flashsift_caches::trace::OperationKind;
use flashsift_events::event::FileSystemKind;

pub(super) const SPEC: RuleSpec = RuleSpec {
    file_system: FileSystemKind::F2fs,
    what: "nothing is written early",
    build: || Box::new(F2fs),
};

struct F2fs;

impl Rule for F2fs {
    fn operation(&mut self, _: &OperationKind) -> Option<Urgent> {
        None
    }

    fn held_bytes(&self) -> usize {
        0
    }
}
