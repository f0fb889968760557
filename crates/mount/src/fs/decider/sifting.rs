//! Switching the sifter, and its status.

use super::Decider;
use crate::fs::types::{RehearsalStatus, SiftStatus, USED_AFTER_US};
use flashsift_events::event::{Action, FileId, MaybeOwned, Micros};
use flashsift_files::rehearsal::Rehearsal;
use flashsift_files::sift::live::{LiveDecision, LiveMode, LiveSifter};
use flashsift_files::sift::meaning::FileParts;
use flashsift_files::sift::{Explanation, SetupError};
use std::sync::atomic::Ordering;

/// A user's wish for the sifter of a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SiftWish {
    /// It drops nothing, and shows what it would have dropped.
    #[default]
    Rehearse,
    /// It drops files.
    On,
    /// Files wait in RAM, and none is dropped.
    Off,
    /// New files are created on flash.
    Plain,
}

impl SiftWish {
    /// Every wish.
    pub const ALL: [SiftWish; 4] =
        [SiftWish::Rehearse, SiftWish::On, SiftWish::Off, SiftWish::Plain];

    /// Returns the name, as users write it.
    pub fn name(self) -> &'static str {
        match self {
            SiftWish::Rehearse => "dry-run",
            SiftWish::On => "on",
            SiftWish::Off => "off",
            SiftWish::Plain => "plain",
        }
    }

    /// Returns the wish of this name.
    pub fn new(name: &str) -> Option<SiftWish> {
        SiftWish::ALL.into_iter().find(|wish| wish.name() == name)
    }

    fn mode(self) -> LiveMode {
        match self {
            SiftWish::On => LiveMode::Sift,
            SiftWish::Off | SiftWish::Rehearse => LiveMode::Keep,
            SiftWish::Plain => LiveMode::Plain,
        }
    }
}

impl Decider {
    /// Chooses the sifter.
    ///
    /// # Errors
    ///
    /// It cannot be built, and nothing has changed.
    pub(crate) fn choose(&self, mut chosen: LiveSifter) -> Result<(), SetupError> {
        chosen.droppable = chosen.droppable.but_for(self.kept.clone());
        self.with_stream(|known, now| known.call(|sift| sift.choose(now, chosen)))
    }

    /// Drops no file in this directory from now on. Returns whether it is new.
    pub(crate) fn keep_below(&self, directory: &str) -> bool {
        self.kept.add(directory)
    }

    /// Sets what the sifter does from now on. `false`: there is none.
    ///
    /// # Errors
    ///
    /// A rehearsal cannot be set up.
    pub(crate) fn switch(&self, wish: SiftWish) -> Result<bool, SetupError> {
        let mut stream = self.stream.lock();
        self.deliver_queued(&mut stream);
        let now = stream.now(self.now());
        let Some(chosen) = stream.decisions.sift.chosen().cloned() else { return Ok(false) };
        stream.rehearsal = match wish {
            SiftWish::Rehearse => match stream.rehearsal.take() {
                Some(begun) if begun.is_of(&chosen) => Some(begun),
                _ => {
                    let settings = stream.account_settings();
                    let budget_bytes = stream.decisions.sift.budget_bytes();
                    Some(Box::new(Rehearsal::new(now, chosen, budget_bytes, settings)?))
                }
            },
            _ => None,
        };
        self.sifts.store(wish == SiftWish::On, Ordering::Relaxed);
        stream.decisions.call(|sift| sift.switch(now, wish.mode()));
        Ok(true)
    }

    /// Forgets which dropped files came back.
    pub(crate) fn reset(&self) {
        self.with_stream(|known, _| known.call(|sift| sift.reset()));
    }

    /// Changes the RAM that files may take, bytes.
    pub(crate) fn resize(&self, bytes: u64) {
        self.with_stream(|known, now| known.call(|sift| sift.resize(now, bytes)));
    }

    /// Whether someone wants to know the content of files that are closed.
    pub(crate) fn wants_content(&self) -> bool {
        self.tells_meaning || self.sifts.load(Ordering::Relaxed)
    }

    /// Reports the content of a file that was closed.
    pub(crate) fn closed(&self, file: FileId, parts: &FileParts) {
        self.with_stream(|known, now| known.call(|sift| sift.closed(now, file, parts)));
    }

    /// Reports an event of the machine, and not of a file.
    fn report(&self, action: Action<'static>) {
        self.emit(self.begin(0), action);
        self.deliver();
    }

    /// Reports the share of time in which processes wait for memory, parts per million.
    pub(crate) fn memory_is_stalled(&self, stalled_ppm: u32) {
        self.report(Action::MemoryPressure { stalled_ppm });
    }

    /// Reports the program in the foreground, by its name in `/proc/PID/comm`; empty: there is
    /// none.
    pub(crate) fn set_foreground(&self, program: &str) {
        self.report(Action::Foreground { app: MaybeOwned::owned_str(program) });
        program.clone_into(&mut self.foreground.lock());
    }

    /// The program in the foreground, as far as it is known.
    pub(crate) fn foreground(&self) -> String {
        self.foreground.lock().clone()
    }

    /// The last decisions of the sifter, the newest first.
    pub(crate) fn last_decisions(&self) -> Vec<LiveDecision> {
        let mut all: Vec<LiveDecision> =
            self.with_stream(|known, _| known.sift.decisions().cloned().collect());
        all.reverse();
        all
    }

    /// Explains a file in the sifter's RAM.
    pub(crate) fn explain(&self, file: FileId) -> Option<Explanation> {
        self.with_stream(|known, now| known.sift.explain_held(now, file))
    }

    /// The state of the sifter, if one was chosen.
    pub(crate) fn sift_status(&self) -> Option<SiftStatus> {
        let mut stream = self.stream.lock();
        self.deliver_queued(&mut stream);
        let now = stream.now(self.now());
        let rehearsal = stream.rehearsal.as_mut().map(|rehearsal| status_of(rehearsal, now));
        let sift = &stream.decisions.sift;
        let chosen = sift.chosen()?;
        Some(SiftStatus {
            sifter: chosen.sifter.label(),
            mode: sift.mode(),
            rehearsal,
            again_share: sift.again_share(),
            again_at_most: chosen.again,
            budget_bytes: chosen.budget_bytes,
            unused: match now >= USED_AFTER_US
                && (sift.mode() == LiveMode::Sift || stream.rehearsal.is_some())
            {
                true => chosen.droppable.unmatched().into_iter().map(str::to_owned).collect(),
                false => Vec::new(),
            },
            counts: sift.counts(),
            directories: sift.directories(),
            programs: sift.programs(),
        })
    }
}

fn status_of(rehearsal: &mut Rehearsal, now: Micros) -> RehearsalStatus {
    let seen = rehearsal.result(now);
    RehearsalStatus {
        since_s: seen.since_us / 1_000_000,
        stock_bytes: seen.stock_bytes,
        kept_bytes: seen.kept_bytes,
        kept_share: seen.kept.map(|kept| [kept.whole, kept.halves[0], kept.halves[1]]),
        fetched_again_bytes: seen.fetched_again_bytes,
        dropped: seen.dropped,
    }
}
