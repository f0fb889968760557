//! The machine against a small kernel that keeps whole path names and counts links and descriptors
//! by looking at all of them, over random histories; and against impossible calls, with its
//! invariants checked at every step.

use super::*;
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, HashMap},
    rc::Rc,
};

impl CallMachine {
    /// Re-derives the machine's counts. `pins`: number of pins not yet released.
    fn check(&self, pins: u32) {
        let links = self.names.check();
        let (open, mapped) = self.tasks.check();
        let mut uses = mapped;
        let mut held = 0;
        for (n, description) in self.files.open.iter() {
            let slots = open.get(&n).copied().unwrap_or(0);
            assert!(description.refs >= slots.max(1), "description {n}");
            held += description.refs - slots;
            if let Of::File(file) = description.of {
                *uses.entry(file).or_insert(0) += 1;
            }
        }
        assert_eq!(held, pins);
        for (n, file) in self.files.files.iter().enumerate() {
            let n = n as u32;
            let named = links.get(&n).copied().unwrap_or(0);
            // One more for a file whose name cannot be known.
            assert!(
                file.links == named || file.links == named + 1,
                "file {n}: {file:?}, {named} names"
            );
            assert_eq!(file.uses, uses.get(&n).copied().unwrap_or(0), "file {n}");
            assert_eq!(file.gone, file.links == 0 && file.uses == 0, "file {n}");
        }
    }
}

/// SplitMix64, so that a seed gives the same history in every version.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

struct Open {
    inode: usize,
    offset: Cell<u64>,
    append: bool,
}

type Table = Rc<RefCell<BTreeMap<i32, (Rc<Open>, bool)>>>;

#[derive(Clone)]
struct Process {
    tid: u32,
    table: Table,
    cwd: Rc<RefCell<String>>,
}

#[derive(Default)]
struct Kernel {
    names: BTreeMap<String, usize>,
    directories: BTreeSet<String>,
    sizes: Vec<u64>,
    gone: BTreeSet<usize>,
    processes: Vec<Process>,
    tids: u32,
    /// Of all processes, once it was set.
    umask: Option<u64>,
}

