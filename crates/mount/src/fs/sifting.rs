//! Performing the decisions of the sifter, and switching it.

use super::Fs;
use super::decider::decisions::SiftNotice;
pub use super::decider::sifting::SiftWish;
use super::failures::WriteBackFailures;
use super::readers::Reader;
use super::types::Ino;
use flashsift_files::delayed::schedule::Ending;

use flashsift_files::sift::SetupError;
use flashsift_files::sift::live::LiveSifter;
use std::sync::atomic::Ordering;

/// The longest attribute that the kernel takes, bytes.
const ATTRIBUTE_BYTES_MAX: usize = (1 << 16) - 2;

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
    /// Sends every message between the sifter and the mount to this sink from now on, in order.
    pub fn observe_decisions(&self, sink: impl FnMut(SiftNotice) + Send + 'static) {
        self.decider.observe_decisions(sink);
    }

    /// When a decision by time is due, µs.
    pub fn next_due_us(&self) -> Option<u64> {
        self.decider.next_deadline().into_iter().chain(self.delayed.deadline()).min()
    }

    /// Waits until there is something to perform. `false` once they have ended.
    pub fn wait_for_decisions(&self) -> bool {
        let others = || self.mover.next_name_us().into_iter().chain(self.delayed.deadline()).min();
        self.decider.wait(others)
    }

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
            self.decider.choose(chosen)?;
        }
        self.mover.perform()?;
        self.switch_sifter(wish)
    }

    /// Sets what the sifter does from now on.
    ///
    /// # Errors
    ///
    /// There is no sifter; or files that it had in RAM could not be written back.
    pub fn switch_sifter(&self, wish: SiftWish) -> Result<(), SiftError> {
        if wish == SiftWish::On && !self.mover.drops.are_announced() {
            return Err(SiftError::NotAnnounced);
        }
        let known = {
            let _table = self.table();
            self.decider.switch(wish)?
        };
        if !known {
            return Err(SiftError::NoSifter);
        }
        Ok(self.mover.perform()?)
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
        self.decider.resize(bytes);
        if self.held_bytes() > bytes {
            // A failure is logged there, and the epoch is tried again.
            let _ = self.delayed.end_epoch(Ending::Asked);
        }
        let done = self.mover.perform();
        match self.held_bytes() > bytes {
            true => done.and(self.mover.write_all_waiting()),
            false => done,
        }
    }

    /// The RAM that files take now, bytes; 0 if it cannot be read.
    pub fn held_bytes(&self) -> u64 {
        self.store.usage().map_or(0, |(used, _)| used)
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
        serde_json::to_vec(&self.decider.explain(file)?).ok()
    }
}
