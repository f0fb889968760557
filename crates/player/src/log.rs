//! Turns the events of an after-cache trace into requests: a survey of all of them first, then
//! delivery in batches.

use crate::{Op, PIECE_BYTES, Request};
use flashsift_caches::lines::LineCounts;
use flashsift_events::event::{About, Action, Event, FileId, Side};
use flashsift_pages::nvm::LINE_BYTES;
use flashsift_traces::{Error, events::Sink};
use std::{collections::BTreeMap, sync::mpsc::SyncSender};

/// The effect of an event on a device.
enum Meaning {
    /// An operation on this pseudo-file: first byte and length.
    Do(FileId, Op, u64, u64),
    /// A sync of all devices.
    SyncAll,
    /// Accesses to memory: non-volatile or not, lines read and written.
    Memory(bool, LineCounts),
    /// No effect.
    Nothing,
    /// An operation that no device can perform.
    Impossible(&'static str),
}

fn meaning(action: &Action) -> Meaning {
    use Meaning::{Do, Impossible, Nothing};
    match *action {
        Action::Read { len: 0, .. }
        | Action::Write { len: 0, .. }
        | Action::Punch { len: 0, .. } => Nothing,
        Action::Read { file, offset, len, .. } => Do(file, Op::Read, offset, len),
        Action::Write { file, offset, len, sync, .. } => {
            Do(file, if sync { Op::WriteSync } else { Op::Write }, offset, len)
        }
        Action::Punch { file, offset, len } => Do(file, Op::Discard, offset, len),
        // A device makes all its writes durable or none.
        Action::Sync { file, .. } => Do(file, Op::Sync, 0, 0),
        Action::SyncAll => Meaning::SyncAll,
        Action::MemoryLines { nvm, read, written } => {
            Meaning::Memory(nvm, LineCounts { read, written })
        }
        Action::Open { .. }
        | Action::Close { .. }
        | Action::Bind { .. }
        | Action::Size { .. }
        | Action::Process { .. }
        | Action::Place { .. }
        | Action::Cause { .. }
        | Action::Filled { .. }
        | Action::ControlGroup { .. }
        | Action::MemoryPressure { .. }
        | Action::TimeToLive { .. }
        | Action::Meaning { .. }
        | Action::Foreground { .. } => Nothing,
        Action::Direct { .. } => Impossible("an access past a page cache"),
        Action::Folio { .. } => Impossible("a store through a mapping"),
        Action::SyncDirectory { .. } => Impossible("the sync of a directory"),
        Action::Create(_) => Impossible("the making of a file"),
        Action::Link { .. } => Impossible("link"),
        Action::RenameDirectory { .. } => Impossible("rename"),
        Action::Truncate { .. } => Impossible("truncate"),
        Action::Rename { .. } => Impossible("rename"),
        Action::Unbind { .. } => Impossible("unlink"),
        Action::Gone { .. } => Impossible("the end of a file"),
    }
}

/// Selects the part of a log to replay, and maps its addresses.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Only requests to this device of the log.
    pub source: FileId,
    /// Size of the target.
    pub target_bytes: u64,
    /// Addresses are taken modulo `target_bytes`.
    pub fold: bool,
    /// Discards are left out.
    pub without_discards: bool,
    /// Accesses to memory are performed, too.
    pub memory: bool,
}

/// One of the devices of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// Its name in the log, if it has one.
    pub name: Option<Box<str>>,
    /// Requests by [`Op`].
    pub requests: [u64; Op::ALL.len()],
    /// End of the last request, in bytes.
    pub end_bytes: u64,
    /// The longest read or write.
    pub longest_bytes: u64,
    /// Reads and writes that are split into pieces.
    pub long: u64,
    /// The first read, write or discard that is not aligned to 2ⁿ bytes, for n from 0 to 16.
    unaligned: [Option<Request>; ALIGNMENTS],
}

/// From one byte to 64 KiB, the largest block size that Linux supports.
const ALIGNMENTS: usize = 17;

impl Source {
    /// Number of its requests, of all operations.
    pub fn count(&self) -> u64 {
        self.requests.iter().sum()
    }

    /// Whether any request changes the content of the device.
    pub fn changes(&self) -> bool {
        Op::ALL.into_iter().any(|op| op.changes() && self.requests[op as usize] > 0)
    }

    /// The first request that is not aligned to blocks of this size, a power of two up to 64 KiB.
    pub fn unaligned(&self, block_bytes: u64) -> Option<Request> {
        self.unaligned[block_bytes.trailing_zeros() as usize]
    }

