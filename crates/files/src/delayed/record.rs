//! The log: one entry an epoch, each with a record of its changes and the pages that it overwrites.
//!
//! An entry begins at a page: a head, the record, the pages in the order in which the record names
//! them, and zeros up to the next one. Of a page that differs in part from what flash has in its
//! place, the entry holds the pieces alone that differ, or that older entries hold of it: so the
//! newest entry with a page tells all of it, whatever a power cut left of it in its place. The
//! checksum covers all of an entry, so that one flush makes it durable. Entries follow one another
//! from the beginning of the file. The first one after the beginning was reused names its own epoch
//! as the first; those after it name the same one. So what is left of older entries is not taken
//! for newer ones.
//!
//! A power cut leaves at most the last entry torn, since each is flushed before the next one
//! begins. A whole entry behind one that is not whole shows that flash lost bytes since
//! ([`Damage`]). A record ends with a checksum of its own: if damage is in the pages alone, a
//! recovery knows which pages it cannot use, and needs none of them if newer entries have them all.

use flashsift_events::{page::PAGE_BYTES, structure::Extents};
use sha2::{Digest, Sha256};
use std::{collections::BTreeMap, ops::Range};

const MAGIC: &[u8; 8] = b"fsepoch2";
/// The number of this layout, which stands above the number of held bytes. Entries of earlier
/// layouts have nothing there.
const LAYOUT: u64 = 4 << 56;
/// Bytes of an entry before its record.
const HEAD_BYTES: u64 = 8 + 4 * 8 + 32;
/// Bytes of the checksum behind a record.
const SEAL_BYTES: usize = 8;
/// Records are not larger than this, bytes: what is longer is no record.
const RECORD_BYTES: u64 = 1 << 28;
/// Neither are the pages of an entry.
const LARGEST_BYTES: u64 = 1 << 40;

/// At most so many pages of a file become holes by an epoch: the log has 40 bytes in RAM for each
/// until the checkpoint. More of them are written as zeros.
pub(super) const HOLE_PAGES: u64 = 1 << 16;

/// Bytes of a piece of a page.
pub const PIECE_BYTES: u64 = PAGE_BYTES / u64::BITS as u64;

/// Some of the 64 pieces of a page: a bit for each, the lowest for the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces(pub u64);

impl Pieces {
    /// The page as a whole.
    pub const ALL: Self = Self(u64::MAX);

    /// Nothing of the page: it is a hole.
    pub const NONE: Self = Self(0);

    /// Returns the pieces in which two pages differ.
    pub fn that_differ(one: &[u8], other: &[u8]) -> Self {
        let pieces = one.chunks(PIECE_BYTES as usize).zip(other.chunks(PIECE_BYTES as usize));
        Self(pieces.rev().fold(0, |bits, (one, other)| bits << 1 | u64::from(one != other)))
    }

    /// Returns the number of their bytes.
    pub fn bytes(self) -> u64 {
        u64::from(self.0.count_ones()) * PIECE_BYTES
    }

    /// Returns their ranges of bytes within the page.
    fn ranges(self) -> impl Iterator<Item = Range<u64>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let rest = self.0.checked_shr(at).filter(|rest| *rest != 0)?;
            let start = at + rest.trailing_zeros();
            at = start + (self.0 >> start).trailing_ones();
            Some(u64::from(start) * PIECE_BYTES..u64::from(at) * PIECE_BYTES)
        })
    }
}

/// Pages of a file that the log holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldPages {
    /// The pages; a single one unless they are held as a whole, or holes.
    pub pages: Range<u64>,
    /// The pieces of each; [`Pieces::NONE`] for holes.
    pub pieces: Pieces,
    /// Offset of the first piece in the log, bytes.
    pub at: u64,
}

impl HeldPages {
    /// Returns whether the pages are a hole.
    pub fn is_hole(&self) -> bool {
        self.pieces == Pieces::NONE
    }

    /// Returns the bytes that the log holds.
    pub fn bytes(&self) -> u64 {
        (self.pages.end - self.pages.start) * self.pieces.bytes()
    }

    /// Returns the pages one by one, each with its pieces and their offset in the log, bytes.
    pub(super) fn each(&self) -> impl Iterator<Item = (u64, (Pieces, u64))> {
        let (start, pieces, at) = (self.pages.start, self.pieces, self.at);
        self.pages.clone().map(move |page| (page, (pieces, at + (page - start) * pieces.bytes())))
    }

    /// Returns the ranges of the file, bytes, each with its offset in the log.
    pub fn parts(&self) -> impl Iterator<Item = (Range<u64>, u64)> {
        let (from, mut at) = (self.pages.start * PAGE_BYTES, self.at);
        let whole = (self.pieces == Pieces::ALL).then(|| 0..self.bytes());
        let pieces = if whole.is_some() { Pieces(0) } else { self.pieces };
        whole.into_iter().chain(pieces.ranges()).map(move |range| {
            let here = at;
            at += range.end - range.start;
            (from + range.start..from + range.end, here)
        })
    }
}

/// A path from BACKING on, without a slash at its beginning.
pub type Path = Box<[u8]>;

/// The identity of a file of BACKING, which no file has that gets its number after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeId {
    /// Its inode number.
    pub ino: u64,
    /// Time of its creation, ns since 1970; 0: the file system does not keep it.
    pub born_ns: u64,
}

