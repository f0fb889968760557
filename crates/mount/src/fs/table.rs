//! The table of names, which overlays BACKING.
//!
//! It contains every file that lives in RAM, with all its names, and those files of BACKING that
//! the kernel has looked up. Three invariants hold:
//!
//! - A name in RAM *hides* the name in BACKING that it replaced. The hidden file stays there until
//!   the file in RAM is written back by a rename: a crash before that leaves the old file, never
//!   none.
//! - A number stands for one file as long as the mount lives. A file that was in BACKING before has
//!   BACKING's number. A file that was created in this mount keeps its first number, also when
//!   BACKING gives it another.
//! - A node is here while the kernel may ask for it (`lookups`, `opens`), while it lives in RAM,
//!   while nodes in it are here, or while its time is not yet written to BACKING.
//!
//! New directories that BACKING lacks have names of their own here, which hide nothing.

use super::backing::OpenDir;
use super::delayed_file::DelayedFile;
use super::reservation::{ATTRIBUTES_BYTES, BLOCK_BYTES, EXTENT_BYTES, Metadata};
use super::residence::{Checkpoint, FileState, Place, Residence, Resident};
use super::temporary::Temps;
use super::types::{Attr, Ino, Name, Names, ROOT, Time};
use flashsift_events::event::FileId;
use flashsift_events::names::escape_into;
use rustix::fs::Stat;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Numbers of files that are created here begin where file systems for flash have none (theirs have
/// 32 bits).
const FIRST_NUMBER: Ino = 1 << 40;
/// Numbers that replace those of BACKING which another file still has here.
const FIRST_REPLACEMENT: Ino = 1 << 41;
/// Further names of a file in RAM than this are BACKING's to count.
pub(crate) const LINKS: usize = 1000;
/// Directories that are kept open.
const OPEN_DIRS: usize = 512;

#[derive(Debug)]
pub(crate) struct Table {
    nodes: HashMap<Ino, Node>,
    /// For each directory, the names of files in RAM.
    in_ram: HashMap<Ino, BTreeMap<Name, InRam>>,
    /// For each directory, the names of directories in it that BACKING lacks.
    new_directories_in: HashMap<Ino, BTreeMap<Name, Ino>>,
    /// These directories, in order of creation.
    new_directories: BTreeSet<Ino>,
    /// For each directory, names that only BACKING still has: files of a group had them.
    whiteouts: HashMap<Ino, BTreeSet<Name>>,
    /// Directories that programs have removed, with their names, which are whiteouts, too: BACKING
    /// keeps them until it has lost the names in them.
    removed_dirs: HashMap<Ino, (Ino, Name)>,
    /// By BACKING's number, files that have another number in the mount.
    shown: HashMap<u64, Shown>,
    /// By BACKING's number, how many names of a file are hidden.
    hidden: HashMap<u64, u32>,
    /// When files in RAM last came to or left a directory, until BACKING has that time.
    pub(crate) dir_times: HashMap<Ino, Time>,
    /// Files in RAM that have a name, in order of creation.
    named_in_ram: BTreeSet<Ino>,
    /// Files in RAM that have none.
    nameless: BTreeSet<Ino>,
    /// When a file lost its last name.
    deleted: Option<Instant>,
    /// Files of groups in RAM.
    delayed: BTreeMap<Ino, Arc<DelayedFile>>,
    /// Files on flash with changes that may wait in RAM.
    waiting: BTreeMap<Ino, Arc<FileState>>,
    dirs: HashMap<Ino, Arc<OpenDir>>,
    /// By BACKING's number, when files got names that may not be durable yet.
    named_at: HashMap<u64, Instant>,
    pub(crate) temps: Temps,
    /// Identities of files that existed before the mount and were named by an event.
    identities: HashMap<Ino, FileId>,
    next: Ino,
    next_replacement: Ino,
    root_ino: u64,
    /// Space on flash for the names and attributes of the files in RAM.
    metadata: Arc<Metadata>,
}

#[derive(Debug)]
pub(crate) struct Node {
    /// The known names; for a file in RAM, all of them.
    pub(crate) names: Names,
    /// Lookups that the kernel has not yet taken back.
    pub(crate) lookups: u64,
    pub(crate) opens: u32,
    /// Number of names in this directory that other nodes have.
    holds: u32,
    /// A file in RAM for whose attributes space on flash is reserved.
    has_attributes: bool,
    /// Extents of a sparse file in RAM for which space on flash is reserved.
    extents: u64,
    file: Resident,
}

impl Node {
    fn new(lookups: u64, file: Resident) -> Node {
        Node {
            names: Names::new(),
            lookups,
            opens: 0,
            holds: 0,
            has_attributes: false,
            extents: 0,
            file,
        }
    }

    pub(crate) fn residence(&self) -> &Residence {
        self.file.residence()
    }

    /// The state that the users of the file share, while it is open or being moved.
    pub(crate) fn file_state(&self) -> Option<&Arc<FileState>> {
        self.file.shared()
    }
}

/// A name that is only in the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InRam {
    pub(crate) ino: Ino,
    /// BACKING's number of the file that this name hides.
    pub(crate) hides: Option<NonZero<u64>>,
}