    fn see(&mut self, request: Request) {
        self.requests[request.op as usize] += 1;
        if request.op == Op::Sync {
            return;
        }
        self.end_bytes = self.end_bytes.max(request.end());
        if request.op != Op::Discard {
            self.longest_bytes = self.longest_bytes.max(request.len);
            self.long += u64::from(request.len > PIECE_BYTES);
        }
        let good = (request.offset | request.len).trailing_zeros() as usize;
        for place in self.unaligned.iter_mut().skip(good + 1) {
            place.get_or_insert(request);
        }
    }
}

/// Summary of a whole log.
#[derive(Debug, Default)]
pub struct Survey {
    /// The devices of the log.
    pub sources: BTreeMap<FileId, Source>,
    /// Whether the log has times.
    pub times: bool,
    /// Number of accesses to memory, each of any number of lines.
    pub memory_accesses: u64,
    /// Time of the first request, microseconds.
    first_us: Option<u64>,
    number: u64,
}

impl Survey {
    /// The device to replay: the only one with requests, or the one with this name (or this number,
    /// if it has no name).
    ///
    /// # Errors
    ///
    /// The log has no such device, or it has several and `name` is `None`.
    pub fn source(&self, name: Option<&str>) -> Result<(FileId, &Source), crate::Error> {
        let called = |id: &FileId, source: &Source| match &source.name {
            Some(name) => name.to_string(),
            None => id.0.to_string(),
        };
        let used: Vec<_> = self.sources.iter().filter(|(_, source)| source.count() > 0).collect();
        let found: Vec<_> = used
            .iter()
            .filter(|(id, source)| name.is_none_or(|name| called(id, source) == name))
            .collect();
        match found[..] {
            [&(id, source)] => Ok((*id, source)),
            _ => {
                let all: Vec<_> = used
                    .iter()
                    .map(|(id, source)| {
                        format!("{} ({} requests)", called(id, source), source.count())
                    })
                    .collect();
                Err(crate::Error::Refused(match name {
                    Some(name) => {
                        format!("the log has no device {name}; it has {}", all.join(", "))
                    }
                    None => format!(
                        "the log has {} devices and a replay performs one of them; choose it with \
                         --source NAME: {}",
                        all.len(),
                        all.join(", ")
                    ),
                }))
            }
        }
    }

    /// Time of the first request in the log, microseconds.
    pub fn first_us(&self) -> u64 {
        self.first_us.unwrap_or(0)
    }
}

impl Sink for Survey {
    fn about(&mut self, about: About) -> Result<(), Error> {
        if about.side == Side::Before {
            return Err(Error::Sink(
                "this trace holds requests of applications to a page cache, not of a cache to a \
                 device: `flashsift compare TRACE --after-cache DIR` makes the one from the other"
                    .to_owned(),
            ));
        }
        self.times = about.knows.times;
        Ok(())
    }

    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        for event in events {
            if let Action::Bind { file, name } = &event.action {
                self.sources.entry(*file).or_default().name.get_or_insert_with(|| (**name).into());
            }
            let at_us = event.at_us;
            match meaning(&event.action) {
                Meaning::Do(file, op, offset, len) => {
                    self.number += 1;
                    self.first_us.get_or_insert(at_us);
                    let request = Request { number: self.number, at_us, op, offset, len };
                    self.sources.entry(file).or_default().see(request);
                }
                Meaning::SyncAll => self.number += 1,
                Meaning::Memory(_, LineCounts { read, written }) => {
                    self.memory_accesses += u64::from(read > 0) + u64::from(written > 0);
                }
                Meaning::Nothing => {}
                Meaning::Impossible(what) => {
                    return Err(Error::Sink(format!(
                        "the log asks for {what} (after request {}), which no device can do: is it \
                         a trace of files?",
                        self.number
                    )));
                }
            }
        }
        Ok(())
    }
}

/// Requests in one batch.
const BATCH: usize = 1024;

/// Sends the requests of a log in batches, split into pieces of bounded length.
#[derive(Debug)]
pub struct Requests {
    rules: Rules,
    first_us: u64,
    number: u64,
    batch: Vec<Request>,
    to: SyncSender<Vec<Request>>,
}

impl Requests {
    /// Creates a sender of the part of the log that `rules` select; `survey` is the summary of the
    /// same log.
    pub fn new(rules: Rules, survey: &Survey, to: SyncSender<Vec<Request>>) -> Self {
        Self { rules, first_us: survey.first_us(), number: 0, batch: Vec::with_capacity(BATCH), to }
    }