/// A file of BACKING.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRef {
    /// The file.
    pub id: InodeId,
    /// The paths under which it may be: before the epoch's names, and after.
    pub paths: Vec<Path>,
}

/// Owner, permissions and times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Type and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Time of the last write, s and ns since 1970.
    pub modified: (i64, u32),
}

/// How an epoch changes a file that was there before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    /// The file.
    pub file: FileRef,
    /// It is truncated to this size first, bytes.
    pub cut: Option<u64>,
    /// Its size at the end, bytes.
    pub size: u64,
    /// Its attributes at the end, where they have changed.
    pub attributes: Option<Attributes>,
    /// The pages that the entry holds.
    pub pages: Extents,
    /// Those that become holes: it holds nothing of them.
    pub holes: Extents,
    /// Those of which it holds some pieces alone.
    pub partial: BTreeMap<u64, Pieces>,
    /// Pages that are zeros in place, which later epochs may write there: a recovery zeroes them
    /// again.
    pub blank: Extents,
}

/// A file gets a name, in place of what has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Its name in the hidden directory.
    pub hidden: u64,
    /// Its path.
    pub path: Path,
}

/// A name goes away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The path.
    pub path: Path,
    /// The inode number of the file that has it. Another file keeps it.
    pub ino: u64,
}

/// The part of older entries that was durable in place before an entry was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InPlace {
    /// Nothing, as far as the entry knows.
    #[default]
    Nothing,
    /// Names, sizes and attributes. Overwritten pages may be in the log alone.
    AllButPages,
    /// Everything.
    Everything,
}

/// The changes of an epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The part of older entries that was durable in place before.
    pub in_place: InPlace,
    /// Files that were there before.
    pub changes: Vec<FileChange>,
    /// New names.
    pub places: Vec<Placement>,
    /// Names that go.
    pub removals: Vec<Removal>,
}

/// The numbers of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryNumbers {
    /// The first epoch since the beginning of the log was reused.
    pub first: u64,
    /// The epoch.
    pub epoch: u64,
}

impl EntryNumbers {
    /// The bytes before the pages of an entry. Those of the first one begin at a page: when the log
    /// begins anew, its record goes away before it does, or with it.
    fn bytes_before(self, record_bytes: u64) -> u64 {
        let end = HEAD_BYTES + record_bytes;
        if self.first == self.epoch { whole_pages(end) } else { end }
    }
}

/// The beginning of an entry, while its pages are added.
pub struct EntryHead {
    numbers: EntryNumbers,
    record: Vec<u8>,
    /// Bytes of its pages, before the zeros behind them.
    held_bytes: u64,
    /// Those that are in the last page of the record.
    lead: Vec<u8>,
    digest: Sha256,
}

/// An entry that was found in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundEntry {
    /// Its numbers.
    pub numbers: EntryNumbers,
    /// Its record.
    pub record: Record,
    /// Offset of its first page in the log, bytes.
    pub pages_at: u64,
    /// Offset behind it, bytes.
    pub end: u64,
    /// Its record is as it was written, but its pages are not.
    pub damaged: bool,
}

/// Flash lost bytes of a log after they were durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Offset of the entry, bytes.
    pub at: u64,
    /// Number of whole entries behind it.
    pub later: usize,
    /// The effect on a recovery.
    pub loss: Loss,
}

/// The effect of damage on a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Nothing: newer entries have all that the damaged one had.
    Nothing,
    /// Nothing, if the log was about to begin anew; otherwise everything.
    Unknown,
    /// Files would be a mixture of epochs.
    Mixture,
}

/// Pages of a file whose newest version stands in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedPages {
    /// The file.
    pub file: FileRef,
    /// Its attributes, which the writing of pages changes.
    pub attributes: Option<Attributes>,
    /// Runs of pages.
    pub runs: Vec<HeldPages>,
}

/// The work of a recovery: first the pages, then the entries, each in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The newest version of pages from entries whose names and sizes are in place: each page once.
    /// The part behind the end of its file is not to be written. A file that is under none of its
    /// paths, and none of the hidden names, was deleted.
    pub pages: Vec<LoggedPages>,
    /// Entries that are to be applied as a whole.
    pub entries: Vec<FoundEntry>,
    /// Hidden names that files may still have.
    pub hidden: Vec<u64>,
    /// Bytes of the log that are not as they were written.
    pub damage: Option<Damage>,
}

fn whole_pages(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE_BYTES)
}