#[derive(Clone, Copy, Debug)]
struct Shown {
    ino: Ino,
    /// The `ctime` of the file before write-back, and the one that BACKING gave it, ns.
    /// Applications see the first: a write-back changes nothing for them.
    before_ns: i64,
    settled_ns: i64,
}

/// The number of the file in RAM that has this identity.
pub(crate) fn number(file: FileId) -> Ino {
    file.0 + FIRST_NUMBER + 1
}

/// The identity of the file that was given this number.
pub(crate) fn file_id(number: Ino) -> FileId {
    FileId(number - FIRST_NUMBER - 1)
}

/// Nanoseconds, in half the space of a `Time`; covers the years to 2262.
fn ns(time: Time) -> Option<i64> {
    time.s.checked_mul(1_000_000_000)?.checked_add(i64::from(time.ns))
}

fn time(ns: i64) -> Time {
    Time { s: ns.div_euclid(1_000_000_000), ns: ns.rem_euclid(1_000_000_000) as u32 }
}

impl Table {
    pub(crate) fn new(root_ino: u64, metadata: Arc<Metadata>) -> Table {
        Table {
            nodes: HashMap::from([(ROOT, Node::new(1, Resident::found(root_ino)))]),
            in_ram: HashMap::new(),
            new_directories_in: HashMap::new(),
            new_directories: BTreeSet::new(),
            whiteouts: HashMap::new(),
            removed_dirs: HashMap::new(),
            shown: HashMap::new(),
            hidden: HashMap::new(),
            dir_times: HashMap::new(),
            named_in_ram: BTreeSet::new(),
            nameless: BTreeSet::new(),
            deleted: None,
            delayed: BTreeMap::new(),
            waiting: BTreeMap::new(),
            dirs: HashMap::new(),
            named_at: HashMap::new(),
            temps: Temps::default(),
            identities: HashMap::new(),
            next: FIRST_NUMBER,
            next_replacement: FIRST_REPLACEMENT,
            root_ino,
            metadata,
        }
    }

    pub(crate) fn node(&self, ino: Ino) -> Option<&Node> {
        self.nodes.get(&ino)
    }

    /// Where the file lives, if it is known.
    pub(crate) fn residence(&self, ino: Ino) -> Option<&Residence> {
        self.nodes.get(&ino).map(Node::residence)
    }

    pub(crate) fn is_in_ram(&self, ino: Ino) -> bool {
        self.residence(ino).is_some_and(Residence::is_in_ram)
    }

    /// Files in RAM that have a name, in order of creation.
    pub(crate) fn named_in_ram(&self) -> &BTreeSet<Ino> {
        &self.named_in_ram
    }

    /// Files in RAM that have no name, and that no process has open. The kernel may still ask for
    /// them.
    pub(crate) fn nameless(&self) -> impl Iterator<Item = Ino> {
        self.nameless.iter().copied().filter(|ino| self.node(*ino).is_some_and(|it| it.opens == 0))
    }

    /// When a file last lost its last name.
    pub(crate) fn last_deleted(&self) -> Option<Instant> {
        self.deleted
    }

    /// Whether nothing leads to a file in RAM any more. The kernel may open a file by its number
    /// after the last name is gone: another program replaced it meanwhile, or a descriptor of
    /// `O_PATH` holds it. One that was handed over takes space of flash, which is free at once.
    pub(crate) fn is_unreachable(&self, ino: Ino) -> bool {
        self.nameless.contains(&ino)
            && self.node(ino).is_some_and(|node| {
                let is_handed_over = matches!(node.residence(), Residence::HandedOver);
                node.opens == 0 && (node.lookups == 0 || is_handed_over)
            })
    }

    /// Directories that BACKING lacks, in order of creation.
    pub(crate) fn new_directories(&self) -> &BTreeSet<Ino> {
        &self.new_directories
    }

    pub(crate) fn is_new_directory(&self, ino: Ino) -> bool {
        self.new_directories.contains(&ino)
    }

    /// The directory that has this name in RAM alone.
    pub(crate) fn new_directory(&self, dir: Ino, name: &OsStr) -> Option<Ino> {
        self.new_directories_in.get(&dir)?.get(name).copied()
    }

    /// The directories in this one that BACKING lacks.
    pub(crate) fn new_directories_in(
        &self,
        dir: Ino,
    ) -> impl ExactSizeIterator<Item = (&Name, &Ino)> {
        const NONE: &BTreeMap<Name, Ino> = &BTreeMap::new();
        self.new_directories_in.get(&dir).unwrap_or(NONE).iter()
    }

    /// Whether RAM has names in this directory.
    pub(crate) fn has_names_in_ram(&self, dir: Ino) -> bool {
        self.in_ram.contains_key(&dir) || self.new_directories_in.contains_key(&dir)
    }

    /// Inodes of BACKING that everything in RAM that has a name will need.
    pub(crate) fn inodes_in_ram(&self) -> u64 {
        (self.named_in_ram.len() + self.new_directories.len()) as u64
    }

    /// Space on flash that a new directory needs at most, bytes: its first block, and its name.
    pub(crate) fn space_for_directory(&self, name: &OsStr) -> u64 {
        BLOCK_BYTES + self.metadata.of_name(name.len(), true)
    }

    /// A number for a directory in RAM. Those of files are identities in the event stream, which
    /// knows no directories.
    pub(crate) fn next_directory_number(&mut self) -> Ino {
        self.next_replacement += 1;
        self.next_replacement
    }