    /// Sends the last, incomplete batch.
    ///
    /// # Errors
    ///
    /// The receiver is gone.
    pub fn finish(mut self) -> Result<(), Error> {
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Error> {
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        self.to
            .send(batch)
            .map_err(|_| Error::Sink("the replay ended before the log did".to_owned()))
    }

    fn push(&mut self, request: Request) -> Result<(), Error> {
        self.batch.push(request);
        if self.batch.len() == BATCH { self.flush() } else { Ok(()) }
    }

    /// Sends accesses to memory. They have no number of their own, so that the stamps on the device
    /// are the same without them.
    fn memory(&mut self, at_us: u64, nvm: bool, lines: LineCounts) -> Result<(), Error> {
        let (read, write) = match nvm {
            true => (Op::NvmRead, Op::NvmWrite),
            false => (Op::DramRead, Op::DramWrite),
        };
        for (op, lines) in [(read, lines.read), (write, lines.written)] {
            let mut left = lines;
            while left > 0 {
                let now = left.min(PIECE_BYTES / LINE_BYTES);
                let at_us = at_us.saturating_sub(self.first_us);
                let (number, len) = (self.number, now * LINE_BYTES);
                self.push(Request { number, at_us, op, offset: 0, len })?;
                left -= now;
            }
        }
        Ok(())
    }

    /// Splits a request: no piece is longer than [`PIECE_BYTES`] or crosses the end of the folded
    /// addresses.
    fn pieces(&mut self, whole: Request) -> Result<(), Error> {
        if whole.op == Op::Sync {
            return self.push(whole);
        }
        let mut rest = whole;
        while rest.len > 0 {
            let mut piece = rest;
            if rest.op != Op::Discard {
                piece.len = piece.len.min(PIECE_BYTES);
            }
            let bytes = self.rules.target_bytes;
            if self.rules.fold {
                piece.offset %= bytes;
                piece.len = piece.len.min(bytes - piece.offset);
            }
            // The survey checked the end, but the file can change between the readings.
            if piece.end() > bytes {
                return Err(Error::Sink("the log changed between its two readings".to_owned()));
            }
            self.push(piece)?;
            rest.offset += piece.len;
            rest.len -= piece.len;
        }
        Ok(())
    }
}

impl Sink for Requests {
    fn about(&mut self, _: About) -> Result<(), Error> {
        Ok(())
    }

    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        for event in events {
            let (file, op, offset, len) = match meaning(&event.action) {
                Meaning::Do(file, op, offset, len) => (Some(file), op, offset, len),
                Meaning::SyncAll => (None, Op::Sync, 0, 0),
                Meaning::Memory(nvm, lines) => {
                    if self.rules.memory {
                        self.memory(event.at_us, nvm, lines)?;
                    }
                    continue;
                }
                Meaning::Nothing => continue,
                Meaning::Impossible(what) => {
                    return Err(Error::Sink(format!("the log asks for {what}")));
                }
            };
            self.number += 1;
            let elsewhere = file.is_some_and(|file| file != self.rules.source);
            if elsewhere || (op == Op::Discard && self.rules.without_discards) {
                continue;
            }
            let at_us = event.at_us.saturating_sub(self.first_us);
            self.pieces(Request { number: self.number, at_us, op, offset, len })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_events::event::{Knows, Space};
    use proptest::prelude::*;
    use std::sync::mpsc::sync_channel;

    const FILE: FileId = FileId(3);
    const OTHER: FileId = FileId(5);

    fn event() -> impl Strategy<Value = Event<'static>> {
        let span = (0u64..5000, 0u64..2000).prop_map(|(first, count)| (first * 512, count * 4096));
        (0u64..50, 0u8..6, span, any::<bool>()).prop_map(|(at_us, kind, (offset, len), mine)| {
            let file = if mine { FILE } else { OTHER };
            let action = match kind {
                0 => Action::Read { open: None, file, offset, len },
                1 => Action::Write { open: None, file, offset, len, sync: false },
                2 => Action::Write { open: None, file, offset, len, sync: true },
                3 => Action::Sync { file, offset: 0, len: u64::MAX, data_only: false },
                4 => Action::Punch { file, offset, len },
                _ => Action::SyncAll,
            };
            Event { at_us: at_us + 7, pid: 0, tid: 0, action }
        })
    }

    fn about(side: Side) -> About {
        let knows =
            Knows { times: true, syncs: true, writes: true, removals: false, ..Knows::NOTHING };
        About { epoch_us: None, boot_us: None, side, space: Space::Blocks, knows }
    }