/// An event in the form that the kernel model records.
type Fact = (&'static str, usize, u64, u64, String);

impl Kernel {
    fn opens(&self, inode: usize) -> Vec<*const Open> {
        let mut seen: Vec<_> = Vec::new();
        for process in &self.processes {
            for (open, _) in process.table.borrow().values() {
                if open.inode == inode && !seen.contains(&Rc::as_ptr(open)) {
                    seen.push(Rc::as_ptr(open));
                }
            }
        }
        seen
    }

    fn all_opens(&self) -> BTreeMap<*const Open, usize> {
        (0..self.sizes.len())
            .flat_map(|inode| self.opens(inode).into_iter().map(move |open| (open, inode)))
            .collect()
    }

    /// Records the end of every open and file that has gone since `before` was taken.
    fn ends(&mut self, before: &BTreeMap<*const Open, usize>, facts: &mut Vec<Fact>) {
        let now = self.all_opens();
        for (open, inode) in before {
            if !now.contains_key(open) {
                facts.push(("close", *inode, 0, 0, String::new()));
            }
        }
        for inode in 0..self.sizes.len() {
            let alive = self.names.values().any(|&named| named == inode)
                || now.values().any(|&used| used == inode);
            if !alive && self.gone.insert(inode) {
                facts.push(("gone", inode, 0, 0, String::new()));
            }
        }
    }

    fn moved(&mut self, from: &str, to: &str, facts: &mut Vec<Fact>) {
        let under = |name: &str| {
            name == from || name.strip_prefix(from).is_some_and(|rest| rest.starts_with('/'))
        };
        let shift = |name: &str| format!("{to}{}", &name[from.len()..]);
        if self.directories.contains(from) {
            facts.push(("rename directory", 0, 0, 0, format!("{from} {to}")));
        }
        let names: Vec<_> = self.names.keys().filter(|name| under(name)).cloned().collect();
        for name in names {
            let inode = self.names.remove(&name).unwrap();
            // The names below a directory move with it, without events of their own.
            if name == from {
                facts.push(("rename", inode, 0, 0, format!("{name} {to}")));
            }
            self.names.insert(shift(&name), inode);
        }
        self.directories =
            self.directories.iter().map(|d| if under(d) { shift(d) } else { d.clone() }).collect();
        for process in &self.processes {
            let mut cwd = process.cwd.borrow_mut();
            if under(&cwd) {
                *cwd = shift(&cwd);
            }
        }
    }
}

fn reported(event: &Event, inodes: &HashMap<u64, usize>) -> Fact {
    let n = |file: &flashsift_events::event::FileId| inodes[&file.0];
    let none = String::new;
    match &event.action {
        Action::Read { file, offset, len, .. } => ("read", n(file), *offset, *len, none()),
        Action::Write { file, offset, len, .. } => ("write", n(file), *offset, *len, none()),
        Action::Truncate { file, size } => ("truncate", n(file), *size, 0, none()),
        Action::Open { file, created, .. } => ("open", n(file), (*created).into(), 0, none()),
        Action::Close { file, .. } => ("close", n(file), 0, 0, none()),
        Action::Create(create) => {
            assert_eq!(create.owner, None);
            let mode = create.mode.map_or(u64::MAX, u64::from);
            ("bind", n(&create.file), mode, create.sync.into(), create.name.to_string())
        }
        Action::Bind { file, name } => ("bind", n(file), u64::MAX, 0, name.to_string()),
        Action::Link { file, name } => ("link", n(file), 0, 0, name.to_string()),
        Action::RenameDirectory { names } => {
            ("rename directory", 0, 0, 0, format!("{} {}", names.from, names.to))
        }
        Action::Unbind { file, name } => ("unbind", n(file), 0, 0, name.to_string()),
        Action::Rename { file, names } => {
            ("rename", n(file), 0, 0, format!("{} {}", names.from, names.to))
        }
        Action::Gone { file } => ("gone", n(file), 0, 0, none()),
        other => panic!("{other:?}"),
    }
}

/// Makes one random call, in the kernel model and in the machine.
fn step(
    kernel: &mut Kernel,
    machine: &mut CallMachine,
    dice: &mut Dice,
    out: &mut Out,
) -> Vec<Fact> {
    let mut facts = Vec::new();
    let before = kernel.all_opens();
    let at = dice.below(kernel.processes.len() as u64) as usize;
    let process = kernel.processes[at].clone();
    let top = ["/d0", "/d1", "/d2"][dice.below(3) as usize];
    let leaf = ["a", "b", "c", "d"][dice.below(4) as usize];
    let pick = |dice: &mut Dice, kernel: &Kernel| {
        let place = kernel
            .directories
            .iter()
            .nth(dice.below(kernel.directories.len() as u64 + 1) as usize)
            .cloned();
        format!("{}/{}", place.unwrap_or_default(), ["a", "b", "c", "d"][dice.below(4) as usize])
    };
    let (path, other) = (pick(dice, kernel), pick(dice, kernel));
    let relative = dice.one_in(3);
    let whole = if relative {
        format!("{}/{leaf}", process.cwd.borrow().trim_end_matches('/'))
    } else {
        path.clone()
    };
    let given = if relative { leaf.to_owned() } else { path.clone() };
    fn dir(path: &str) -> Path<'_> {
        Path { dir: Dir::Cwd(None), path: path.as_bytes() }
    }
    let mut call = |machine: &mut CallMachine, call: SystemCall<'_>| {
        machine.call(0, process.tid, call, out).expect("it happened")
    };
    let fds: Vec<i32> = process.table.borrow().keys().copied().collect();
    let fd = (!fds.is_empty()).then(|| fds[dice.below(fds.len() as u64) as usize]);
    let free = (3..).find(|fd| !fds.contains(fd)).unwrap();
    let len = dice.below(3) * dice.below(5000);
    match dice.below(22) {
        0..=4 if !kernel.directories.contains(&whole) => {
            let known = kernel.names.get(&whole).copied();
            let mut flags = Flags::WRITABLE;
            let mut add = |on: bool, flag| flags = if on { flags | flag } else { flags };
            let (create, exclusive, truncate) = (dice.one_in(2), dice.one_in(4), dice.one_in(4));
            let (append, cloexec) = (dice.one_in(4), dice.one_in(2));
            add(create, Flags::CREATE);
            add(create && exclusive, Flags::EXCLUSIVE);
            add(truncate, Flags::TRUNCATE);
            add(append, Flags::APPEND);
            add(cloexec, Flags::CLOEXEC);
            let inode = match known {
                Some(_) if create && exclusive => return facts,
                Some(inode) => inode,
                None if !create => return facts,
                None => {
                    kernel.sizes.push(0);
                    kernel.names.insert(whole.clone(), kernel.sizes.len() - 1);
                    let mode = kernel.umask.map_or(u64::MAX, |umask| 0o666 & !umask);
                    facts.push(("bind?", kernel.sizes.len() - 1, mode, 0, whole.clone()));
                    kernel.sizes.len() - 1
                }
            };
            // The trace shows whether an open without O_EXCL made the file only if it saw the name
            // removed.
            facts.push(("open", inode, u64::MAX, 0, String::new()));
            if truncate && known.is_some() {
                kernel.sizes[inode] = 0;
                facts.push(("truncate", inode, 0, 0, String::new()));
            } else if truncate {
                facts.push(("truncate?", inode, 0, 0, String::new()));
            }
            let open = Rc::new(Open { inode, offset: Cell::new(0), append });
            process.table.borrow_mut().insert(free, (open, cloexec));
            call(
                machine,
                SystemCall::Open { path: dir(&given), flags, mode: Some(0o666), fd: free.into() },
            );
        }
        5..=6 => {
            let Some(fd) = fd else { return facts };
            let to = 3 + dice.below(8) as i32;
            if to != fd {
                let open = process.table.borrow()[&fd].0.clone();
                process.table.borrow_mut().insert(to, (open, false));
            }
            call(machine, SystemCall::Dup { from: fd.into(), to, cloexec: false });
        }
        7..=8 => {
            let Some(fd) = fd else { return facts };
            process.table.borrow_mut().remove(&fd);
            call(machine, SystemCall::Close { fd });
        }
        9..=12 => {
            let Some(fd) = fd else { return facts };
            let open = process.table.borrow()[&fd].0.clone();
            let (write, own) = (dice.one_in(2), dice.one_in(2).then(|| dice.below(9000)));
            let start = match own {
                _ if write && open.append => kernel.sizes[open.inode],
                Some(own) => own,
                None => open.offset.get(),
            };
            let size = &mut kernel.sizes[open.inode];
            let len = if write { len } else { len.min(size.saturating_sub(start)) };
            if write && len > 0 {
                *size = (*size).max(start + len);
            }
            if own.is_none() {
                open.offset.set(start + len);
            }
            facts.push((
                if write { "write" } else { "read" },
                open.inode,
                start,
                len,
                String::new(),
            ));
            let (fd, flags) = (fd.into(), Flags::default());
            call(
                machine,
                match write {
                    true => SystemCall::Write { fd, at: own, len, flags },
                    false => SystemCall::Read { fd, at: own, len },
                },
            );
        }
        13 => {
            let Some(fd) = fd else { return facts };
            process.table.borrow()[&fd].0.offset.set(len);
            call(machine, SystemCall::Seek { fd: fd.into(), to: len, size: None });
        }
        14 => {
            let Some(inode) = kernel.names.get(&whole).copied() else { return facts };
            kernel.names.remove(&whole);
            facts.push(("unbind", inode, 0, 0, whole.clone()));
            call(machine, SystemCall::Unlink { path: dir(&given), seen: None });
        }
        15..=16 => {
            let Some(&inode) = kernel.names.get(&whole) else { return facts };
            if kernel.directories.contains(&other) {
                return facts;
            }
            let there = kernel.names.get(&other).copied();
            if there != Some(inode) {
                if let Some(there) = there {
                    kernel.names.remove(&other);
                    facts.push(("unbind", there, 0, 0, other.clone()));
                }
                kernel.moved(&whole, &other, &mut facts);
            }
            call(
                machine,
                SystemCall::Rename { from: dir(&given), to: dir(&other), exchange: false },
            );
        }
        17 => {
            let (Some(&a), Some(&b)) = (kernel.names.get(&whole), kernel.names.get(&other)) else {
                return facts;
            };
            if a != b {
                kernel.names.insert(whole.clone(), b);
                kernel.names.insert(other.clone(), a);
                facts.push(("rename", a, 0, 0, format!("{whole} {other}")));
                facts.push(("rename", b, 0, 0, format!("{other} {whole}")));
            }
            call(
                machine,
                SystemCall::Rename { from: dir(&given), to: dir(&other), exchange: true },
            );
        }
        18 => {
            let Some(&inode) = kernel.names.get(&whole) else { return facts };
            if kernel.names.contains_key(&other) || kernel.directories.contains(&other) {
                return facts;
            }
            kernel.names.insert(other.clone(), inode);
            facts.push(("link", inode, 0, 0, other.clone()));
            call(machine, SystemCall::Link { from: Target::Path(dir(&given)), to: dir(&other) });
        }
        19 => {
            let busy = kernel.directories.contains(top) || kernel.names.contains_key(top);
            match kernel.directories.iter().nth(dice.below(3) as usize).cloned() {
                Some(from) if !busy => {
                    // The file may be known to be empty: then there is no event.
                    kernel.moved(&from, top, &mut facts);
                    let call =
                        SystemCall::Rename { from: dir(&from), to: dir(top), exchange: false };
                    let _ = machine.call(0, process.tid, call, out);
                }
                None if !busy => {
                    kernel.directories.insert(top.to_owned());
                    call(machine, SystemCall::Mkdir { path: dir(top) });
                }
                Some(cwd) => {
                    *process.cwd.borrow_mut() = cwd.clone();
                    call(machine, SystemCall::Chdir { target: Target::Path(dir(&cwd)) });
                }
                None => {}
            }
        }
        20 if kernel.processes.len() < 5 => {
            let shares = Shares { files: dice.one_in(2), fs: dice.one_in(2), ..Shares::default() };
            let mut child = process.clone();
            kernel.tids += 1;
            child.tid = kernel.tids;
            if !shares.files {
                child.table = Rc::new(RefCell::new(process.table.borrow().clone()));
            }
            if !shares.fs {
                child.cwd = Rc::new(RefCell::new(process.cwd.borrow().clone()));
            }
            kernel.processes.push(child);
            if dice.one_in(2) {
                call(machine, SystemCall::ForkBegins { shares });
                // The child makes a call before its parent's clone returns.
                let _ = machine.call(
                    0,
                    kernel.tids,
                    SystemCall::SetCloexec { fd: 999, cloexec: true },
                    out,
                );
            }
            machine
                .call(
                    0,
                    process.tid,
                    SystemCall::ForkEnds { child: Some(kernel.tids), shares },
                    out,
                )
                .unwrap();
        }
        21 if kernel.processes.len() > 1 && dice.one_in(2) => {
            kernel.processes.remove(at);
            drop(process.table);
            machine.call(0, process.tid, SystemCall::Exit, out).unwrap();
        }
        21 => {
            let mut kept = process.table.borrow().clone();
            kept.retain(|_, (_, cloexec)| !*cloexec);
            kernel.processes[at].table = Rc::new(RefCell::new(kept));
            call(machine, SystemCall::Exec { name: "next" });
        }
        _ => {}
    }
    kernel.ends(&before, &mut facts);
    facts
}