    /// Adds a directory that was created in RAM.
    pub(crate) fn born_directory(&mut self, ino: Ino, (dir, name): (Ino, &Name)) {
        self.nodes.insert(ino, Node::new(0, Resident::new_directory()));
        self.new_directories.insert(ino);
        self.new_directories_in.entry(dir).or_default().insert(name.clone(), ino);
        self.metadata.add(self.space_for_directory(name));
        self.name(ino, dir, name);
    }

    /// Gives a directory in RAM another name.
    pub(crate) fn move_new_directory(&mut self, ino: Ino, (dir, name): (Ino, &Name)) {
        let Some((from, old)) = self.node(ino).and_then(|node| node.names.first()).cloned() else {
            return;
        };
        self.remove_new_name(from, &old);
        self.new_directories_in.entry(dir).or_default().insert(name.clone(), ino);
        self.metadata.add(self.space_for_directory(name));
        self.name(ino, dir, name);
        self.unname(ino, from, &old);
    }

    /// A directory is no longer in RAM alone. Its node keeps its name.
    pub(crate) fn remove_new_directory(&mut self, ino: Ino) {
        let Some((dir, name)) = self.node(ino).and_then(|node| node.names.first()).cloned() else {
            return;
        };
        if self.new_directories.remove(&ino) {
            self.remove_new_name(dir, &name);
        }
    }

    fn remove_new_name(&mut self, dir: Ino, name: &Name) {
        if let Some(names) = self.new_directories_in.get_mut(&dir) {
            names.remove(name);
            if names.is_empty() {
                self.new_directories_in.remove(&dir);
            }
        }
        self.metadata.subtract(self.space_for_directory(name));
    }

    /// BACKING has just made this directory. `was` and `is` are its attributes in RAM and there.
    pub(crate) fn settle_directory(&mut self, ino: Ino, was: &Stat, is: &Stat) {
        self.remove_new_directory(ino);
        self.moves(ino, None, Residence::Flash(is.st_ino), None);
        self.show(ino, was, is);
    }

    /// Files of groups in RAM.
    pub(crate) fn delayed(&self) -> &BTreeMap<Ino, Arc<DelayedFile>> {
        &self.delayed
    }

    /// Files on flash with changes that may wait in RAM.
    pub(crate) fn waiting(&self) -> &BTreeMap<Ino, Arc<FileState>> {
        &self.waiting
    }

    /// Changes of this file on flash wait in RAM from now on.
    pub(crate) fn begin_waiting(&mut self, ino: Ino, file_state: &Arc<FileState>) {
        if self.nodes.contains_key(&ino) && file_state.waiting().is_some() {
            self.waiting.insert(ino, file_state.clone());
        }
    }

    /// Lets go of a file that is not open, if nothing of it waits, or if it is gone. Returns
    /// whether it did.
    pub(crate) fn let_go_of_waiting(&mut self, ino: Ino) -> bool {
        let Some(node) = self.nodes.get(&ino).filter(|node| node.opens == 0) else { return false };
        let Some(waiting) = self.waiting.get(&ino).and_then(|state| state.waiting()) else {
            return false;
        };
        match node.residence() {
            Residence::Flash(backing_ino) if waiting.unsaved().is_none() => {
                if let Some((shown, settled)) = waiting.shown_ctime()
                    && let Some((before_ns, settled_ns)) = ns(shown).zip(ns(settled))
                {
                    let backing_ino = *backing_ino;
                    self.shown.insert(backing_ino, Shown { ino, before_ns, settled_ns });
                }
            }
            Residence::Gone(_) => {}
            _ => return false,
        }
        if let Some(state) = self.waiting.remove(&ino) {
            state.set_waiting(None);
        }
        self.release_unused(ino);
        true
    }

    /// The pages of a file in RAM that belongs to a group.
    pub(crate) fn delayed_file(&self, ino: Ino) -> Option<Arc<DelayedFile>> {
        self.delayed.get(&ino).cloned()
    }

    /// The kernel has looked the file up. Returns whether it is known.
    pub(crate) fn count_lookup(&mut self, ino: Ino) -> bool {
        let node = self.nodes.get_mut(&ino);
        node.map(|node| node.lookups += 1).is_some()
    }

