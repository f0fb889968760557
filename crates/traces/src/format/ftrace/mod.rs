//! ftrace's text: the output of `trace` and `trace_pipe` in tracefs, `trace-cmd report`, `perf
//! script` and `atrace`, and the HTML of systrace.
//!
//! ```text
//! python3-490 (490) [000] ..... 102.566988: f2fs_dataread_end: ino 6, offset 163900, bytes 100
//! python3  490 [000]   102.566988: f2fs:f2fs_dataread_end: ino 6, offset 163900, bytes 100
//! ```
//!
//! A line holds the thread, the process (with `record-tgid`), the processor, flags, seconds, the
//! tracepoint, and its text (parsed by [`text`]). The lines of call chains are skipped. The `blk`
//! tracer's actions are taken for the tracepoints that tell the same: `Q` for `block_bio_queue`.
//! System calls ([`super::syscalls`]) are used if no tracepoint tells of reads. The reader uses the
//! tracepoints that a recording of our own uses and their counterparts in older and Android kernels
//! ([`super::kernel`]). The first 65,536 usable tracepoints decide which of them supply the
//! accesses.
//!
//! There are two formats, because a trace may show both sides of the cache. `ftrace` reads the
//! tracepoints of files, or those of the block layer if the trace has none of files; `ftrace-block`
//! always reads the requests of the block layer.
//!
//! **Processes** come from the lines, else from `task_newtask`, else each thread counts as its own
//! process. A thread whose name the kernel no longer had (`<...>`) keeps its earlier name.
//!
//! **HTML** is searched for `<script class="trace-data" type="application/text">`, or `var
//! linuxPerfData` before 2014; the blocks that begin like ftrace's text are read. systrace wraps
//! the output of atrace in them.
//!
//! **Losses.** Events that the kernel lost, or overwrote before they were read, are noted with
//! their number.
//!
//! The function tracers, and `trace-cmd report -l` and `-R`, are not read.

mod line;
mod text;

use super::{
    Confidence, FormatSpec, Space, head_lines,
    kernel::{Feed, Known, SystemCall},
    syscalls,
};
use crate::{
    Error,
    events::{Events, Skip},
    input::Input,
};
use line::{Line, Time};
use memchr::memmem;
use std::collections::HashMap;
use text::Layout;

pub(super) const SPEC: FormatSpec = FormatSpec {
    name: "ftrace",
    what: "ftrace's text: trace, trace_pipe, `trace-cmd report`, `perf script`, atrace, HTML",
    detect: |head| detect(head, false),
    read: |input, events| read(input, events, None),
    ahead: true,
    sample: || SAMPLE.into(),
};

pub(super) const BLOCK: FormatSpec = FormatSpec {
    name: "ftrace-block",
    what: "the block layer's requests in ftrace's text",
    detect: |head| detect(head, true),
    read: |input, events| read(input, events, Some(Space::Blocks)),
    ahead: true,
    sample: || BLOCK_SAMPLE.into(),
};

const SAMPLE: &str = "\
# tracer: nop
#
# entries-in-buffer/entries-written: 17/17   #P:2
#
#           TASK-PID       TGID    CPU#  |||||  TIMESTAMP  FUNCTION
#              | |           |       |   |||||     |         |
         python3-490     (    490) [000] .....   102.566615: f2fs_new_inode: dev = (179,0), ino = \
                      6, ret = 0
         python3-490     (    490) [000] .....   102.566988: f2fs_datawrite_start: entry_name \
                      /data/a b, offset 0, bytes 9000, cmdline python3, pid 490, i_size 0, ino 6
         python3-490     (    490) [000] .....   102.569511: f2fs_file_write_iter: dev = (179,0), \
                      ino = 6, offset = 0, length = 9000, written(err) = 9000
         python3-490     (    490) [000] .....   102.571252: f2fs_sync_file_enter: dev = (179,0), \
                      ino = 6, pino = 5, i_mode = 0x81ed, i_size = 9000, i_nlink = 1, i_blocks = \
                      24, i_advise = 0x0
         python3-490     (    490) [000] .....   102.580000: task_newtask: pid=491 comm=python3 \
                      clone_flags=3d0f00 oom_score_adj=0
         python3-491     (    490) [001] .....   102.702605: f2fs_dataread_start: entry_name \
                      /data/a b, offset 8192, bytes 4096, cmdline python3, pid 491, i_size 9000, \
                      ino 6
         python3-491     (    490) [001] .....   102.702631: f2fs_dataread_end: ino 6, offset \
                      8192, bytes 808
           <...>-17      (-----) [001] .N..2   102.710000: mm_filemap_get_pages: dev=8:1 ino=c \
                      ofs=0-131071
            <idle>-0     (-----) [001] d..2.   102.710100: sched_switch: prev_comm=swapper/1 \
                      prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=x next_pid=17 \
                      next_prio=120
