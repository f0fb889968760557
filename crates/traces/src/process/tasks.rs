//! Threads and the state they share: descriptor tables, working directories, address spaces.

use super::{
    Out, Strangers,
    files::{Files, Of},
    names::{Node, ROOT, SOMEWHERE},
    slab::Slab,
};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// Limit on the descriptors and mappings in all tables together; a fork beyond it gets empty
/// tables. The limit is far above a kernel's, and low enough that hostile input does not exhaust
/// memory.
const SLOTS_MAX: usize = 4 << 20;

/// Limit on the clones in progress that are followed at one time; no machine has so many cores.
const BIRTHS_MAX: usize = 1024;

#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) open: u32,
    pub(super) cloexec: bool,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    refs: u32,
    pub(super) slots: BTreeMap<i32, Slot>,
}

#[derive(Debug)]
pub(super) struct Fs {
    refs: u32,
    pub(super) cwd: Node,
    pub(super) root: Node,
    /// The permission bits that new files lack, once the trace has shown them.
    pub(super) umask: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping {
    end: u64,
    file: u32,
    offset: u64,
}

/// Mapped files by first address; ranges never overlap.
#[derive(Debug, Default)]
pub(super) struct Space {
    refs: u32,
    maps: BTreeMap<u64, Mapping>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    /// Thread group.
    pub(super) pid: u32,
    pub(super) table: u32,
    pub(super) fs: u32,
    pub(super) space: u32,
    /// The task has made a call, so its number is its own: a clone in a pid namespace returns
    /// another.
    born: bool,
}

/// The parts that a new task shares with its parent (`CLONE_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// `CLONE_FILES`: one descriptor table.
    pub files: bool,
    /// `CLONE_FS`: one working directory.
    pub fs: bool,
    /// `CLONE_VM`: one address space.
    pub vm: bool,
    /// `CLONE_THREAD`: one process.
    pub thread: bool,
}

/// A clone that has not returned.
#[derive(Debug)]
struct Birth {
    parent: u32,
    shares: Shares,
    /// The task that made a call before the clone returned.
    child: Option<u32>,
}

#[derive(Debug, Default)]
pub(super) struct Tasks {
    tasks: HashMap<u32, Task>,
    groups: HashMap<u32, Group>,
    pub(super) tables: Slab<Table>,
    pub(super) fs: Slab<Fs>,
    spaces: Slab<Space>,
    slots: usize,
    births: VecDeque<Birth>,
    /// Tasks that a clone returned and that have made no call yet, oldest first.
    unborn: VecDeque<u32>,
    first: Option<u32>,
}

#[derive(Debug, Default)]
struct Group {
    tids: BTreeSet<u32>,
    name: Option<Box<str>>,
}