    fn surveyed(events: &[Event<'static>]) -> Survey {
        let mut survey = Survey::default();
        survey.about(about(Side::After)).unwrap();
        survey.events(events).unwrap();
        survey
    }

    fn handed_over(events: &[Event<'static>], rules: Rules, survey: &Survey) -> Vec<Request> {
        // Capacity for all pieces, as they are received only afterwards.
        let (to, from) = sync_channel(1000);
        let mut requests = Requests::new(rules, survey, to);
        requests.events(events).unwrap();
        requests.finish().unwrap();
        from.into_iter().flatten().collect()
    }

    proptest! {
        /// The pieces cover the sectors that the events cover, modulo the target, and each has a
        /// length that a device takes.
        // Promises: Replay 8.
        #[test]
        fn pieces_do_what_the_log_says(
            mut events in prop::collection::vec(event(), 1..40),
            fold in any::<bool>(),
            without_discards in any::<bool>(),
        ) {
            events.sort_by_key(|event| event.at_us);
            let survey = surveyed(&events);
            let target_bytes = if fold { 700 * 4096 } else { 20 << 20 };
            let rules = Rules { source: FILE, target_bytes, fold, without_discards, memory: false };
            let pieces = handed_over(&events, rules, &survey);
            let mut sectors = Vec::new();
            for piece in &pieces {
                prop_assert!(piece.op == Op::Discard || piece.len <= PIECE_BYTES);
                prop_assert!(piece.end() <= target_bytes);
                prop_assert!((piece.len == 0) == (piece.op == Op::Sync));
                let all = (piece.offset..piece.end()).step_by(512);
                sectors.extend(all.map(|at| (piece.number, piece.at_us, piece.op, at)));
                if piece.op == Op::Sync {
                    sectors.push((piece.number, piece.at_us, piece.op, 0));
                }
            }
            let (mut wanted, mut number, mut first_us) = (Vec::new(), 0, None);
            for event in &events {
                let (file, op, offset, len) = match event.action {
                    Action::Read { file, offset, len, .. } => (file, Op::Read, offset, len),
                    Action::Write { file, offset, len, sync: false, .. } => (file, Op::Write, offset, len),
                    Action::Write { file, offset, len, sync: true, .. } => (file, Op::WriteSync, offset, len),
                    Action::Punch { file, offset, len } => (file, Op::Discard, offset, len),
                    Action::Sync { file, .. } => (file, Op::Sync, 0, 512),
                    _ => (FILE, Op::Sync, 0, 512),
                };
                if len == 0 {
                    continue;
                }
                number += 1;
                // Time starts at the first request to a device.
                if !matches!(event.action, Action::SyncAll) {
                    first_us.get_or_insert(event.at_us);
                }
                if file == FILE && !(op == Op::Discard && without_discards) {
                    let due = event.at_us.saturating_sub(survey.first_us());
                    wanted.extend((offset..offset + len).step_by(512).map(|at| (number, due, op, at % target_bytes)));
                }
            }
            prop_assert_eq!(survey.first_us(), first_us.unwrap_or(0));
            prop_assert_eq!(sectors, wanted);
        }

        #[test]
        fn a_survey_sees_ends_and_what_is_not_aligned(events in prop::collection::vec(event(), 1..40)) {
            let survey = surveyed(&events);
            let Some(source) = survey.sources.get(&FILE) else { return Ok(()) };
            let spans = events.iter().filter_map(|event| match event.action {
                Action::Read { file: FILE, offset, len, .. }
                | Action::Write { file: FILE, offset, len, .. }
                | Action::Punch { file: FILE, offset, len } => (len > 0).then_some((offset, len)),
                _ => None,
            });
            let spans: Vec<_> = spans.collect();
            prop_assert_eq!(source.end_bytes, spans.iter().map(|(offset, len)| offset + len).max().unwrap_or(0));
            for block in [512, 4096] {
                let first = spans.iter().find(|(offset, len)| offset % block != 0 || len % block != 0);
                let found = source.unaligned(block).map(|request| (request.offset, request.len));
                prop_assert_eq!(found.as_ref(), first);
            }
        }
    }

    // Promises: Replay 4.
    #[test]
    fn operations_of_files_are_refused() {
        let mut survey = Survey::default();
        assert!(
            survey.about(about(Side::Before)).unwrap_err().to_string().contains("--after-cache")
        );
        for action in [Action::Gone { file: FILE }, Action::Truncate { file: FILE, size: 0 }] {
            let event = Event { at_us: 0, pid: 0, tid: 0, action };
            assert!(survey.events(&[event]).unwrap_err().to_string().contains("no device can do"));
        }
    }
}
