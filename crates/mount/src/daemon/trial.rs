//! The thread that runs a trial: it observes the mount's counters, changes the arm when the trial
//! says so, and stores the trial after each observation.

use crate::fs::{
    Fs,
    sifting::SiftWish,
    types::{SiftStatus, Writes},
};
use flashsift_files::trial::{Arm, Sample, Trial};
use flashsift_host::own_files;
use rustix::time::{ClockId, clock_gettime};
use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use tracing::{info, warn};

/// Time between two observations.
const OBSERVE: Duration = Duration::from_secs(30);

/// A trial, and the file that it is stored in.
#[derive(Debug)]
pub struct StoredTrial {
    /// The trial.
    pub trial: Trial,
    /// Its file.
    pub path: PathBuf,
}

impl StoredTrial {
    /// Replaces the file.
    ///
    /// # Errors
    ///
    /// It cannot be written. The one before is there then.
    pub fn store(&self) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let mut file = own_files::create(&new)?;
        file.write_all(self.trial.to_json().as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, &self.path)?;
        File::open(self.path.parent().unwrap_or(Path::new("/")))?.sync_all()
    }
}

/// A trial that runs.
pub(super) struct RunningTrial {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl RunningTrial {
    /// Begins to observe.
    pub(super) fn start(fs: Arc<Fs>, mut stored: StoredTrial) -> io::Result<RunningTrial> {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::Builder::new().name("trial".into()).spawn(move || {
            let mut arm = None;
            observe(&fs, &mut stored, &mut arm, true);
            loop {
                let again = stopped.recv_timeout(OBSERVE) == Err(RecvTimeoutError::Timeout);
                observe(&fs, &mut stored, &mut arm, again);
                if !again {
                    return;
                }
            }
        })?;
        Ok(RunningTrial { stop, thread })
    }

    /// Observes a last time, after the last write-back.
    pub(super) fn stop(self) {
        drop(self.stop);
        let _ = self.thread.join();
    }
}

fn observe(fs: &Fs, stored: &mut StoredTrial, last: &mut Option<Option<Arm>>, switches: bool) {
    let now = clock_gettime(ClockId::Realtime);
    let now_us = now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000;
    let arm = stored.trial.observe(now_us, sample(fs));
    if switches && *last != Some(arm) {
        let wish = match arm {
            Some(Arm::Sift) => SiftWish::On,
            Some(Arm::Keep) | None => SiftWish::Off,
            Some(Arm::Plain) => SiftWish::Plain,
        };
        match fs.switch_sifter(wish) {
            Ok(()) => *last = Some(arm),
            // It is tried again at the next observation.
            Err(why) => warn!("the trial cannot switch the sifter: {why}"),
        }
        if arm.is_none() {
            info!("the trial has ended; `flashsift sift trial` shows its result");
        }
    }
    if let Err(why) = stored.store() {
        warn!("{}: storing the trial: {why}", stored.path.display());
    }
}

fn sample(fs: &Fs) -> Sample {
    let status = fs.status();
    let Writes { requested_bytes, flash_bytes, flash_waiting_bytes, device, .. } =
        status.writes.unwrap_or_default();
    let SiftStatus { counts, .. } = status.sift.unwrap_or_default();
    let (opens, open_us) = fs.opens_counted();
    Sample {
        mount_id: fs.decider.epoch_us,
        written_bytes: flash_bytes,
        held_bytes: flash_waiting_bytes.unwrap_or(0),
        device_bytes: device.map(|device| device.written_bytes),
        requested_bytes,
        fetched_again_bytes: counts.created_again.bytes,
        opens,
        open_us,
    }
}
