//! `--readers`: cost of a line of each text format, read without densifying, and with it.
//!
//! Valgrind counts the instructions of a line, if it is installed: they are the same in each run on
//! each machine, and in a virtual machine, which has no counters.

use crate::{Report, median, thread_cpu_s};
use anyhow::{Context, ensure};
use flashsift_caches::trace::{TraceBuilder, Unit};
use flashsift_events::event::{About, Event};
use flashsift_traces::{Error, events::Sink, format, open};
use rand::{RngExt as _, SeedableRng};
use rand_pcg::Pcg64;
use std::{fmt::Write as _, path::Path, process::Command, time::Instant};

const LINES: u64 = 2_000_000;
/// Lines whose instructions are counted.
const COUNTED_LINES: u64 = 100_000;
const SEED: u64 = 1;
const REQUIRED_NS: f64 = 25.0;

/// Takes events and keeps none.
pub(crate) struct Nothing;

impl Sink for Nothing {
    fn about(&mut self, _: About) -> Result<(), Error> {
        Ok(())
    }
    fn events(&mut self, _: &[Event<'static>]) -> Result<(), Error> {
        Ok(())
    }
}

/// Densifies events, as `compare` does.
#[derive(Default)]
struct Dense(Option<TraceBuilder>);

impl Sink for Dense {
    fn about(&mut self, about: About) -> Result<(), Error> {
        self.0 = Some(TraceBuilder::new(about, Unit::Page, u64::MAX));
        Ok(())
    }
    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        let builder = self.0.as_mut().expect("a reader describes its trace first");
        builder.extend(events).map_err(|error| Error::Sink(error.to_string()))
    }
}

/// Adds line `n`, an access to a page by a process.
type Line = fn(text: &mut String, n: u64, write: bool, page: u64, pid: u64);

const FORMATS: [(&str, Line); 5] = [
    ("sectors", |text, _, write, page, _| {
        let op = if write { 'w' } else { 'r' };
        writeln!(text, "{op} {}", page * 8).expect("a string");
    }),
    ("msr", |text, n, write, page, _| {
        let op = if write { "Write" } else { "Read" };
        let ticks = 128_166_372_003_061_629 + n * 997;
        writeln!(text, "{ticks},web,0,{op},{},4096,41286", page * 4096).expect("a string");
    }),
    ("pixel", |text, n, write, page, pid| {
        if n == 0 {
            text.push_str("proces,device,rw_flag,sector,size,timestamp\n");
        }
        let (op, time) = (if write { 'W' } else { 'R' }, 164_353.7 + n as f64 / 1000.0);
        writeln!(text, "app-{pid},8388608,{op},{},8,{time}", page * 8).expect("a string");
    }),
    ("fio-iolog-3", |text, n, write, page, _| {
        if n == 0 {
            text.push_str("fio version 3 iolog\n0 /dev/sda add\n0 /dev/sda open\n");
        }
        let op = if write { "write" } else { "read" };
        writeln!(text, "{n} /dev/sda {op} {} 4096", page * 4096).expect("a string");
    }),
    (CSV, |text, n, write, page, pid| {
        let op = if write { 'w' } else { 'r' };
        // Files without holes: few traces touch every 97th page alone.
        let (file, page) = (page % 97, page / 97);
        writeln!(text, "{n},/data/{file},{op},{},4096,{pid}", page * 4096).expect("a string");
    }),
];
const CSV: &str = "csv:time=1,file=2,op=3,offset=4,len=5,pid=6,unit=us";