    /// The kernel takes this many lookups back.
    pub(crate) fn forget(&mut self, ino: Ino, lookups: u64) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.lookups = node.lookups.saturating_sub(lookups).max(u64::from(ino == ROOT));
        }
        self.drop_unused(ino);
    }

    /// The file is open once more.
    pub(crate) fn count_open(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.opens += 1;
        }
    }

    /// It is open once less. Returns how often it is still open; `None`: it is not known.
    pub(crate) fn count_close(&mut self, ino: Ino) -> Option<u32> {
        let node = self.nodes.get_mut(&ino)?;
        node.opens = node.opens.saturating_sub(1);
        Some(node.opens)
    }

    /// State that the file's readers and writers share; it is created if no process has the file
    /// open. `in_group`: it may join a group meanwhile.
    pub(crate) fn share(&mut self, ino: Ino, in_group: bool) -> Option<Arc<FileState>> {
        self.nodes.get_mut(&ino).map(|node| node.file.share(in_group).clone())
    }

    /// A file gets another name than the first.
    pub(crate) fn is_renamed(&self, ino: Ino) {
        if let Some(file_state) = self.node(ino).and_then(Node::file_state) {
            file_state.is_renamed();
        }
    }

    /// Releases the shared state, which is dropped with its last user.
    pub(crate) fn release(&mut self, ino: Ino, file_state: Arc<FileState>) {
        drop(file_state);
        self.release_unused(ino);
    }

    /// Drops the shared state if no one uses it.
    pub(crate) fn release_unused(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino).filter(|node| node.opens == 0) {
            node.file.release();
        }
    }

    /// Performs a transition, and lets the lists of files follow.
    fn moves(
        &mut self,
        ino: Ino,
        place: Option<&mut Place>,
        to: Residence,
        bytes: Option<Arc<File>>,
    ) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.file.moves(place, to, bytes);
            self.list(ino);
        }
    }

    /// Changes the attributes of a file that is gone.
    pub(crate) fn set_last_attributes(&mut self, ino: Ino, attr: Attr) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.file.set_last_attributes(attr);
        }
    }

    /// Lists a file as the others with its residence.
    fn list(&mut self, ino: Ino) {
        let Some(node) = self.nodes.get(&ino) else { return };
        for (list, named) in [(&mut self.named_in_ram, true), (&mut self.nameless, false)] {
            match node.residence().is_in_ram() && node.names.is_empty() != named {
                true => list.insert(ino),
                false => list.remove(&ino),
            };
        }
        match node.residence().delayed() {
            Some(file) => self.delayed.insert(ino, file.clone()),
            None => self.delayed.remove(&ino),
        };
    }

    /// A file in RAM has a copy in BACKING under its name.
    pub(crate) fn keep_copy(&mut self, ino: Ino, place: &mut Place, copy: Checkpoint) {
        self.moves(ino, Some(place), Residence::Ram(Some(copy)), None);
    }

    /// A file in RAM has its bytes in this file without a name from now on.
    pub(crate) fn hand_over(&mut self, ino: Ino, place: &mut Place, file: Arc<File>) {
        self.moves(ino, Some(place), Residence::HandedOver, Some(file));
    }

    /// A file in RAM belongs to a group from now on.
    pub(crate) fn join(&mut self, ino: Ino, file: Arc<DelayedFile>) {
        self.moves(ino, None, Residence::Delayed(file), None);
    }

    /// Names from one directory down to another; `None` if the other is not inside.
    pub(crate) fn names_between(&self, above: Ino, mut dir: Ino) -> Option<Vec<&[u8]>> {
        let mut names = Vec::new();
        while dir != above {
            let (parent, name) = self.node(dir)?.names.first()?;
            names.push(name.as_bytes());
            dir = *parent;
        }
        names.reverse();
        Some(names)
    }

    /// The path of a name from the mounted directory on; bytes that are not UTF-8 as `\xNN`.
    pub(crate) fn path(&self, dir: Ino, name: &OsStr) -> String {
        let mut path = String::new();
        self.write_path(dir, name, &mut path);
        path
    }

    /// Writes the path of a name.
    pub(crate) fn writes<'a>(
        &'a self,
        (dir, name): (Ino, &'a OsStr),
    ) -> impl FnOnce(&mut String) + 'a {
        move |into| self.write_path(dir, name, into)
    }

    fn write_path(&self, dir: Ino, name: &OsStr, into: &mut String) {
        if dir != ROOT
            && let Some((parent, name)) = self.node(dir).and_then(|node| node.names.first())
        {
            self.write_path(*parent, name, into);
        }
        into.push('/');
        escape_into(name.as_bytes(), into);
    }

    pub(crate) fn next_number(&mut self) -> Ino {
        self.next += 1;
        self.next
    }

    /// A file's identity in the event stream, once an event has named it. A file that was created
    /// in RAM is known from its creation; its number is never reused.
    pub(crate) fn file(&self, ino: Ino) -> Option<FileId> {
        match (FIRST_NUMBER..FIRST_REPLACEMENT).contains(&ino) {
            true => Some(file_id(ino)),
            false => self.identities.get(&ino).copied(),
        }
    }

    /// Gives a file that existed before the mount an identity in the event stream.
    pub(crate) fn identify(&mut self, ino: Ino) -> FileId {
        let number = self.next_number();
        self.identify_as(ino, number)
    }

    /// The same with a number that was reserved for it.
    pub(crate) fn identify_as(&mut self, ino: Ino, number: Ino) -> FileId {
        self.identities.insert(ino, file_id(number));
        file_id(number)
    }

    /// Ends the identity of a deleted file: BACKING may reuse its number.
    pub(crate) fn end_file(&mut self, ino: Ino) -> Option<FileId> {
        let file = self.file(ino);
        self.identities.remove(&ino);
        file
    }

    /// The number in the mount of this file of BACKING.
    pub(crate) fn known_as(&self, backing_ino: u64) -> Ino {
        match self.shown.get(&backing_ino) {
            Some(shown) => shown.ino,
            None if backing_ino == self.root_ino => ROOT,
            None => backing_ino,
        }
    }

    /// The node of this file of BACKING; it is created if there is none.
    pub(crate) fn settled(&mut self, backing_ino: u64) -> Ino {
        let mut ino = self.known_as(backing_ino);
        let ours = |node: &Node| node.residence().backing_ino() == Some(backing_ino);
        let taken = match self.nodes.get(&ino) {
            Some(node) => !ours(node),
            None => !self.shown.contains_key(&backing_ino) && (ino == ROOT || ino >= FIRST_NUMBER),
        };
        if taken {
            // The kernel may still ask for a deleted file that had this number.
            self.next_replacement += 1;
            ino = self.next_replacement;
            self.shown.insert(backing_ino, Shown { ino, before_ns: 0, settled_ns: 0 });
        }
        self.nodes.entry(ino).or_insert_with(|| Node::new(0, Resident::found(backing_ino)));
        ino
    }

    /// Adds a file that was created in RAM.
    pub(crate) fn born(&mut self, ino: Ino) {
        self.nodes.insert(ino, Node::new(0, Resident::born()));
        self.list(ino);
    }

    /// Makes a file that BACKING has a file of a group in RAM, whose names hide it. `ram` gets its
    /// changes.
    pub(crate) fn adopt(
        &mut self,
        ino: Ino,
        place: Option<&mut Place>,
        file: Arc<DelayedFile>,
        ram: Arc<File>,
    ) {
        let Some(node) = self.nodes.get(&ino) else { return };
        let hides = node.residence().backing_ino().and_then(NonZero::new);
        let names = node.names.clone();
        self.moves(ino, place, Residence::Delayed(file), Some(ram));
        for (dir, name) in names {
            self.insert_in_ram(dir, &name, InRam { ino, hides });
        }
    }

    /// Hides a name that only BACKING still has.
    pub(crate) fn white_out(&mut self, dir: Ino, name: &Name) {
        if self.whiteouts.entry(dir).or_default().insert(name.clone())
            && let Some(node) = self.nodes.get_mut(&dir)
        {
            node.holds += 1;
        }
    }

    /// BACKING has lost such a name, or another one hides it.
    pub(crate) fn end_whiteout(&mut self, dir: Ino, name: &OsStr) -> bool {
        let Some(names) = self.whiteouts.get_mut(&dir) else { return false };
        let ended = names.remove(name);
        if names.is_empty() {
            self.whiteouts.remove(&dir);
        }
        if ended {
            self.let_go_of(dir);
        }
        ended
    }

    pub(crate) fn is_whiteout(&self, dir: Ino, name: &OsStr) -> bool {
        self.whiteouts.get(&dir).is_some_and(|names| names.contains(name))
    }

    /// Whether BACKING has names in this directory that are gone here.
    pub(crate) fn has_whiteouts(&self, dir: Ino) -> bool {
        self.whiteouts.contains_key(&dir)
    }

    /// Every such name.
    pub(crate) fn all_whiteouts(&self) -> Vec<(Ino, Name)> {
        let names = self.whiteouts.iter();
        names.flat_map(|(dir, names)| names.iter().map(|name| (*dir, name.clone()))).collect()
    }

    /// Hides a directory of BACKING in which no name is left but whiteouts.
    pub(crate) fn remove_dir_later(&mut self, dir: Ino, (parent, name): (Ino, &OsStr)) {
        let name = Name::from(name);
        self.white_out(parent, &name);
        if let Some(node) = self.nodes.get_mut(&dir) {
            node.holds += 1;
        }
        self.removed_dirs.insert(dir, (parent, name));
    }

    /// Whether this directory was removed so.
    pub(crate) fn is_removed_dir(&self, dir: Ino) -> bool {
        self.removed_dirs.contains_key(&dir)
    }

    /// Whether BACKING has such a directory under this name.
    pub(crate) fn hides_removed_dir(&self, parent: Ino, name: &OsStr) -> bool {
        !self.removed_dirs.is_empty()
            && self.is_whiteout(parent, name)
            && self.removed_dirs.values().any(|(dir, its)| *dir == parent && **its == *name)
    }

    /// Number of such directories in this one, which BACKING has.
    pub(crate) fn removed_dirs_in(&self, parent: Ino) -> u32 {
        self.removed_dirs.values().filter(|(dir, _)| *dir == parent).count() as u32
    }

    /// The names of all such directories.
    pub(crate) fn names_of_removed_dirs(&self) -> HashSet<(Ino, Name)> {
        self.removed_dirs.values().cloned().collect()
    }

    /// One of them in which BACKING has no name any more.
    pub(crate) fn emptied_dir(&self) -> Option<(Ino, (Ino, Name))> {
        let (dir, named) = self.removed_dirs.iter().find(|(dir, _)| !self.has_whiteouts(**dir))?;
        Some((*dir, named.clone()))
    }

    /// BACKING has lost it as well, or will not.
    pub(crate) fn end_removed_dir(&mut self, dir: Ino) {
        if let Some((parent, name)) = self.removed_dirs.remove(&dir) {
            self.let_go_of(dir);
            self.end_whiteout(parent, &name);
        }
    }

    /// BACKING has lost this file's name, which a file in RAM may have.
    pub(crate) fn hides_no_more(&mut self, dir: Ino, name: &Name, backing_ino: u64) {
        let hides = self.in_ram(dir, name).and_then(|in_ram| in_ram.hides);
        if hides.map(NonZero::get) == Some(backing_ino) {
            self.set_hides(dir, name, 0);
        }
    }

    /// Records which file of BACKING a name in RAM hides; 0: none.
    pub(crate) fn set_hides(&mut self, dir: Ino, name: &Name, hides: u64) {
        if let Some(in_ram) = self.in_ram(dir, name) {
            self.remove_in_ram(dir, name);
            self.insert_in_ram(dir, name, InRam { hides: NonZero::new(hides), ..in_ram });
        }
    }

    /// Space on flash that a name of a file in RAM needs at most, bytes.
    pub(crate) fn space_for_name(&self, dir: Ino, name: &OsStr) -> u64 {
        self.metadata.of_name(name.len(), !self.in_ram.contains_key(&dir))
    }

    /// Whether space on flash is reserved for the attributes of this file; a file on flash needs
    /// none.
    pub(crate) fn has_space_for_attributes(&self, ino: Ino) -> bool {
        self.nodes.get(&ino).is_none_or(|node| node.has_attributes || !node.residence().is_in_ram())
    }

    /// Records that this space is reserved.
    pub(crate) fn add_attributes(&mut self, ino: Ino) {
        if !self.has_space_for_attributes(ino)
            && let Some(node) = self.nodes.get_mut(&ino)
        {
            node.has_attributes = true;
            self.metadata.add(ATTRIBUTES_BYTES);
        }
    }

    /// Whether a sparse file in RAM with so many pages may have an extent more than it has space
    /// for on flash.
    pub(crate) fn may_need_extent(&self, ino: Ino, pages: u64) -> bool {
        self.nodes
            .get(&ino)
            .is_some_and(|node| node.residence().is_in_ram() && node.extents < pages)
    }

    /// Records that this space is reserved.
    pub(crate) fn add_extent(&mut self, ino: Ino) {
        if self.may_need_extent(ino, u64::MAX)
            && let Some(node) = self.nodes.get_mut(&ino)
        {
            node.extents += 1;
            self.metadata.add(EXTENT_BYTES);
        }
    }

    /// Takes the reservations for attributes and extents back: the file leaves RAM.
    fn drop_attributes(&mut self, ino: Ino) {
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        if std::mem::take(&mut node.has_attributes) {
            self.metadata.subtract(ATTRIBUTES_BYTES);
        }
        self.metadata.subtract(std::mem::take(&mut node.extents) * EXTENT_BYTES);
    }

    /// A file in RAM lives in BACKING from now on, which has just given this file each of its
    /// names. `was` and `is` are its attributes in RAM and there.
    pub(crate) fn settle(
        &mut self,
        ino: Ino,
        place: Option<&mut Place>,
        file: Arc<File>,
        (was, is): (&Stat, &Stat),
    ) {
        let backing_ino = is.st_ino;
        self.drop_attributes(ino);
        let Some(node) = self.nodes.get(&ino) else { return };
        let names = node.names.clone();
        self.moves(ino, place, Residence::Flash(backing_ino), Some(file));
        for (dir, name) in names {
            self.remove_in_ram(dir, &name);
        }
        self.show(ino, was, is);
        self.named_at.insert(backing_ino, Instant::now());
    }

    /// Applications see what left RAM under its number there, and with its `ctime` until it
    /// changes.
    fn show(&mut self, ino: Ino, was: &Stat, is: &Stat) {
        let ctime = |stat: &Stat| Time { s: stat.st_ctime, ns: stat.st_ctime_nsec as u32 };
        let (before_ns, settled_ns) = ns(ctime(was)).zip(ns(ctime(is))).unwrap_or_default();
        self.shown.insert(is.st_ino, Shown { ino, before_ns, settled_ns });
    }

    /// The same for a directory, in which nothing changed but our own files: `ctime` is shown as it
    /// was until it changes from this one.
    pub(crate) fn show_ctime(&mut self, ino: Ino, was: Time, is: &Stat) {
        let is_now = Time { s: is.st_ctime, ns: is.st_ctime_nsec as u32 };
        if let Some((before_ns, settled_ns)) = ns(was).zip(ns(is_now)) {
            self.shown.insert(is.st_ino, Shown { ino, before_ns, settled_ns });
        }
    }

    /// Records that these names are durable.
    pub(crate) fn names_last(&mut self, backing_ino: u64) {
        self.named_at.remove(&backing_ino);
    }

    /// Records that all names are durable that files got before this time.
    pub(crate) fn all_names_last(&mut self, before: Instant) {
        self.named_at.retain(|_, at| *at >= before);
    }

    /// Whether the names of this file are durable. `None`: no file system commits them on its own.
    pub(crate) fn do_names_last(&self, backing_ino: u64, after: Option<Duration>) -> bool {
        self.named_at
            .get(&backing_ino)
            .is_none_or(|at| after.is_some_and(|after| at.elapsed() > after))
    }

    /// Whether names of some file may not be durable.
    pub(crate) fn has_new_names(&self) -> bool {
        !self.named_at.is_empty()
    }

    /// The `ctime` to show instead of BACKING's.
    pub(crate) fn ctime(&self, backing_ino: u64, ctime: Time) -> Time {
        match self.shown.get(&backing_ino) {
            Some(shown)
                if shown.before_ns != shown.settled_ns && ns(ctime) == Some(shown.settled_ns) =>
            {
                time(shown.before_ns)
            }
            _ => ctime,
        }
    }

    pub(crate) fn hidden_names(&self, backing_ino: u64) -> u32 {
        self.hidden.get(&backing_ino).copied().unwrap_or(0)
    }

    /// The file in RAM under this name.
    pub(crate) fn in_ram(&self, dir: Ino, name: &OsStr) -> Option<InRam> {
        self.in_ram.get(&dir)?.get(name).copied()
    }

    /// All names of files in RAM in this directory.
    pub(crate) fn all_in_ram(&self, dir: Ino) -> impl Iterator<Item = (&Name, &InRam)> {
        self.in_ram.get(&dir).into_iter().flatten()
    }

    pub(crate) fn insert_in_ram(&mut self, dir: Ino, name: &Name, in_ram: InRam) {
        if let Some(backing_ino) = in_ram.hides {
            *self.hidden.entry(backing_ino.get()).or_default() += 1;
        }
        self.metadata.add(self.space_for_name(dir, name));
        self.in_ram.entry(dir).or_default().insert(name.clone(), in_ram);
        self.name(in_ram.ino, dir, name);
    }

    /// Removes a name in RAM, so that BACKING's is visible again. The node keeps it.
    pub(crate) fn remove_in_ram(&mut self, dir: Ino, name: &OsStr) -> Option<InRam> {
        let names = self.in_ram.get_mut(&dir)?;
        let removed = names.remove(name)?;
        if names.is_empty() {
            self.in_ram.remove(&dir);
        }
        // The name would need the same space again, also as the last one there.
        self.metadata.subtract(self.space_for_name(dir, name));
        if let Some(backing_ino) = removed.hides
            && let Some(count) = self.hidden.get_mut(&backing_ino.get())
        {
            *count -= 1;
            if *count == 0 {
                self.hidden.remove(&backing_ino.get());
            }
        }
        Some(removed)
    }

    /// Adds a name to a node. Returns whether it is new.
    pub(crate) fn name(&mut self, ino: Ino, dir: Ino, name: &Name) -> bool {
        let Some(node) = self.nodes.get_mut(&ino) else { return false };
        if node.names.iter().any(|(other, known)| *other == dir && known == name) {
            return false;
        }
        node.names.push((dir, name.clone()));
        self.list(ino);
        if let Some(dir) = self.nodes.get_mut(&dir) {
            dir.holds += 1;
        }
        true
    }

    /// Removes a name from a node.
    pub(crate) fn unname(&mut self, ino: Ino, dir: Ino, name: &OsStr) {
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        let before = node.names.len();
        node.names.retain(|(other, known)| *other != dir || **known != *name);
        if node.names.len() < before {
            self.deleted = if node.names.is_empty() { Some(Instant::now()) } else { self.deleted };
            self.list(ino);
            self.let_go_of(dir);
        }
    }

    fn let_go_of(&mut self, dir: Ino) {
        if let Some(node) = self.nodes.get_mut(&dir) {
            node.holds -= 1;
            self.drop_unused(dir);
        }
    }

    /// The last name is gone. BACKING may give its number to another file. Processes that have the
    /// file open find its bytes in `file`, if that is another than before.
    pub(crate) fn vanish(
        &mut self,
        ino: Ino,
        place: Option<&mut Place>,
        attr: Attr,
        file: Option<Arc<File>>,
    ) {
        self.drop_attributes(ino);
        self.dirs.remove(&ino);
        self.dir_times.remove(&ino);
        if let Some(backing_ino) = self.residence(ino).and_then(Residence::backing_ino) {
            self.shown.remove(&backing_ino);
        }
        self.moves(ino, place, Residence::Gone(Arc::new(Attr { nlink: 0, ..attr })), file);
        self.let_go_of_waiting(ino);
        self.drop_unused(ino);
    }

    /// Releases the number of a file that is gone or was never looked up: BACKING may reuse it.
    pub(crate) fn forget_number(&mut self, backing_ino: u64) {
        self.shown.remove(&backing_ino);
    }

    /// Removes the node if neither the kernel nor the table needs it.
    pub(crate) fn drop_unused(&mut self, ino: Ino) {
        let Some(node) = self.nodes.get(&ino) else { return };
        let used = node.lookups > 0
            || node.opens > 0
            || node.holds > 0
            || node.residence().is_in_ram()
            || self.is_new_directory(ino)
            || self.waiting.contains_key(&ino);
        if used || self.dir_times.contains_key(&ino) {
            return;
        }
        self.dirs.remove(&ino);
        if let Some(node) = self.nodes.remove(&ino) {
            for (dir, _) in node.names {
                self.let_go_of(dir);
            }
        }
    }

    pub(crate) fn open_dir(&self, ino: Ino) -> Option<Arc<OpenDir>> {
        self.dirs.get(&ino).cloned()
    }

    pub(crate) fn keep_open(&mut self, ino: Ino, dir: &Arc<OpenDir>) {
        if self.dirs.len() >= OPEN_DIRS {
            self.dirs.clear();
        }
        self.dirs.insert(ino, dir.clone());
    }

    /// Closes the cached descriptor of a directory that was changed or removed.
    pub(crate) fn close_dir(&mut self, ino: Ino) {
        self.dirs.remove(&ino);
    }

    /// Recomputes the redundant state and compares it; for tests.
    pub(crate) fn check(&self) {
        let mut holds: HashMap<Ino, u32> = HashMap::new();
        for (ino, node) in &self.nodes {
            for (dir, _) in &node.names {
                *holds.entry(*dir).or_default() += 1;
                assert!(self.nodes.contains_key(dir), "the directory {dir} of {ino} is here");
            }
            node.file.check();
            let is_named_in_ram = node.residence().is_in_ram() && !node.names.is_empty();
            assert_eq!(self.named_in_ram.contains(ino), is_named_in_ram, "{ino} has a name or not");
            let is_nameless = node.residence().is_in_ram() && node.names.is_empty();
            assert_eq!(self.nameless.contains(ino), is_nameless, "{ino} has no name, or one");
            assert!(!self.is_unreachable(*ino), "{ino} can be reached");
            let is_delayed = node.residence().delayed().is_some();
            assert_eq!(self.delayed.contains_key(ino), is_delayed, "{ino} belongs to a group");
            match node.residence() {
                Residence::Ram(_) | Residence::HandedOver | Residence::Delayed(_) => {
                    for (dir, name) in &node.names {
                        assert_eq!(
                            self.in_ram(*dir, name).map(|known| known.ino),
                            Some(*ino),
                            "{name:?} in RAM"
                        );
                    }
                }
                Residence::NewDirectory => {
                    let [(dir, name)] = &node.names[..] else { panic!("{ino} has one name") };
                    assert_eq!(self.new_directory(*dir, name), Some(*ino), "{name:?} in RAM");
                }
                Residence::Flash(backing_ino) => {
                    assert_eq!(self.known_as(*backing_ino), *ino, "number of {backing_ino}")
                }
                Residence::Gone(attr) => {
                    assert!(attr.nlink == 0 && node.names.is_empty(), "{ino} is gone")
                }
            }
        }
        for (dir, names) in &self.whiteouts {
            assert!(!names.is_empty() && self.nodes.contains_key(dir), "whiteouts in {dir}");
            *holds.entry(*dir).or_default() += names.len() as u32;
            for name in names {
                assert!(self.in_ram(*dir, name).is_none(), "{name:?} in {dir} is gone");
            }
        }
        for (dir, (parent, name)) in &self.removed_dirs {
            assert!(self.is_whiteout(*parent, name), "{name:?} in {parent} is removed");
            assert!(self.nodes.contains_key(dir), "the removed directory {dir} is here");
            *holds.entry(*dir).or_default() += 1;
        }
        for (ino, node) in &self.nodes {
            assert_eq!(node.holds, holds.get(ino).copied().unwrap_or(0), "names in {ino}");
        }
        let attributes = self.nodes.values().filter(|node| node.has_attributes).count() as u64;
        let extents: u64 = self.nodes.values().map(|node| node.extents).sum();
        let mut metadata = attributes * ATTRIBUTES_BYTES + extents * EXTENT_BYTES;
        for names in self.in_ram.values() {
            let mut first = true;
            for name in names.keys() {
                metadata += self.metadata.of_name(name.len(), std::mem::take(&mut first));
            }
        }
        let mut new = BTreeSet::new();
        for (dir, names) in &self.new_directories_in {
            assert!(!names.is_empty(), "{dir} has new directories");
            for (name, ino) in names {
                metadata += self.space_for_directory(name);
                let residence = self.nodes[ino].residence();
                assert!(matches!(residence, Residence::NewDirectory), "{name:?} is in RAM");
                assert!(self.in_ram(*dir, name).is_none(), "{name:?} is no file");
                assert!(new.insert(*ino), "{ino} has one name");
            }
        }
        assert_eq!(self.new_directories, new, "directories in RAM");
        assert!(new.iter().all(|ino| !self.dir_times.contains_key(ino)), "they have their times");
        assert_eq!(self.metadata.bytes(), metadata, "space for names and attributes");
        let mut hidden: HashMap<u64, u32> = HashMap::new();
        for (dir, names) in &self.in_ram {
            assert!(!names.is_empty(), "{dir} has names in RAM");
            for (name, in_ram) in names {
                let node = &self.nodes[&in_ram.ino];
                assert!(node.residence().is_in_ram(), "{name:?} lives in RAM");
                assert!(
                    node.names.iter().any(|(other, known)| other == dir && known == name),
                    "{name:?} is known"
                );
                if let Some(backing_ino) = in_ram.hides {
                    *hidden.entry(backing_ino.get()).or_default() += 1;
                }
            }
        }
        assert_eq!(self.hidden, hidden, "hidden names");
        for dir in self.dir_times.keys() {
            assert!(
                self.nodes.contains_key(dir),
                "{dir} is here while BACKING does not know its time"
            );
        }
        for ino in self.named_in_ram.iter().chain(&self.nameless).chain(self.delayed.keys()) {
            assert!(self.nodes.contains_key(ino), "{ino} is known");
        }
        for (ino, state) in &self.waiting {
            let node = &self.nodes[ino];
            assert!(node.file_state().is_some_and(|known| Arc::ptr_eq(known, state)), "{ino}");
            assert!(state.waiting().is_some(), "changes of {ino} wait");
            let is_there = match node.residence() {
                Residence::Flash(_) => true,
                Residence::Gone(_) => node.opens > 0,
                _ => false,
            };
            assert!(is_there, "{ino} is on flash");
        }
    }
}