CPU:1 [LOST 3 EVENTS]
    jbd2/sda1 - 8-88     (     88) [001] .....   102.720000: ext4_da_write_begin: dev 8,1 ino 12 \
                      pos 4096 len 5000
    jbd2/sda1 - 8-88     (     88) [001] .....   102.720010: ext4_da_write_end: dev 8,1 ino 12 \
                      pos 4096 len 5000 copied 5000
    jbd2/sda1 - 8-88     (     88) [001] d..1.   102.720020: block_bio_queue: 8,1 WS 2048 + 8 \
                      [jbd2/sda1 - 8]
         python3-490     (    490) [000] .....   103.057997: f2fs_truncate: dev = (179,0), ino = \
                      6, pino = 5, i_mode = 0x81ed, i_size = 4096, i_nlink = 1, i_blocks = 16, \
                      i_advise = 0x0
         python3-490     (    490) [000] .....   103.290513: f2fs_evict_inode: dev = (179,0), ino \
                      = 6, pino = 5, i_mode = 0x81ed, i_size = 4096, i_nlink = 0, i_blocks = 16, \
                      i_advise = 0x0
";

const BLOCK_SAMPLE: &str = "\
cpus=8
          app-21515 [002] 70.114285:    block_bio_queue: 8,0 R 4709256 + 32 [app]
          app-21515 [002] 70.114290:      block_rq_issue: 8,0 R 16384 () 4709256 + 32 be,0,4 [app]
     kworker/2:1H-88 [002] 70.120000:    block_bio_queue: 8,0 WFS 20080696 + 8 [kworker/2:1H]
         <idle>-0     [002] 70.121000:   block_rq_complete: 8,0 WFS () 20080696 + 8 be,0,4 [0]
          app-21515 [001] 70.130000:    block_bio_queue: 8,16 FF 0 + 0 [app]
          app-21515 [001] 70.130001:    block_bio_queue: 8,16 DS 2048 + 64 [app]
";

const NOT_A_LINE: Skip = Skip::Damage("line that ftrace does not print");
const UNREADABLE: Skip = Skip::Damage("tracepoint whose text lacks a field that is needed");
const TOO_LONG: Skip = Skip::Damage("line longer than 1 MiB");
const LOST: Skip = Skip::Note("event lost by the kernel: its buffer was full");
const OVERWRITTEN: Skip =
    Skip::Note("event overwritten before the buffer was read: the trace begins later");
const FUNCTION: Skip = Skip::Benign("function of another tracer");
const CHAIN: Skip = Skip::Benign("line of a call chain");
const NO_DATA: &str =
    "an HTML page without a trace: systrace's has one in <script class=\"trace-data\">";
const OTHER_DATA: Skip = Skip::Benign("line of systrace's other data");

/// The start of the part of an HTML page that holds a trace. The second is that of systrace before
/// 2014, where each line ends in [`OLD_END`].
const TRACE_DATA: [&[u8]; 2] = [b"class=\"trace-data\"", b"var linuxPerfData = \""];
const OLD_END: &[u8] = b"\\n\\";

