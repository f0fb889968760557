//! The thread that writes files back when they reach their age.

use super::{RETRY, RecvTimeoutError};
use crate::fs::Fs;
use std::{
    io,
    sync::{Arc, mpsc::Receiver},
    thread::{self, JoinHandle},
    time::Duration,
};

/// Files that reach their age within this part of it are written back together and share a sync.
const TOGETHER: u32 = 16;

/// Starts the thread; it ends when the sender of `stopped` is dropped.
pub(super) fn start(fs: Arc<Fs>, after: Duration, stopped: Receiver<()>) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("settle".into()).spawn(move || {
        let mut pause = RETRY[0];
        let mut wait = after;
        while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            fs.deliver_events();
            let (_, done) = fs.settle_due(fs.now_us());
            let next = fs.next_due_us().map_or(after, |due| {
                Duration::from_micros(due.saturating_sub(fs.now_us())) + after / TOGETHER
            });
            (wait, pause) = match done {
                Err(_) => (pause, (pause * 2).min(RETRY[1])),
                Ok(()) => (next.min(after), RETRY[0]),
            };
        }
    })
}
