//! Notifications to systemd, if it asks for them: ready, alive, ending.

use crate::control;
use crate::fs::Fs;
use flashsift_host::mounts::{self, Mount};
use sd_notify::NotifyState;
use std::{
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::JoinHandle,
};
use tracing::warn;

pub(super) fn notify(states: &[NotifyState<'_>]) {
    if let Err(why) = sd_notify::notify(states) {
        warn!("notifying systemd: {why}");
    }
}

/// Notifies systemd that the daemon is alive, as long as the mount answers.
pub(super) struct Watchdog {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Watchdog {
    /// Starts it if systemd asks for it; it notifies twice in each of systemd's periods.
    pub(super) fn start(fs: Arc<Fs>, mount: Mount) -> std::io::Result<Option<Self>> {
        let Some(period) = sd_notify::watchdog_enabled() else { return Ok(None) };
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new().name("watchdog".into()).spawn(move || {
            while stopped.recv_timeout(period / 2) == Err(RecvTimeoutError::Timeout) {
                if answers(&fs, &mount) {
                    notify(&[NotifyState::Watchdog]);
                }
            }
        })?;
        Ok(Some(Self { stop, thread }))
    }

    /// Ends the notifications.
    pub(super) fn stop(self) {
        drop(self.stop);
        let _ = self.thread.join();
    }
}

/// Asks through the kernel while it is mounted. After an unmount, while files are still written
/// back, asks the file system directly.
fn answers(fs: &Fs, mount: &Mount) -> bool {
    match mounts::at(&mount.point) {
        Ok(Some(there)) if there.id == mount.id => control::status(mount).is_ok(),
        _ => fs.status().schema > 0,
    }
}
