//! Switching the sifter of a mount, and its status.

use super::Fs;
use super::delayed::USED_AFTER_US;
use super::failures::WriteBackFailures;
use super::readers::Reader;
use super::types::{Ino, RehearsalStatus, SiftStatus};
use flashsift_core::delayed::schedule::Ending;
use flashsift_core::event::{Action, MaybeOwned, Micros};
use flashsift_core::sift::SetupError;
use flashsift_core::sift::live::{LiveMode, LiveSifter};
use flashsift_core::study::rehearsal::Rehearsal;
use std::sync::atomic::Ordering;

/// The longest attribute that the kernel takes, bytes.
const ATTRIBUTE_BYTES_MAX: usize = 1 << 16;

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

/// The reason for which a mount's sifter cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum SiftError {
    /// No sifter was chosen.
    #[error("this mount has no sifter; mount with --sift, or name one in the file of --config")]
    NoSifter,
    /// The sifter cannot be built.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The kernel would not learn that a file was dropped.
    #[error(
        "the kernel does not show the process of a request (the mount was made in another PID \
         namespace), so it would not learn that a file was dropped"
    )]
    NotAnnounced,
    /// Files of the sifter could not be written back.
    #[error("files that the sifter had in RAM stay there: {0}")]
    Failed(#[from] WriteBackFailures),
}

impl Fs {
    /// Chooses the sifter and what it does from now on. Files in the RAM of the one before are
    /// written to flash first.
    ///
    /// # Errors
    ///
    /// The sifter cannot be built, and nothing has changed; or files could not be written back.
    pub fn choose_sifter(&self, chosen: LiveSifter, wish: SiftWish) -> Result<(), SiftError> {
        {
            // A creation asks where the file is to live, and reports it, under this lock.
            let _table = self.table();
            self.events.with_stream(|known, now| known.call(|sift| sift.choose(now, chosen)))?;
        }
        self.perform()?;
        self.switch_sifter(wish)
    }

    /// Sets what the sifter does from now on.
    ///
    /// # Errors
    ///
    /// There is no sifter; or files that it had in RAM could not be written back.
    pub fn switch_sifter(&self, wish: SiftWish) -> Result<(), SiftError> {
        {
            if wish == SiftWish::On && !self.announces_drops() {
                return Err(SiftError::NotAnnounced);
            }
            let _table = self.table();
            let mut stream = self.events.stream.lock();
            self.events.deliver_queued(&mut stream);
            let now = stream.now(self.events.now());
            let chosen = stream.decisions.sift.chosen().cloned().ok_or(SiftError::NoSifter)?;
            stream.rehearsal = match wish {
                SiftWish::Rehearse => match stream.rehearsal.take() {
                    Some(begun) if begun.is_of(&chosen) => Some(begun),
                    _ => {
                        let settings = stream.account_settings();
                        Some(Box::new(Rehearsal::new(now, chosen, settings)?))
                    }
                },
                _ => None,
            };
            self.sifts.store(wish == SiftWish::On, Ordering::Relaxed);
            stream.decisions.call(|sift| sift.switch(now, wish.mode()));
        }
        Ok(self.perform()?)
    }

    /// Ends a suspension of the sifter.
    pub fn reset_sifter(&self) {
        self.events.with_stream(|known, _| known.call(|sift| sift.reset()));
    }

    /// Changes the RAM that files may take, bytes, up to what the mount began with. Files leave it
    /// if it becomes smaller.
    ///
    /// # Errors
    ///
    /// Files that had to leave RAM could not be written back.
    pub fn set_budget(&self, budget_bytes: u64) -> Result<(), WriteBackFailures> {
        let bytes = budget_bytes.min(self.budget_bytes);
        self.allowed_bytes.store(bytes, Ordering::Relaxed);
        self.events.with_stream(|known, now| known.call(|sift| sift.resize(now, bytes)));
        if self.held_bytes() > bytes {
            // A failure is logged there, and the epoch is tried again.
            let _ = self.end_epoch(Ending::Asked);
        }
        self.perform()
    }

    /// The RAM that files may take where memory is not short, bytes.
    pub fn whole_budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    /// The RAM that files take now, bytes; 0 if it cannot be read.
    pub fn held_bytes(&self) -> u64 {
        self.store.usage().map_or(0, |(used, _)| used)
    }

    /// Reports the share of time in which processes wait for memory, parts per million.
    pub fn memory_is_stalled(&self, stalled_ppm: u32) {
        self.emit(self.begin(0), Action::MemoryPressure { stalled_ppm });
        self.events.deliver();
    }

    /// Reports the program in the foreground, by its name in `/proc/PID/comm`; empty: there is
    /// none.
    pub fn set_foreground(&self, program: &str) {
        let app = MaybeOwned::owned_str(program);
        self.emit(self.begin(0), Action::Foreground { app });
        self.events.deliver();
        program.clone_into(&mut self.foreground.lock());
    }

    /// The last decisions of the sifter as JSON, the newest first, without the first ones: those
    /// on files whose names this reader may know; `None`: all.
    pub(crate) fn sift_decisions(&self, reader: Option<&Reader>, skip: usize) -> Vec<u8> {
        let mut json = b"[".to_vec();
        for decision in self.decisions_for(reader).iter().skip(skip) {
            let Ok(one) = serde_json::to_vec(decision) else { continue };
            if json.len() + one.len() + 2 > ATTRIBUTE_BYTES_MAX {
                break;
            }
            if json.len() > 1 {
                json.push(b',');
            }
            json.extend(one);
        }
        json.push(b']');
        json
    }

    /// Explains a file in the sifter's RAM, as JSON.
    pub(crate) fn explain(&self, ino: Ino) -> Option<Vec<u8>> {
        let file = self.table().file(ino)?;
        let explained = self.events.with_stream(|known, now| known.sift.explain_held(now, file))?;
        serde_json::to_vec(&explained).ok()
    }

    /// The state of the sifter, if one was chosen.
    pub(crate) fn sift_status(&self) -> Option<SiftStatus> {
        let mut stream = self.events.stream.lock();
        self.events.deliver_queued(&mut stream);
        let now = stream.now(self.events.now());
        let rehearsal = stream.rehearsal.as_mut().map(|rehearsal| status_of(rehearsal, now));
        let sift = &stream.decisions.sift;
        let chosen = sift.chosen()?;
        let suspended = sift.suspended_until(now).map(|until| (until - now) / 1_000_000);
        Some(SiftStatus {
            sifter: chosen.sifter.label(),
            mode: sift.mode(),
            rehearsal,
            suspended_s: suspended,
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
        kept_share: seen.kept.map(|kept| [kept.share, kept.low, kept.high]),
        fetched_again_bytes: seen.fetched_again_bytes,
        dropped: seen.dropped,
    }
}
