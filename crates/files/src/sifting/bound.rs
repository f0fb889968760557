//! The most that any sifter can keep from flash: an upper bound beside what one of them reaches.
//!
//! It holds for every sifter that knows the whole history and lets no byte be fetched again, under
//! the rules of [`simulate`](crate::sift::simulate), if it counts RAM as the sifters of
//! [`ALL`](crate::sift::ALL) do: the pages of each file and [`FILE_COST_BYTES`]. The files are
//! those that may be dropped, their bytes those that reach flash without a sifter, as Linux writes
//! them back.
//!
//! Let *E* be the last use of a file while it has a name or is open, but not later than the last
//! moment from which the flusher writes a dirty page before the file is deleted. A page of the file
//! that stays written until the end reaches flash at least once if the file leaves RAM before *E*:
//! it becomes dirty below by then, and is written before it is deleted. If the file is dropped
//! before *E*, it is fetched again at its last use. So the page is kept only if it takes RAM from
//! its first write to *E*. These pages are [`Stay`]s, and [`packing`](super::packing) bounds what
//! RAM can hold of them. All else is granted:
//!
//! - All that reaches flash beside these pages, such as pages that are written again and again, or
//!   truncated, counts as kept.
//! - Pages of a file count apart from each other, so a part of a file may be kept. The cost of the
//!   file is spread over its pages.
//! - A file that is synced, or in use when everything is synced, takes no RAM for what it writes
//!   then; that part counts as written.
//! - Files count as droppable while they are open, too large for a sifter or renamed, and a write
//!   may take the space of the file that is written.
//!
//! A file that is used no more may be dropped at once, also at the end of the trace.

