//! blkparse's text: the block-layer activity that blktrace recorded (blkparse(1), "DEFAULT
//! OUTPUT").
//!
//! ```text
//!   8,0    3        1     0.000000000   697  Q  WS 223490 + 8 [kjournald]
//! ```
//!
//! Device, CPU, sequence number, seconds, thread, action, flags ([`Rwbs`]), first sector `+`
//! sectors, program. With `-t` a time in parentheses stands before the program. The kernel's `blk`
//! tracer prints the same without the sequence number, if its option `blk_classic` is set. Any
//! other format (`-f`, `-F`) is not read.
//!
//! **Counted action.** One request leaves several lines. `Q` (queued) is the one to count: it shows
//! the request and its process before the block layer merges and splits. On Linux 6.18 the sectors
//! of a recording's `Q` lines equal those of `/sys/block/*/stat`, also with partitions (`A` maps a
//! partition's sector to the disk, and the `Q` after it has that sector) and splits (`X`; its parts
//! are not queued again). A recording without `Q` (`blktrace -a issue`) has `D` (issued to the
//! driver) or `C` (completed): if the first 4096 of these lines hold no `Q`, the first of `D` and
//! `C` that they hold is counted instead, with known errors: merged requests count as one, a
//! request that is requeued (`R`) is issued twice, and the completing process is not the requesting
//! one. All other actions are skipped and counted by kind.
//! **Stacked devices** (device mapper, RAID) that were recorded together with their underlying
//! devices each have their own pseudo-file, and a request counts at both; where an `A` shows it,
//! that is noted.
//!
//! **Flushes** (`F` before the operation, alone or with a write) make the whole device durable: a
//! sync of the pseudo-file. The kernel sends none to a device without a volatile cache, so their
//! absence proves nothing. A write is synchronous if a process waits for it (`S`) or it is forced
//! to the medium (FUA). **Discards** punch a hole.
//!
//! A line counts only if it is complete, to the bracket at its end: `+ 8` may be the start of `+
//! 80`. The summary that blkparse prints after the last line is skipped.

use super::{
    Confidence, FormatSpec, Knows, Side, Space,
    block::{Devices, Rwbs, device_name},
    detected_by_lines,
    held::Held,
    processes::Processes,
    text_lines,
};
use crate::{
    Error,
    events::{Events, Skip},
    input::Input,
};
use flashsift_events::event::About;

pub(super) const SPEC: FormatSpec = FormatSpec {
    name: "blkparse",
    what: "blkparse's default text: `8,0 1 42 0.000123 1234 Q WS 1234567 + 8 [fio]`",
    detect,
    read,
    ahead: true,
    sample: || SAMPLE.into(),
};

const SAMPLE: &str = "\
  8,0    1        1     0.000000000   697  A  WS 206456 + 8 <- (8,1) 204408
  8,0    1        2     0.000000714   697  Q  WS 206456 + 8 [app main]
  8,0    1        3     0.000002101   697  G  WS 206456 + 8 [app main]
  8,0    1        4     0.000002501   697  P   N [app main]
  8,0    1        5     0.000004107   697  U   N [app main] 1
  8,0    1        6     0.000005110   697  D  WS 206456 + 8 [app main]
  8,0    0        1     0.000610117     0  C  WS 206456 + 8 [0]
  8,0    1        7     0.001000000   702  Q FWFSM 1050624 + 8 [jbd2/sda1-8]
  8,0    1        8     0.001200000    39  Q  RA 4096 + 256 [kworker/1:1]
  8,0    1        9     0.001200400     0  m   N cfq workload slice:100
  8,0    1       10     0.004200000    39  Q   D 1048576 + 2048 [kworker/1:1]
CPU0 (8,0):
 Reads Queued:           0,        0KiB	 Writes Queued:           0,        0KiB

Throughput (R/W): 32000KiB/s / 2000KiB/s
Events (8,0): 12 entries
Skips: 0 forward (0 -   0.0%)
";

