//! The kernel log of CacheSifter's authors: a line a read or write of a file, as their changed Android kernel prints
//! it.
//!
//! Liang et al., "CacheSifter: Sifting Cache Files for Boosted Mobile Performance and Lifetime", FAST '22, and what
//! goes with it at github.com/yliang323/CacheSifter (the kernel's source and a readme; the traces themselves were not
//! seen):
//!
//! ```text
//! [  180.293579s][pid:3890,cpu4,GLThread 91]->1588402100762,vfs_w,/data/org.example/files/a.dat,2632,0,0,28749,3890,GLThread 91
//! [  180.293609s][pid:3890,cpu4,GLThread 91]->/data/org.example/files/a.dat, bio-w, 4096, 2632, 28749
//! ```
//!
//! **Verified** in that source (`fs/read_write.c`, `block/blk-core.c`). A line is what stands behind `->`; what the
//! kernel's log puts before differs by kernel. For the first kind that is: the time, in ms of the clock on the wall;
//! what; the path below the file system's root, without its mount point, and only below `/data/`, `/app/` or `/media/`;
//! the bytes *asked for*; the file's size; the position; the inode; the thread (not the process); the thread's name. It
//! is printed *before* the operation: size and position are those from before it. So a read gets at most what stands
//! between position and size, and is cut to it. Only `read`, `write`, `pread` and `pwrite` of one application print;
//! `readv`, `writev`, mappings, opening, renaming, deleting, truncating and syncing do not. The second kind (`bio-w`,
//! `bio-r`: path, kind, size, file size, inode) is what the page cache asked of storage, has no time and no address,
//! and is passed over, as are other lines of the log.
//!
//! **Assumed:**
//!
//! - *The position may be from after the operation.* The readme's example, from 2020, does not fit the source, from
//!   2021: 30 µs after a write of 2632 bytes with size and position 2849 the same thread sends that file to storage,
//!   and its size is still 2849. So an older kernel may have printed after the operation. The trace decides: most files
//!   are first touched at their beginning, where an inode's first line has position 0 if printed before, and what it
//!   read or wrote if printed after. If the first 4096 lines hold at least 8 of the latter kind and 8 times as many as
//!   of the former, positions are ends; that is noted.
//! - *Every write wrote all of it*, at its position; a write to a file opened with `O_APPEND` really goes to the end,
//!   but its first one may show another position.
//! - *A file is an inode, as long as it keeps its path.* Another path under the same inode is a **rename** if the size
//!   is the one that the inode's last line left, and not 0. Otherwise it is **another file**: the inode was reused, so
//!   the old one is gone. (There is no device number: two file systems' files with the same inode take turns at being
//!   gone.) Another inode under the same path has taken the name; the former file lives on without one, since it may be
//!   open.
//! - *A file smaller than its last line left it was cut*: to that size, before this line. Between two threads only the
//!   sizes printed are compared, because one may print before the other's write is done.
//!
//! All but the second are noted and counted where they are made. Names may hold commas and spaces: a line is taken apart
//! from its end, and the thread's name is the shortest that leaves five numbers before it.

use super::{
    Confidence, FileId, Knows, Side, Space, Spec, detected_by_lines, held::Held, processes::Processes,
    text_lines,
};
use crate::{
    Error,
    events::{Events, Skip},
    input::Input,
};
use flashsift_core::event::{About, Action, Event, MaybeOwned, Renamed};
use std::collections::{HashMap, HashSet};

pub(super) const SPEC: Spec = Spec {
    name: "cachesifter",
    what: "CacheSifter's kernel log: `->ms,vfs_r|vfs_w,path,io size,file size,position,inode,thread,name`",
    detect,
    read,
    sample: || SAMPLE.into(),
};

