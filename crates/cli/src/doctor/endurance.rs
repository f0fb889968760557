//! Drive writes a day, and the years that a disk lasts.

use crate::devices;
use flashsift_core::{
    device::{
        lifetime::{DailyWrites, Flash, GUESS, Lifetime, NoLifetime, lifetime},
        wear::NotShown,
    },
    doctor::Disk,
};
use serde::{Serialize, Serializer};

/// Returns the flash of the device that `--device` names.
pub(super) fn of_device(name: &str) -> anyhow::Result<Result<Flash, NoLifetime>> {
    let device = devices::chosen_one(name)?;
    // No run shows the write amplification.
    Ok(Flash::new(&device.profile, Err(NotShown::NothingWritten)))
}

/// The life of a disk at the rate of the watch.
#[derive(Serialize)]
pub(super) struct DiskLife {
    pub(super) disk: String,
    pub(super) gb_per_day: f64,
    pub(super) drive_writes_per_day: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lifetime: Option<Lifetime>,
    /// The reason for which there is none, if a device was named.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "serialize_reason")]
    pub(super) no_lifetime: Option<NoLifetime>,
}

fn serialize_reason<S: Serializer>(
    why: &Option<NoLifetime>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(why.map_or("", NoLifetime::as_text))
}

impl DiskLife {
    /// `flash`: like that of the disk, which has a capacity of its own.
    pub(super) fn new(
        disk: &Disk,
        duration_us: u64,
        flash: Option<Result<Flash, NoLifetime>>,
    ) -> Self {
        let daily = DailyWrites::new(disk.written_bytes, duration_us);
        let flash = match flash {
            // A card has no figure, whatever flash it is compared with.
            Some(_) if disk.is_memory_card => Some(Err(NoLifetime::MemoryCard)),
            flash => flash,
        };
        let lifetime = flash.map(|flash| {
            let flash = Flash { capacity_bytes: disk.capacity_bytes, ..flash? };
            lifetime(disk.written_bytes, duration_us, &flash)
        });
        Self {
            disk: disk.name.clone(),
            gb_per_day: daily.map_or(0.0, |daily| daily.gb_per_day()),
            drive_writes_per_day: daily
                .filter(|_| disk.capacity_bytes > 0)
                .map_or(0.0, |daily| daily.drive_writes_per_day(disk.capacity_bytes)),
            no_lifetime: lifetime.and_then(Result::err),
            lifetime: lifetime.and_then(Result::ok),
        }
    }

    /// Returns a sentence on the years; `None` if no device was named.
    pub(super) fn sentence(&self) -> Option<String> {
        let Some(life) = &self.lifetime else {
            return Some(format!("{}: no years, {}.", self.disk, self.no_lifetime?.as_text()));
        };
        let guess = if life.guess { format!(" {GUESS}") } else { String::new() };
        Some(format!(
            "{}: such flash lasts {}, if every day is like this time ({} cycles, write \
             amplification {:.1}, {:.3} drive writes a day).{guess}",
            self.disk,
            in_words(life.years),
            life.endurance.cycles,
            life.endurance.write_amplification,
            life.endurance.drive_writes_per_day,
        ))
    }
}

/// Years, or days below two years.
fn in_words(years: f64) -> String {
    match years {
        2.0.. => format!("{years:.1} years"),
        _ => format!("{:.1} days", years * 365.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 64 GB that are written once a day, with 3,000 cycles and twice the writes inside.
    #[test]
    fn years_are_those_of_the_disk_and_never_of_a_card() {
        let disk = Disk {
            name: "mmcblk0".to_owned(),
            capacity_bytes: 64_000_000_000,
            written_bytes: 64_000_000_000,
            ..Disk::default()
        };
        let day_us = 86_400_000_000;
        let flash = of_device("ufs-3.1").unwrap().unwrap();
        let life = DiskLife::new(&disk, day_us, Some(Ok(flash)));
        assert_eq!((life.gb_per_day, life.drive_writes_per_day), (64.0, 1.0));
        let years = life.lifetime.unwrap();
        assert_eq!(years.capacity_bytes, disk.capacity_bytes);
        let amplification = flash.amplification.value;
        let by_hand = flash.cycles * (1.0 + flash.over_provisioning) / amplification / 365.0;
        assert!((years.years / by_hand - 1.0).abs() < 0.01, "{} {by_hand}", years.years);
        assert!(life.sentence().unwrap().contains("lasts"));
        let card = Disk { is_memory_card: true, ..disk.clone() };
        let life = DiskLife::new(&card, day_us, Some(Ok(flash)));
        assert!(life.lifetime.is_none() && life.sentence().unwrap().contains("no years"));
        assert_eq!(DiskLife::new(&disk, day_us, None).sentence(), None);
    }
}