// Promises: Traces 23.
#[test]
fn random_histories_give_the_events_of_a_simple_kernel() {
    for seed in 0..400 {
        let (mut dice, mut machine, mut inodes) =
            (Dice(seed), CallMachine::new(Strangers::Processes), HashMap::new());
        let mut kernel = Kernel { tids: 1, ..Kernel::default() };
        kernel.processes.push(Process {
            tid: 1,
            table: Table::default(),
            cwd: Rc::new(RefCell::new("/".to_owned())),
        });
        let mut out = Out::default();
        machine.call(0, 1, SystemCall::Cwd { path: b"/" }, &mut out).unwrap();
        // All processes descend from the first.
        if seed % 2 == 0 {
            kernel.umask = Some(0o027);
            machine.call(0, 1, SystemCall::Umask { mask: 0o027 }, &mut out).unwrap();
        }
        for n in 0..300 {
            let mut facts = step(&mut kernel, &mut machine, &mut dice, &mut out);
            machine.check(0);
            let events: Vec<_> = out
                .events
                .drain(..)
                .filter(|e| !matches!(e.action, Action::Process { .. }))
                .collect();
            for event in &events {
                if let Action::Bind { .. } | Action::Create(_) = event.action {
                    let file = event.action.file().expect("it is about one");
                    inodes.entry(file.0).or_insert(kernel.sizes.len() - 1);
                }
            }
            let mut reported: Vec<_> =
                events.iter().map(|event| reported(event, &inodes)).collect();
            // The machine cannot know whether a plain O_CREAT made the file, and so had nothing to
            // truncate.
            let created = reported.iter().any(|reported| reported.0 == "open" && reported.2 == 1);
            facts.retain(|facts| facts.0 != "truncate?" || !created);
            for bound in facts.iter_mut().filter(|facts| facts.0 == "bind?") {
                // The mode of creation is reported only if the creation is known.
                (bound.0, bound.2) = ("bind", if created { bound.2 } else { u64::MAX });
            }
            facts
                .iter_mut()
                .filter(|facts| facts.0 == "truncate?")
                .for_each(|facts| facts.0 = "truncate");
            reported
                .iter_mut()
                .filter(|reported| reported.0 == "open")
                .for_each(|reported| reported.2 = u64::MAX);
            facts.sort();
            reported.sort();
            assert_eq!(reported, facts, "seed {seed}, step {n}");
            let notes: BTreeSet<_> = out.notes.drain(..).collect();
            assert!(
                notes.iter().all(|note| note.starts_with("append")),
                "seed {seed}, step {n}: {notes:?}"
            );
        }
    }
}