impl Tasks {
    /// Returns the task that makes a call, and creates it if it is unknown.
    pub(super) fn caller(
        &mut self,
        tid: u32,
        strangers: Strangers,
        files: &mut Files,
        out: &mut Out,
    ) -> Task {
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.born = true;
            return *task;
        }
        while self
            .unborn
            .front()
            .is_some_and(|tid| self.tasks.get(tid).is_none_or(|task| task.born))
        {
            self.unborn.pop_front();
        }
        let waiting = self.births.iter().filter(|birth| birth.child.is_none());
        if waiting.clone().count() > 1 {
            out.note("thread that could be the child of several clones: the oldest is taken");
        }
        if let Some(n) = self.births.iter().position(|birth| birth.child.is_none()) {
            self.births[n].child = Some(tid);
            let Birth { parent, shares, .. } = self.births[n];
            self.fork(parent, tid, shares, files, out);
        } else if let Some(other) = self.unborn.pop_front() {
            out.note(
                "thread known by another number in its namespace: matched with the oldest clone",
            );
            self.renumber(other, tid);
        } else {
            let first = self.first.and_then(|first| self.tasks.get(&first)).copied();
            match (strangers, first) {
                (Strangers::Threads(_), Some(first)) => self.adopt(tid, first),
                _ => {
                    if self.first.is_some() {
                        out.note(
                            "thread whose beginning is not in the trace: taken for a process of \
                            own",
                        );
                    }
                    let pid = if let Strangers::Threads(pid) = strangers { pid } else { tid };
                    let task = Task {
                        pid,
                        table: self.tables.add(Table::default()),
                        fs: self.fs.add(Fs { refs: 0, cwd: SOMEWHERE, root: ROOT, umask: None }),
                        space: self.spaces.add(Space::default()),
                        born: true,
                    };
                    self.adopt(tid, task);
                }
            }
        }
        self.first.get_or_insert(tid);
        let task = self.tasks.get_mut(&tid).expect("every branch above made it");
        task.born = true;
        *task
    }

    pub(super) fn knows(&self, tid: u32) -> bool {
        self.tasks.contains_key(&tid)
    }

    fn adopt(&mut self, tid: u32, task: Task) {
        self.tables[task.table].refs += 1;
        self.fs[task.fs].refs += 1;
        self.spaces[task.space].refs += 1;
        self.groups.entry(task.pid).or_default().tids.insert(tid);
        self.tasks.insert(tid, task);
    }

    fn renumber(&mut self, from: u32, to: u32) {
        let Some(mut task) = self.tasks.remove(&from) else { return };
        let mut group = self.groups.remove(&task.pid).unwrap_or_default();
        group.tids.remove(&from);
        group.tids.insert(to);
        if task.pid == from {
            task.pid = to;
        }
        for tid in &group.tids {
            self.tasks.entry(*tid).and_modify(|other| other.pid = task.pid);
        }
        let into = self.groups.entry(task.pid).or_default();
        into.tids.append(&mut group.tids);
        into.name = group.name.or(into.name.take());
        self.tasks.insert(to, task);
    }

    /// Notes that a clone was entered.
    pub(super) fn birth_begins(&mut self, parent: u32, shares: Shares) {
        self.births.retain(|birth| birth.parent != parent);
        if self.births.len() == BIRTHS_MAX {
            self.births.pop_front();
        }
        self.births.push_back(Birth { parent, shares, child: None });
    }

    /// Notes that a clone returned `child`, or failed.
    pub(super) fn birth_ends(
        &mut self,
        parent: u32,
        child: Option<u32>,
        shares: Shares,
        files: &mut Files,
        out: &mut Out,
    ) {
        let begun = self.births.iter().position(|birth| birth.parent == parent);
        let claimed = begun.and_then(|n| self.births.remove(n)).and_then(|birth| birth.child);
        let Some(child) = child else { return };
        match claimed {
            Some(early) if early == child => {}
            // In a pid namespace, clone returns another number than the trace shows.
            Some(_) if !self.tasks.contains_key(&child) => {}
            _ => {
                self.exit(child, files, out);
                self.fork(parent, child, shares, files, out);
                self.unborn.push_back(child);
            }
        }
    }

    fn fork(&mut self, parent: u32, child: u32, shares: Shares, files: &mut Files, out: &mut Out) {
        let Some(mut task) = self.tasks.get(&parent).copied() else { return };
        if !shares.files {
            task.table = self.copy_table(task.table, files, out);
        }
        if !shares.fs {
            let Fs { cwd, root, umask, .. } = self.fs[task.fs];
            task.fs = self.fs.add(Fs { refs: 0, cwd, root, umask });
        }
        if !shares.vm {
            task.space = self.copy_space(task.space, files, out);
        }
        task.born = false;
        if !shares.thread {
            let name = self.groups.get(&task.pid).and_then(|group| group.name.clone());
            task.pid = child;
            if let Some(name) = name {
                out.process(child, child, name.clone());
                self.groups.entry(child).or_default().name = Some(name);
            }
        }
        self.adopt(child, task);
    }

    fn copy_table(&mut self, table: u32, files: &mut Files, out: &mut Out) -> u32 {
        if self.slots + self.tables[table].slots.len() > SLOTS_MAX {
            out.note("more descriptors than can be followed: a fork got none");
            return self.tables.add(Table::default());
        }
        let slots = self.tables[table].slots.clone();
        self.slots += slots.len();
        for slot in slots.values() {
            files.open[slot.open].refs += 1;
        }
        self.tables.add(Table { refs: 0, slots })
    }

    fn copy_space(&mut self, space: u32, files: &mut Files, out: &mut Out) -> u32 {
        if self.slots + self.spaces[space].maps.len() > SLOTS_MAX {
            out.note("more mappings than can be followed: a fork got none");
            return self.spaces.add(Space::default());
        }
        let maps = self.spaces[space].maps.clone();
        self.slots += maps.len();
        for map in maps.values() {
            files.file(map.file).uses += 1;
        }
        self.spaces.add(Space { refs: 0, maps })
    }

    /// `unshare`: the task has its own copies from now on.
    pub(super) fn unshare(
        &mut self,
        tid: u32,
        table: bool,
        fs: bool,
        files: &mut Files,
        out: &mut Out,
    ) {
        let Some(mut task) = self.tasks.get(&tid).copied() else { return };
        if table && self.tables[task.table].refs > 1 {
            let copy = self.copy_table(task.table, files, out);
            self.tables[task.table].refs -= 1;
            self.tables[copy].refs = 1;
            task.table = copy;
        }
        if fs && self.fs[task.fs].refs > 1 {
            let Fs { cwd, root, umask, .. } = self.fs[task.fs];
            self.fs[task.fs].refs -= 1;
            task.fs = self.fs.add(Fs { refs: 1, cwd, root, umask });
        }
        self.tasks.insert(tid, task);
    }

    /// `execve` succeeded: the other threads end, descriptors marked close-on-exec are closed, and
    /// all mappings end.
    pub(super) fn exec(&mut self, tid: u32, name: &str, files: &mut Files, out: &mut Out) {
        let Some(&Task { pid, .. }) = self.tasks.get(&tid) else { return };
        let others = self.groups.get(&pid).map(|group| group.tids.clone()).unwrap_or_default();
        for other in others.into_iter().filter(|&other| other != tid) {
            self.exit(other, files, out);
        }
        self.unshare(tid, true, false, files, out);
        let Some(&Task { table, space, .. }) = self.tasks.get(&tid) else { return };
        let closed: Vec<i32> = self.tables[table]
            .slots
            .iter()
            .filter(|(_, slot)| slot.cloexec)
            .map(|(&fd, _)| fd)
            .collect();
        for fd in closed {
            self.close(table, fd, files, out);
        }
        let fresh = self.spaces.add(Space { refs: 1, ..Space::default() });
        self.tasks.entry(tid).and_modify(|task| task.space = fresh);
        self.leave_space(space, files, out);
        if !name.is_empty() {
            self.groups.entry(pid).or_default().name = Some(name.into());
            out.process(pid, tid, name.into());
        }
    }

    /// The thread `from` of a process called `execve` and continues under the number of its leader.
    pub(super) fn supersede(&mut self, leader: u32, from: u32, files: &mut Files, out: &mut Out) {
        let Some(task) = self.tasks.get(&from).copied().filter(|_| leader != from) else { return };
        if let Some(old) = self.tasks.remove(&leader) {
            self.leave(leader, old, files, out);
        }
        self.adopt(leader, task);
        self.exit(from, files, out);
    }

    /// A task ends.
    pub(super) fn exit(&mut self, tid: u32, files: &mut Files, out: &mut Out) {
        self.births.retain(|birth| birth.parent != tid);
        if let Some(task) = self.tasks.remove(&tid) {
            self.leave(tid, task, files, out);
        }
    }

    /// `exit_group`: all threads of a process end.
    pub(super) fn exit_group(&mut self, tid: u32, files: &mut Files, out: &mut Out) {
        let Some(&Task { pid, .. }) = self.tasks.get(&tid) else { return };
        for tid in self.groups.get(&pid).map(|group| group.tids.clone()).unwrap_or_default() {
            self.exit(tid, files, out);
        }
    }

    fn leave(&mut self, tid: u32, task: Task, files: &mut Files, out: &mut Out) {
        if let Some(group) = self.groups.get_mut(&task.pid) {
            group.tids.remove(&tid);
            if group.tids.is_empty() {
                self.groups.remove(&task.pid);
            }
        }
        self.fs[task.fs].refs -= 1;
        if self.fs[task.fs].refs == 0 {
            self.fs.remove(task.fs);
        }
        self.leave_space(task.space, files, out);
        self.tables[task.table].refs -= 1;
        if self.tables[task.table].refs == 0 {
            let table = self.tables.remove(task.table);
            self.slots -= table.slots.len();
            for slot in table.slots.into_values() {
                files.release(slot.open, out);
            }
        }
    }

    fn leave_space(&mut self, space: u32, files: &mut Files, out: &mut Out) {
        self.spaces[space].refs -= 1;
        if self.spaces[space].refs == 0 {
            let space = self.spaces.remove(space);
            self.slots -= space.maps.len();
            for map in space.maps.into_values() {
                files.unuse(map.file, out);
            }
        }
    }

    /// Puts a description at a descriptor, in place of any earlier one. Returns whether that was a
    /// file.
    pub(super) fn install(
        &mut self,
        table: u32,
        fd: i32,
        slot: Slot,
        files: &mut Files,
        out: &mut Out,
    ) -> bool {
        let Some(before) = self.tables[table].slots.insert(fd, slot) else {
            self.slots += 1;
            return false;
        };
        let file = matches!(files.open[before.open].of, Of::File(_));
        files.release(before.open, out);
        file
    }

    /// Closes a descriptor. Returns whether it was open.
    pub(super) fn close(&mut self, table: u32, fd: i32, files: &mut Files, out: &mut Out) -> bool {
        let slot = self.tables[table].slots.remove(&fd);
        if let Some(slot) = slot {
            self.slots -= 1;
            files.release(slot.open, out);
        }
        slot.is_some()
    }

    /// Maps `file` at `start..end`.
    pub(super) fn map(
        &mut self,
        space: u32,
        start: u64,
        end: u64,
        file: u32,
        offset: u64,
        files: &mut Files,
    ) {
        if self.slots < SLOTS_MAX && start < end {
            self.slots += 1;
            files.file(file).uses += 1;
            self.spaces[space].maps.insert(start, Mapping { end, file, offset });
        }
    }

    /// Unmaps `start..end`. Returns the mappings that it held, as `(start, end, file, offset)`.
    pub(super) fn unmap(
        &mut self,
        space: u32,
        start: u64,
        end: u64,
        files: &mut Files,
        out: &mut Out,
    ) -> Vec<(u64, u64, u32, u64)> {
        let hit = self.mapped(space, start, end);
        for &(from, to, file, offset) in &hit {
            // The remaining pieces are put back before the whole is dropped, so that no file ends
            // in between.
            let whole =
                self.spaces[space].maps.range(..=from).next_back().map(|(&at, &map)| (at, map));
            let Some((at, map)) = whole else { continue };
            self.spaces[space].maps.remove(&at);
            self.slots -= 1;
            self.map(space, at, from, file, map.offset, files);
            self.map(space, to, map.end, file, offset.saturating_add(to - from), files);
            files.unuse(file, out);
        }
        hit
    }

    /// Returns the pieces of mappings in `start..end`, as `(start, end, file, offset)`.
    pub(super) fn mapped(&self, space: u32, start: u64, end: u64) -> Vec<(u64, u64, u32, u64)> {
        let maps = self.spaces[space].maps.range(..end).rev();
        maps.take_while(|(_, map)| map.end > start)
            .map(|(&at, map)| {
                let from = at.max(start);
                (from, map.end.min(end), map.file, map.offset.saturating_add(from - at))
            })
            .collect()
    }

    /// Returns the references re-derived: of each description, and of each file by mappings.
    #[cfg(test)]
    pub(super) fn check(&self) -> (HashMap<u32, u32>, HashMap<u32, u32>) {
        let (mut open, mut mapped, mut slots) = (HashMap::new(), HashMap::new(), 0);
        for (n, table) in self.tables.iter() {
            assert_eq!(
                table.refs as usize,
                self.tasks.values().filter(|task| task.table == n).count()
            );
            slots += table.slots.len();
            for slot in table.slots.values() {
                *open.entry(slot.open).or_insert(0) += 1;
            }
        }
        for (n, fs) in self.fs.iter() {
            assert_eq!(fs.refs as usize, self.tasks.values().filter(|task| task.fs == n).count());
        }
        for (n, space) in self.spaces.iter() {
            assert_eq!(
                space.refs as usize,
                self.tasks.values().filter(|task| task.space == n).count()
            );
            slots += space.maps.len();
            let mut free = 0;
            for (&start, map) in &space.maps {
                assert!(free <= start && start < map.end, "mappings overlap");
                free = map.end;
                *mapped.entry(map.file).or_insert(0) += 1;
            }
        }
        assert_eq!(slots, self.slots);
        let mut grouped = 0;
        for (&pid, group) in &self.groups {
            grouped += group.tids.len();
            assert!(group.tids.iter().all(|tid| self.tasks[tid].pid == pid));
        }
        assert_eq!(grouped, self.tasks.len());
        (open, mapped)
    }
}
