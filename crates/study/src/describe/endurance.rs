//! Bytes that reach flash in a day, and the years that a device lasts under them.
//!
//! A trace of files goes through the model of Linux's write-back ([`Flusher`]), as for the data
//! that reaches flash; pages still dirty at the end count as written. A trace of blocks is what
//! reached flash. Journal and metadata of the file system are not counted. The trace's duration is
//! scaled to a day. Drive writes need a capacity, years a device ([`FlashDevice`]):
//! [`flashsift_pages::device::lifetime`] has the equation and what it assumes.

use super::{
    Characterisation, CharacterisationSpec, Figure, Found, Ledger, Need, Piece, Seen, Setup, Value,
};
use flashsift_events::{
    event::{Action, Event, Space},
    page::PAGE_BYTES,
    show,
};
use flashsift_files::flusher::Flusher;
use flashsift_pages::device::lifetime::{
    AmplificationFrom, DailyWrites, Flash, GUESS, NoLifetime, lifetime,
};

pub(super) const SPEC: CharacterisationSpec = CharacterisationSpec {
    name: "endurance",
    title: "Writes a day and years",
    paper: "",
    paper_saw: "",
    opens: false,
    needs: &[Need::Times, Need::Writes],
    build: |setup| Box::new(EnduranceOfDay::new(setup)),
};

/// The device whose wear is described.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlashDevice {
    /// Capacity in bytes, for drive writes a day.
    pub capacity_bytes: Option<u64>,
    /// Its flash, for the years, or the value that it lacks; `None`: no device was named.
    pub flash: Option<Result<Flash, NoLifetime>>,
}

struct EnduranceOfDay {
    device: FlashDevice,
    source: Source,
}

/// Where the bytes that reach flash come from.
enum Source {
    /// Accesses to files, through Linux's write-back.
    Files(Flusher),
    /// Requests to a device, in bytes.
    Blocks(u64),
    /// The trace tells no bytes that reach flash.
    None(&'static str),
}

impl EnduranceOfDay {
    fn new(setup: &Setup<'_>) -> Self {
        let about = setup.about;
        let source = match about.space {
            Space::Files if about.knows.syncs => Source::Files(Flusher::new(setup.flusher)),
            Space::Files => Source::None("no sync calls"),
            Space::Blocks => Source::Blocks(0),
            Space::Objects => Source::None("no files and no addresses, only objects"),
        };
        Self { device: setup.device, source }
    }
}

impl Characterisation for EnduranceOfDay {
    fn event(&mut self, event: &Event, _: &Seen<'_>) {
        match &mut self.source {
            Source::Files(flusher) => flusher.handle(event),
            Source::Blocks(bytes) => {
                if let Action::Write { len, .. } | Action::Direct { len, write: true, .. } =
                    event.action
                {
                    *bytes = bytes.saturating_add(len);
                }
            }
            Source::None(_) => {}
        }
    }

    fn held_bytes(&self) -> usize {
        match &self.source {
            Source::Files(flusher) => flusher.held_bytes(),
            Source::Blocks(_) | Source::None(_) => 0,
        }
    }

    fn finish(&mut self, ledger: &Ledger, _: usize) -> Result<Found, &'static str> {
        let (written_bytes, label, of) = match &mut self.source {
            Source::Files(flusher) => {
                flusher.advance(ledger.end_us);
                let pages = flusher.written().all() + flusher.dirty_pages();
                let bytes = pages.saturating_mul(PAGE_BYTES);
                (bytes, "file data that reaches flash", " of file data")
            }
            Source::Blocks(bytes) => (*bytes, "reaches flash", ""),
            Source::None(missing) => return Err(missing),
        };
        if written_bytes == 0 {
            return Err("nothing is written");
        }
        let daily = DailyWrites::new(written_bytes, ledger.end_us).ok_or("no duration")?;
        let day_bytes = daily.bytes_per_day.round() as u64;
        let mut figures = vec![
            Figure::new("written_bytes", label, Value::Bytes(written_bytes)),
            Figure::new("observed_us", "in", Value::TimeUs(daily.observed_us)),
            Figure::new("day_bytes", "in a day at this rate", Value::Bytes(day_bytes)),
        ];
        let mut words = format!(
            "If every day is like this trace, {}{of} reach flash a day",
            show::bytes(day_bytes)
        );
        if let Some(bytes) = self.device.capacity_bytes {
            let drive_writes = daily.drive_writes_per_day(bytes);
            let number = Value::Number(drive_writes);
            figures.push(Figure::new("capacity_bytes", "capacity", Value::Bytes(bytes)));
            figures.push(Figure::new("drive_writes_per_day", "drive writes a day", number));
            words += &format!(", {} drive writes", show::significant(drive_writes));
        }
        let mut years_note = None;
        match self.device.flash.map(|flash| lifetime(written_bytes, ledger.end_us, &flash?)) {
            None => {
                words += "; --device PROFILE adds years.";
                years_note = Some("No years: name a device with --device PROFILE.");
            }
            Some(Err(missing)) => {
                words += &format!("; no years: {missing}.");
                years_note = Some(missing.as_text());
            }
            Some(Ok(life)) => {
                let flash = life.endurance;
                let amplification = Value::Number(flash.write_amplification);
                let (own, from) = match life.write_amplification_from {
                    AmplificationFrom::Run => ("run", "of a run"),
                    AmplificationFrom::RandomWrites => ("random_writes", "of random writes"),
                    AmplificationFrom::Assumed => ("assumed", "assumed"),
                };
                let extra = Value::Share(flash.over_provisioning);
                figures.extend([
                    Figure::new("cycles", "cycles of a block", Value::Number(flash.cycles)),
                    Figure::new("over_provisioning_share", "flash beyond the capacity", extra),
                    Figure::new("write_amplification", "write amplification", amplification),
                    Figure::new("write_amplification_from", "its origin", Value::label(own, from)),
                    Figure::new("years", "years", Value::Number(life.years)),
                ]);
                let extra = show::share(flash.over_provisioning);
                words += &format!(
                    ". The flash then lasts {} years: {} cycles, {extra} of it beyond the \
                     capacity, write amplification {:.1} ({from}).",
                    show::significant(life.years),
                    show::count(flash.cycles as u64),
                    flash.write_amplification,
                );
            }
        }
        let mut found = Found::default()
            .figures(figures)
            .note("Pages still dirty at the end count; the file system's own writes do not.");
        if daily.is_guess() {
            words += &format!(" {GUESS}");
            found = found.note(GUESS);
        }
        if let Some(note) = years_note {
            found = found.note(note);
        }
        Ok(found.sentence([Piece::from(words)]))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Describer, testing::*};
    use super::*;
    use flashsift_events::event::{About, FileId, Knows};
    use flashsift_pages::device::lifetime::Amplification;