impl Record {
    /// Returns whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.places.is_empty() && self.removals.is_empty()
    }

    /// Returns the bytes that its entry holds of pages.
    pub fn held_bytes(&self) -> u64 {
        self.runs(0).map(|(_, held)| held.bytes()).sum()
    }

    /// Returns the pages that its entry holds, if the first one is at this offset of the log.
    pub fn runs(&self, pages_at: u64) -> impl Iterator<Item = (&FileChange, HeldPages)> {
        let mut at = pages_at;
        let of_change = |change| FileChange::runs(change).map(move |run| (change, run));
        self.changes.iter().flat_map(of_change).map(move |(change, (pages, pieces))| {
            let held = HeldPages { pages, pieces, at };
            at += held.bytes();
            (change, held)
        })
    }

    fn encode(&self) -> Vec<u8> {
        let mut to = Vec::new();
        put(
            &mut to,
            match self.in_place {
                InPlace::Nothing => 0,
                InPlace::Everything => 1,
                InPlace::AllButPages => 2,
            },
        );
        put(&mut to, self.changes.len() as u64);
        for change in &self.changes {
            put(&mut to, change.file.id.ino);
            put(&mut to, change.file.id.born_ns);
            put(&mut to, change.file.paths.len() as u64);
            change.file.paths.iter().for_each(|path| put_bytes(&mut to, path));
            put(&mut to, change.cut.map_or(0, |cut| cut + 1));
            put(&mut to, change.size);
            put(&mut to, u64::from(change.attributes.is_some()));
            if let Some(it) = change.attributes {
                put(&mut to, u64::from(it.mode));
                put(&mut to, u64::from(it.uid) << 32 | u64::from(it.gid));
                put(&mut to, it.modified.0 as u64);
                put(&mut to, u64::from(it.modified.1));
            }
            put(&mut to, change.pages.iter().count() as u64);
            for run in change.pages.iter() {
                put(&mut to, run.start);
                put(&mut to, run.end);
            }
        }
        put(&mut to, self.places.len() as u64);
        for place in &self.places {
            put(&mut to, place.hidden);
            put_bytes(&mut to, &place.path);
        }
        put(&mut to, self.removals.len() as u64);
        for removal in &self.removals {
            put(&mut to, removal.ino);
            put_bytes(&mut to, &removal.path);
        }
        for change in &self.changes {
            put_runs(&mut to, &change.blank);
            put_partial(&mut to, &change.partial);
            put_runs(&mut to, &change.holes);
        }
        to
    }

    /// The record of these bytes, which are as they were written.
    fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut record = Self::decode_from(&mut bytes)?;
        for change in &mut record.changes {
            change.blank = take_runs(&mut bytes)?;
            change.partial = take_partial(&mut bytes)?;
            change.holes = take_runs(&mut bytes)?;
            let has_all = |run: Range<u64>| change.pages.missing(run) == 0;
            let is_hole = |page: u64| change.holes.missing(page..page + 1) == 0;
            let mut partial = change.partial.keys();
            if !partial.all(|page| has_all(*page..page + 1) && !is_hole(*page))
                || !change.holes.iter().all(has_all)
                || change.holes.covered() > HOLE_PAGES
            {
                return None;
            }
        }
        (bytes.len() == SEAL_BYTES).then_some(record)
    }

    fn decode_from(from: &mut &[u8]) -> Option<Self> {
        let in_place = match take(from)? {
            0 => InPlace::Nothing,
            1 => InPlace::Everything,
            2 => InPlace::AllButPages,
            _ => return None,
        };
        let mut record = Self { in_place, ..Self::default() };
        for _ in 0..take(from)? {
            let id = InodeId { ino: take(from)?, born_ns: take(from)? };
            let mut paths = Vec::new();
            for _ in 0..take(from)? {
                paths.push(take_bytes(from)?);
            }
            let cut = take(from)?.checked_sub(1);
            let size = take(from)?;
            let attributes = match take(from)? {
                0 => None,
                _ => {
                    let mode = take(from)? as u32;
                    let owner = take(from)?;
                    let modified = (take(from)? as i64, take(from)? as u32);
                    let (uid, gid) = ((owner >> 32) as u32, owner as u32);
                    Some(Attributes { mode, uid, gid, modified })
                }
            };
            let mut pages = Extents::default();
            for _ in 0..take(from)? {
                let (start, end) = (take(from)?, take(from)?);
                if start >= end {
                    return None;
                }
                pages.insert(start..end);
            }
            record.changes.push(FileChange {
                file: FileRef { id, paths },
                cut,
                size,
                attributes,
                pages,
                holes: Extents::default(),
                partial: BTreeMap::new(),
                blank: Extents::default(),
            });
        }
        for _ in 0..take(from)? {
            record.places.push(Placement { hidden: take(from)?, path: take_bytes(from)? });
        }
        for _ in 0..take(from)? {
            record.removals.push(Removal { ino: take(from)?, path: take_bytes(from)? });
        }
        Some(record)
    }
}

impl FileChange {
    /// Runs of pages with the pieces of each.
    fn runs(&self) -> impl Iterator<Item = (Range<u64>, Pieces)> {
        self.pages.iter().flat_map(|run| {
            let holes = self.holes.parts(run.clone()).map(|hole| (hole, Pieces::NONE));
            let mut runs: Vec<_> = holes.collect();
            for run in self.holes.gaps(run) {
                let (end, mut whole_from) = (run.end, run.start);
                for (page, pieces) in self.partial.range(run) {
                    runs.push((whole_from..*page, Pieces::ALL));
                    runs.push((*page..page + 1, *pieces));
                    whole_from = page + 1;
                }
                runs.push((whole_from..end, Pieces::ALL));
            }
            runs.retain(|(run, _)| !run.is_empty());
            runs.sort_unstable_by_key(|(run, _)| run.start);
            runs
        })
    }
}

fn put(to: &mut Vec<u8>, word: u64) {
    to.extend(word.to_le_bytes());
}

