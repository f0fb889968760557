//! `s3-fifo`: a file is worth its place on flash if it is read again in a queue in RAM, or comes
//! again soon after it left that queue.
//!
//! Yang et al., "FIFO Queues are All You Need for Cache Eviction", SOSP '23, as a filter in front
//! of flash: the small queue is in RAM, the main queue on flash. A file that leaves the small queue
//! enters the main queue if it was read often enough, or if its name is in the ghost queue; else
//! its name becomes a ghost. Algorithm 1 asks for two hits (`reads=2`). Its main queue evicts, too;
//! here flash is never full, so files stay there, and the ghost queue has a length of its own.

use super::{
    Spec,
    explanation::{Explanation, Intent},
    on_pressure::{Judge, OnPressure, Use, Verdict},
    remembered::Remembered,
    shelf::{Held, Shelf, Slot},
};
use flashsift_events::{
    event::{FileId, Micros},
    params::{Param, ParamKind},
};
use std::collections::BTreeSet;

pub(super) const SPEC: Spec = Spec {
    name: "s3-fifo",
    paper: "Yang, Zhang, Qiu, Yue & Rashmi, SOSP '23",
    what: "writes a file that was read again, or whose name comes again, the first created first",
    params: PARAMS,
    offline: |_| false,
    build: |setup, params| {
        Ok(Box::new(OnPressure::new(
            setup,
            S3Fifo {
                reads: params.number(PARAMS, "reads") as u32,
                pause_us: params.duration_us(PARAMS, "pause"),
                queue: BTreeSet::new(),
                ghosts: Remembered::new(params.number(PARAMS, "ghosts") as usize),
            },
        )))
    },
};

const PARAMS: &[Param] = &[
    Param {
        name: "reads",
        what: "a file with this many new reads is written",
        kind: ParamKind::Number { default: 1.0, min: 1.0, max: 1e6 },
    },
    Param {
        name: "pause",
        what: "a read counts as a new one if the file was not used for this long",
        kind: ParamKind::Duration { default_us: 1_000_000, min_us: 0, max_us: 86_400_000_000 },
    },
    GHOSTS,
];

/// The parameter of the number of names that are remembered.
pub(super) const GHOSTS: Param = Param {
    name: "ghosts",
    what: "number of names of dropped files that are remembered",
    kind: ParamKind::Number { default: 16384.0, min: 1.0, max: 1e7 },
};

struct S3Fifo {
    reads: u32,
    pause_us: Micros,
    /// The files in RAM by their creation.
    queue: BTreeSet<(Micros, FileId)>,
    ghosts: Remembered,
}

/// Number of new reads.
type Reads = u32;

impl Judge for S3Fifo {
    type State = Reads;

    fn created(&mut self, _: Micros, _: Slot, file: &mut Held<Reads>) {
        self.queue.insert((file.born_us, file.id));
    }

    fn used(&mut self, now: Micros, file: &mut Held<Reads>, how: Use) -> bool {
        let rested = now.saturating_sub(file.used_us) >= self.pause_us;
        if rested && matches!(how, Use::Read { .. }) {
            file.state = file.state.saturating_add(1);
        }
        false
    }

    fn judge(&mut self, now: Micros, shelf: &Shelf<Reads>) -> Option<(Slot, Verdict)> {
        let slots = self.queue.iter().filter_map(|(_, file)| shelf.find(*file));
        let slot = slots.into_iter().find(|slot| shelf.is_idle(*slot, now))?;
        let file = &shelf[slot];
        let deserves = file.state >= self.reads || self.ghosts.has(&file.name);
        Some((slot, if deserves { Verdict::Write } else { Verdict::Drop }))
    }

    fn explain(&self, now: Micros, shelf: &Shelf<Reads>, slot: Slot) -> Explanation {
        let file = &shelf[slot];
        let known = self.ghosts.has(&file.name);
        let (intent, rule) = match (file.state >= self.reads, known) {
            (true, _) => (Intent::Write, "It was read again often enough."),
            (false, true) => (Intent::Write, "Its name was dropped before."),
            (false, false) => (
                Intent::Drop,
                "It was not read again often enough, nor was its name dropped before.",
            ),
        };
        Explanation::of_held(now, file, intent, rule)
            .below("new reads", file.state.into(), self.reads.into())
            .below("names remembered", u8::from(known).into(), 1.0)
    }

    fn leaves(&mut self, _: Micros, file: &Held<Reads>, verdict: Verdict) {
        match verdict {
            Verdict::Drop => self.ghosts.add(&file.name),
            Verdict::Write => {
                self.ghosts.forget(&file.name);
            }
        }
    }

    fn removed(&mut self, _: Micros, file: &Held<Reads>, _: bool) {
        self.queue.remove(&(file.born_us, file.id));
    }

    fn check(&self, shelf: &Shelf<Reads>) {
        self.ghosts.check();
        let files = shelf.all().map(|slot| (shelf[slot].born_us, shelf[slot].id));
        assert_eq!(files.collect::<BTreeSet<_>>(), self.queue);
    }
}
