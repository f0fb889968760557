//! What systemd is told, where it asks to be: ready, alive, ending.

use flashsift_host::mounts::{self, Mount};
use flashsift_mount::Fs;
use sd_notify::NotifyState;
use std::{
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::JoinHandle,
};

pub(super) fn tell(states: &[NotifyState<'_>]) {
    if let Err(why) = sd_notify::notify(states) {
        eprintln!("flashsift: telling systemd: {why}");
    }
}

/// Tells systemd that we are alive, as long as the mount answers.
pub(super) struct Watchdog {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Watchdog {
    /// Where systemd wants to hear of it; twice in each of its periods.
    pub(super) fn start(fs: Arc<Fs>, mount: Mount) -> std::io::Result<Option<Self>> {
        let Some(period) = sd_notify::watchdog_enabled() else { return Ok(None) };
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new().name("watchdog".into()).spawn(move || {
            while stopped.recv_timeout(period / 2) == Err(RecvTimeoutError::Timeout) {
                if answers(&fs, &mount) {
                    tell(&[NotifyState::Watchdog]);
                }
            }
        })?;
        Ok(Some(Self { stop, thread }))
    }

    /// From now on somebody else has to.
    pub(super) fn stop(self) {
        drop(self.stop);
        let _ = self.thread.join();
    }
}

/// Through the kernel where we are mounted. Somebody may have taken the mount away while files still settle: then by ourselves.
fn answers(fs: &Fs, mount: &Mount) -> bool {
    match mounts::at(&mount.point) {
        Ok(Some(there)) if there.id == mount.id => super::control::status_of(&mount.point).is_ok(),
        _ => fs.status().schema > 0,
    }
}