const SHAPE: Skip = Skip::Damage(
    "line that is not of blkparse's default output (formats made by -f or -F are not read)",
);
const CUT: Skip = Skip::Damage("line that is cut short");
const FLAGS: Skip = Skip::Damage("unknown RWBS flags");
const ACTION: Skip = Skip::Damage("action that blkparse does not have");
const SUMMARY: Skip = Skip::Benign("blkparse's summary");
const COMMAND: Skip = Skip::Benign("SCSI command");
const FAILED: Skip = Skip::Benign("failed request");
const STACKED: Skip =
    Skip::Note("remap (A) from a device that is in the trace too: the request counts at both");
/// Largest name in bytes: longer than the kernel's 15 bytes, in case they grow.
const PROGRAM_BYTES_MAX: usize = 64;

fn detect(head: &[u8]) -> Confidence {
    detected_by_lines(head, |line| match line {
        Some(line) if Line::parse(line).is_some() => Some(true),
        Some(line) if is_summary(line) => None,
        _ => Some(false),
    })
}

fn read(input: &mut Input<'_>, events: &mut Events<'_>) -> Result<(), Error> {
    events.about(About {
        epoch_us: None,
        boot_us: None,
        side: Side::After,
        space: Space::Blocks,
        knows: Knows { times: true, syncs: false, writes: true, removals: false, ..Knows::NOTHING },
    })?;
    let mut reader = Reader::default();
    text_lines(input, events, |text, events| reader.line(text, events))?;
    reader.settle(events)
}

/// The header of one line, and the text after its action.
struct Line<'a> {
    device: &'a str,
    time_ns: u64,
    pid: u32,
    action: &'a str,
    flags: &'a str,
    rest: &'a str,
}

impl<'a> Line<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut rest = text;
        let mut word = || {
            let (word, after) = rest.trim_ascii_start().split_once(' ')?;
            rest = after;
            Some(word)
        };
        let (device, cpu, mut time) = (word()?, word()?, word()?);
        numbers(device)?;
        let _cpu: u32 = cpu.parse().ok()?;
        // The kernel's `blk` tracer has no sequence number.
        if !time.contains('.') {
            let _sequence: u64 = time.parse().ok()?;
            time = word()?;
        }
        let (pid, action, flags) = (word()?, word()?, word()?);
        let (seconds, nanos) = time.split_once('.')?;
        let nanos: u64 = if nanos.len() == 9 { nanos.parse().ok()? } else { return None };
        let time_ns =
            seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(nanos)?;
        Some(Self { device, time_ns, pid: pid.parse().ok()?, action, flags, rest })
    }
}

/// Parses a device as `major,minor`.
fn numbers(device: &str) -> Option<(u32, u32)> {
    let (major, minor) = device.split_once(',')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The text after the header of a `Q`, `D` or `C`.
struct Payload<'a> {
    /// First sector and number of sectors.
    span: Option<(u64, u64)>,
    /// The last bracket: the program, or for a `C` the error.
    bracket: &'a str,
}

impl<'a> Payload<'a> {
    fn parse(rest: &'a str) -> Result<Self, Skip> {
        let bracketed = rest.trim_ascii().strip_suffix(']').ok_or(CUT)?;
        let (before, bracket) = bracketed.split_once('[').ok_or(CUT)?;
        if bracket.len() > PROGRAM_BYTES_MAX {
            return Err(SHAPE);
        }
        let mut words = before.split_ascii_whitespace();
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok());
        let span = match (words.next(), words.next()) {
            (None, _) => None,
            (sector, Some("+")) => {
                let span = number(sector).zip(number(words.next())).ok_or(SHAPE)?;
                Some(span)
            }
            // A flush completes with a sector alone.
            (sector, None) if number(sector).is_some() => None,
            // The bytes of a command; a sector and the time of `-t` can have the same shape.
            (sector, Some(pdu)) if number(sector).is_some() && pdu.starts_with('(') => {
                let hex = pdu.trim_start_matches('(');
                if !hex.is_empty() && !hex.ends_with(')') {
                    return Err(COMMAND);
                }
                None
            }
            _ => return Err(SHAPE),
        };
        Ok(Self { span, bracket })
    }
}

/// The action by which a request is counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Counts {
    Queued,
    Issued,
    Completed,
}

