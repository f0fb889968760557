//! A trace as TrackEvents of Perfetto, for its page (ui.perfetto.dev) and its trace processor.
//!
//! Each process has a track with the name of its program; a process that executes another program
//! begins another track. Below it are counters of the bytes that it has read and written so far,
//! and a track for each file that it uses. An event is an instant with offset and length.
//! Memory pressure is a counter, the application in the foreground an instant, each on a track of
//! its own. Objects share one track. Places on the device, control groups and the causes of
//! requests have no track.
//!
//! The numbers of fields are those of Perfetto's `trace_packet.proto`, `track_event.proto`,
//! `track_descriptor.proto` and `interned_data.proto`. Times are on CLOCK_BOOTTIME, which begins
//! with the trace if the trace does not know it.

use crate::{Error, events::Sink, format::perfetto::write, replace::Replace};
use flashsift_events::event::{About, Action, Event, FileId, Space};
use std::{
    collections::HashMap,
    io::{BufWriter, Write},
    path::Path,
};

/// Fields of `TracePacket`.
mod packet {
    pub(super) const CLOCK_SNAPSHOT: u32 = 6;
    pub(super) const TIMESTAMP: u32 = 8;
    pub(super) const SEQUENCE: u32 = 10;
    pub(super) const TRACK_EVENT: u32 = 11;
    pub(super) const INTERNED_DATA: u32 = 12;
    pub(super) const SEQUENCE_FLAGS: u32 = 13;
    pub(super) const TRACK_DESCRIPTOR: u32 = 60;
    /// Value of the flags: names that were interned before are forgotten.
    pub(super) const CLEARED: u64 = 1;
    /// Value of the flags: the packet uses interned names.
    pub(super) const USES_INTERNED: u64 = 2;
}

/// Fields and types of `TrackEvent`.
mod event {
    pub(super) const ANNOTATION: u32 = 4;
    pub(super) const TYPE: u32 = 9;
    pub(super) const NAME: u32 = 10;
    pub(super) const TRACK: u32 = 11;
    pub(super) const COUNTER_VALUE: u32 = 30;
    pub(super) const INSTANT: u64 = 3;
    pub(super) const COUNTER: u64 = 4;
}

const BOOTTIME: u64 = 6;
const REALTIME: u64 = 1;
const UNIT_COUNT: u64 = 2;
const UNIT_BYTES: u64 = 3;

/// Names of events. A name's number is its place, from 1.
const EVENTS: [&str; 18] = [
    "read",
    "write",
    "synchronous write",
    "direct read",
    "direct write",
    "sync",
    "data sync",
    "sync of everything",
    "truncate",
    "punch",
    "create",
    "open",
    "close",
    "rename",
    "rename of a directory",
    "unlink",
    "end of the file",
    "in front",
];

/// Names of annotations, numbered likewise.
const NOTES: [&str; 8] = ["offset", "bytes", "size", "from", "to", "name", "object", "thread"];

fn number_of(names: &[&str], name: &str) -> u64 {
    names.iter().position(|known| *known == name).map_or(0, |n| n as u64 + 1)
}

/// Value of an annotation.
#[derive(Clone, Copy)]
enum Note<'a> {
    Number(u64),
    Text(&'a str),
}

/// The track of a process that runs one program.
#[derive(Default)]
struct Process {
    program: Box<str>,
    /// 0 before its first event.
    track: u64,
    /// Read and written so far, each with its track.
    bytes: [(u64, u64); 2],
}

/// Writes a trace to a file, which appears only when it is finished.
pub struct TrackEventWriter {
    file: BufWriter<Replace>,
    path: String,
    packet: Vec<u8>,
    origin_ns: u64,
    objects: bool,
    /// The last track.
    tracks: u64,
    processes: HashMap<u32, Process>,
    names: HashMap<FileId, String>,
    /// Tracks of files, by the track of their process.
    files: HashMap<(u64, FileId), u64>,
    pressure: u64,
    foreground: u64,
}