fn detect(head: &[u8], block: bool) -> Confidence {
    if is_html(head) {
        let marks = [TRACE_DATA[0], TRACE_DATA[1], b"Android System Trace", b"trace-viewer"];
        let is_one = marks.iter().any(|mark| memmem::find(head, mark).is_some());
        return if is_one && !block { Confidence::Likely } else { Confidence::No };
    }
    let (mut tracepoints, mut requests, mut remarks, mut all) = (0, 0, 0, 0);
    for bytes in head_lines(head) {
        match line::line(bytes) {
            Some(line) => {
                tracepoints += 1;
                requests += usize::from(is_request(line.name));
            }
            None => remarks += usize::from(is_remark(bytes)),
        }
        all += 1;
    }
    let is_one = tracepoints > 0 && (tracepoints + remarks) * 5 >= all * 4;
    if is_one && block == (requests == tracepoints) { Confidence::Likely } else { Confidence::No }
}

/// Whether an event of this name belongs to the block layer or to a host controller.
fn is_request(name: &[u8]) -> bool {
    const HOSTS: [&[u8]; 5] = [b"block_", b"ufshcd_", b"scsi_dispatch_", b"mmc_", b"nvme_"];
    // The actions of the `blk` tracer are one or two letters.
    (1..=2).contains(&name.len()) || HOSTS.iter().any(|start| name.starts_with(start))
}

fn is_html(head: &[u8]) -> bool {
    let head = head.trim_ascii_start();
    [&b"<!doctype html"[..], b"<html"]
        .iter()
        .any(|start| head.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start)))
}

/// Lines around the events: headers, call chains, and messages of the tools.
fn is_remark(line: &[u8]) -> bool {
    line.starts_with(b"#")
        || line::is_chain(line)
        || line::lost(line).is_some()
        || [&b"cpus="[..], b"version = ", b"TRACE:", b"capturing trace"]
            .iter()
            .any(|start| line.starts_with(start))
}

/// Returns the call that begins or ends: `sys_enter_write: fd: 0x3, …`, `sys_exit_write: 0x10`, or
/// in tracefs `sys_write(fd: 3, …)`, `sys_write -> 0x10`.
fn system_call(line: &Line<'_>) -> Option<SystemCall> {
    let name = line.name.strip_prefix(b"sys_")?;
    let bare = |text: &'static [u8]| line.text.strip_prefix(text);
    let (name, ends, hex, text) = if let Some(name) = name.strip_prefix(b"enter_") {
        (name, false, false, line.text)
    } else if let Some(name) = name.strip_prefix(b"exit_") {
        (name, true, false, line.text)
    } else if let Some(result) = bare(b"-> ") {
        (name, true, true, result)
    } else {
        (name, false, true, bare(b"(")?.strip_suffix(b")")?)
    };
    Some(SystemCall { name: syscalls::named(name)?, ends, hex, text: text.into() })
}

fn read(
    input: &mut Input<'_>,
    events: &mut Events<'_>,
    wanted: Option<Space>,
) -> Result<(), Error> {
    let mut reader = Reader {
        known: Layout::all().collect(),
        feed: Feed::new(events, wanted),
        page: None,
        data: false,
        damaged: 0,
    };
    while let Some(line) = input.line()? {
        reader.line(line.bytes, line.too_long, line.number)?;
    }
    if reader.page == Some(Page::Around) && !reader.data {
        return Err(Error::Lacks(NO_DATA.to_owned()));
    }
    let sound = reader.damaged * 2 <= input.lines();
    reader.feed.finish(sound)
}

/// Position of the reader in an HTML page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Page {
    /// In plain text, or within ftrace's text of a page.
    Trace,
    /// At the start of a data block that may hold ftrace's text.
    Data,
    /// In another data block.
    OtherData,
    /// Between data blocks.
    Around,
}