impl Counts {
    fn new(action: &str) -> Option<Self> {
        match action {
            "Q" => Some(Self::Queued),
            "D" => Some(Self::Issued),
            "C" => Some(Self::Completed),
            _ => None,
        }
    }

    /// The reason that such a line does not count in a trace with a better action.
    fn beside(self) -> Skip {
        match self {
            Self::Queued => {
                Skip::Benign("queued request (Q), in a trace whose first ones have none")
            }
            Self::Issued => Skip::Benign("issue (D)"),
            Self::Completed => Skip::Benign("completion (C)"),
        }
    }
}

#[derive(Default)]
struct Reader {
    counts: Option<Counts>,
    held: Held,
    first_ns: Option<u64>,
    devices: Devices,
    processes: Processes,
}

impl Reader {
    fn line(&mut self, text: &str, events: &mut Events<'_>) -> Result<Result<(), Skip>, Error> {
        let Some(line) = Line::parse(text) else {
            return Ok(Err(if is_summary(text) { SUMMARY } else { SHAPE }));
        };
        let Some(kind) = Counts::new(line.action) else { return Ok(Err(self.beside(&line))) };
        match self.counts {
            Some(counts) if counts == kind => self.request(kind, &line, events),
            Some(_) => Ok(Err(kind.beside())),
            None => {
                let enough = self.held.keep(events.line(), text);
                if kind == Counts::Queued || enough {
                    self.settle(events)?;
                }
                Ok(Ok(()))
            }
        }
    }

    /// Decides which action counts, from the lines so far, and processes the held lines.
    fn settle(&mut self, events: &mut Events<'_>) -> Result<(), Error> {
        let kinds =
            self.held.lines().filter_map(Line::parse).filter_map(|line| Counts::new(line.action));
        let Some(counts) = self.counts.or(kinds.min()) else { return Ok(()) };
        self.counts = Some(counts);
        let now = events.line();
        for (number, text) in self.held.take() {
            events.at(number);
            if let Err(skip) = self.line(&text, events)? {
                events.skipped(skip, number);
            }
        }
        events.at(now);
        Ok(())
    }

    fn beside(&self, line: &Line<'_>) -> Skip {
        match line.action {
            "A" => {
                let from = line.rest.split_once("<- (").and_then(|(_, from)| from.split_once(')'));
                match from {
                    Some((from, _)) if self.devices.contains(from.as_bytes()) => STACKED,
                    Some(_) => Skip::Benign("remap (A)"),
                    None => CUT,
                }
            }
            "B" => Skip::Benign("bounce (B)"),
            "F" | "M" => Skip::Benign("merge (F, M)"),
            "G" => Skip::Benign("request allocated (G)"),
            "I" => Skip::Benign("insertion into a queue (I)"),
            "P" | "U" | "T" | "UT" => Skip::Benign("plug, unplug (P, U)"),
            "R" if self.counts == Some(Counts::Issued) => Skip::Note(
                "requeue (R): the request \
                                                                      counts twice",
            ),
            "R" => Skip::Benign("requeue (R)"),
            "S" => Skip::Benign("sleep (S)"),
            "X" => Skip::Benign("split (X)"),
            "m" => Skip::Benign("message (m)"),
            _ => ACTION,
        }
    }

    fn request(
        &mut self,
        kind: Counts,
        line: &Line<'_>,
        events: &mut Events<'_>,
    ) -> Result<Result<(), Skip>, Error> {
        let &Line { device, time_ns, flags, .. } = line;
        let Some(flags) = Rwbs::parse(flags) else { return Ok(Err(FLAGS)) };
        let Payload { span, bracket } = match Payload::parse(line.rest) {
            Ok(payload) => payload,
            Err(skip) => return Ok(Err(skip)),
        };
        let (pid, program) = match kind {
            Counts::Completed if bracket != "0" => return Ok(Err(FAILED)),
            Counts::Completed => (0, ""),
            Counts::Queued | Counts::Issued => (line.pid, bracket),
        };
        let at_us = time_ns.saturating_sub(*self.first_ns.get_or_insert(time_ns)) / 1000;
        let (major, minor) = numbers(device).expect("parsed with the line");
        let file =
            self.devices.file(device.as_bytes(), || device_name(major, minor), at_us, events)?;
        if let Err(skip) = flags.gives_event(span.is_some()) {
            return Ok(Err(skip));
        }
        // blkparse's placeholders for an unknown name.
        if !matches!(program, "" | "unknown" | "(null)") {
            self.processes.runs(pid, program.as_bytes(), at_us, events)?;
        }
        flags.push((at_us, pid, pid), file, span, events).map(Ok)
    }
}

