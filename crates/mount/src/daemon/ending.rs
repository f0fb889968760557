//! The end of a mount: every file is written back, and the mount is taken away.

use super::warn_unless_signed;
use super::{
    Daemon, RETRY, Wake, error::Context, error::Error, micros, systemd::notify, warn_of_error,
};
use crate::attach::{place, undo};
use flashsift_events::show;
use flashsift_host::{mounts, users::Found};
use sd_notify::NotifyState;
use signal_hook::consts::SIGTERM;
use std::{io, time::Duration};
use tracing::{error, warn};

/// The kernel releases a mount at once after the unmount, unless other namespaces have copies.
const RELEASE: Duration = Duration::from_secs(10);

impl Daemon {
    /// Writes every file back and takes the mount away.
    pub(super) fn end(&self, mut mounted: bool) -> Result<(), Error> {
        let mut pause = RETRY[0];
        loop {
            match self.settle(&mut mounted) {
                Ok(()) => {
                    notify(&[NotifyState::Stopping]);
                    return Ok(());
                }
                Err(why) => {
                    let message = self.report_stuck(&why, pause, mounted);
                    // Only a signal that is sent after the message gives files up.
                    while let Ok(wake) = self.wakes.try_recv() {
                        mounted &= still_mounted(wake);
                    }
                    error!("{message}");
                }
            }
            match self.wakes.recv_timeout(pause) {
                Ok(Wake::Signal(SIGTERM)) => return Err(self.give_up(mounted)),
                Ok(wake) => mounted &= still_mounted(wake),
                Err(_) => pause = (pause * 2).min(RETRY[1]),
            }
        }
    }

    /// Writes back while mounted and again after the unmount: files may be created in between.
    fn settle(&self, mounted: &mut bool) -> Result<(), Error> {
        // The end makes names durable in one commit.
        let all = || {
            self.fs
                .mover
                .write_back_all()
                .context(format!("writing back to {}", self.backing.display()))
        };
        if *mounted {
            all()?;
            self.take_away()?;
            *mounted = false;
        }
        all()?;
        // If the kernel's requests ended with an error, a dead mount is left.
        if self.is_there()? {
            undo::unmount(&self.mount.point, true).at(&self.mount.point)?;
        }
        Ok(())
    }

    fn is_there(&self) -> io::Result<bool> {
        Ok(mounts::at(&self.mount.point)?.is_some_and(|there| there.id == self.mount.id))
    }

    fn in_ram(&self) -> String {
        let status = self.fs.status();
        format!("{} ({})", status.counted_in_ram(), show::bytes(status.ram_bytes))
    }

    /// Tells other daemons and systemd why this one does not end. Returns the message for the user.
    fn report_stuck(&self, why: &Error, pause: Duration, mounted: bool) -> String {
        if !mounted {
            warn_unless_signed(self.sign.ending(&format!(
                "{} in RAM: {}",
                self.in_ram(),
                why.chain()
            )));
        }
        notify(&[NotifyState::Status(&format!(
            "cannot end: {} in RAM: {}",
            self.in_ram(),
            why.chain()
        ))]);
        format!(
            "CANNOT END: {} of {} in RAM: {}. Nothing is lost while this process lives, and it \
             tries again in {}. If {} is full, free some space. Only a SIGTERM from now on gives \
             up what is in RAM",
            self.in_ram(),
            self.mount.point.display(),
            why.chain(),
            show::duration(micros(pause)),
            self.backing.display()
        )
    }

    fn give_up(&self, mounted: bool) -> Error {
        let lost = self.in_ram();
        if mounted && let Err(why) = self.take_away() {
            return Error::Step { what: format!("{lost} LOST"), why: Box::new(why) };
        }
        Error::Words(format!(
            "ended by a second signal: {lost} LOST that could not be written back to {}",
            self.backing.display()
        ))
    }

    fn unmount_unused(&self) -> io::Result<Option<Found>> {
        undo::unmount_unused(&self.mount.point, || !self.fs.has_open_files())
    }

    /// Unmounts it, and makes requests of processes that still use it fail.
    fn take_away(&self) -> Result<(), Error> {
        let point = &self.mount.point;
        let at = format!("unmounting {}", point.display());
        let here = self.is_there()?;
        // A lazy unmount may have detached it while processes use it.
        let used = if here { self.unmount_unused().context(&*at)? } else { Some(Found::default()) };
        if let Some(found) = used {
            // Stores through mappings have to arrive before the connection is cut.
            if here {
                warn!(
                    "{} is in use and is unmounted nevertheless; the processes that use it will \
                     get errors:\n{}",
                    point.display(),
                    place::listed(&found).trim_end()
                );
                undo::flush(point).context(&*at)?;
                self.fs.mover.write_back_all().context(&*at)?;
            }
            if let Err(why) = undo::cut_off(&self.mount) {
                warn!(
                    "the processes that use it cannot be cut off ({why}); their writes until the \
                     end may be lost"
                );
                if here {
                    undo::unmount(point, true).context(&*at)?;
                }
                return Ok(());
            }
            if here {
                undo::unmount(point, true).context(&*at)?;
            }
        }
        loop {
            match self.wakes.recv_timeout(RELEASE) {
                // It already ends.
                Ok(Wake::Signal(_)) => {}
                Ok(Wake::Ended(ended)) => {
                    warn_of_error(ended);
                    return Ok(());
                }
                // Another mount namespace has a copy.
                Err(_) => return undo::cut_off(&self.mount).context(&*at),
            }
        }
    }
}

fn still_mounted(wake: Wake) -> bool {
    match wake {
        Wake::Ended(ended) => {
            warn_of_error(ended);
            false
        }
        Wake::Signal(_) => true,
    }
}