const SAMPLE: &str = "\
[  180.201100s][pid:1,cpu0,swapper]healthd: battery l=97
[  180.293579s][pid:3890,cpu4,GLThread 91]->1588402100762,vfs_w,/data/org.example/files/a, b.tmp,2632,0,0,28749,3890,GLThread 91
[  180.293609s][pid:3890,cpu4,GLThread 91]->/data/org.example/files/a, b.tmp, bio-w, 4096, 2632, 28749
<1>[  181.000001] ->1588402101470,vfs_r,/data/org.example/files/a, b,8192,2632,0,28749,3871,le, main
<1>[  181.000201] ->1588402101471,vfs_r,/data/org.example/files/a, b,8192,2632,2632,28749,3871,le, main
->1588402101480,vfs_w,/data/org.example/files/a, b,100,0,0,28749,3871,le, main
->1588402101500,vfs_w,/data/org.example/cache/1,4096,0,0,28749,3871,le, main
->1588402101501,vfs_w,/data/org.example/cache/1,4096,0,0,28750,3871,le, main
";

/// The kernel's `TASK_COMM_LEN`, without the zero at its end.
const COMM_BYTES_MAX: usize = 15;
const PATH_BYTES_MAX: usize = 4096;

const CUT: Skip = Skip::Damage("vfs_r or vfs_w line that is cut short or broken");
const BIO: Skip = Skip::Benign("bio-r or bio-w line (what the page cache asked of storage)");
const UNLINK: Skip = Skip::Benign("unlink line");
const OTHER: Skip = Skip::Benign("other line of the kernel's log");
const AT_END: Skip = Skip::Benign("read at the end of its file");

const AFTER: &str = "positions are taken for ends: first lines of inodes show their own length";
const RENAMED: &str = "inode under another path, of the size it had: taken for a rename";
const REUSED: &str = "inode under another path, of another size: taken for another file";
const REPLACED: &str = "path with another inode: taken for another file";
const SHRUNK: &str = "file smaller than it was left: taken for a truncation";

fn detect(head: &[u8]) -> Confidence {
    detected_by_lines(head, |line| match line.map(Line::parse) {
        Some(Ok(_)) => Some(true),
        Some(Err(skip)) if skip == CUT => Some(false),
        _ => None,
    })
}

fn read(input: &mut Input<'_>, events: &mut Events<'_>) -> Result<(), Error> {
    events.about(About {
        epoch_us: None,
        side: Side::Before,
        space: Space::Files,
        knows: Knows { times: true, syncs: false, writes: true, removals: false, ..Knows::NOTHING },
    })?;
    let mut reader = Reader::default();
    text_lines(input, events, |text, events| reader.line(text, events))?;
    reader.settle(events)
}

/// A line of the first kind.
struct Line<'a> {
    time_ms: u64,
    write: bool,
    path: &'a str,
    asked: u64,
    size: u64,
    position: u64,
    inode: u64,
    tid: u32,
    comm: &'a str,
}

impl<'a> Line<'a> {
    fn parse(text: &'a str) -> Result<Self, Skip> {
        let mut why = OTHER;
        // What stands before may hold an arrow too: the name of a thread does.
        for (at, _) in text.match_indices("->") {
            match Self::after_arrow(&text[at + 2..]) {
                Err(skip) if skip == OTHER => {}
                Err(skip) => why = skip,
                line => return line,
            }
        }
        Err(why)
    }

    fn after_arrow(text: &'a str) -> Result<Self, Skip> {
        if text.starts_with('/') {
            let mut fields = text.rsplitn(4, ", ").map(|field| field.parse::<u64>().is_ok());
            let numbers = [fields.next(), fields.next(), fields.next()] == [Some(true); 3];
            let kind = text.contains(", bio-w, ") || text.contains(", bio-r, ");
            return Err(if numbers && kind { BIO } else { OTHER });
        }
        let (time, rest) = text.split_once(',').ok_or(OTHER)?;
        let time_ms = time.parse().map_err(|_| OTHER)?;
        let (write, rest) = match rest.split_once(',').ok_or(OTHER)? {
            ("vfs_r", rest) => (false, rest),
            ("vfs_w", rest) => (true, rest),
            ("unlink", _) => return Err(UNLINK),
            _ => return Err(OTHER),
        };
        let mut end = rest.len();
        loop {
            end = rest[..end].rfind(',').ok_or(CUT)?;
            let comm = &rest[end + 1..];
            if comm.len() > COMM_BYTES_MAX {
                return Err(CUT);
            }
            let mut fields = rest[..end].rsplitn(6, ',');
            let mut number = || fields.next().and_then(|field| field.parse::<u64>().ok());
            if let (Some(tid), Some(inode), Some(position), Some(size), Some(asked)) =
                (number(), number(), number(), number(), number())
            {
                let path = fields.next().filter(|path| path.starts_with('/')).ok_or(CUT)?;
                let tid = u32::try_from(tid).map_err(|_| CUT)?;
                let fits = path.len() <= PATH_BYTES_MAX;
                let line = Self { time_ms, write, path, asked, size, position, inode, tid, comm };
                return if fits { Ok(line) } else { Err(CUT) };
            }
        }
    }

