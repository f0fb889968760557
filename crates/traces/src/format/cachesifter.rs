//! The kernel log of CacheSifter's authors: one line per read or write of a file, printed by their
//! modified Android kernel.
//!
//! Liang et al., "CacheSifter: Sifting Cache Files for Boosted Mobile Performance and Lifetime",
//! FAST '22, and its repository github.com/yliang323/CacheSifter (the kernel's source and a readme;
//! the traces themselves were not available):
//!
//! ```text
//! [  180.293579s][pid:3890,cpu4,GLThread
//! 91]->1588402100762,vfs_w,/data/org.example/files/a.dat,2632,0,0,28749,3890,GLThread 91 [
//! 180.293609s][pid:3890,cpu4,GLThread 91]->/data/org.example/files/a.dat, bio-w, 4096, 2632, 28749
//! ```
//!
//! **Verified** in that source (`fs/read_write.c`, `block/blk-core.c`). The record follows `->`;
//! the prefix of the kernel's log differs by kernel. Its fields, for the first kind, are: the
//! wall-clock time in ms; the operation; the path below the root of the file system, without its
//! mount point, and only below `/data/`, `/app/` or `/media/`; the *requested* bytes; the file's
//! size; the position; the inode; the thread (not the process); the thread's name. The line is
//! printed *before* the operation: size and position are those from before it. So a read returns at
//! most the bytes between position and size, and is limited to them. Only `read`, `write`, `pread`
//! and `pwrite` of one application print; `readv`, `writev`, mappings, opens, renames, deletions,
//! truncations and syncs do not. The second kind (`bio-w`, `bio-r`: path, kind, size, file size,
//! inode) is a request of the page cache to storage; it has no time and no address and is skipped,
//! as are other lines of the log.
//!
//! **Assumed:**
//!
//! - *The position may be from after the operation.* The readme's example, from 2020, does not fit
//!   the source, from 2021: 30 µs after a write of 2632 bytes with size and position 2849 the same
//!   thread sends that file to storage, and its size is still 2849. So an older kernel may have
//!   printed after the operation. The trace decides: most files are first accessed at their start,
//!   where an inode's first line has position 0 if printed before, and the number of moved bytes if
//!   printed after. If the first 4096 lines hold at least 8 of the latter kind and 8 times as many
//!   as of the former, positions are ends; that is noted.
//! - *Every write was complete*, at its position; a write to a file opened with `O_APPEND` goes to
//!   the end, but its first line may show another position.
//! - *A file is an inode, as long as it keeps its path.* Another path under the same inode is a
//!   **rename** if the size equals that after the inode's last line, and is not 0. Otherwise it is
//!   **another file**: the inode was reused, so the old file was deleted. (There is no device
//!   number: files of two file systems with the same inode delete each other in turn.) Another
//!   inode under the same path has replaced the name; the former file continues without a name,
//!   since it may be open.
//! - *A file smaller than after its last line was truncated* to that size, before this line.
//!   Between two threads only the printed sizes are compared, because one may print before the
//!   other's write is done.
//!
//! All but the second are noted and counted where they are made. Names may hold commas and spaces:
//! a line is parsed from its end, and the thread's name is the shortest that leaves five numbers
//! before it.

use super::{
    Confidence, FileId, FormatSpec, Knows, Side, Space, detected_by_lines, held::Held,
    processes::Processes, text_lines,
};
use crate::{
    Error,
    events::{Events, Skip},
    input::Input,
};
use flashsift_events::event::{About, Action, Event, MaybeOwned, Renamed};
use std::collections::{HashMap, HashSet};

pub(super) const SPEC: FormatSpec = FormatSpec {
    name: "cachesifter",
    what: "CacheSifter's kernel log: `->ms,vfs_r|vfs_w,path,io size,file size,position,inode,thread,name`",
    detect,
    read,
    ahead: true,
    sample: || SAMPLE.into(),
};

const SAMPLE: &str = "\
[  180.201100s][pid:1,cpu0,swapper]healthd: battery l=97
[  180.293579s][pid:3890,cpu4,GLThread 91]->1588402100762,vfs_w,/data/org.example/files/a, \
                      b.tmp,2632,0,0,28749,3890,GLThread 91