pub(crate) fn report(report: &mut Report, rounds: usize) -> anyhow::Result<()> {
    report.line(&format!(
        "{LINES} lines of single pages (seed {SEED}), from a file in the page cache, CPU time of \
         one thread. Required: at most {REQUIRED_NS} ns a line without densifying. Instructions \
         are those that valgrind counts for {COUNTED_LINES} further lines. The last two columns \
         are by the clock: reading and densifying on one thread, and as `compare` does, with a \
         thread that reads ahead.\n\n| format | bytes a line | copied by the kernel ns | read ns \
         | of required | instructions a line | read and densified ns | on one thread, clock ns | \
         ahead, clock ns |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    ));
    let folder = tempfile::tempdir()?;
    for (name, line) in FORMATS {
        let path = folder.path().join("trace");
        let bytes = write(&path, line, LINES)?;
        let (mut copied, mut read_s, mut dense) = (Vec::new(), Vec::new(), Vec::new());
        let (mut alone, mut ahead) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let before = thread_cpu_s();
            std::io::copy(&mut std::fs::File::open(&path)?, &mut Count::default())?;
            copied.push(thread_cpu_s() - before);
            let timed = |sink: &mut dyn Sink| -> anyhow::Result<f64> {
                let before = thread_cpu_s();
                let accesses = read(&path, name, sink)?;
                let spent_s = thread_cpu_s() - before;
                ensure!(accesses * 10 > LINES * 9, "{name}: {accesses} accesses");
                Ok(spent_s)
            };
            read_s.push(timed(&mut Nothing)?);
            let began = Instant::now();
            dense.push(timed(&mut Dense::default())?);
            alone.push(began.elapsed().as_secs_f64());
            let began = Instant::now();
            open::read_ahead(&path, Some(name), &mut Dense::default(), &open::Limits::default())?;
            ahead.push(began.elapsed().as_secs_f64());
        }
        let ns = |times: &mut [f64]| median(times) / LINES as f64 * 1e9;
        let read_ns = ns(&mut read_s);
        write(&path, line, COUNTED_LINES)?;
        let fewer = instructions(&path, name)?;
        write(&path, line, 2 * COUNTED_LINES)?;
        let a_line = match (fewer, instructions(&path, name)?) {
            (Some(fewer), Some(more)) => {
                format!("{:.0}", (more - fewer) as f64 / COUNTED_LINES as f64)
            }
            _ => "no valgrind".to_owned(),
        };
        report.line(&format!(
            "| `{}` | {:.0} | {:.1} | {read_ns:.1} | {:.2} × | {a_line} | {:.1} | {:.1} | {:.1} |",
            format::chosen(name)?.0.name,
            bytes as f64 / LINES as f64,
            ns(&mut copied),
            read_ns / REQUIRED_NS,
            ns(&mut dense),
            ns(&mut alone),
            ns(&mut ahead),
        ));
    }
    report.line("");
    Ok(())
}

/// Writes so many lines, and returns their bytes.
fn write(path: &Path, line: Line, lines: u64) -> anyhow::Result<usize> {
    let mut random = Pcg64::seed_from_u64(SEED);
    let mut text = String::new();
    for n in 0..lines {
        let page = random.random_range(0..1_000_000);
        line(&mut text, n, random.random_range(0..3) == 0, page, 100 + page % 7);
    }
    std::fs::write(path, &text)?;
    Ok(text.len())
}

/// Reads a trace, and returns the number of its accesses.
pub(crate) fn read(path: &Path, format: &str, sink: &mut dyn Sink) -> anyhow::Result<u64> {
    Ok(open::read(path, Some(format), sink, &open::Limits::default())?.accesses)
}

/// The instructions of a process that reads this trace; `None` without valgrind.
fn instructions(path: &Path, format: &str) -> anyhow::Result<Option<u64>> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.arg(std::env::current_exe()?).arg("--read").arg(path).arg(format);
    let out = match command.output() {
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        out => out.context("running valgrind")?,
    };
    let says = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "valgrind: {says}");
    let counted = says.lines().find_map(|line| line.split_once("Collected : ")?.1.parse().ok());
    Ok(Some(counted.with_context(|| format!("valgrind counts nothing: {says}"))?))
}

/// Takes bytes and keeps none.
#[derive(Default)]
struct Count(u64);

impl std::io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