    /// Where the position stands if the line was printed after an operation at the file's beginning.
    fn own_end(&self) -> u64 {
        if self.write { self.asked } else { self.asked.min(self.size) }
    }
}

#[derive(Default)]
struct Reader {
    held: Held,
    /// Whether lines were printed after their operation, once that is settled.
    after: Option<bool>,
    first_ms: Option<u64>,
    processes: Processes,
    files: Files,
}

impl Reader {
    fn line(&mut self, text: &str, events: &mut Events<'_>) -> Result<Result<(), Skip>, Error> {
        match (Line::parse(text), self.after) {
            (Err(skip), _) => Ok(Err(skip)),
            (Ok(line), Some(after)) => self.access(&line, after, events),
            (Ok(_), None) => {
                if self.held.keep(events.line(), text) {
                    self.settle(events)?;
                }
                Ok(Ok(()))
            }
        }
    }

    /// Decides what positions are, as far as has been seen, and takes up what was kept back.
    fn settle(&mut self, events: &mut Events<'_>) -> Result<(), Error> {
        const CLEAR: usize = 8;
        let mut seen = HashSet::new();
        let firsts = self.held.lines().filter_map(|text| Line::parse(text).ok());
        let firsts: Vec<_> = firsts.filter(|line| seen.insert(line.inode) && line.asked > 0).collect();
        let before = firsts.iter().filter(|line| line.position == 0).count();
        let after = firsts.iter().filter(|l| l.position > 0 && l.position == l.own_end()).count();
        let after = after >= CLEAR && after > CLEAR * before;
        drop(firsts);
        self.after.get_or_insert(after);
        let now = events.line();
        for (n, (number, text)) in self.held.take().into_iter().enumerate() {
            events.at(number);
            if after && n == 0 {
                events.note(AFTER, number);
            }
            if let Err(skip) = self.line(&text, events)? {
                events.skipped(skip, number);
            }
        }
        events.at(now);
        Ok(())
    }

    fn access(
        &mut self,
        line: &Line<'_>,
        after: bool,
        events: &mut Events<'_>,
    ) -> Result<Result<(), Skip>, Error> {
        let &Line { time_ms, write, asked, size, position, tid, .. } = line;
        let at_us = time_ms.saturating_sub(*self.first_ms.get_or_insert(time_ms)).saturating_mul(1000);
        let len = match (after, write) {
            (true, _) => asked.min(position),
            (false, true) => asked,
            (false, false) => asked.min(size.saturating_sub(position)),
        };
        let offset = if after { position - len } else { position };
        self.processes.runs(tid, line.comm, at_us, events)?;
        let mut out = Out { at_us, tid, events };
        let file = self.files.of(line, &mut out)?;
        file.size = size;
        file.tid = tid;
        file.left = if write { size.max(offset.saturating_add(len)) } else { size };
        let file = file.id;
        match write {
            true => out.push(Action::Write { open: None, file, offset, len, sync: false })?,
            false if len == 0 => return Ok(Err(AT_END)),
            false => out.push(Action::Read { open: None, file, offset, len })?,
        }
        Ok(Ok(()))
    }
}

/// Where the events of one line go.
struct Out<'a, 's> {
    at_us: u64,
    tid: u32,
    events: &'a mut Events<'s>,
}

impl Out<'_, '_> {
    fn push(&mut self, action: Action<'static>) -> Result<(), Error> {
        let &mut Self { at_us, tid, .. } = self;
        self.events.push(Event { at_us, pid: tid, tid, action })
    }

    fn note(&mut self, assumed: &'static str) {
        self.events.note(assumed, self.events.line());
    }
}

struct File {
    id: FileId,
    path: Box<str>,
    /// Whether the path still is this file's.
    named: bool,
    /// What the last line showed, and its thread.
    size: u64,
    tid: u32,
    /// What that line's own operation made of it.
    left: u64,
}