[  180.293609s][pid:3890,cpu4,GLThread 91]->/data/org.example/files/a, b.tmp, bio-w, 4096, 2632, \
                      28749
<1>[  181.000001] ->1588402101470,vfs_r,/data/org.example/files/a, b,8192,2632,0,28749,3871,le, main
<1>[  181.000201] ->1588402101471,vfs_r,/data/org.example/files/a, \
                      b,8192,2632,2632,28749,3871,le, main
->1588402101480,vfs_w,/data/org.example/files/a, b,100,0,0,28749,3871,le, main
->1588402101500,vfs_w,/data/org.example/cache/1,4096,0,0,28749,3871,le, main
->1588402101501,vfs_w,/data/org.example/cache/1,4096,0,0,28750,3871,le, main
";

/// The kernel's `TASK_COMM_LEN`, without the NUL byte.
const COMM_BYTES_MAX: usize = 15;
const PATH_BYTES_MAX: usize = 4096;

const CUT: Skip = Skip::Damage("vfs_r or vfs_w line that is cut short or broken");
const BIO: Skip = Skip::Benign("bio-r or bio-w line (a request of the page cache to storage)");
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
        // The prefix may contain an arrow too: the name of a thread does.
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

    /// Position in a line that was printed after an operation at the start of the file.
    fn own_end(&self) -> u64 {
        if self.write { self.asked } else { self.asked.min(self.size) }
    }
}

#[derive(Default)]
struct Reader {
    held: Held,
    /// Whether lines were printed after their operation, once that is known.
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