/// Prints its text if the test panics.
struct PrintOnPanic(String);

impl Drop for PrintOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}

/// Calls that no kernel would let happen, with random numbers.
#[test]
fn impossible_calls_keep_the_counts_right() {
    for seed in 0..300 {
        let (mut dice, mut machine, mut out) =
            (Dice(seed), CallMachine::new(Strangers::Processes), Out::default());
        let mut pins = Vec::new();
        for n in 0..400 {
            let tid = dice.below(6) as u32;
            let odd = |dice: &mut Dice| match dice.below(5) {
                0 => u64::MAX - dice.below(3),
                1 => i64::MAX as u64 - dice.below(3),
                _ => dice.below(9) * 4096,
            };
            let paths = [
                "/",
                "",
                ".",
                "..",
                "a",
                "a/",
                "/a/b",
                "/b",
                "../a",
                "/dev/x",
                "/proc/self/fd/4",
                "/l/b",
                "/l",
            ];
            let path = |dice: &mut Dice| {
                let path = paths[dice.below(paths.len() as u64) as usize].as_bytes();
                let dir = match dice.below(3) {
                    0 => Dir::Fd((dice.below(6) as i32).into()),
                    1 => Dir::Cwd(Some(&b"/a"[..])),
                    _ => Dir::Cwd(None),
                };
                Path { dir, path }
            };
            let fd = |dice: &mut Dice| Fd {
                shown: match dice.below(6) {
                    0 => Some(Shown::Path(b"/a/b", false)),
                    1 => Some(Shown::Path(b"/b", true)),
                    2 => Some(Shown::Other),
                    _ => None,
                },
                ..Fd::from(dice.below(6) as i32 - 1)
            };
            let number = |dice: &mut Dice| dice.below(6) as i32;
            let shares = |dice: &mut Dice| Shares {
                files: dice.one_in(2),
                fs: dice.one_in(2),
                vm: dice.one_in(2),
                thread: dice.one_in(2),
            };
            let target = |dice: &mut Dice| {
                if dice.one_in(2) { Target::Path(path(dice)) } else { Target::Fd(fd(dice)) }
            };
            let d = &mut dice;
            let call = match d.below(33) {
                0 | 1 => {
                    let (flags, mode) = (Flags(d.next() as u16), Some(d.next() as u32));
                    SystemCall::Open { path: path(d), flags, mode, fd: fd(d) }
                }
                2 => {
                    let (flags, fd) = (Flags(d.next() as u16), number(d));
                    match d.one_in(2) {
                        true => SystemCall::OpenNameless { flags, fd },
                        false => SystemCall::OpenUnnamed { flags, fd },
                    }
                }
                3 => SystemCall::Made { fd: fd(d), cloexec: d.one_in(2) },
                4 | 5 => SystemCall::Dup { from: fd(d), to: number(d), cloexec: d.one_in(2) },
                6 => SystemCall::Close { fd: number(d) },
                7 => SystemCall::CloseRange {
                    first: number(d),
                    last: number(d),
                    cloexec: d.one_in(2),
                    unshare: d.one_in(2),
                },
                8 => SystemCall::SetFlags { fd: fd(d), flags: Flags(d.next() as u16) },
                9 => SystemCall::Read { fd: fd(d), at: None, len: odd(d) },
                10 => SystemCall::Write {
                    fd: fd(d),
                    at: Some(odd(d)),
                    len: odd(d),
                    flags: Flags(d.next() as u16),
                },
                11 => SystemCall::Copy {
                    from: fd(d),
                    from_at: None,
                    to: fd(d),
                    to_at: Some(odd(d)),
                    len: odd(d),
                },
                12 => SystemCall::Seek { fd: fd(d), to: odd(d), size: Some(odd(d)) },
                13 => SystemCall::Truncate { target: target(d), size: odd(d) },
                14 => SystemCall::Allocate { fd: fd(d), end: odd(d) },
                15 => SystemCall::Size { target: target(d), size: odd(d) },
                16 | 17 => SystemCall::Rename { from: path(d), to: path(d), exchange: d.one_in(2) },
                18 => SystemCall::Link { from: target(d), to: path(d) },
                19 => SystemCall::Symlink {
                    target: paths[d.below(13) as usize].as_bytes(),
                    path: path(d),
                },
                20 => {
                    SystemCall::Unlink { path: path(d), seen: d.one_in(2).then_some(Seen(Some(1))) }
                }
                21 => SystemCall::Mkdir { path: path(d) },
                22 => SystemCall::Chdir { target: target(d) },
                23 => SystemCall::Chroot { path: path(d) },
                24 => SystemCall::Map {
                    fd: d.one_in(2).then(|| fd(d)),
                    start: odd(d),
                    len: odd(d),
                    offset: odd(d),
                },
                25 => SystemCall::Unmap { start: odd(d), len: odd(d) },
                26 => {
                    SystemCall::Remap { from: odd(d), from_len: odd(d), to: odd(d), to_len: odd(d) }
                }
                27 => SystemCall::ForkBegins { shares: shares(d) },
                28 => SystemCall::ForkEnds {
                    child: d.one_in(2).then(|| d.below(6) as u32),
                    shares: shares(d),
                },
                29 => SystemCall::Superseded { by: d.below(6) as u32 },
                30 => SystemCall::MakeFile { path: path(d), mode: Some(0o644) },
                31 => SystemCall::Umask { mask: d.next() as u32 },
                _ => match d.below(4) {
                    0 => SystemCall::Exec { name: "x" },
                    1 => SystemCall::Exit,
                    2 => SystemCall::ExitGroup,
                    _ => SystemCall::Unshare { files: d.one_in(2), fs: d.one_in(2) },
                },
            };
            let _place = PrintOnPanic(format!("seed {seed}, step {n}: {tid} {call:?}"));
            let _ = machine.call(n, tid, call, &mut out);
            machine.check(pins.len() as u32);
            if dice.one_in(8) {
                pins.extend(machine.pin(n, tid, fd(&mut dice), &mut out));
            } else if dice.one_in(8)
                && let Some(pin) = pins.pop()
            {
                machine.unpin(pin, &mut out);
            }
            machine.check(pins.len() as u32);
        }
    }
}