struct Reader<'e, 's> {
    known: HashMap<&'static [u8], (&'static Known, Layout), foldhash::fast::FixedState>,
    feed: Feed<'e, 's>,
    /// `None` before the first line.
    page: Option<Page>,
    /// The input was a page that had data.
    data: bool,
    damaged: u64,
}

impl Reader<'_, '_> {
    fn line(&mut self, bytes: &[u8], too_long: bool, number: u64) -> Result<(), Error> {
        if bytes.trim_ascii().is_empty() {
            return Ok(());
        }
        let html = || if is_html(bytes) { Page::Around } else { Page::Trace };
        let page = *self.page.get_or_insert_with(html);
        if page == Page::Around {
            if TRACE_DATA.iter().any(|mark| memmem::find(bytes, mark).is_some()) {
                (self.page, self.data) = (Some(Page::Data), true);
            }
            return Ok(());
        }
        if bytes.trim_ascii().starts_with(b"</script>") {
            self.page = Some(Page::Around);
            return Ok(());
        }
        let bytes = if self.data { bytes.strip_suffix(OLD_END).unwrap_or(bytes) } else { bytes };
        if self.data && matches!(bytes.trim_ascii(), b"" | b"\\n\";") {
            return Ok(());
        }
        if page == Page::Data {
            let trace = is_remark(bytes) || line::line(bytes).is_some();
            self.page = Some(if trace { Page::Trace } else { Page::OtherData });
        }
        if self.page == Some(Page::OtherData) {
            self.feed.events.skipped(OTHER_DATA, number);
            return Ok(());
        }
        if too_long {
            self.damage(TOO_LONG, number);
            return Ok(());
        }
        match line::line(bytes) {
            Some(line) => self.tracepoint(&line, number),
            None => {
                self.remark(bytes, number);
                Ok(())
            }
        }
    }

    fn tracepoint(&mut self, line: &Line<'_>, number: u64) -> Result<(), Error> {
        let Some((known, layout)) = self.known.get(line.name) else {
            match line.name {
                b"" => self.feed.events.skipped(FUNCTION, number),
                b"PERF_RECORD_LOST" => {
                    let many = line::perf_lost(line.text).unwrap_or(1);
                    self.feed.events.skipped_many(LOST, number, many);
                }
                name => match system_call(line) {
                    Some(call) => return self.system_call(line, call, number),
                    None => self.feed.other(number, name),
                },
            }
            return Ok(());
        };
        let Some(fields) = layout.read(line.text) else {
            self.damage(UNREADABLE, number);
            return Ok(());
        };
        let at_ns = at_ns(line, &mut self.feed);
        self.feed.thread(number, at_ns, line.tid, line.tgid, line.comm)?;
        self.feed.hit(number, at_ns, line.tid, known, &fields)
    }

    fn system_call(&mut self, line: &Line<'_>, call: SystemCall, number: u64) -> Result<(), Error> {
        let at_ns = at_ns(line, &mut self.feed);
        self.feed.thread(number, at_ns, line.tid, line.tgid, line.comm)?;
        self.feed.system_call(number, at_ns, line.tid, call)
    }

    fn remark(&mut self, bytes: &[u8], number: u64) {
        if let Some(many) = line::lost(bytes) {
            self.feed.events.skipped_many(LOST, number, many);
        } else if let Some(many) = line::overwritten(bytes) {
            self.feed.events.skipped_many(OVERWRITTEN, number, many);
        } else if line::is_chain(bytes) {
            self.feed.events.skipped(CHAIN, number);
        } else if !is_remark(bytes) {
            self.damage(NOT_A_LINE, number);
        }
    }

    fn damage(&mut self, skip: Skip, number: u64) {
        self.damaged += 1;
        self.feed.events.skipped(skip, number);
    }
}

/// Returns the time of a line; 0 if the trace has an order only.
fn at_ns(line: &Line<'_>, feed: &mut Feed<'_, '_>) -> u64 {
    match line.time {
        Time::Clock(ns) => ns,
        Time::Count => {
            feed.times = false;
            0
        }
    }
}

#[cfg(test)]
mod tests;