impl TrackEventWriter {
    /// Begins a file that will become `path`.
    ///
    /// # Errors
    ///
    /// The file cannot be created.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let file =
            Replace::new(path).map_err(|e| Error::At { path: name.clone(), what: e.into() })?;
        Ok(Self {
            file: BufWriter::with_capacity(256 << 10, file),
            path: name,
            packet: Vec::new(),
            origin_ns: 0,
            objects: false,
            tracks: 0,
            processes: HashMap::new(),
            names: HashMap::new(),
            files: HashMap::new(),
            pressure: 0,
            foreground: 0,
        })
    }

    /// Gives the file its name. Returns its size in bytes.
    ///
    /// # Errors
    ///
    /// The file cannot be written or put in its place.
    pub fn finish(self) -> Result<u64, Error> {
        let Self { file, path, .. } = self;
        let at = |what: std::io::Error| Error::At { path: path.clone(), what: what.into() };
        let file = file.into_inner().map_err(|e| at(e.into_error()))?;
        file.commit().map_err(at)
    }

    /// Writes a packet, to which `fill` adds what is not common to all.
    fn write(&mut self, flags: u64, fill: impl FnOnce(&mut Vec<u8>)) -> Result<(), Error> {
        self.packet.clear();
        write::number(&mut self.packet, packet::SEQUENCE, 1);
        write::number(&mut self.packet, packet::SEQUENCE_FLAGS, flags);
        fill(&mut self.packet);
        let mut head = Vec::with_capacity(8);
        // A trace is a message whose field 1 is each packet.
        write::varint(&mut head, 1 << 3 | 2);
        write::varint(&mut head, self.packet.len() as u64);
        let written = self.file.write_all(&head).and_then(|()| self.file.write_all(&self.packet));
        written.map_err(|e| Error::At { path: self.path.clone(), what: e.into() })
    }

    /// Adds a track below another (0: below none); with a unit, it is a counter.
    fn add_track(&mut self, parent: u64, name: &str, unit: Option<u64>) -> Result<u64, Error> {
        self.tracks += 1;
        let uuid = self.tracks;
        let mut track = Vec::new();
        write::number(&mut track, 1, uuid);
        write::bytes(&mut track, 2, name.as_bytes());
        if parent > 0 {
            write::number(&mut track, 5, parent);
        }
        if let Some(unit) = unit {
            let mut counter = Vec::new();
            write::number(&mut counter, 3, unit);
            write::bytes(&mut track, 8, &counter);
        }
        self.write(packet::USES_INTERNED, |packet| {
            write::bytes(packet, packet::TRACK_DESCRIPTOR, &track);
        })?;
        Ok(uuid)
    }

    fn add_event(
        &mut self,
        at_us: u64,
        track: u64,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Error> {
        let at_ns = self.origin_ns.saturating_add(at_us.saturating_mul(1000));
        let mut event = Vec::with_capacity(48);
        write::number(&mut event, event::TRACK, track);
        fill(&mut event);
        self.write(packet::USES_INTERNED, |packet| {
            write::number(packet, packet::TIMESTAMP, at_ns);
            write::bytes(packet, packet::TRACK_EVENT, &event);
        })
    }

    fn instant(
        &mut self,
        at_us: u64,
        track: u64,
        name: &str,
        notes: &[(&str, Note<'_>)],
    ) -> Result<(), Error> {
        self.add_event(at_us, track, |event| {
            write::number(event, event::TYPE, event::INSTANT);
            write::number(event, event::NAME, number_of(&EVENTS, name));
            for (name, value) in notes {
                let mut note = Vec::with_capacity(16);
                write::number(&mut note, 1, number_of(&NOTES, name));
                match value {
                    Note::Number(number) => write::number(&mut note, 3, *number),
                    Note::Text(text) => write::bytes(&mut note, 6, text.as_bytes()),
                }
                write::bytes(event, event::ANNOTATION, &note);
            }
        })
    }

    fn count(&mut self, at_us: u64, track: u64, value: u64) -> Result<(), Error> {
        self.add_event(at_us, track, |event| {
            write::number(event, event::TYPE, event::COUNTER);
            write::number(event, event::COUNTER_VALUE, value);
        })
    }

    /// Returns the track of a process.
    fn process(&mut self, pid: u32) -> Result<u64, Error> {
        let process = self.processes.entry(pid).or_default();
        if process.track > 0 {
            return Ok(process.track);
        }
        let name = match (&*process.program, pid) {
            ("", 0) => "unknown process".to_owned(),
            ("", pid) => format!("process {pid}"),
            (program, pid) => format!("{program} {pid}"),
        };
        let track = self.add_track(0, &name, None)?;
        if let Some(process) = self.processes.get_mut(&pid) {
            process.track = track;
        }
        Ok(track)
    }

    /// Returns the track of a file below that of a process.
    fn file(&mut self, pid: u32, file: FileId) -> Result<u64, Error> {
        let process = self.process(pid)?;
        let key = (process, if self.objects { FileId(0) } else { file });
        if let Some(track) = self.files.get(&key) {
            return Ok(*track);
        }
        let name = match self.names.get(&file) {
            _ if self.objects => "objects".to_owned(),
            Some(name) if !name.is_empty() => name.clone(),
            _ => format!("file {}", file.0),
        };
        let track = self.add_track(process, &name, None)?;
        self.files.insert(key, track);
        Ok(track)
    }

    /// Adds bytes that a process has read or written.
    fn moved(&mut self, at_us: u64, pid: u32, write: bool, len: u64) -> Result<(), Error> {
        let parent = self.process(pid)?;
        let n = usize::from(write);
        let (mut bytes, mut track) = self.processes[&pid].bytes[n];
        if track == 0 {
            track = self.add_track(parent, ["bytes read", "bytes written"][n], Some(UNIT_BYTES))?;
        }
        bytes = bytes.saturating_add(len);
        if let Some(process) = self.processes.get_mut(&pid) {
            process.bytes[n] = (bytes, track);
        }
        self.count(at_us, track, bytes)
    }

    fn access(
        &mut self,
        (at_us, pid, tid): (u64, u32, u32),
        name: &str,
        file: FileId,
        (offset, len): (u64, u64),
    ) -> Result<(), Error> {
        let track = self.file(pid, file)?;
        let (offset, len) = (("offset", Note::Number(offset)), ("bytes", Note::Number(len)));
        let mut notes = vec![offset, len];
        if self.objects {
            notes.push(("object", Note::Number(file.0)));
        }
        if tid != 0 && tid != pid {
            notes.push(("thread", Note::Number(tid.into())));
        }
        self.instant(at_us, track, name, &notes)
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), Error> {
        let &Event { at_us, pid, tid, ref action } = event;
        let by = (at_us, pid, tid);
        let number = |name, value| [(name, Note::Number(value))];
        match action {
            Action::Read { file, offset, len, .. } => {
                self.access(by, "read", *file, (*offset, *len))?;
                self.moved(at_us, pid, false, *len)
            }
            Action::Write { file, offset, len, sync, .. } => {
                let name = if *sync { "synchronous write" } else { "write" };
                self.access(by, name, *file, (*offset, *len))?;
                self.moved(at_us, pid, true, *len)
            }
            Action::Direct { file, offset, len, write, .. } => {
                let name = if *write { "direct write" } else { "direct read" };
                self.access(by, name, *file, (*offset, *len))?;
                self.moved(at_us, pid, *write, *len)
            }
            Action::Punch { file, offset, len } => self.access(by, "punch", *file, (*offset, *len)),
            Action::Sync { file, data_only, .. } => {
                let name = if *data_only { "data sync" } else { "sync" };
                let track = self.file(pid, *file)?;
                self.instant(at_us, track, name, &[])
            }
            Action::SyncAll => {
                let track = self.process(pid)?;
                self.instant(at_us, track, "sync of everything", &[])
            }
            Action::SyncDirectory { path } => {
                let track = self.process(pid)?;
                self.instant(at_us, track, "sync of a directory", &[("path", Note::Text(path))])
            }
            Action::Truncate { file, size } => {
                let track = self.file(pid, *file)?;
                self.instant(at_us, track, "truncate", &number("size", *size))
            }
            Action::Create(create) => {
                self.names.insert(create.file, create.name.to_string());
                let track = self.file(pid, create.file)?;
                self.instant(at_us, track, "create", &[])
            }
            Action::Open { file, .. } => {
                let track = self.file(pid, *file)?;
                self.instant(at_us, track, "open", &[])
            }
            Action::Close { file, .. } => {
                let track = self.file(pid, *file)?;
                self.instant(at_us, track, "close", &[])
            }
            Action::Bind { file, name } => {
                self.names.entry(*file).or_insert_with(|| name.to_string());
                Ok(())
            }
            Action::Rename { file, names } => {
                let track = self.file(pid, *file)?;
                self.names.insert(*file, names.to.to_string());
                let notes = [("from", Note::Text(&names.from)), ("to", Note::Text(&names.to))];
                self.instant(at_us, track, "rename", &notes)
            }
            Action::RenameDirectory { names } => {
                for name in self.names.values_mut() {
                    if let Some(moved) = names.moved(name) {
                        *name = moved;
                    }
                }
                let track = self.process(pid)?;
                let notes = [("from", Note::Text(&names.from)), ("to", Note::Text(&names.to))];
                self.instant(at_us, track, "rename of a directory", &notes)
            }
            Action::Unbind { file, name } => {
                let track = self.file(pid, *file)?;
                self.instant(at_us, track, "unlink", &[("name", Note::Text(name))])
            }
            Action::Gone { file } => {
                let track = self.file(pid, *file)?;
                self.instant(at_us, track, "end of the file", &[])?;
                self.names.remove(file);
                Ok(())
            }
            Action::Process { name } => {
                let program = (&**name).into();
                self.processes.insert(pid, Process { program, ..Process::default() });
                Ok(())
            }
            Action::MemoryPressure { stalled_ppm } => {
                if self.pressure == 0 {
                    let name = "time that tasks wait for memory, parts per million";
                    self.pressure = self.add_track(0, name, Some(UNIT_COUNT))?;
                }
                self.count(at_us, self.pressure, (*stalled_ppm).into())
            }
            Action::Foreground { app } => {
                if self.foreground == 0 {
                    self.foreground = self.add_track(0, "foreground", None)?;
                }
                self.instant(at_us, self.foreground, "in front", &[("name", Note::Text(app))])
            }
            Action::Size { .. }
            | Action::Link { .. }
            | Action::Place { .. }
            | Action::Folio { .. }
            | Action::Filled { .. }
            | Action::Cause { .. }
            | Action::MemoryLines { .. }
            | Action::TimeToLive { .. }
            | Action::Meaning { .. }
            | Action::ControlGroup { .. } => Ok(()),
        }
    }
}

impl Sink for TrackEventWriter {
    fn about(&mut self, about: About) -> Result<(), Error> {
        if !about.knows.times {
            return Err(Error::Lacks(
                "the trace has no times and a trace of Perfetto needs them; --rate N spreads N \
                 requests over each second"
                    .into(),
            ));
        }
        self.origin_ns = about.boot_us.unwrap_or_default().saturating_mul(1000);
        self.objects = about.space == Space::Objects;
        let mut interned = Vec::new();
        for (field, names) in [(2, &EVENTS[..]), (3, &NOTES[..])] {
            for (n, name) in names.iter().enumerate() {
                let mut entry = Vec::new();
                write::number(&mut entry, 1, n as u64 + 1);
                write::bytes(&mut entry, 2, name.as_bytes());
                write::bytes(&mut interned, field, &entry);
            }
        }
        let mut clocks = Vec::new();
        if let Some(epoch_us) = about.epoch_us {
            for (clock, at_ns) in
                [(BOOTTIME, self.origin_ns), (REALTIME, epoch_us.saturating_mul(1000))]
            {
                let mut entry = Vec::new();
                write::number(&mut entry, 1, clock);
                write::number(&mut entry, 2, at_ns);
                write::bytes(&mut clocks, 1, &entry);
            }
            write::number(&mut clocks, 2, BOOTTIME);
        }
        self.write(packet::CLEARED, |packet| {
            write::bytes(packet, packet::INTERNED_DATA, &interned);
        })?;
        if clocks.is_empty() {
            return Ok(());
        }
        let origin_ns = self.origin_ns;
        self.write(packet::USES_INTERNED, |packet| {
            write::number(packet, packet::TIMESTAMP, origin_ns);
            write::bytes(packet, packet::CLOCK_SNAPSHOT, &clocks);
        })
    }

    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        events.iter().try_for_each(|event| self.event(event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::perfetto::{Wire, fields};
    use flashsift_events::event::{Knows, MaybeOwned, Renamed, Side};

    const ABOUT: About = About {
        side: Side::Before,
        space: Space::Files,
        knows: Knows { times: true, ..Knows::NOTHING },
        epoch_us: Some(1_700_000_000_000_000),
        boot_us: Some(2_000),
    };

    fn written(about: About, events: &[Event<'static>]) -> Result<Vec<u8>, Error> {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("t.pftrace");
        let mut writer = TrackEventWriter::create(&path)?;
        writer.about(about)?;
        writer.events(events)?;
        let bytes = writer.finish()?;
        let file = std::fs::read(path).expect("it is there");
        assert_eq!(bytes, file.len() as u64);
        Ok(file)
    }

    fn numbers(message: &[u8], field: u32) -> Option<u64> {
        fields(message).find_map(|found| match found.expect("a message") {
            (number, Wire::Number(value)) if number == field => Some(value),
            _ => None,
        })
    }

    fn parts(message: &[u8], field: u32) -> Vec<&[u8]> {
        let found = fields(message).filter_map(|found| match found.expect("a message") {
            (number, Wire::Bytes(bytes)) if number == field => Some(bytes),
            _ => None,
        });
        found.collect()
    }

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).expect("UTF-8")
    }

    /// Returns a line for each packet, with the path of the track.
    fn lines(file: &[u8]) -> Vec<String> {
        let mut tracks: HashMap<u64, String> = HashMap::new();
        let (mut names, mut notes) = (HashMap::new(), HashMap::new());
        let mut lines = Vec::new();
        for packet in parts(file, 1) {
            assert_eq!(numbers(packet, 10), Some(1), "each packet names its sequence");
            for interned in parts(packet, 12) {
                assert_eq!(numbers(packet, 13), Some(1));
                for (field, into) in [(2, &mut names), (3, &mut notes)] {
                    into.extend(parts(interned, field).into_iter().map(|entry| {
                        (numbers(entry, 1).expect("a number"), text(parts(entry, 2)[0]))
                    }));
                }
            }
            for clocks in parts(packet, 6) {
                let clock = |clock| {
                    format!("{:?} is {:?}", numbers(clock, 1).unwrap(), numbers(clock, 2).unwrap())
                };
                lines.extend(parts(clocks, 1).into_iter().map(clock));
            }
            for track in parts(packet, 60) {
                let parent = numbers(track, 5).map(|parent| tracks[&parent].clone() + " > ");
                let name = parent.unwrap_or_default() + text(parts(track, 2)[0]);
                let known = tracks.insert(numbers(track, 1).expect("a number"), name);
                assert_eq!(known, None);
            }
            for event in parts(packet, 11) {
                let at_ns = numbers(packet, 8).expect("a time");
                let track = &tracks[&numbers(event, 11).expect("a track")];
                let what = match numbers(event, 9) {
                    Some(4) => numbers(event, 30).expect("a value").to_string(),
                    _ => names[&numbers(event, 10).expect("a name")].to_owned(),
                };
                let annotations = parts(event, 4).into_iter().map(|note| {
                    let value = numbers(note, 3).map(|value| value.to_string());
                    let value = value.unwrap_or_else(|| text(parts(note, 6)[0]).to_owned());
                    format!(" {}={value}", notes[&numbers(note, 1).expect("a name")])
                });
                let annotations: String = annotations.collect();
                lines.push(format!("{at_ns} {track}: {what}{annotations}"));
            }
        }
        lines
    }

    #[test]
    fn processes_and_files_have_tracks_and_bytes_are_counted() {
        let (one, two, open) = (FileId(1), FileId(2), None);
        let at = |at_us, pid, tid, action| Event { at_us, pid, tid, action };
        let events = [
            at(0, 7, 7, Action::Process { name: MaybeOwned::owned_str("app") }),
            at(0, 0, 0, Action::Bind { file: one, name: MaybeOwned::owned_str("/d/a") }),
            at(1, 7, 8, Action::Write { open, file: one, offset: 0, len: 100, sync: false }),
            at(2, 7, 7, Action::Write { open, file: one, offset: 100, len: 5, sync: true }),
            at(3, 7, 7, Action::RenameDirectory { names: Renamed::owned("/d", "/e") }),
            at(4, 7, 7, Action::Process { name: MaybeOwned::owned_str("other") }),
            at(5, 7, 7, Action::Read { open, file: one, offset: 0, len: 50 }),
            at(6, 0, 0, Action::Sync { file: two, offset: 0, len: u64::MAX, data_only: true }),
            at(7, 0, 0, Action::MemoryPressure { stalled_ppm: 9 }),
        ];
        assert_eq!(
            lines(&written(ABOUT, &events).expect("written")),
            [
                "6 is 2000000",
                "1 is 1700000000000000000",
                "2001000 app 7 > /d/a: write offset=0 bytes=100 thread=8",
                "2001000 app 7 > bytes written: 100",
                "2002000 app 7 > /d/a: synchronous write offset=100 bytes=5",
                "2002000 app 7 > bytes written: 105",
                "2003000 app 7: rename of a directory from=/d to=/e",
                "2005000 other 7 > /e/a: read offset=0 bytes=50",
                "2005000 other 7 > bytes read: 50",
                "2006000 unknown process > file 2: data sync",
                "2007000 time that tasks wait for memory, parts per million: 9",
            ]
        );
    }

    #[test]
    fn every_name_of_an_event_is_interned() {
        // A name without a number would show as an event without a name.
        let code = include_str!("track_events.rs");
        let code = &code[..code.find("#[cfg(test)]").expect("this module")];
        for (names, what) in [(&EVENTS[..], "event"), (&NOTES[..], "annotation")] {
            for name in names {
                let uses = code.matches(&format!("\"{name}\"")).count();
                assert!(uses > 1, "no code uses the {what} {name}");
            }
        }
        assert_eq!(number_of(&EVENTS, "write"), 2);
    }

    // Promises: Traces 17.
    #[test]
    fn objects_share_a_track_and_times_are_needed() {
        let objects = About { space: Space::Objects, epoch_us: None, boot_us: None, ..ABOUT };
        let read = |object| Action::Read { open: None, file: FileId(object), offset: 0, len: 9 };
        let events =
            [5, 6].map(|object| Event { at_us: object, pid: 0, tid: 0, action: read(object) });
        assert_eq!(
            lines(&written(objects, &events).expect("written")),
            [
                "5000 unknown process > objects: read offset=0 bytes=9 object=5",
                "5000 unknown process > bytes read: 9",
                "6000 unknown process > objects: read offset=0 bytes=9 object=6",
                "6000 unknown process > bytes read: 18",
            ]
        );
        let untimed = About { knows: Knows::NOTHING, ..ABOUT };
        let error = written(untimed, &[]).expect_err("no times").to_string();
        assert!(error.contains("--rate"), "{error}");
    }
}
