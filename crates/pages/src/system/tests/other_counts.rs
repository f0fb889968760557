//! Counts of cells beside those of traces, and of caches of objects.

use super::*;
use flashsift_caches::{objects::ObjectCell, policy::ALL};
use flashsift_events::dice::Dice;
use proptest::prelude::*;

fn any_action() -> impl Strategy<Value = Action<'static>> {
    let file = (0..4u64).prop_map(FileId);
    let offset = prop_oneof![0..20_000u64, 250_000..280_000u64, (1u64 << 50)..(1 << 50) + 10_000];
    let len = prop_oneof![Just(0), 1..10_000u64, 200_000..800_000u64];
    (0..8u8, file, offset, len).prop_map(|(kind, file, offset, len)| match kind {
        0 | 1 => Action::Read { open: None, file, offset, len },
        2 | 3 => Action::Write { open: None, file, offset, len, sync: kind == 3 },
        4 => Action::Truncate { file, size: offset },
        5 => Action::Punch { file, offset, len },
        6 => Action::Direct { open: None, file, offset, len, write: offset % 2 == 0 },
        _ => Action::Sync { file, offset, len, data_only: false },
    })
}

proptest! {
    /// The cold accesses are the misses of a cache that holds everything; no cache hits them.
    // Promises: Counting 12, Compare 5.
    #[test]
    fn cold_accesses_miss_in_a_cache_that_holds_all(actions in prop::collection::vec(any_action(), 0..40)) {
        let trace = trace(&actions);
        let outcome = with_cell(trace.pages().max(1), "evict", false, |cell| cell.run(&trace, None, None));
        prop_assert_eq!(outcome.hits() + trace.cold_accesses(), outcome.accesses());
    }
}

/// Of equal sizes, a cache of objects hits what a cache of as many pages hits, under each policy.
// Promises: Objects 4.
#[test]
fn objects_of_one_size_are_pages() {
    let mut dice = Dice::new(20261127);
    let about = About {
        side: Side::Before,
        space: Space::Objects,
        epoch_us: None,
        boot_us: None,
        knows: Knows::NOTHING,
    };
    let tables = Tables { sizes: true, ..Tables::default() };
    let mut builder = TraceBuilder::new(about, Unit::Request, u64::MAX).with_tables(tables);
    for _ in 0..3000 {
        let file = FileId(dice.below(200).min(dice.below(200)).into());
        let action = Action::Read { file, open: None, offset: 0, len: 8 };
        builder.extend(&[Event { at_us: 0, pid: 0, tid: 0, action }]).unwrap();
    }
    let trace = builder.finish().unwrap();
    let layout = layout::Selection::parse("identity").unwrap();
    for spec in ALL.iter().filter(|spec| spec.takes_objects()) {
        let policy = policy::Selection::parse(spec.name).unwrap();
        let future = spec.kind.is_offline().then(|| trace.future().unwrap());
        let pages = with_cell(60, "evict", false, |cell| {
            let cell = Cell { policy: &policy, layout: &layout, discards: true, ..*cell };
            cell.run(&trace, future.as_ref(), None)
        });
        let objects = ObjectCell { policy: &policy, bytes: 480, admission: None };
        let objects = objects.run(&trace, future.as_ref());
        assert_eq!(objects.hits, pages.hits(), "{}", spec.name);
    }
}