/// A number of few bytes if it is small: seven bits a byte, the lowest first.
fn put_short(to: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// Runs as gaps and lengths: a file that is written here and there has many.
fn put_runs(to: &mut Vec<u8>, runs: &Extents) {
    put_short(to, runs.iter().count() as u64);
    let mut last = 0;
    for run in runs.iter() {
        put_short(to, run.start - last);
        put_short(to, run.end - run.start);
        last = run.end;
    }
}

/// Pages as gaps, with their pieces.
fn put_partial(to: &mut Vec<u8>, partial: &BTreeMap<u64, Pieces>) {
    put_short(to, partial.len() as u64);
    let mut last = 0;
    for (page, pieces) in partial {
        put_short(to, page - last);
        put(to, pieces.0);
        last = *page;
    }
}

fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    put(to, bytes.len() as u64);
    to.extend(bytes);
}

fn take(from: &mut &[u8]) -> Option<u64> {
    let (word, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(u64::from_le_bytes(*word))
}

fn take_short(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        number |= u64::from(byte & 0x7f).checked_mul(1 << shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn take_runs(from: &mut &[u8]) -> Option<Extents> {
    let (mut runs, mut last) = (Extents::default(), 0_u64);
    for _ in 0..take_short(from)? {
        let start = last.checked_add(take_short(from)?)?;
        last = start.checked_add(take_short(from)?).filter(|end| *end > start)?;
        runs.insert(start..last);
    }
    Some(runs)
}

fn take_partial(from: &mut &[u8]) -> Option<BTreeMap<u64, Pieces>> {
    let (mut partial, mut last) = (BTreeMap::new(), 0_u64);
    for _ in 0..take_short(from)? {
        last = last.checked_add(take_short(from)?)?;
        partial.insert(last, Pieces(take(from)?));
    }
    Some(partial)
}

fn take_bytes(from: &mut &[u8]) -> Option<Path> {
    let len = usize::try_from(take(from)?).ok()?;
    let (bytes, rest) = from.split_at_checked(len)?;
    *from = rest;
    Some(bytes.into())
}

fn digest_of(numbers: EntryNumbers, record: &[u8], held_bytes: u64) -> Sha256 {
    let mut digest = Sha256::new();
    for word in [numbers.first, numbers.epoch, record.len() as u64, held_bytes] {
        digest.update(word.to_le_bytes());
    }
    digest.update(record);
    digest
}

/// The checksum of a record alone.
fn seal(numbers: EntryNumbers, record: &[u8], held_bytes: u64) -> u64 {
    let digest = digest_of(numbers, record, held_bytes).finalize();
    digest.first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}

impl EntryHead {
    /// Begins an entry.
    pub fn new(numbers: EntryNumbers, record: &Record) -> Self {
        let (held_bytes, mut record) = (record.held_bytes(), record.encode());
        let seal = seal(numbers, &record, held_bytes);
        put(&mut record, seal);
        let digest = digest_of(numbers, &record, held_bytes);
        Self { numbers, record, held_bytes, lead: Vec::new(), digest }
    }

    /// Returns the bytes before the entry's pages.
    pub fn bytes_before(&self) -> u64 {
        self.numbers.bytes_before(self.record.len() as u64)
    }

    /// Returns the bytes of the log's pages that end with the record, or behind it.
    pub fn head_bytes(&self) -> u64 {
        whole_pages(self.bytes_before())
    }

    /// Returns the bytes of the whole entry.
    pub fn bytes(&self) -> u64 {
        whole_pages(self.bytes_before() + self.held_bytes)
    }

    /// Adds the next bytes of its pages. Returns those that do not stand in its head.
    pub fn add<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        self.digest.update(bytes);
        let left = (self.head_bytes() - self.bytes_before()) as usize - self.lead.len();
        let (lead, rest) = bytes.split_at(left.min(bytes.len()));
        self.lead.extend(lead);
        rest
    }

    /// Ends the entry: returns its head.
    pub fn end(self) -> Vec<u8> {
        let len = self.head_bytes() as usize;
        let mut to = Vec::with_capacity(len);
        to.extend(MAGIC);
        let EntryNumbers { first, epoch } = self.numbers;
        for word in [first, epoch, self.record.len() as u64, LAYOUT | self.held_bytes] {
            put(&mut to, word);
        }
        to.extend(self.digest.finalize());
        to.extend(&self.record);
        to.extend(&self.lead);
        to.resize(len, 0);
        to
    }
}

/// Reads a log, and returns what a recovery has to do. `read` fills the buffer from this offset on;
/// `Ok(false)`: the log is shorter.
///
/// # Errors
///
/// Those of `read`.
pub fn recovery<E>(mut read: impl FnMut(u64, &mut [u8]) -> Result<bool, E>) -> Result<Recovery, E> {
    let mut found = all_entries(&mut read, true)?;
    let at = found.last().map_or(0, |last| last.end);
    let Some(later) = later_entries(&mut read, found.last())? else {
        return Ok(Recovery::new(found));
    };
    if found.is_empty() && later.may_begin_anew {
        // A power cut leaves the first entry torn, before older ones.
        let damage = Damage { at, later: later.whole(), loss: Loss::Unknown };
        return Ok(Recovery { damage: Some(damage), ..Recovery::default() });
    }
    let number = later.whole();
    let is_of_first = found.is_empty();
    let unreadable = later.unreadable_before.map(|entry| found.len() + entry);
    found.extend(later.entries);
    let newest = |entry: &FoundEntry| entry.record.in_place == InPlace::Everything;
    let in_place = found.iter().rposition(newest).unwrap_or(0);
    let first_pages_at = found.first().map_or(0, |first| first.pages_at);
    let spans: Vec<_> =
        found.iter().filter(|entry| entry.damaged).map(|it| it.pages_at..it.end).collect();
    let recovery = Recovery::new(found);
    let mut used = recovery.pages.iter().flat_map(|file| &file.runs);
    let needs = used.any(|held| {
        let end = held.at + held.bytes();
        !held.is_hole() && spans.iter().any(|span| held.at < span.end && span.start < end)
    });
    let mixes = needs
        || (0..recovery.entries.len()).any(|entry| recovery.needs_pages_of(entry))
        || unreadable.is_some_and(|entry| entry > in_place);
    if mixes && is_of_first && spans.first().is_some_and(|span| span.start == first_pages_at) {
        // So a power cut leaves it if the record of the new first entry has several pages.
        let damage = Damage { at, later: number, loss: Loss::Unknown };
        return Ok(Recovery { damage: Some(damage), ..Recovery::default() });
    }
    let loss = if mixes { Loss::Mixture } else { Loss::Nothing };
    Ok(Recovery { damage: Some(Damage { at, later: number, loss }), ..recovery })
}

/// Pages by number, with their pieces and the offset of these in the log, bytes.
pub(super) type Offsets = BTreeMap<u64, (Pieces, u64)>;

impl Recovery {
    /// Entries whose names and sizes are durable are not applied again: newer ones may have written
    /// new parts of their files to their place, which an older size would take away. Their pages
    /// still count, unless a newer entry has them or has cut them off.
    pub(super) fn new(found: Vec<FoundEntry>) -> Self {
        Self::with(found, true, true)
    }

    /// Whether an entry that is to be applied as a whole is damaged, and has a page that no later
    /// one has.
    fn needs_pages_of(&self, entry: usize) -> bool {
        let (damaged, later) = (&self.entries[entry], &self.entries[entry + 1..]);
        damaged.damaged
            && damaged.record.changes.iter().any(|change| {
                let mut written = Extents::default();
                let same = later.iter().flat_map(|entry| &entry.record.changes);
                same.filter(|other| other.file.id == change.file.id)
                    .flat_map(|other| other.pages.iter())
                    .for_each(|run| written.insert(run));
                let mut held = change.pages.iter().flat_map(|run| change.holes.gaps(run));
                held.any(|run| written.missing(run) > 0)
            })
    }

    /// A recovery with a fault that the model of power cuts has to find: it writes pages that were
    /// cut off (`cut`), or it knows only the oldest paths of files.
    pub(super) fn faulty(found: Vec<FoundEntry>, cut: bool) -> Self {
        Self::with(found, !cut, cut)
    }

    fn with(mut found: Vec<FoundEntry>, heeds_cuts: bool, knows_new_paths: bool) -> Self {
        let last = |found: &[FoundEntry], wanted: &[InPlace]| {
            found.iter().rposition(|entry| wanted.contains(&entry.record.in_place)).unwrap_or(0)
        };
        found.drain(..last(&found, &[InPlace::Everything]));
        let hidden = found.iter().flat_map(|entry| &entry.record.places);
        let hidden = hidden.map(|place| place.hidden).collect();
        let applied = last(&found, &[InPlace::Everything, InPlace::AllButPages]);
        let mut files: BTreeMap<InodeId, (LoggedPages, Offsets)> = BTreeMap::new();
        for (number, entry) in found.iter().enumerate() {
            for change in &entry.record.changes {
                let file = FileRef { id: change.file.id, paths: Vec::new() };
                if number < applied {
                    let new = LoggedPages { file, attributes: None, runs: Vec::new() };
                    files.entry(change.file.id).or_insert_with(|| (new, Offsets::new()));
                }
                let Some((file, pages)) = files.get_mut(&change.file.id) else { continue };
                // The newest paths are the likeliest.
                if knows_new_paths || file.file.paths.is_empty() {
                    file.file.paths.splice(0..0, change.file.paths.iter().cloned());
                }
                if number < applied {
                    file.attributes = change.attributes.or(file.attributes);
                }
                if let Some(cut) = change.cut.filter(|_| heeds_cuts) {
                    pages.retain(|page, _| page * PAGE_BYTES < cut);
                }
            }
            for (change, held) in entry.record.runs(entry.pages_at) {
                let Some((_, pages)) = files.get_mut(&change.file.id) else { continue };
                // Entries that are applied as a whole have their own.
                for page in held.pages.clone() {
                    pages.remove(&page);
                }
                if number < applied {
                    pages.extend(held.each());
                }
            }
        }
        let pages = files.into_values().map(|(file, pages)| {
            let runs = consecutive(&pages);
            LoggedPages { runs, ..file }
        });
        let pages = pages.filter(|file| !file.runs.is_empty()).collect();
        Self { pages, entries: found.split_off(applied), hidden, damage: None }
    }
}

/// Returns runs of pages that follow one another in the file and in the log.
pub(super) fn consecutive(pages: &Offsets) -> Vec<HeldPages> {
    let mut runs: Vec<HeldPages> = Vec::new();
    for (page, &(pieces, at)) in pages {
        match runs.last_mut() {
            Some(run)
                if run.pages.end == *page
                    && run.pieces == pieces
                    && (run.is_hole() || (pieces == Pieces::ALL && run.at + run.bytes() == at)) =>
            {
                run.pages.end += 1;
            }
            _ => runs.push(HeldPages { pages: *page..page + 1, pieces, at }),
        }
    }
    runs
}

/// Bytes of a log that tell its version.
pub const VERSION_BYTES: usize = 8 + 4 * 8;

/// Returns whether a log that begins so is one that another version of flashsift wrote.
pub fn is_of_other_version(beginning: &[u8]) -> bool {
    let (family, _) = MAGIC.split_at(MAGIC.len() - 1);
    let layout = beginning.get(VERSION_BYTES - 1).map(|byte| u64::from(*byte) << 56);
    let is_ours = beginning.starts_with(MAGIC) && layout == Some(LAYOUT);
    beginning.starts_with(family) && !is_ours
}

/// Returns the entries from the beginning of a log to the first that is not whole. `checks`: by its
/// checksum.
fn all_entries<E>(
    read: &mut impl FnMut(u64, &mut [u8]) -> Result<bool, E>,
    checks: bool,
) -> Result<Vec<FoundEntry>, E> {
    let mut found: Vec<FoundEntry> = Vec::new();
    loop {
        let (before, at) = (found.last(), found.last().map_or(0, |last| last.end));
        match entry(read, at, |numbers| follows(before, numbers), checks)? {
            Some(entry) if !entry.damaged => found.push(entry),
            _ => return Ok(found),
        }
    }
}

/// Whether an entry of these numbers may stand behind this one, or at the beginning.
fn follows(before: Option<&FoundEntry>, numbers: EntryNumbers) -> bool {
    match before {
        None => numbers.first == numbers.epoch,
        Some(before) => {
            numbers.first == before.numbers.first
                && Some(numbers.epoch) == before.numbers.epoch.checked_add(1)
        }
    }
}

/// The entries behind the first one that is not whole.
#[derive(Default)]
struct Later {
    entries: Vec<FoundEntry>,
    /// Before the last such one of `entries` is at least one whose record is lost.
    unreadable_before: Option<usize>,
    /// The first record of the log is lost, which a power cut can do while a log begins anew.
    may_begin_anew: bool,
}

impl Later {
    fn whole(&self) -> usize {
        self.entries.iter().filter(|entry| !entry.damaged).count()
    }
}

/// Returns what follows the last entry of those at the beginning that are whole; `None`: no whole
/// entry does, as a power cut leaves it.
fn later_entries<E>(
    read: &mut impl FnMut(u64, &mut [u8]) -> Result<bool, E>,
    last: Option<&FoundEntry>,
) -> Result<Option<Later>, E> {
    let (mut found, mut until_whole) = (Later::default(), None);
    let mut at = last.map_or(0, |last| last.end);
    'all: loop {
        let before = found.entries.last().or(last);
        if let Some(entry) = entry(read, at, |numbers| follows(before, numbers), true)? {
            at = entry.end;
            let is_whole = !entry.damaged;
            found.entries.push(entry);
            if is_whole {
                until_whole = Some((found.entries.len(), found.unreadable_before));
            }
            continue;
        }
        // The numbers that the lost record had, as far as they can be read.
        let mut head = [0; 16];
        if !read(at, &mut head)? {
            break;
        }
        let named = head.strip_prefix(MAGIC).and_then(|mut rest| take(&mut rest));
        found.may_begin_anew |= before.is_none() && named.is_some();
        let last = before.map(|before| before.numbers);
        let is_later = |numbers: EntryNumbers| match last {
            Some(last) => numbers.first == last.first && numbers.epoch > last.epoch,
            // Those of a log that has begun anew since are older.
            None => numbers.epoch > numbers.first && named.is_none_or(|it| it <= numbers.epoch),
        };
        found.unreadable_before = Some(found.entries.len());
        loop {
            at += PAGE_BYTES;
            let mut magic = [0; 8];
            if !read(at, &mut magic)? {
                break 'all;
            }
            if magic == *MAGIC
                && let Some(entry) = entry(read, at, is_later, true)?
                && !entry.damaged
            {
                at = entry.end;
                found.entries.push(entry);
                until_whole = Some((found.entries.len(), found.unreadable_before));
                break;
            }
        }
    }
    Ok(until_whole.map(|(whole, unreadable_before)| {
        found.entries.truncate(whole);
        Later { unreadable_before, ..found }
    }))
}

/// All entries, also those that newer ones supersede, or without a look at the checksums
/// (`checks`): faults that the model of power cuts has to find.
pub(super) fn faulty_entries<E>(
    mut read: impl FnMut(u64, &mut [u8]) -> Result<bool, E>,
    checks: bool,
) -> Result<Vec<FoundEntry>, E> {
    all_entries(&mut read, checks)
}

/// Reads the entry at this offset, if there is one with numbers that fit. `checks`: its record, or
/// all of it, has to be as it was written.
fn entry<E>(
    read: &mut impl FnMut(u64, &mut [u8]) -> Result<bool, E>,
    at: u64,
    fits: impl FnOnce(EntryNumbers) -> bool,
    checks: bool,
) -> Result<Option<FoundEntry>, E> {
    let mut head = [0; HEAD_BYTES as usize];
    if !read(at, &mut head)? {
        return Ok(None);
    }
    let Some(mut rest) = head.strip_prefix(MAGIC) else { return Ok(None) };
    let mut words = [0; 4];
    for word in &mut words {
        *word = take(&mut rest).unwrap_or_default();
    }
    let [first, epoch, len, held_bytes] = words;
    let held_bytes = held_bytes ^ LAYOUT;
    let numbers = EntryNumbers { first, epoch };
    if !fits(numbers) || len > RECORD_BYTES || held_bytes > LARGEST_BYTES {
        return Ok(None);
    }
    let mut record = vec![0; len as usize];
    if !read(at + HEAD_BYTES, &mut record)? {
        return Ok(None);
    }
    let mut digest = digest_of(numbers, &record, held_bytes);
    let pages_at = at + numbers.bytes_before(len);
    let held_end = pages_at + held_bytes;
    let mut part = [0; PAGE_BYTES as usize];
    for from in (pages_at..held_end).step_by(part.len()) {
        let part = &mut part[..PAGE_BYTES.min(held_end - from) as usize];
        if !read(from, part)? {
            return Ok(None);
        }
        digest.update(&*part);
    }
    let damaged = checks && *digest.finalize() != *rest;
    let is_sealed = || {
        let parts = record.split_last_chunk::<SEAL_BYTES>();
        parts.is_some_and(|(record, found)| {
            *found == seal(numbers, record, held_bytes).to_le_bytes()
        })
    };
    if damaged && !is_sealed() {
        return Ok(None);
    }
    let record = Record::decode(&record).filter(|record| record.held_bytes() == held_bytes);
    let end = held_end.next_multiple_of(PAGE_BYTES);
    Ok(record.map(|record| FoundEntry { numbers, record, pages_at, end, damaged }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let mut pages = Extents::default();
        pages.insert(2..4);
        pages.insert(9..14);
        let mut holes = Extents::default();
        holes.insert(10..12);
        holes.insert(13..14);
        let mut blank = Extents::default();
        blank.insert(4..9);
        blank.insert(1 << 40..1 << 41);
        let paths = vec![Path::from(*b"a/b"), Path::from(*b"c")];
        let attributes =
            Some(Attributes { mode: 0o100_640, uid: 7, gid: 8, modified: (-5, 999_999_999) });
        let id = InodeId { ino: 12, born_ns: 34 };
        let file = FileRef { id, paths };
        Record {
            in_place: InPlace::AllButPages,
            changes: vec![FileChange {
                file,
                cut: Some(0),
                size: 40_000,
                attributes,
                pages,
                holes,
                partial: [(3, Pieces(1 << 63 | 0b110)), (9, Pieces(1))].into(),
                blank,
            }],
            places: vec![Placement { hidden: 3, path: Path::from(*b"new\xff") }],
            removals: vec![Removal { path: Path::from(*b"old"), ino: u64::MAX }],
        }
    }

    fn written(numbers: EntryNumbers, record: &Record, fill: u8) -> Vec<u8> {
        let mut head = EntryHead::new(numbers, record);
        let pages = vec![fill; record.held_bytes() as usize];
        let mut all = head.add(&pages).to_vec();
        all.resize(all.len().next_multiple_of(PAGE_BYTES as usize), 0);
        all.splice(0..0, head.end());
        all
    }

    fn found(log: &[u8]) -> Vec<FoundEntry> {
        all_entries(&mut read(log), true).unwrap()
    }

    #[test]
    fn entries_are_found_as_they_were_written() {
        let numbers = |epoch| EntryNumbers { first: 5, epoch };
        let mut log = written(numbers(5), &record(), 1);
        log.extend(written(numbers(6), &Record::default(), 0));
        log.extend(written(numbers(7), &record(), 2));
        let found = found(&log);
        assert_eq!(found.len(), 3);
        assert_eq!(found[2].record, record());
        assert_eq!(found[2].end as usize, log.len());
        let at = found[2].pages_at;
        let runs: Vec<_> = found[2].record.runs(at).map(|(_, held)| held).collect();
        let held = |pages, pieces, at| HeldPages { pages, pieces, at };
        let second = held(3..4, Pieces(1 << 63 | 0b110), at + PAGE_BYTES);
        let third = held(9..10, Pieces(1), at + PAGE_BYTES + 3 * PIECE_BYTES);
        let behind = third.at + third.bytes();
        let [hole, last] = [held(10..12, Pieces::NONE, behind), held(12..13, Pieces::ALL, behind)];
        let end = held(13..14, Pieces::NONE, behind + PAGE_BYTES);
        let all = [held(2..3, Pieces::ALL, at), second.clone(), third, hole.clone(), last, end];
        assert_eq!(runs, all);
        assert_eq!((hole.bytes(), hole.parts().count()), (0, 0));
        let from = 3 * PAGE_BYTES;
        let parts =
            [(from + 64..from + 192, second.at), (from + 4032..from + 4096, second.at + 128)];
        assert!(second.parts().eq(parts));
        assert!(runs[0].parts().eq([(2 * PAGE_BYTES..3 * PAGE_BYTES, at)]));
    }

    /// An entry counts as a whole or not at all, and so do those after it.
    // Promises: Mount 76.
    #[test]
    fn any_changed_byte_ends_the_log_before_its_entry() {
        let mut log = written(EntryNumbers { first: 1, epoch: 1 }, &Record::default(), 0);
        let first = log.len();
        log.extend(written(EntryNumbers { first: 1, epoch: 2 }, &record(), 3));
        let used = first + HEAD_BYTES as usize + record().encode().len();
        let pages_at = found(&log)[1].pages_at as usize;
        let pages = pages_at..pages_at + record().held_bytes() as usize;
        for at in (first..used).chain(pages.step_by(97)) {
            let mut torn = log.clone();
            torn[at] ^= 1;
            assert_eq!(found(&torn).len(), 1, "byte {at}");
        }
        assert_eq!(found(&log[..log.len() - PAGE_BYTES as usize]).len(), 1);
    }

    fn read(log: &[u8]) -> impl FnMut(u64, &mut [u8]) -> Result<bool, ()> + '_ {
        |at, into| {
            let Some(from) = log.get(at as usize..).and_then(|rest| rest.get(..into.len())) else {
                return Ok(false);
            };
            into.copy_from_slice(from);
            Ok(true)
        }
    }

    /// One bad byte of an old entry once ended the log there: files whose names and sizes were of a
    /// newer epoch got pages of an older one, and the log was deleted.
    // Promises: Mount 76.
    #[test]
    fn a_bad_byte_before_whole_entries_is_noticed() {
        let numbers = |epoch| EntryNumbers { first: 5, epoch };
        let whole = |in_place| Record { in_place, ..record() };
        let log = |newest: Record| {
            let records = [Record::default(), whole(InPlace::Nothing), newest];
            let mut log = Vec::new();
            let mut at = Vec::new();
            for (epoch, record) in (5..).zip(&records) {
                at.push(log.len());
                log.extend(written(numbers(epoch), record, epoch as u8));
            }
            (log, at)
        };
        let damage = |log: &[u8], at: usize| {
            let mut bad = log.to_vec();
            bad[at] ^= 1;
            recovery(read(&bad)).unwrap().damage
        };
        let none = recovery(read(&log(record()).0)).unwrap().damage;
        assert_eq!(none, None);
        for (newest, in_pages, in_record) in [
            (whole(InPlace::Everything), Loss::Nothing, Loss::Nothing),
            // The newest entry has the same pages.
            (whole(InPlace::AllButPages), Loss::Nothing, Loss::Mixture),
            (whole(InPlace::Nothing), Loss::Nothing, Loss::Mixture),
            (
                Record { in_place: InPlace::AllButPages, ..Record::default() },
                Loss::Mixture,
                Loss::Mixture,
            ),
        ] {
            let (log, at) = log(newest);
            let expected = |loss| Some(Damage { at: at[1] as u64, later: 1, loss });
            assert_eq!(damage(&log, at[1] + PAGE_BYTES as usize + 50), expected(in_pages));
            for byte in (at[1]..at[1] + HEAD_BYTES as usize + record().encode().len()).step_by(7) {
                let is_digest = (at[1] + 40..at[1] + 72).contains(&byte);
                let loss = if is_digest { in_pages } else { in_record };
                assert_eq!(damage(&log, byte), expected(loss), "byte {byte}");
            }
            // The last one may be torn, and so may the first one while the log begins anew.
            assert_eq!(damage(&log, at[2] + 60), None);
            let first = damage(&log, 80).unwrap();
            assert_eq!((first.at, first.later, first.loss), (0, 2, Loss::Unknown));
            // A log that begins anew writes over its first pages before their record is gone.
            let mut log = written(numbers(5), &whole(InPlace::Nothing), 5);
            let pages_at = found(&log)[0].pages_at as usize;
            log.extend(written(numbers(6), &Record::default(), 0));
            let first = damage(&log, pages_at).unwrap();
            assert_eq!((first.at, first.later, first.loss), (0, 1, Loss::Unknown));
        }
    }

    /// The rest of an older use of the log does not follow a newer entry.
    // Promises: Mount 76.
    #[test]
    fn older_entries_do_not_follow_newer_ones() {
        let log = written(EntryNumbers { first: 4, epoch: 4 }, &Record::default(), 0);
        let mut log = [log, written(EntryNumbers { first: 1, epoch: 2 }, &record(), 1)].concat();
        assert_eq!(found(&log).len(), 1);
        assert!(is_of_other_version(b"fsepoch1 of old") && !is_of_other_version(&log));
        let mut of_old_layout = log.clone();
        of_old_layout[VERSION_BYTES - 1] = 0;
        assert!(is_of_other_version(&of_old_layout) && found(&of_old_layout).is_empty());
        assert!(!is_of_other_version(&[0; 4096]));
        log.truncate(10);
        assert!(found(&log).is_empty() && found(&[]).is_empty());
    }
}