    const FLASH: Flash = Flash {
        capacity_bytes: 86_400 * 4096,
        cycles: 3650.0,
        over_provisioning: 0.0,
        amplification: Amplification { value: 2.0, from: AmplificationFrom::Assumed },
    };

    fn found(about: About, device: FlashDevice, events: &[Event<'static>]) -> Found {
        let mut describer = Describer::new(about, u64::MAX).with_device(device);
        describer.extend(events).unwrap();
        let mut sections = describer.finish(3).sections.into_iter();
        sections.find(|section| section.spec.name == "endurance").unwrap().found.unwrap()
    }

    fn sentence(found: &Found) -> String {
        match &found.sentence.as_ref().unwrap()[..] {
            [Piece::Text(words)] => words.to_string(),
            other => panic!("{other:?}"),
        }
    }

    /// Two pages reach flash in 100 s: one by fsync, one is dirty at the end; a deleted one does
    /// not. That is 1728 pages a day, a fiftieth of a device of 86,400 pages. At two programs a
    /// page, 3650 cycles last 250 years.
    // Promises: Describe 23.
    #[test]
    fn years_by_hand() {
        let events = [
            at(0, write(1, 0, 4096)),
            at(1, sync(1)),
            at(2, write(2, 0, 4096)),
            at(3, gone(2)),
            at(100, write(3, 0, 4096)),
        ];
        let capacity_bytes = Some(FLASH.capacity_bytes);
        let device = FlashDevice { capacity_bytes, flash: Some(Ok(FLASH)) };
        let all = found(about(), device, &events);
        assert_eq!(figure(&all, "written_bytes"), bytes(2 * 4096));
        assert_eq!(figure(&all, "day_bytes"), bytes(1728 * 4096));
        assert_eq!(figure(&all, "drive_writes_per_day"), Value::Number(0.02));
        let Value::Number(years) = figure(&all, "years") else { panic!("years are a number") };
        assert!((years - 250.0).abs() < 1e-9);
        assert!(
            sentence(&all).contains("lasts 250 years")
                && sentence(&all).ends_with("it is a guess.")
        );

        // The section on all data, which may count the file system's own writes, had another
        // number under the same label, and the sentence had the day in GB beside GiB.
        assert_eq!(all.figures_named(&["written_bytes"])[0].label, "file data that reaches flash");
        let day = "If every day is like this trace, 6.8 MiB of file data reach flash a day, 0.020";
        assert!(sentence(&all).starts_with(day), "{}", sentence(&all));

        let capacity = found(about(), FlashDevice { flash: None, ..device }, &events);
        assert!(sentence(&capacity).contains("0.020 drive writes; --device PROFILE adds years"));
        let plain = found(about(), FlashDevice::default(), &events);
        assert!(plain.figures_named(&["drive_writes_per_day", "years"]).is_empty());
        let card = FlashDevice { flash: Some(Err(NoLifetime::MemoryCard)), ..device };
        let card = found(about(), card, &events);
        assert!(sentence(&card).contains("no years: no endurance figure"), "{}", sentence(&card));
        assert!(card.figures_named(&["years"]).is_empty());
    }

    /// The requests of a block trace are what reached flash; an hour is no guess.
    // Promises: Describe 23.
    #[test]
    fn requests_to_a_device_are_what_reached_flash() {
        let about = About { space: Space::Blocks, ..about() };
        let file = FileId(1);
        let direct = Action::Direct { open: None, file, offset: 0, len: 512, write: true };
        let events = [at(0, write(1, 0, 4096)), at(1, direct), at(3600, read(1, 0, 512))];
        let all = found(about, FlashDevice::default(), &events);
        assert_eq!(figure(&all, "written_bytes"), bytes(4608));
        assert!(!sentence(&all).contains("guess"));
    }

    // Promises: Describe 23.
    #[test]
    fn traces_that_tell_no_bytes_at_flash_are_left_out() {
        let events = [at(0, write(1, 0, 4096)), at(9, write(1, 0, 4096))];
        let knows = Knows { syncs: false, ..about().knows };
        let missing = describe_as(About { knows, ..about() }, "endurance", &events);
        assert_eq!(missing, Err("no sync calls"));
        let objects = About { space: Space::Objects, ..about() };
        assert!(describe_as(objects, "endurance", &events).is_err());
        assert!(describe_as(about(), "endurance", &events[..1]).is_err(), "no duration");
    }
}