use crate::{
    flusher::{Flusher, FlusherSettings},
    sift::FILE_COST_BYTES,
    sifting::{
        Halves, Sifting,
        packing::{Stay, upper_bound},
    },
};
use flashsift_events::{
    event::{Action, Event, FileId, Micros},
    ledger::{LinkChange, Links},
    page::PAGE_BYTES,
    structure::{
        Extents,
        extents::{pages_inside, pages_touched},
    },
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::{collections::BTreeMap, ops::Range};

#[cfg(test)]
mod tests;

/// Bounds what sifters keep from flash, for any RAM.
#[derive(Clone, Debug, Default)]
pub struct KeptBound {
    /// Bytes of droppable files that reach flash without a sifter.
    stock: Halves,
    /// Bytes of them that count as kept whatever the RAM.
    granted: Halves,
    stays: Vec<FileStay>,
    /// The most files that are used in one microsecond. Sifters move no such file, so their RAM may
    /// exceed its budget by the cost of this many files.
    used_at_once: u64,
}

/// Pages of a file that were written together.
#[derive(Clone, Copy, Debug)]
struct FileStay {
    /// The numbers of the events in which it begins and ends.
    first: u32,
    last: u32,
    ram_bytes: f64,
    worth_bytes: f64,
    /// Worth in the second half of the trace.
    worth_later_bytes: f64,
}

impl KeptBound {
    /// Returns the most bytes of droppable files that a sifter with this much RAM, in bytes, can
    /// keep from flash; those of the second half for themselves.
    pub fn kept(&self, ram_bytes: u64) -> Halves {
        let ram_bytes = match ram_bytes < PAGE_BYTES {
            true => 0,
            false => ram_bytes.saturating_add(self.used_at_once * FILE_COST_BYTES),
        };
        let bound = |granted: u64, stock: u64, worth: fn(&FileStay) -> f64| {
            let stays = self.stays.iter().map(|stay| Stay {
                first: stay.first,
                last: stay.last,
                ram_bytes: stay.ram_bytes,
                worth_bytes: worth(stay),
            });
            let stays: Vec<Stay> = stays.filter(|stay| stay.worth_bytes > 0.0).collect();
            stock.min(granted + upper_bound(&stays, ram_bytes as f64).ceil() as u64)
        };
        let Self { granted, stock, .. } = self;
        Halves {
            all: bound(granted.all, stock.all, |stay| stay.worth_bytes),
            second: bound(granted.second, stock.second, |stay| stay.worth_later_bytes),
        }
    }
}

/// Pages that were written together and not cut since.
#[derive(Clone, Copy, Debug)]
struct Part {
    end: u64,
    /// Number of the event that wrote them.
    since: u32,
    /// In the second half of the trace.
    later: bool,
}

/// A file from its creation on.
#[derive(Default)]
struct Life {
    created: bool,
    links: Links,
    /// It has been without a name.
    nameless: bool,
    /// It has neither a name nor an open, or has had no name while one of them was closed.
    dead: bool,
    /// Number of the event that used it last.
    last_use: Option<u32>,
    /// Bytes that hold data.
    content: Extents,
    /// Pages that hold data, by their first page.
    parts: BTreeMap<u64, Part>,
    pages: Halves,
    /// Bytes that reached flash.
    stock: Halves,
    /// The most pages that a sync wrote.
    synced: Halves,
}

impl Life {
    fn write(&mut self, now: u32, later: bool, offset: u64, len: u64) {
        self.content.insert(offset..offset.saturating_add(len));
        let pages = pages_touched(offset, len);
        let before = self.parts.range(..=pages.start).next_back();
        let mut from = pages.start.max(before.map_or(0, |(_, part)| part.end));
        if from >= pages.end {
            return;
        }
        let within = self.parts.range(from..pages.end).map(|(first, part)| (*first, part.end));
        let known: Vec<(u64, u64)> = within.chain([(pages.end, pages.end)]).collect();
        for (first, end) in known {
            if from < first {
                self.parts.insert(from, Part { end: first, since: now, later });
                self.pages.add(first - from, later);
            }
            from = end;
        }
    }

    /// Cuts bytes off. Pages inside hold no data any more, and those at the ends may not.
    fn cut(&mut self, bytes: Range<u64>) {
        let len = bytes.end.saturating_sub(bytes.start);
        self.content.remove(bytes.clone());
        self.cut_pages(pages_inside(bytes.start, len));
        for page in [bytes.start / PAGE_BYTES, bytes.end / PAGE_BYTES] {
            let first = page * PAGE_BYTES;
            let bytes = first..first.saturating_add(PAGE_BYTES);
            if self.content.parts(bytes).next().is_none() {
                self.cut_pages(page..page + 1);
            }
        }
    }

    fn cut_pages(&mut self, pages: Range<u64>) {
        if pages.is_empty() {
            return;
        }
        for (first, part) in self.parts_in(&pages) {
            self.parts.remove(&first);
            let inside = first.max(pages.start)..part.end.min(pages.end);
            if first < inside.start {
                self.parts.insert(first, Part { end: inside.start, ..part });
            }
            if inside.end < part.end {
                self.parts.insert(inside.end, part);
            }
            self.pages.remove(inside.end - inside.start, part.later);
        }
    }

    /// Returns the parts that reach into these pages, of which there is at least one.
    fn parts_in(&self, pages: &Range<u64>) -> Vec<(u64, Part)> {
        let before = self.parts.range(..pages.start).next_back();
        let before = before.filter(|(_, part)| part.end > pages.start);
        let parts = before.into_iter().chain(self.parts.range(pages.clone()));
        parts.map(|(first, part)| (*first, *part)).collect()
    }

    /// A sync writes these pages, unless it did before.
    fn synced(&mut self, pages: Range<u64>) {
        let mut synced = Halves::default();
        if pages.start == 0 && pages.end >= self.content.end().div_ceil(PAGE_BYTES) {
            synced = self.pages;
        } else if !pages.is_empty() {
            for (first, part) in self.parts_in(&pages) {
                let inside = part.end.min(pages.end) - first.max(pages.start);
                synced.add(inside, part.later);
            }
        }
        self.synced.all = self.synced.all.max(synced.all);
        self.synced.second = self.synced.second.max(synced.second);
    }

    /// Takes an event of its names and opens.
    fn take(&mut self, action: &Action<'_>) {
        if self.links.take(action) == LinkChange::Lost {
            self.nameless |= !self.links.is_named();
            self.dead |= !self.links.is_named();
        }
    }
}

impl Halves {
    fn remove(&mut self, bytes: u64, is_second: bool) {
        self.all -= bytes;
        self.second -= if is_second { bytes } else { 0 };
    }
}

/// Takes the events of a trace, and has the bound at the end.
struct Builder<'s, 'e> {
    sifting: &'s Sifting<'e>,
    lives: HashMap<FileId, Life, FixedState>,
    /// The time of each event; where times go back, the latest so far.
    times_us: Vec<Micros>,
    settings: FlusherSettings,
    /// Number of the last event that syncs everything.
    synced_all: Option<u32>,
    bound: KeptBound,
}

impl Builder<'_, '_> {
    fn charge(&mut self, flusher: &mut Flusher) {
        for reached in flusher.drain_log() {
            if let Some(life) = self.lives.get_mut(&reached.file) {
                let is_second = reached.at_us > self.sifting.middle_us;
                life.stock.add(reached.pages * PAGE_BYTES, is_second);
            }
        }
    }

    fn take(&mut self, event: &Event<'_>) {
        let now = self.times_us.len() as u32;
        let now_us = event.at_us.max(self.times_us.last().copied().unwrap_or(0));
        self.times_us.push(now_us);
        if let Action::SyncAll = event.action {
            self.synced_all = Some(now);
        }
        let Some(id) = event.action.file().filter(|file| self.sifting.files.contains(file)) else {
            return;
        };
        let knows_creations = self.sifting.about.knows.creations;
        let later = now_us > self.sifting.middle_us;
        let life = self.lives.entry(id).or_default();
        let reads_all = matches!(
            event.action,
            Action::Read { .. } | Action::Write { .. } | Action::Direct { .. }
        );
        let uses =
            reads_all || matches!(event.action, Action::Truncate { .. } | Action::Punch { .. });
        if uses && !life.dead {
            // The file was needed when everything was synced, and had this content.
            let waited =
                life.last_use.is_some_and(|used| self.synced_all.is_some_and(|at| used < at));
            if reads_all && waited && !life.nameless {
                life.synced(0..u64::MAX);
            }
            life.last_use = Some(now);
        }
        match &event.action {
            Action::Create(create) => {
                life.created = true;
                life.links = Links::new(!create.name.is_empty());
                life.nameless = !life.links.is_named();
            }
            Action::Open { created: true, .. } if !knows_creations && !life.created => {
                *life = Life { created: true, links: Links::new(true), ..Life::default() };
            }
            Action::Write { offset, len, sync, .. } => {
                life.write(now, later, *offset, *len);
                if *sync && life.links.is_named() && !life.dead {
                    life.synced(pages_touched(*offset, *len));
                }
            }
            Action::Direct { offset, len, write: true, .. } => {
                life.write(now, later, *offset, *len);
            }
            Action::Truncate { size, .. } => life.cut(*size..u64::MAX),
            Action::Punch { offset, len, .. } => life.cut(*offset..offset.saturating_add(*len)),
            Action::Sync { offset, len, .. } if life.links.is_named() && !life.dead => {
                life.synced(pages_touched(*offset, *len));
            }
            Action::Gone { .. } => {
                let life = self.lives.remove(&id);
                life.into_iter().for_each(|life| self.end(&life, Some(now_us)));
            }
            action => life.take(action),
        }
    }

    /// Ends a file, which is deleted at this time.
    fn end(&mut self, life: &Life, gone_us: Option<Micros>) {
        let Life { created, stock, synced, .. } = *life;
        self.bound.stock.add_all(stock);
        if !created {
            return;
        }
        let last = life.last_use.and_then(|last| self.needed_until(last, gone_us));
        let mut surviving = Halves::default();
        let mut stays: BTreeMap<u32, (u64, bool)> = BTreeMap::new();
        for (first, part) in &life.parts {
            if last.is_some_and(|last| part.since <= last) {
                let pages = part.end - first;
                surviving.add(pages, part.later);
                stays.entry(part.since).or_insert((0, part.later)).0 += pages;
            }
        }
        let granted = |stock: u64, surviving: u64, synced: u64| {
            stock.saturating_sub(surviving.max(synced) * PAGE_BYTES)
        };
        self.bound.granted.add_all(Halves {
            all: granted(stock.all, surviving.all, synced.all),
            second: granted(stock.second, surviving.second, synced.second),
        });
        // Synced pages are written in any case.
        let part = |surviving: u64, synced: u64| match surviving {
            0 => 0.0,
            _ => surviving.saturating_sub(synced) as f64 / surviving as f64,
        };
        let (all, second) =
            (part(surviving.all, synced.all), part(surviving.second, synced.second));
        let cost = FILE_COST_BYTES as f64 / surviving.all as f64;
        self.bound.stays.extend(stays.into_iter().map(|(first, (pages, later))| {
            let bytes = (pages * PAGE_BYTES) as f64;
            FileStay {
                first,
                last: last.unwrap_or(first),
                ram_bytes: bytes + cost * pages as f64,
                worth_bytes: bytes * all,
                worth_later_bytes: if later { bytes * second } else { 0.0 },
            }
        }));
    }

    /// Returns the number of the event until which a file that is used last in this one has to be
    /// in RAM. `None`: it never reaches flash.
    fn needed_until(&self, last: u32, gone_us: Option<Micros>) -> Option<u32> {
        let Some(gone_us) = gone_us else { return Some(last) };
        // The flusher looks at multiples of its tick.
        let FlusherSettings { expire_us, tick_us, .. } = self.settings;
        let latest_us = (gone_us / tick_us * tick_us).checked_sub(expire_us)?;
        let events = self.times_us.partition_point(|at_us| *at_us <= latest_us);
        Some(last.min(events.checked_sub(1)? as u32))
    }
}

impl Halves {
    fn add_all(&mut self, other: Self) {
        self.all += other.all;
        self.second += other.second;
    }
}

impl Sifting<'_> {
    /// Bounds what any sifter can keep from flash if no byte is fetched again.
    pub fn kept_bound(&self) -> KeptBound {
        let mut flusher = Flusher::new(FlusherSettings::default()).with_log();
        let settings = flusher.settings();
        let mut builder = Builder {
            sifting: self,
            lives: HashMap::default(),
            times_us: Vec::with_capacity(self.events.len()),
            settings,
            synced_all: None,
            bound: KeptBound { used_at_once: self.used_at_once(), ..KeptBound::default() },
        };
        for event in self.events {
            flusher.handle(event);
            builder.charge(&mut flusher);
            builder.take(event);
        }
        flusher.advance(self.end_us.saturating_add(2 * settings.expire_us));
        builder.charge(&mut flusher);
        let lives = std::mem::take(&mut builder.lives);
        lives.values().for_each(|life| builder.end(life, None));
        builder.bound
    }

    /// Returns the most droppable files that are created or used at one time.
    fn used_at_once(&self) -> u64 {
        let (mut at_us, mut files, mut most) = (None, Vec::new(), 0);
        for event in self.events {
            let Some(file) = event.action.file().filter(|file| self.files.contains(file)) else {
                continue;
            };
            if at_us.replace(event.at_us) != Some(event.at_us) {
                files.clear();
            }
            if !files.contains(&file) {
                files.push(file);
                most = most.max(files.len() as u64);
            }
        }
        most
    }
}
