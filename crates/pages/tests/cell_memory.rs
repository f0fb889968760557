//! Memory of a cell beside its trace.

use crate::allocated::peak_bytes;
use flashsift_caches::{
    policy,
    trace::{Tables, Trace, TraceBuilder, Unit},
};
use flashsift_events::event::{About, Action, Event, FileId, Knows, Side, Space};
use flashsift_pages::{
    layout,
    system::{Cell, cell_bytes},
    writeback::Modes,
};
/// Pages of one file, or of one device, at a stride, each accessed three times in another order.
fn trace(space: Space, pages: u64, stride: u64) -> Trace {
    let knows = Knows { times: true, writes: true, removals: true, places: true, ..Knows::NOTHING };
    let about = About { epoch_us: None, boot_us: None, side: Side::Before, space, knows };
    let tables = Tables { places: true, ..Tables::default() };
    let mut builder = TraceBuilder::new(about, Unit::Page, u64::MAX).with_tables(tables);
    let file = FileId(0);
    for n in 0..3 * pages {
        // Each pass visits every page once: 7,919 is prime.
        let offset = n * 7919 % pages * stride * 4096;
        let (open, len) = (None, 4096);
        let access = match n % 3 {
            0 => Action::Read { open, file, offset, len },
            _ => Action::Write { open, file, offset, len, sync: false },
        };
        let place = Action::Place { file, offset, len, at: offset };
        let events = [access, place].map(|action| Event { at_us: n, pid: 0, tid: 0, action });
        builder.extend(&events).unwrap();
    }
    builder.finish().unwrap()
}

/// Estimates once counted 40 bytes a frame for every policy, of which `spatialclock` takes up to
/// seven times as many where pages lie far apart.
// Promises: Traces 6.
#[test]
fn every_cell_stays_within_its_estimate() {
    let mut beyond = Vec::new();
    for spec in policy::ALL {
        let policy = policy::Selection::parse(spec.name).unwrap();
        let pages = if spec.slow { 2_000 } else { 20_000 };
        for (layout, stride) in layout::ALL.iter().flat_map(|layout| [(layout, 1), (layout, 64)]) {
            let space = if (layout.suits)(Space::Files) { Space::Files } else { Space::Blocks };
            let trace = trace(space, pages, stride);
            let future = spec.kind.is_offline().then(|| trace.future().unwrap());
            let layout = layout::Selection::parse(layout.name).unwrap();
            for frames in [pages as u32 / 4, pages as u32] {
                let cell = Cell {
                    system: &flashsift_pages::system::PLAIN,
                    policy: &policy,
                    frames,
                    layout: &layout,
                    writeback: Modes::default(),
                    drain: true,
                    write_miss_reads: false,
                    request_pages_max: 128,
                    discards: true,
                    metadata: None,
                    readahead: None,
                    attribution: None,
                    lines: None,
                    reads: None,
                };
                let run = || _ = cell.run(&trace, future.as_ref(), None);
                let taken = peak_bytes(run);
                let estimate = cell_bytes(&trace, frames, spec, layout.spec);
                let case = format!("{} on {}, stride {stride}", spec.name, layout.spec.name);
                // Fixed tables count little in a cell of usual size.
                if taken > estimate + 10_000 {
                    beyond.push(format!("{case}, {frames} frames: {taken} of {estimate} bytes"));
                }
            }
        }
    }
    assert!(beyond.is_empty(), "{beyond:#?}");
}