/// Whether this is a message of blkparse (or of blktrace, on the same terminal) and no part of the
/// trace.
fn is_summary(line: &str) -> bool {
    // `# tracer: blk` begins the header of the kernel's tracer.
    const BEGINNINGS: [&str; 6] =
        ["Throughput (R/W):", "Events (", "Skips:", "===", "Input file ", "#"];
    let count = |line: &str| {
        let label = line.strip_prefix(' ').and_then(|line| line.split_once(':'));
        label
            .is_some_and(|(label, _)| label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b' '))
    };
    // With `-s`: `fio (1234)`.
    let program = |line: &str| {
        let pid = line.strip_suffix(')').and_then(|line| line.rsplit_once(" ("));
        pid.is_some_and(|(name, pid)| {
            name.len() <= PROGRAM_BYTES_MAX && pid.bytes().all(|b| b.is_ascii_digit())
        })
    };
    // `CPU0 (sda):`, `Total (8,0):`
    let title = (line.starts_with("CPU") || line.starts_with("Total (")) && line.ends_with("):");
    BEGINNINGS.iter().any(|beginning| line.starts_with(beginning))
        || title
        || count(line)
        || program(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::testing;
    use flashsift_events::event::{Action, Event};

    fn read_lines(text: &str) -> (Vec<String>, String) {
        let (events, summary) = testing::read(&SPEC, text.as_bytes()).unwrap();
        let line = |e: &Event| {
            let what = match &e.action {
                Action::Read { file, offset, len, .. } => format!("{} r {offset} {len}", file.0),
                Action::Write { file, offset, len, sync: false, .. } => {
                    format!("{} w {offset} {len}", file.0)
                }
                Action::Write { file, offset, len, .. } => format!("{} ws {offset} {len}", file.0),
                Action::Sync { file, offset: 0, len: u64::MAX, .. } => format!("{} sync", file.0),
                Action::Punch { file, offset, len } => format!("{} punch {offset} {len}", file.0),
                Action::Bind { file, name } => format!("{} is {name}", file.0),
                Action::Process { name } => format!("runs {name}"),
                other => panic!("{other:?}"),
            };
            assert_eq!(e.pid, e.tid);
            format!("{} {} {what}", e.at_us, e.pid)
        };
        (events.iter().map(line).collect(), testing::skipped(&summary))
    }

    // Promises: Traces 20.
    #[test]
    fn a_queued_request_counts_once() {
        let (events, skipped) = read_lines(SAMPLE);
        assert_eq!(
            events,
            [
                "0 0 0 is /dev/block/8:0",
                "0 697 runs app main",
                "0 697 0 ws 105705472 4096",
                "999 702 runs jbd2/sda1-8",
                "999 702 0 sync",
                "999 702 0 ws 537919488 4096",
                "1199 39 runs kworker/1:1",
                "1199 39 0 r 2097152 131072",
                "4199 39 0 punch 536870912 1048576",
            ]
        );
        assert_eq!(
            skipped,
            "5 × blkparse's summary (first at 12); 1 × completion (C) (first at 7); 1 × issue (D) \
             (first at 6); 1 × message (m) (first at 10); 2 × plug, unplug (P, U) (first at 4); 1 \
             × remap (A) (first at 1); 1 × request allocated (G) (first at 3)"
        );
    }

    /// Returns the lines of these actions.
    fn only(actions: &[&str]) -> String {
        let is_one =
            |line: &&str| Line::parse(line).is_some_and(|line| actions.contains(&line.action));
        SAMPLE.lines().filter(is_one).map(|line| line.to_owned() + "\n").collect()
    }

    #[test]
    fn without_queued_requests_those_issued_or_completed_count() {
        let (events, skipped) = read_lines(&only(&["C", "D", "A"]));
        assert_eq!(
            events,
            ["0 0 0 is /dev/block/8:0", "0 697 runs app main", "0 697 0 ws 105705472 4096"],
            "{skipped}"
        );
        assert_eq!(skipped, "1 × completion (C) (first at 3); 1 × remap (A) (first at 1)");
        let (events, skipped) = read_lines(&only(&["C"]));
        assert_eq!(
            events,
            ["0 0 0 is /dev/block/8:0", "0 0 0 ws 105705472 4096"],
            "who completes asked for nothing"
        );
        assert_eq!(skipped, "");
        assert_eq!(read_lines(&only(&["P", "G"])).0.len(), 0);
    }

    #[test]
    fn a_queued_request_after_many_others_is_soon_enough() {
        let issued = only(&["D"]);
        let (events, skipped) = read_lines(&(issued.repeat(4000) + &only(&["Q"])));
        assert_eq!(events.len(), read_lines(&only(&["Q"])).0.len());
        assert_eq!(skipped, "4000 × issue (D) (first at 1)");
        let (events, skipped) = read_lines(&(issued.repeat(5000) + &only(&["Q"])));
        assert_eq!(events.iter().filter(|event| event.contains(" ws ")).count(), 5000);
        assert!(skipped.starts_with("4 × queued request"), "{skipped}");
    }

    #[test]
    fn flushes_commands_and_failures() {
        let (events, skipped) = read_lines(
            "  7,0 1 0 1.000000000 9 Q FN [a]\n  7,0 1 0 1.000001000 9 Q N [a]\n  7,0 1 0 \
             1.000002000 9 Q R 36 (12 00 00) [a]\n\
             7,0 1 0 1.000003999 9 Q RM 8 + 16 (   32434) [a [b]]\n\
             7,0 1 0 1.000004000 10 Q WM 8 + 16 [(null)]\n",
        );
        assert_eq!(
            events,
            [
                "0 0 0 is /dev/block/7:0",
                "0 9 runs a",
                "0 9 0 sync",
                "3 9 runs a [b]",
                "3 9 0 r 4096 8192",
                "4 10 0 w 4096 8192",
            ]
        );
        assert_eq!(skipped, "1 × SCSI command (first at 3); 1 × request without data (first at 2)");
        let (events, skipped) = read_lines(
            "7,0 1 0 1.000000000 9 C FN 0 [0]\n7,0 1 0 1.000001000 9 C WS 8 [0]\n\
             7,0 1 0 1.000002000 9 C W 8 + 8 [-5]\n\
             7,0 1 0 1.000002000 9 C FN 0 (     123) [0]\n7,0 1 0 1.000003000 9 C R 8 + 8 (     \
             123) [0]\n",
        );
        assert_eq!(
            events,
            ["0 0 0 is /dev/block/7:0", "0 0 0 sync", "2 0 0 sync", "3 0 0 r 4096 4096"]
        );
        assert_eq!(
            skipped,
            "1 × failed request (first at 3); 1 × request without data (first at 2)"
        );
    }

    // Promises: Traces 20.
    #[test]
    fn a_device_on_another_is_noted() {
        let (events, skipped) = read_lines(
            "253,0 1 1 0.000000000 9 Q R 8 + 8 [a]\n8,0 1 2 0.000001000 9 A R 2056 + 8 <- (253,0) \
             8\n\
             8,0 1 3 0.000002000 9 Q R 2056 + 8 [a]\n8,0 1 4 0.000002000 9 A R 2056 + 8 <- (8,1) \
             8\n",
        );
        assert_eq!(events.iter().filter(|event| event.contains(" r ")).count(), 2);
        assert_eq!(
            skipped,
            "1 × remap (A) (first at 4); 1 × remap (A) from a device that is in the trace too: the \
             request counts at both (first at 2)"
        );
    }

    #[test]
    fn truncated_or_hand_made_lines_are_damage() {
        let (events, skipped) = read_lines(
            "8,0 1 1 0.000000000 9 Q R 8 + 8 [a]\n8,0 1 1 0.000000000 9 Q R 8 + 8 [a\n\
             8,0 1 1 0.000000000 9 Q R 8 + 8\n\
             8,0 1 1 0.0000 9 Q R 8 + 8 [a]\n8,0 1 1 0.000000000 9 Y R 8 + 8 [a]\n\
             8,0 1 1 0.000000000 9 Q 7 8 + 8 [a]\n\
             8,0 1 1 0.000000000 9 Q R 8 / 8 [a]\n8,0 1 1 0.000000000 9 Q R 36028797018963968 + 8 \
             [a]\n0.000123 Q 8,0 R 8 8\n\
             8,0 1 1 0.000000000 9 Q W 8 + 4194304 [a]\n8,0 1 1 0.000000000 9 Q R -8 + 8 [a]\n",
        );
        assert_eq!(events.len(), 3, "{events:?}");
        assert_eq!(
            skipped,
            "1 × action that blkparse does not have (first at 5); 2 × line that is cut short \
             (first at 2); 4 × line that is not of blkparse's default output (formats made by -f \
             or -F are not read) (first at 4); 1 × offset beyond 2^63 (first at 8); 1 × request \
             longer than 1 GiB (first at 10); 1 × unknown RWBS flags (first at 6)"
        );
        assert_eq!(detect(b"0.000123 Q 8,0 R 8 8\n0.000123 Q 8,0 R 8 8\n"), Confidence::No);
    }

    /// Linux 6.18, with `echo blk > current_tracer; echo 1 > options/blk_classic`.
    #[test]
    fn the_classic_text_of_the_kernels_tracer_is_read() {
        let text = "# tracer: blk\n#\n# DEV   CPU TIMESTAMP     PID ACT FLG\n#  |     |     |           \
                    |   |   |\n  7,0    1 12889.446620870  5454  Q  WS 20664 + 24 [python3]\n  \
                    7,0    1 12889.446634290  5454  D  WS 20664 + 24 [python3]\n  7,0    1 \
                    12889.446675031    22  C  WS 20664 + 24 [0]\n";
        assert_eq!(detect(text.as_bytes()), Confidence::Likely);
        let (events, skipped) = read_lines(text);
        assert_eq!(
            events,
            ["0 0 0 is /dev/block/7:0", "0 5454 runs python3", "0 5454 0 ws 10579968 12288"]
        );
        assert_eq!(
            skipped,
            "4 × blkparse's summary (first at 1); 1 × completion (C) (first at 7); 1 × issue (D) \
             (first at 6)"
        );
    }

    /// All output of blkparse 1.2 after the trace, with `-s` too, and the messages that a recorder
    /// before it may leave on the terminal.
    #[test]
    fn the_summary_is_no_damage() {
        let summary = "Input file sda.blktrace.0 added\nfio (1234)\n Reads Queued:           \
                       5,        5KiB\t Writes Queued:          43,     1139KiB\n Dispatch \
                       wait:          0        \t Dispatch wait:           0\n\n\
                       CPU0 (sda):\n Read depth:            16        \t Write depth:            \
                       16\n\nTotal (7,1):\n IO unplugs:            46        \t Timer \
                       unplugs:           1\n\nThroughput (R/W): 18597KiB/s / 15833KiB/s\n\
                       Events (7,1): 636 entries\nSkips: 0 forward (0 -   0.0%)\n\
                       === sda ===\n  CPU  0:                  123 events,        6 KiB data\n";
        let (_, skipped) = read_lines(&(only(&["Q"]) + summary));
        assert_eq!(skipped, "13 × blkparse's summary (first at 5)");
        assert_eq!(
            read_lines(&(only(&["Q"]) + summary + &only(&["Q"]))).0.len(),
            read_lines(&only(&["Q"])).0.len() + 5
        );
        assert!(
            read_lines(&(only(&["Q"]) + "Reads Queued: 5\n"))
                .1
                .contains("not of blkparse's default output")
        );
    }
}