    /// Decides the meaning of positions, from the lines so far, and processes the held lines.
    fn settle(&mut self, events: &mut Events<'_>) -> Result<(), Error> {
        const CLEAR: usize = 8;
        let mut seen = HashSet::new();
        let firsts = self.held.lines().filter_map(|text| Line::parse(text).ok());
        let firsts: Vec<_> =
            firsts.filter(|line| seen.insert(line.inode) && line.asked > 0).collect();
        let before = firsts.iter().filter(|line| line.position == 0).count();
        let after = firsts.iter().filter(|l| l.position > 0 && l.position == l.own_end()).count();
        let after = after >= CLEAR && after > CLEAR * before;
        let epoch_us = firsts.first().map(|line| line.time_ms.saturating_mul(1000));
        drop(firsts);
        if self.after.is_none() {
            self.after = Some(after);
            // Sizes are those from before each operation, unless the lines are from after it.
            let knows = Knows { times: true, writes: true, sizes: !after, ..Knows::NOTHING };
            events.about(About {
                epoch_us,
                boot_us: None,
                side: Side::Before,
                space: Space::Files,
                knows,
            })?;
        }
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
        let at_us =
            time_ms.saturating_sub(*self.first_ms.get_or_insert(time_ms)).saturating_mul(1000);
        let len = match (after, write) {
            (true, _) => asked.min(position),
            (false, true) => asked,
            (false, false) => asked.min(size.saturating_sub(position)),
        };
        let offset = if after { position - len } else { position };
        self.processes.runs(tid, line.comm.as_bytes(), at_us, events)?;
        let mut out = Out { at_us, tid, events };
        let file = self.files.entry(line, after, &mut out)?;
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

/// Receiver of the events of one line.
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
    /// Whether the path still belongs to this file.
    named: bool,
    /// Size in the last line, and its thread.
    size: u64,
    tid: u32,
    /// Size after that line's own operation.
    left: u64,
}

/// Resolves an inode and a path to a file.
#[derive(Default)]
struct Files {
    count: u64,
    inodes: HashMap<u64, File>,
    /// The inode that each path was last seen with.
    paths: HashMap<Box<str>, u64>,
}

impl Files {
    /// Returns the file of the line, after the events that its path and size imply.
    fn entry(
        &mut self,
        line: &Line<'_>,
        after: bool,
        out: &mut Out<'_, '_>,
    ) -> Result<&mut File, Error> {
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
                self.appears(line, after, out)?;
            }
            None => {
                self.takes_name(line, out)?;
                self.appears(line, after, out)?;
            }
        }
        Ok(self.inodes.get_mut(&line.inode).expect("it was there or was just made"))
    }

    /// Gives the line's path to its inode, and takes it from another inode that had it.
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
            return out
                .push(Action::Bind { file: file.id, name: MaybeOwned::owned_str(line.path) });
        }
        self.paths.remove(&from);
        let names = Renamed::owned(&from, line.path);
        out.push(Action::Rename { file: file.id, names })
    }

    fn ends(&mut self, inode: u64, out: &mut Out<'_, '_>) -> Result<(), Error> {
        let File { id, path, named, .. } =
            self.inodes.remove(&inode).expect("it has had another path");
        out.note(REUSED);
        if named {
            self.paths.remove(&path);
            out.push(Action::Unbind { file: id, name: path.into() })?;
        }
        out.push(Action::Gone { file: id })
    }

    fn appears(
        &mut self,
        line: &Line<'_>,
        after: bool,
        out: &mut Out<'_, '_>,
    ) -> Result<(), Error> {
        let id = FileId(self.count);
        self.count += 1;
        let file = File { id, path: line.path.into(), named: true, size: 0, tid: 0, left: 0 };
        self.inodes.insert(line.inode, file);
        out.push(Action::Bind { file: id, name: MaybeOwned::owned_str(line.path) })?;
        if after && line.write {
            // The size is the one after the write.
            return Ok(());
        }
        out.push(Action::Size { file: id, size: line.size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::testing;
    use proptest::prelude::*;

    fn read_lines(text: &str) -> (Vec<String>, String) {
        let (events, summary) = testing::read(&SPEC, text.as_bytes()).unwrap();
        let line = |e: &Event| {
            let what = match &e.action {
                Action::Read { file, offset, len, .. } => format!("{} r {offset} {len}", file.0),
                Action::Write { file, offset, len, sync: false, .. } => {
                    format!("{} w {offset} {len}", file.0)
                }
                Action::Truncate { file, size } => format!("{} cut {size}", file.0),
                Action::Size { file, size } => format!("{} had {size}", file.0),
                Action::Bind { file, name } => format!("{} is {name}", file.0),
                Action::Unbind { file, name } => format!("{} is not {name}", file.0),
                Action::Rename { file, names } => {
                    format!("{} was {} is {}", file.0, names.from, names.to)
                }
                Action::Gone { file } => format!("{} gone", file.0),
                Action::Process { name } => format!("runs {name}"),
                other => panic!("{other:?}"),
            };
            format!("{} {} {what}", e.at_us, e.tid)
        };
        (events.iter().map(line).collect(), testing::skipped(&summary))
    }

    /// The events of lines `write path asked size position inode tid`, without processes and times.
    fn events_of(lines: &[(bool, &str, u64, u64, u64, u64, u32)]) -> (Vec<String>, String) {
        let line = |(n, &(write, path, asked, size, position, inode, tid)): (usize, &_)| {
            let op = if write { "vfs_w" } else { "vfs_r" };
            format!("->{},{op},{path},{asked},{size},{position},{inode},{tid},x\n", 1000 + n)
        };
        let (events, skipped) = read_lines(&lines.iter().enumerate().map(line).collect::<String>());
        let kept = events.iter().filter(|event| !event.ends_with("runs x"));
        (kept.map(|event| event.splitn(3, ' ').nth(2).unwrap().to_owned()).collect(), skipped)
    }

    #[test]
    fn the_sample_is_read() {
        let (events, skipped) = read_lines(SAMPLE);
        assert_eq!(
            events,
            [
                "0 3890 runs GLThread 91",
                "0 3890 0 is /data/org.example/files/a, b.tmp",
                "0 3890 0 had 0",
                "0 3890 0 w 0 2632",
                "708000 3871 runs le, main",
                "708000 3871 0 was /data/org.example/files/a, b.tmp is /data/org.example/files/a, \
                 b",
                "708000 3871 0 r 0 2632",
                "718000 3871 0 cut 0",
                "718000 3871 0 w 0 100",
                "738000 3871 0 is not /data/org.example/files/a, b",
                "738000 3871 0 gone",
                "738000 3871 1 is /data/org.example/cache/1",
                "738000 3871 1 had 0",
                "738000 3871 1 w 0 4096",
                "739000 3871 1 is not /data/org.example/cache/1",
                "739000 3871 2 is /data/org.example/cache/1",
                "739000 3871 2 had 0",
                "739000 3871 2 w 0 4096",
            ]
        );
        for part in [
            "1 × bio-r or bio-w line (a request of the page cache to storage) (first at 3)",
            "1 × read at the end of its file (first at 5)",
            "1 × other line of the kernel's log (first at 1)",
            "1 × inode under another path, of the size it had: taken for a rename (first at 4)",
            "1 × file smaller than it was left: taken for a truncation (first at 6)",
            "1 × inode under another path, of another size: taken for another file (first at 7)",
            "1 × path with another inode: taken for another file (first at 8)",
        ] {
            assert!(skipped.contains(part), "{part}: {skipped}");
        }
        assert_eq!(skipped.matches(';').count(), 6, "{skipped}");
    }

    #[test]
    fn another_thread_may_print_before_a_write_is_done() {
        let (w, r, f) = (true, false, "/data/f");
        let (events, _) =
            events_of(&[(w, f, 9, 0, 0, 5, 1), (r, f, 9, 0, 0, 5, 2), (r, f, 9, 9, 0, 5, 2)]);
        assert_eq!(events, ["0 is /data/f", "0 had 0", "0 w 0 9", "0 r 0 9"]);
        let (events, _) = events_of(&[(r, f, 9, 9, 0, 5, 1), (r, f, 9, 5, 0, 5, 2)]);
        assert_eq!(events, ["0 is /data/f", "0 had 9", "0 r 0 9", "0 cut 5", "0 r 0 5"]);
    }

    #[test]
    fn names_come_and_go() {
        let (a, b, tmp) = ("/data/a", "/data/b", "/data/a.tmp");
        // The file was replaced by a rename: the former file loses its name and may still be read
        // through its descriptor.
        let (events, _) = events_of(&[
            (false, a, 9, 9, 0, 1, 1),
            (true, tmp, 7, 0, 0, 2, 1),
            (false, a, 9, 7, 0, 2, 1),
            (false, a, 4, 9, 0, 1, 3),
        ]);
        assert_eq!(
            events,
            [
                "0 is /data/a",
                "0 had 9",
                "0 r 0 9",
                "1 is /data/a.tmp",
                "1 had 0",
                "1 w 0 7",
                "0 is not /data/a",
                "1 was /data/a.tmp is /data/a",
                "1 r 0 7",
                "0 r 0 4",
            ]
        );
        // Two names of one file are one file; an empty file gives no evidence.
        let (events, _) = events_of(&[
            (false, a, 9, 9, 0, 1, 1),
            (false, b, 9, 9, 0, 1, 1),
            (false, a, 9, 9, 0, 1, 1),
        ]);
        assert!(events.iter().all(|event| event.starts_with("0 ")), "{events:?}");
        let (events, _) = events_of(&[(false, a, 9, 0, 0, 1, 1), (true, b, 9, 0, 0, 1, 1)]);
        let had = |event: &String| event.contains(" had ");
        let (had, events): (Vec<_>, Vec<_>) = events.into_iter().partition(had);
        assert_eq!(had, ["0 had 0", "1 had 0"]);
        assert_eq!(
            events,
            ["0 is /data/a", "0 is not /data/a", "0 gone", "1 is /data/b", "1 w 0 9"]
        );
    }

    /// One program's operations, printed before and after each operation: the events are the same,
    /// except that sizes from before are unknown where the lines are from after.
    #[test]
    fn lines_from_before_and_from_after_give_the_same_events() {
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
        let (mut events, skipped) = events_of(&before);
        events.retain(|event| !event.ends_with(" had 0"));
        assert_eq!((events.len(), &*skipped), (40, ""));
        assert_eq!(events_of(&after), (events, format!("1 × {AFTER} (first at 1)")));
        // Seven such files prove nothing.
        let (_, skipped) = events_of(&after[..21]);
        assert!(!skipped.contains(AFTER), "{skipped}");
    }

    #[test]
    fn names_with_commas_and_lines_that_are_cut() {
        let (events, skipped) = read_lines(
            "[1.0s][pid:1,cpu0,a->b]->5,vfs_w,/data/a,1,2,10,0,0,7,8,name, of 1\n\
             ->5,vfs_w,/data/a,10,0,0,7,8\n\
             ->5,vfs_r,/data/->5,vfs_w,,10,90,0,9,8,c\n->5,vfs_w,data/a,10,0,0,7,8,c\n\
             ->5,vfs_w,/data/a,-10,0,0,7,8,c\n\
             ->5,vfs_w,/data/a,10,0,0,7,4294967296,c\n->5,vfs_w,/data/a,10,0,0,7,8,a name too \
             long\n\
             ->5,vfs_w,/data/a,10,0,0,7,8,a name too long!\n\
             ->5,vfs_w,/data/a,9,9,9223372036854775807,7,8,c\n\
             ->5,unlink,ramfs,/data/a,9,9,7,8,c\n->/data/a, bio-w, 4096, 2849\n->5,mmap,1\n-> \n",
        );
        let first = ["0 8 runs name, of 1", "0 8 0 is /data/a,1,2", "0 8 0 had 0", "0 8 0 w 0 10"];
        assert_eq!(events[..4], first);
        assert!(events.contains(&"0 8 1 r 0 10".into()), "{events:?}");
        for part in [
            "5 × vfs_r or vfs_w line that is cut short or broken (first at 2)",
            "1 × offset beyond 2^63 (first at 9)",
            "1 × unlink line (first at 10)",
            "3 × other line of the kernel's log (first at 11)",
        ] {
            assert!(skipped.contains(part), "{part}: {skipped}");
        }
        assert_eq!(detect(b"->/data/a, bio-w, 4096, 2849, 1\n"), Confidence::No);
        assert_eq!(
            detect(b"init: ok\n<6>[ 1.0] ->5,vfs_w,/data/a,10,0,0,7,8,c\n"),
            Confidence::Likely
        );
    }

    /// Contents of a byte: the number of the write that wrote it.
    type Bytes = Vec<Option<usize>>;

    fn write(bytes: &mut Bytes, offset: usize, len: usize, number: usize) {
        bytes.resize(bytes.len().max(offset + len), None);
        bytes[offset..offset + len].fill(Some(number));
    }

    /// A miniature file system that prints as the kernel does.
    #[derive(Default)]
    struct Disk {
        /// Files by inode; the lowest free number is used first.
        inodes: [Bytes; 6],
        names: [Option<usize>; 5],
        /// Inodes that were truncated or renamed and have printed nothing since.
        cut: [bool; 6],
        renamed: [bool; 6],
        /// A change between two lines that their sizes do not show.
        doubtful: bool,
        writes: usize,
        log: String,
        /// Contents returned by each read that returned any.
        got: Vec<Bytes>,
    }

    impl Disk {
        fn print(&mut self, op: &str, name: usize, inode: usize, asked: usize, position: usize) {
            let size = self.inodes[inode].len();
            self.doubtful |= self.cut[inode] && self.renamed[inode];
            (self.cut[inode], self.renamed[inode]) = (false, false);
            self.log +=
                &format!("->1,vfs_{op},/data/{name},{asked},{size},{position},{inode},7,x\n");
        }

        fn act(&mut self, (what, name, a, b): (u8, usize, usize, usize)) {
            let free = |names: &[Option<usize>; 5]| {
                (0..6).find(|n| !names.contains(&Some(*n))).expect("one more")
            };
            match (what, self.names[name]) {
                // A write at the start, at the end, or anywhere in between.
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
                    let got: Bytes =
                        self.inodes[inode].iter().skip(b).take(a + 1).copied().collect();
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
        /// Files are created, renamed, replaced, truncated and deleted without a line. A read
        /// through the derived files never returns older contents, and returns all of the contents
        /// where the printed sizes identify them.
        #[test]
        fn reads_return_the_latest_writes(
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
        fn a_damaged_sample_does_not_panic(
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
