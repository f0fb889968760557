//! Drive writes a day, and the years that a disk lasts.

use crate::{devices, size};
use flashsift_pages::device::{
    lifetime::{DailyWrites, Flash, Lifetime, NoLifetime, lifetime, scaling_warning},
    wear::NotShown,
};
use flashsift_study::doctor::Disk;
use serde::{Serialize, Serializer};

/// Returns the flash of the device that `--device` names.
pub(super) fn of_device(name: &str) -> anyhow::Result<Result<Flash, NoLifetime>> {
    let device = devices::chosen_one(name)?;
    // No run shows the write amplification.
    Ok(Flash::new(&device.profile, Err(NotShown::NothingWritten)))
}

/// The bytes that a disk may take in a day if it is to last for some years.
#[derive(Serialize)]
pub(super) struct Budget {
    /// The years.
    pub(super) years: f64,
    /// Gigabytes (10⁹ bytes) a day that use up the flash in this time.
    pub(super) gb_per_day: f64,
    /// The share of them that the machine writes.
    pub(super) used_share: f64,
    /// The share of the life that was used before, where the disk tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) life_used: Option<f64>,
    /// The day on which the flash is used up at this rate, if it is one of the next 1000 years.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ends: Option<String>,
    /// The same in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ends_s: Option<i64>,
}

const YEAR_S: f64 = 365.0 * 86_400.0;

impl Budget {
    /// `life`: of a new disk, at the rate of the watch. `life_used`: the share of it that is gone.
    fn new(life: &Lifetime, years: f64, life_used: Option<f64>, now_s: i64) -> Self {
        let left = 1.0 - life_used.unwrap_or(0.0).clamp(0.0, 1.0);
        let gb_per_day = life.gb_per_day * life.years * left / years;
        let left_s = life.years * left * YEAR_S;
        let ends_s = (left_s < 1000.0 * YEAR_S).then_some(now_s + left_s as i64);
        let day = |at_s: i64| {
            jiff::Timestamp::from_second(at_s).ok().map(|at| at.strftime("%F").to_string())
        };
        Self {
            years,
            gb_per_day,
            used_share: match gb_per_day > 0.0 {
                true => life.gb_per_day / gb_per_day,
                false => f64::MAX,
            },
            life_used,
            ends: ends_s.and_then(day),
            ends_s,
        }
    }
}

/// The years of `--years`, and the present time.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) years: f64,
    pub(super) now_s: i64,
}

/// Returns the years of `--years`.
pub(super) fn parse_years(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(years) if (0.1..=1000.0).contains(&years) => Ok(years),
        _ => Err("a number of years, 0.1 to 1000".to_owned()),
    }
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
    /// Its bytes a day, if a number of years was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) budget: Option<Budget>,
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
        span: Option<Span>,
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
            budget: lifetime
                .and_then(Result::ok)
                .zip(span)
                .map(|(life, span)| Budget::new(&life, span.years, disk.life_used, span.now_s)),
        }
    }

    /// Returns a sentence on the years; `None` if no device was named.
    pub(super) fn sentence(&self) -> Option<String> {
        let Some(life) = &self.lifetime else {
            return Some(format!("{}: no years, {}.", self.disk, self.no_lifetime?.as_text()));
        };
        let guess = scaling_warning((life.observed_s * 1e6) as u64)
            .map_or(String::new(), |warning| format!(" {warning}"));
        let budget = self.budget.as_ref().map_or(String::new(), |budget| {
            let used = budget.life_used.map_or(String::new(), |used| {
                format!(" and {} of its life used before", size::share(used))
            });
            let ends = budget
                .ends
                .as_ref()
                .map_or("in more than 1000 years".to_owned(), |day| format!("on {day}"));
            format!(
                " For {} years{used} it may take {:.1} GB a day; it takes {:.1}, {} of that, and \
                 ends {ends}.",
                budget.years,
                budget.gb_per_day,
                self.gb_per_day,
                size::share(budget.used_share),
            )
        });
        Some(format!(
            "{}: such flash lasts {}, if every day is like this time ({} cycles, write \
             amplification {:.1}, {:.3} drive writes a day).{budget}{guess}",
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
        let life = DiskLife::new(&disk, day_us, Some(Ok(flash)), None);
        assert_eq!((life.gb_per_day, life.drive_writes_per_day), (64.0, 1.0));
        let years = life.lifetime.unwrap();
        assert_eq!(years.capacity_bytes, disk.capacity_bytes);
        let amplification = flash.amplification.value;
        let by_hand = flash.cycles * (1.0 + flash.over_provisioning) / amplification / 365.0;
        assert!((years.years / by_hand - 1.0).abs() < 0.01, "{} {by_hand}", years.years);
        assert!(life.sentence().unwrap().contains("lasts"));
        let card = Disk { is_memory_card: true, ..disk.clone() };
        let life = DiskLife::new(&card, day_us, Some(Ok(flash)), None);
        assert!(life.lifetime.is_none() && life.sentence().unwrap().contains("no years"));
        assert_eq!(DiskLife::new(&disk, day_us, None, None).sentence(), None);
    }

    /// A disk that takes its whole capacity in a day, and has used half of its life.
    // Promises: Doctor 14.
    #[test]
    fn a_budget_uses_up_the_rest_of_the_life_in_its_years() {
        let disk = Disk {
            name: "mmcblk0".to_owned(),
            capacity_bytes: 64_000_000_000,
            written_bytes: 64_000_000_000,
            life_used: Some(0.5),
            ..Disk::default()
        };
        let day_us = 86_400_000_000;
        let flash = of_device("ufs-3.1").unwrap();
        let span = Span { years: 2.0, now_s: 1_800_000_000 };
        let life = DiskLife::new(&disk, day_us, Some(flash), Some(span));
        let (years, budget) = (life.lifetime.unwrap().years, life.budget.as_ref().unwrap());
        // In two years it may take half of what it takes in its whole life.
        let all_gb = 64.0 * 365.0 * years;
        assert!((budget.gb_per_day * 2.0 * 365.0 / (all_gb / 2.0) - 1.0).abs() < 1e-9);
        assert!((budget.used_share - 64.0 / budget.gb_per_day).abs() < 1e-9);
        let left_s = (budget.ends_s.unwrap() - span.now_s) as f64;
        assert!((left_s / YEAR_S - years / 2.0).abs() < 1e-3, "{left_s}");
        let ends = budget.ends.as_deref().unwrap();
        assert!(ends.len() == 10 && life.sentence().unwrap().contains(&format!("ends on {ends}")));
        assert!(parse_years("7").is_ok() && parse_years("0").is_err() && parse_years("x").is_err());
    }
}