/// perf shows the name of a file with its descriptor, and the address of the name with its open.
#[test]
fn an_open_gets_the_name_that_its_first_use_shows() {
    let (mut machine, mut out) = (CallMachine::new(Strangers::Processes), Out::default());
    let flags = Flags::WRITABLE | Flags::TRUNCATE;
    let fd = |number, shown| Fd { number, shown, pin: None };
    let named = |number| fd(number, Some(Shown::Path(b"/a", false)));
    let read = |fd| SystemCall::Read { fd, at: None, len: 5 };
    for call in [
        SystemCall::OpenUnnamed { flags, fd: 3 },
        SystemCall::OpenUnnamed { flags: Flags::default(), fd: 4 },
        SystemCall::OpenUnnamed { flags: Flags::default(), fd: 5 },
        SystemCall::OpenUnnamed { flags: Flags::default(), fd: 6 },
        SystemCall::Dup { from: named(3), to: 7, cloexec: false },
        read(named(7)),
        read(named(4)),
        read(fd(5, None)),
        SystemCall::Close { fd: 6 },
    ] {
        machine.call(0, 1, call, &mut out).unwrap();
        machine.check(0);
    }
    let events: Vec<_> = out
        .events
        .iter()
        .map(|event| match &event.action {
            Action::Bind { file, name } => format!("{} is {name}", file.0),
            Action::Open { file, .. } => format!("{} opened", file.0),
            Action::Truncate { file, size } => format!("{} cut {size}", file.0),
            Action::Read { file, offset, .. } => format!("{} read {offset}", file.0),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = [
        "0 is /a", "0 opened", "0 cut 0", "0 read 0", "0 opened", "0 read 0", "1 opened",
        "1 read 0",
    ];
    assert_eq!(events, expected);
    let note = "open of a file whose name is not in the trace: it counts as a file of its own";
    assert_eq!(out.notes, [note]);
}

/// Databases make names durable with fsync of their directory. It was once a sync of a file: of one
/// without a name, if the directory was opened as ".".
// Promises: Traces 29.
#[test]
fn a_sync_of_a_directory_is_told_as_one() {
    let (mut machine, mut out) = (CallMachine::new(Strangers::Processes), Out::default());
    let opened = |name: &'static str, flags, fd: i32| SystemCall::Open {
        path: Path { dir: Dir::Cwd(None), path: name.as_bytes() },
        flags,
        mode: None,
        fd: fd.into(),
    };
    let plain = Flags::default();
    for call in [
        opened("a.db", Flags::WRITABLE, 3),
        opened(".", plain, 4),
        opened("/var/lib/b.db", Flags::WRITABLE, 5),
        opened("/var/lib", plain, 6),
        opened("/empty", Flags::DIRECTORY, 7),
        opened("/tmp", Flags::TMPFILE | Flags::DIRECTORY | Flags::WRITABLE, 8),
        opened("/read", plain, 9),
    ] {
        machine.call(0, 1, call, &mut out).unwrap();
    }
    for (fd, is_directory) in
        [(3, false), (4, true), (5, false), (6, true), (7, true), (8, false), (9, false)]
    {
        let before = out.events.len();
        let call = SystemCall::Sync { fd: fd.into(), offset: 0, len: u64::MAX, data_only: false };
        assert_eq!(machine.call(1, 1, call, &mut out), Ok(()), "{fd}");
        let synced = out.events[before..].iter().find_map(|event| match &event.action {
            Action::Sync { .. } => Some(false),
            Action::SyncDirectory { .. } => Some(true),
            _ => None,
        });
        assert_eq!(synced, Some(is_directory), "{fd}");
    }
    let paths = out.events.iter().filter_map(|event| match &event.action {
        Action::SyncDirectory { path } => Some(&**path),
        _ => None,
    });
    // The trace does not tell where the program began.
    assert_eq!(paths.collect::<Vec<_>>(), ["", "/var/lib", "/empty"]);
}

#[test]
fn a_name_that_was_removed_is_known_to_be_free() {
    let (mut machine, mut out) = (CallMachine::new(Strangers::Processes), Out::default());
    let path = |path: &'static str| Path { dir: Dir::Cwd(None), path: path.as_bytes() };
    let open = |name, fd: i32| SystemCall::Open {
        path: path(name),
        flags: Flags::CREATE,
        mode: None,
        fd: fd.into(),
    };
    for call in [
        open("/a", 3),
        SystemCall::Rename { from: path("/a"), to: path("/b"), exchange: false },
        open("/a", 4),
    ] {
        machine.call(0, 1, call, &mut out).unwrap();
    }
    let created = out.events.iter().filter_map(|event| match event.action {
        Action::Open { file, created, .. } => Some((file.0, created)),
        _ => None,
    });
    // The first file may have existed before the trace.
    assert_eq!(created.collect::<Vec<_>>(), [(0, false), (1, true)]);
}

/// An open lasts from its [`Action::Open`] to the last close of the descriptors that share it, and
/// every access between them names it.
// Promises: Traces 21.
#[test]
fn accesses_name_their_open_through_dup_and_fork() {
    let (mut machine, mut out) = (CallMachine::new(Strangers::Processes), Out::default());
    let path = Path { dir: Dir::Cwd(None), path: b"/a" };
    let flags = Flags::WRITABLE;
    let open = |fd: i32| SystemCall::Open { path, flags, mode: None, fd: fd.into() };
    let write =
        |fd: i32| SystemCall::Write { fd: fd.into(), at: None, len: 1, flags: Flags::default() };
    let shares = Shares::default();
    for (tid, call) in [
        (1, open(3)),
        (1, open(4)),
        (1, SystemCall::Dup { from: 3.into(), to: 5, cloexec: false }),
        (1, SystemCall::ForkEnds { child: Some(2), shares }),
        (1, write(3)),
        (1, write(4)),
        (2, write(5)),
        (1, SystemCall::Close { fd: 3 }),
        (1, SystemCall::Close { fd: 5 }),
        (2, write(3)),
        (2, SystemCall::Close { fd: 3 }),
        (2, SystemCall::Close { fd: 5 }),
    ] {
        machine.call(0, tid, call, &mut out).unwrap();
    }
    let facts: Vec<_> = out
        .events
        .iter()
        .filter_map(|event| match event.action {
            Action::Open { open, .. } => Some(("open", open.unwrap().0.get())),
            Action::Write { open, .. } => Some(("write", open.unwrap().0.get())),
            Action::Close { open, .. } => Some(("close", open.unwrap().0.get())),
            _ => None,
        })
        .collect();
    let (a, b) = (facts[0].1, facts[1].1);
    assert_ne!(a, b);
    let wanted = [
        ("open", a),
        ("open", b),
        ("write", a),
        ("write", b),
        ("write", a),
        ("write", a),
        ("close", a),
    ];
    assert_eq!(facts, wanted);
}

/// Both names of an exchange change at once. Reported as two renames of directories, one after the
/// other, the second would move the files that the first had just moved.
// Promises: Traces 23.
#[test]
fn an_exchange_of_directories_is_reported_file_by_file() {
    let (mut machine, mut out) = (CallMachine::new(Strangers::Processes), Out::default());
    let path = |path: &'static str| Path { dir: Dir::Cwd(None), path: path.as_bytes() };
    let flags = Flags::default();
    let open =
        |name, fd: i32| SystemCall::Open { path: path(name), flags, mode: None, fd: fd.into() };
    for call in [
        open("/a/x", 3),
        open("/b/x", 4),
        SystemCall::Rename { from: path("/a"), to: path("/b"), exchange: true },
        SystemCall::Rename { from: path("/b"), to: path("/c"), exchange: false },
    ] {
        machine.call(0, 1, call, &mut out).unwrap();
    }
    let renames = out.events.iter().filter_map(|event| match &event.action {
        Action::Rename { file, names } => Some(format!("{} {} {}", file.0, names.from, names.to)),
        Action::RenameDirectory { names } => Some(format!("{} {}", names.from, names.to)),
        _ => None,
    });
    assert_eq!(renames.collect::<Vec<_>>(), ["0 /a/x /b/x", "1 /b/x /a/x", "/b /c"]);
}