/// Which file is meant by an inode and a path.
#[derive(Default)]
struct Files {
    count: u64,
    inodes: HashMap<u64, File>,
    /// The inode that each path was last seen with.
    paths: HashMap<Box<str>, u64>,
}

impl Files {
    /// The file that the line is about, after the events that its path and size tell of.
    fn of(&mut self, line: &Line<'_>, out: &mut Out<'_, '_>) -> Result<&mut File, Error> {
        match self.inodes.get(&line.inode) {
            Some(file) if *file.path == *line.path => {
                // Another thread may print before the last line's write is done.
                let least = if file.tid == line.tid { file.left } else { file.size };
                if line.size < least {
                    out.note(SHRUNK);
                    out.push(Action::Truncate { file: file.id, size: line.size })?;
                }
            }
            Some(file) if file.left == line.size && line.size > 0 => {
                self.takes_name(line, out)?;
                self.renamed(line, out)?;
            }
            Some(_) => {
                self.takes_name(line, out)?;
                self.ends(line.inode, out)?;
                self.appears(line, out)?;
            }
            None => {
                self.takes_name(line, out)?;
                self.appears(line, out)?;
            }
        }
        Ok(self.inodes.get_mut(&line.inode).expect("it was there or was just made"))
    }

    /// The line's path is its inode's: another that had it loses it.
    fn takes_name(&mut self, line: &Line<'_>, out: &mut Out<'_, '_>) -> Result<(), Error> {
        let former = self.paths.insert(line.path.into(), line.inode);
        if let Some(former) = former.and_then(|inode| self.inodes.get_mut(&inode))
            && former.named
            && *former.path == *line.path
        {
            former.named = false;
            out.note(REPLACED);
            out.push(Action::Unbind { file: former.id, name: MaybeOwned::owned_str(line.path) })?;
        }
        Ok(())
    }

    fn renamed(&mut self, line: &Line<'_>, out: &mut Out<'_, '_>) -> Result<(), Error> {
        let file = self.inodes.get_mut(&line.inode).expect("it has had another path");
        let from = std::mem::replace(&mut file.path, line.path.into());
        let had_name = std::mem::replace(&mut file.named, true);
        out.note(RENAMED);
        if !had_name {
            return out.push(Action::Bind { file: file.id, name: MaybeOwned::owned_str(line.path) });
        }
        self.paths.remove(&from);
        let names = Renamed::owned(&from, line.path);
        out.push(Action::Rename { file: file.id, names })
    }

    fn ends(&mut self, inode: u64, out: &mut Out<'_, '_>) -> Result<(), Error> {
        let File { id, path, named, .. } = self.inodes.remove(&inode).expect("it has had another path");
        out.note(REUSED);
        if named {
            self.paths.remove(&path);
            out.push(Action::Unbind { file: id, name: path.into() })?;
        }
        out.push(Action::Gone { file: id })
    }

