//! The thread that performs what the sifter decides by time.

use crate::fs::Fs;
use std::{
    io,
    sync::Arc,
    thread::{self, JoinHandle},
};

/// Starts the thread; it ends with the decisions.
pub(super) fn start(fs: Arc<Fs>) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("write-back".into()).spawn(move || {
        while fs.wait_for_decisions() {
            // Failures are logged there, and the sifter decides on these files again.
            let _ = fs.settle_due(fs.now_us());
        }
    })
}