    fn appears(&mut self, line: &Line<'_>, out: &mut Out<'_, '_>) -> Result<(), Error> {
        let id = FileId(self.count);
        self.count += 1;
        let file = File { id, path: line.path.into(), named: true, size: 0, tid: 0, left: 0 };
        self.inodes.insert(line.inode, file);
        out.push(Action::Bind { file: id, name: MaybeOwned::owned_str(line.path) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::testing;
    use proptest::prelude::*;

    fn told(text: &str) -> (Vec<String>, String) {
        let (events, summary) = testing::read(&SPEC, text.as_bytes()).unwrap();
        let line = |e: &Event| {
            let what = match &e.action {
                Action::Read { file, offset, len, .. } => format!("{} r {offset} {len}", file.0),
                Action::Write { file, offset, len, sync: false, .. } => {
                    format!("{} w {offset} {len}", file.0)
                }
                Action::Truncate { file, size } => format!("{} cut {size}", file.0),
                Action::Bind { file, name } => format!("{} is {name}", file.0),
                Action::Unbind { file, name } => format!("{} is not {name}", file.0),
                Action::Rename { file, names } => format!("{} was {} is {}", file.0, names.from, names.to),
                Action::Gone { file } => format!("{} gone", file.0),
                Action::Process { name } => format!("runs {name}"),
                other => panic!("{other:?}"),
            };
            format!("{} {} {what}", e.at_us, e.tid)
        };
        (events.iter().map(line).collect(), testing::skipped(&summary))
    }

    /// The events of lines `write path asked size position inode tid`, without processes and times.
    fn of(lines: &[(bool, &str, u64, u64, u64, u64, u32)]) -> (Vec<String>, String) {
        let line = |(n, &(write, path, asked, size, position, inode, tid)): (usize, &_)| {
            let op = if write { "vfs_w" } else { "vfs_r" };
            format!("->{},{op},{path},{asked},{size},{position},{inode},{tid},x\n", 1000 + n)
        };
        let (events, skipped) = told(&lines.iter().enumerate().map(line).collect::<String>());
        let kept = events.iter().filter(|event| !event.ends_with("runs x"));
        (kept.map(|event| event.splitn(3, ' ').nth(2).unwrap().to_owned()).collect(), skipped)
    }

    #[test]
    fn the_sample() {
        let (events, skipped) = told(SAMPLE);
        assert_eq!(
            events,
            [
                "0 3890 runs GLThread 91",
                "0 3890 0 is /data/org.example/files/a, b.tmp",
                "0 3890 0 w 0 2632",
                "708000 3871 runs le, main",
                "708000 3871 0 was /data/org.example/files/a, b.tmp is /data/org.example/files/a, b",
                "708000 3871 0 r 0 2632",
                "718000 3871 0 cut 0",
                "718000 3871 0 w 0 100",
                "738000 3871 0 is not /data/org.example/files/a, b",
                "738000 3871 0 gone",
                "738000 3871 1 is /data/org.example/cache/1",
                "738000 3871 1 w 0 4096",
                "739000 3871 1 is not /data/org.example/cache/1",
                "739000 3871 2 is /data/org.example/cache/1",
                "739000 3871 2 w 0 4096",
            ]
        );
        for part in [
            "1 bio-r or bio-w line (what the page cache asked of storage) (first at 3)",
            "1 read at the end of its file (first at 5)",
            "1 other line of the kernel's log (first at 1)",
            "1 inode under another path, of the size it had: taken for a rename (first at 4)",
            "1 file smaller than it was left: taken for a truncation (first at 6)",
            "1 inode under another path, of another size: taken for another file (first at 7)",
            "1 path with another inode: taken for another file (first at 8)",
        ] {
            assert!(skipped.contains(part), "{part}: {skipped}");
        }
        assert_eq!(skipped.matches(';').count(), 6, "{skipped}");
    }

    #[test]
    fn another_thread_may_print_before_a_write_is_done() {
        let (w, r, f) = (true, false, "/data/f");
        let (events, _) = of(&[(w, f, 9, 0, 0, 5, 1), (r, f, 9, 0, 0, 5, 2), (r, f, 9, 9, 0, 5, 2)]);
        assert_eq!(events, ["0 is /data/f", "0 w 0 9", "0 r 0 9"]);
        let (events, _) = of(&[(r, f, 9, 9, 0, 5, 1), (r, f, 9, 5, 0, 5, 2)]);
        assert_eq!(events, ["0 is /data/f", "0 r 0 9", "0 cut 5", "0 r 0 5"]);
    }

    #[test]
    fn names_come_and_go() {
        let (a, b, tmp) = ("/data/a", "/data/b", "/data/a.tmp");
        // Saved by renaming over: the former file loses its name, but may still be read through its descriptor.
        let (events, _) = of(&[
            (false, a, 9, 9, 0, 1, 1),
            (true, tmp, 7, 0, 0, 2, 1),
            (false, a, 9, 7, 0, 2, 1),
            (false, a, 4, 9, 0, 1, 3),
        ]);
        assert_eq!(
            events,
            [
                "0 is /data/a",
                "0 r 0 9",
                "1 is /data/a.tmp",
                "1 w 0 7",
                "0 is not /data/a",
                "1 was /data/a.tmp is /data/a",
                "1 r 0 7",
                "0 r 0 4",
            ]
        );
        // Two names of one file are one file; an empty file says nothing about which it is.
        let (events, _) =
            of(&[(false, a, 9, 9, 0, 1, 1), (false, b, 9, 9, 0, 1, 1), (false, a, 9, 9, 0, 1, 1)]);
        assert!(events.iter().all(|event| event.starts_with("0 ")), "{events:?}");
        let (events, _) = of(&[(false, a, 9, 0, 0, 1, 1), (true, b, 9, 0, 0, 1, 1)]);
        assert_eq!(events, ["0 is /data/a", "0 is not /data/a", "0 gone", "1 is /data/b", "1 w 0 9"]);
    }

    /// What one program does, printed before and after each operation: the events are the same.
    #[test]
    fn positions_from_before_and_from_after() {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        let paths: Vec<String> = (0..10).map(|n| format!("/data/{n}")).collect();
        for (inode, path) in paths.iter().enumerate() {
            let (mut size, inode) = (0, inode as u64);
            for len in [217, 2632 + inode] {
                before.push((true, path.as_str(), len, size, size, inode, 1));
                size += len;
                after.push((true, path.as_str(), len, size, size, inode, 1));
            }
            before.push((false, path, 8192, size, 0, inode, 2));
            after.push((false, path, 8192, size, size, inode, 2));
        }
        let (events, skipped) = of(&before);
        assert_eq!((events.len(), &*skipped), (40, ""));
        assert_eq!(of(&after), (events, format!("1 {AFTER} (first at 1)")));
        // Seven such files prove nothing.
        let (_, skipped) = of(&after[..21]);
        assert!(!skipped.contains(AFTER), "{skipped}");
    }

    #[test]
    fn names_with_commas_and_lines_that_are_cut() {
        let (events, skipped) = told(
            "[1.0s][pid:1,cpu0,a->b]->5,vfs_w,/data/a,1,2,10,0,0,7,8,name, of 1\n->5,vfs_w,/data/a,10,0,0,7,8\n\
             ->5,vfs_r,/data/->5,vfs_w,,10,90,0,9,8,c\n->5,vfs_w,data/a,10,0,0,7,8,c\n->5,vfs_w,/data/a,-10,0,0,7,8,c\n\
             ->5,vfs_w,/data/a,10,0,0,7,4294967296,c\n->5,vfs_w,/data/a,10,0,0,7,8,a name too long\n\
             ->5,vfs_w,/data/a,10,0,0,7,8,a name too long!\n->5,vfs_w,/data/a,9,9,9223372036854775807,7,8,c\n\
             ->5,unlink,ramfs,/data/a,9,9,7,8,c\n->/data/a, bio-w, 4096, 2849\n->5,mmap,1\n-> \n",
        );
        assert_eq!(events[..3], ["0 8 runs name, of 1", "0 8 0 is /data/a,1,2", "0 8 0 w 0 10"]);
        assert!(events.contains(&"0 8 1 r 0 10".into()), "{events:?}");
        for part in [
            "5 vfs_r or vfs_w line that is cut short or broken (first at 2)",
            "1 offset beyond 2^63 (first at 9)",
            "1 unlink line (first at 10)",
            "3 other line of the kernel's log (first at 11)",
        ] {
            assert!(skipped.contains(part), "{part}: {skipped}");
        }
        assert_eq!(detect(b"->/data/a, bio-w, 4096, 2849, 1\n"), Confidence::No);
        assert_eq!(detect(b"init: ok\n<6>[ 1.0] ->5,vfs_w,/data/a,10,0,0,7,8,c\n"), Confidence::Likely);
    }

    /// What a byte holds: the number of the write that it is from.
    type Bytes = Vec<Option<usize>>;

    fn write(bytes: &mut Bytes, offset: usize, len: usize, number: usize) {
        bytes.resize(bytes.len().max(offset + len), None);
        bytes[offset..offset + len].fill(Some(number));
    }

    /// A file system in miniature, which prints as the kernel does.
    #[derive(Default)]
    struct Disk {
        /// By inode; the lowest free number is taken first.
        inodes: [Bytes; 6],
        names: [Option<usize>; 5],
        /// Inodes that were cut or renamed and have printed nothing since.
        cut: [bool; 6],
        renamed: [bool; 6],
        /// Something happened between two lines that their sizes cannot tell.
        doubtful: bool,
        writes: usize,
        log: String,
        /// What each read that got something got.
        got: Vec<Bytes>,
    }

    impl Disk {
        fn print(&mut self, op: &str, name: usize, inode: usize, asked: usize, position: usize) {
            let size = self.inodes[inode].len();
            self.doubtful |= self.cut[inode] && self.renamed[inode];
            (self.cut[inode], self.renamed[inode]) = (false, false);
            self.log += &format!("->1,vfs_{op},/data/{name},{asked},{size},{position},{inode},7,x\n");
        }

        fn act(&mut self, (what, name, a, b): (u8, usize, usize, usize)) {
            let free =
                |names: &[Option<usize>; 5]| (0..6).find(|n| !names.contains(&Some(*n))).expect("one more");
            match (what, self.names[name]) {
                // Written at its beginning, its end, or somewhere.
                (0..4, inode) => {
                    let inode = inode.unwrap_or_else(|| free(&self.names));
                    if self.names[name].replace(inode).is_none() {
                        self.inodes[inode].clear();
                        (self.cut[inode], self.renamed[inode]) = (false, false);
                    }
                    let at = [0, self.inodes[inode].len(), b][usize::from(what) % 3];
                    self.print("w", name, inode, a + 1, at);
                    write(&mut self.inodes[inode], at, a + 1, self.writes);
                    self.writes += 1;
                }
                (4..7, Some(inode)) => {
                    self.print("r", name, inode, a + 1, b);
                    let got: Bytes = self.inodes[inode].iter().skip(b).take(a + 1).copied().collect();
                    self.got.extend((!got.is_empty()).then_some(got));
                }
                (7, Some(inode)) => {
                    let size = self.inodes[inode].len().min(b);
                    self.cut[inode] |= size < self.inodes[inode].len();
                    self.inodes[inode].truncate(size);
                }
                (8, Some(inode)) if a % 5 != name => {
                    self.names[name] = None;
                    self.names[a % 5] = Some(inode);
                    self.renamed[inode] = true;
                }
                (9, Some(_)) => self.names[name] = None,
                _ => {}
            }
        }
    }

    proptest! {
        /// Whatever is created, renamed, replaced, cut and deleted unseen: what is read through the files that are made out
        /// is never an older content, and is all that is there where the printed sizes can tell.
        #[test]
        fn what_is_read_is_what_was_written(
            acts in proptest::collection::vec((0..10u8, 0..5usize, 0..9usize, 0..12usize), 0..60),
        ) {
            let mut disk = Disk::default();
            acts.into_iter().for_each(|act| disk.act(act));
            let (events, _) = testing::read(&SPEC, disk.log.as_bytes()).expect("no error but of I/O");
            let mut files: HashMap<FileId, Bytes> = HashMap::new();
            let (mut writes, mut gone) = (0, HashSet::new());
            let mut got = disk.got.iter();
            for event in &events {
                match event.action {
                    Action::Write { file, offset, len, .. } => {
                        write(files.entry(file).or_default(), offset as usize, len as usize, writes);
                        writes += 1;
                        prop_assert!(!gone.contains(&file));
                    }
                    Action::Read { file, offset, len, .. } => {
                        let known = files.entry(file).or_default();
                        known.resize(known.len().max((offset + len) as usize), None);
                        let known = &known[offset as usize..][..len as usize];
                        let got = got.next().expect("no more reads than got something");
                        prop_assert_eq!(known.len(), got.len());
                        for (known, got) in known.iter().zip(got) {
                            prop_assert!(known == got || known.is_none() && disk.doubtful, "{}", disk.log);
                        }
                        prop_assert!(!gone.contains(&file));
                    }
                    Action::Truncate { file, size } => files.entry(file).or_default().truncate(size as usize),
                    Action::Gone { file } => prop_assert!(gone.insert(file)),
                    _ => {}
                }
            }
            prop_assert_eq!((writes, got.next()), (disk.writes, None));
        }

        #[test]
        fn any_damage_to_the_sample(
            changes in proptest::collection::vec((0..SAMPLE.len(), any::<u8>()), 0..20),
        ) {
            let mut sample = SAMPLE.as_bytes().to_vec();
            for (at, byte) in changes {
                sample[at] = byte;
            }
            detect(&sample);
            testing::read(&SPEC, &sample).expect("damage is no error");
        }
    }
}
