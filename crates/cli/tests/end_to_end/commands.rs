//! The first steps of a newcomer: help, completions, manual pages, names as people type them, and
//! results as CSV.

use super::{cells, flashsift, number, repository, run};
use flashsift_testbed::ended;
use flashsift_traces::format;
use serde_json::Value;
use std::{fs, process::Output};
use tempfile::tempdir;

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn fails(args: &[&str]) -> String {
    let Output { status, stderr, .. } = flashsift().args(args).output().unwrap();
    assert_eq!(status.code(), Some(2), "{args:?}");
    text(&stderr)
}

#[test]
fn help_is_a_command_as_well_as_an_option() {
    let help = text(&run(&["help"]).stdout);
    assert!(help.contains("Usage: flashsift") && help.contains("Examples:"), "{help}");
    assert_eq!(help, text(&run(&["--help"]).stdout));
    assert_eq!(run(&["help", "compare"]).stdout, run(&["compare", "--help"]).stdout);
}

/// The commands of the help, which stand in groups before the options of all.
fn commands() -> Vec<String> {
    let help = text(&run(&["help"]).stdout);
    let listed = help.lines().skip_while(|line| *line != "Traces:");
    let listed = listed.take_while(|line| *line != "All commands:");
    let command = |line: &str| {
        let rest = line.strip_prefix("  ")?;
        rest.split(' ').next().filter(|name| !name.is_empty()).map(str::to_owned)
    };
    listed.filter_map(command).collect()
}

#[test]
fn shells_and_man_know_every_command() {
    let commands = commands();
    assert_eq!(commands.len(), 21, "{commands:?}");
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&run(&["completions", shell]).stdout);
        for command in &commands {
            assert!(script.contains(command.as_str()), "{shell}: {command}");
        }
        assert!(script.contains("writeback") && !script.contains("mount-tmpfs"), "{shell}");
    }
    assert!(fails(&["completions", "tcsh"]).contains("possible values"));
    let folder = tempdir().unwrap();
    let pages = folder.path().join("new/man1");
    run(&["man", pages.to_str().unwrap()]);
    for command in commands.iter().filter(|command| *command != "help") {
        let page = fs::read_to_string(pages.join(format!("flashsift-{command}.1"))).unwrap();
        assert!(page.starts_with(".ie") && page.contains(".SH SYNOPSIS"), "{command}: {page}");
    }
    assert!(fs::read_to_string(pages.join("flashsift.1")).unwrap().contains("flashsift\\-compare"));
    assert!(!pages.join("flashsift-mount-tmpfs.1").exists(), "a hidden command has no page");
}

#[test]
fn quiet_and_verbose_are_options_of_every_command() {
    for command in
        commands().iter().filter(|command| !["help", "train", "sweep"].contains(&&***command))
    {
        for option in ["--quiet", "--verbose"] {
            let help = text(&run(&[command, option, "--help"]).stdout);
            assert!(help.contains("-q, --quiet") && help.contains("-v, --verbose"), "{command}");
        }
    }
}

// Promises: Command line 8.
#[test]
fn mistyped_names_get_a_proposal() {
    let browser = repository("testdata/browser.parquet");
    let of = |policy: &str, writeback: &str, device: &str| {
        let sizes = ["compare", &browser, "--memory", "4MiB", "--drain"];
        let names = ["--policy", policy, "--writeback", writeback, "--device", device];
        let mut cells = cells(&[&sizes[..], &names].concat());
        cells.iter_mut().for_each(|cell| {
            cell.as_object_mut().unwrap().remove("cpu_ns_per_access");
        });
        cells
    };
    assert_eq!(
        of("LRU,S3FIFO", "Linux,Cluster:128KiB", "UFS-3.1"),
        of("lru,s3fifo", "linux,cluster:128KiB", "ufs-3.1")
    );
    for (options, proposal) in [
        (["--policy", "lur"], "did you mean `lru`?"),
        (["--writeback", "linx"], "did you mean `linux`?"),
        (["--device", "ufs-3.0"], "did you mean `ufs-"),
        (["--system", "flush-nvram"], "did you mean `flush-nvm`?"),
        (["--format", "strcae"], "did you mean `strace`?"),
        (["--memory", "abc"], "not a size: write it as 64MiB"),
        (["--threads", "0"], "at least one thread has to run"),
    ] {
        let says = fails(&[&["compare", &browser][..], &options].concat());
        assert!(says.contains(proposal), "{options:?}: {says}");
    }
}

/// `4MB` was once 4 MiB.
#[test]
fn a_decimal_size_is_shown_as_it_was_given() {
    let browser = repository("testdata/browser.parquet");
    let args = ["compare", &browser, "--policy", "lru", "--memory", "4MB,4MiB"];
    let table = text(&run(&args).stdout);
    assert!(table.contains("cache of 4 MB (976 pages)"), "{table}");
    assert!(table.contains("cache of 4 MiB (1\u{202f}024 pages)"), "{table}");
    assert_eq!(cells(&args)[0]["frames"], 976);
}

/// The rows of CSV, split at commas: no cell of these results contains one.
fn rows(args: &[&str]) -> Vec<Vec<String>> {
    let csv = text(&run(&[args, &["--csv"]].concat()).stdout);
    csv.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

// Promises: Command line 9.
#[test]
fn csv_has_the_values_of_json() {
    let browser = repository("testdata/browser.parquet");
    let args =
        ["compare", &browser, "--policy", "lru,arc", "--memory", "4MiB", "--writeback", "evict"];
    let (cells, rows) = (cells(&args), rows(&args));
    assert_eq!(rows.len(), 1 + cells.len());
    for (cell, row) in cells.iter().zip(&rows[1..]) {
        let cell = cell.as_object().unwrap();
        assert_eq!(cell.len(), row.len());
        for (column, value) in
            rows[0].iter().zip(row).filter(|(column, _)| *column != "cpu_ns_per_access")
        {
            let json = &cell[column];
            let json = json.as_str().map_or_else(|| json.to_string(), str::to_owned);
            assert_eq!(*value, json, "{column}");
        }
    }
    let csv = text(&run(&["describe", &browser, "--csv"]).stdout);
    let json = &self::cells(&["describe", &browser])[0];
    assert!(csv.starts_with("key,value\n") && csv.contains("\ntrace,browser.parquet\n"), "{csv}");
    assert!(csv.contains(&format!("\nrequests,{}\n", json["requests"])), "{csv}");
    assert!(fails(&["compare", &browser, "--json", "--csv"]).contains("cannot be used with"));
}

/// libCacheSim takes shares of the working set. `--memory 10%` was no size here.
#[test]
fn a_cache_may_be_a_share_of_the_pages() {
    let trace = repository("testdata/feed.parquet");
    let cells = |memory: &str| cells(&["compare", &trace, "--policy", "lru", "--memory", memory]);
    let [tenth, all] = &cells("10 %,100%")[..] else { panic!("two sizes") };
    let frames = |cell: &Value| cell["frames"].as_u64().unwrap();
    assert!(frames(all).abs_diff(10 * frames(tenth)) <= 5, "{} of {}", frames(tenth), frames(all));
    assert!(number(tenth, "device_reads") > number(all, "device_reads"));
    let sift = ["compare", &*trace, "--sift", "keep", "--memory", "10%"];
    assert!(fails(&sift).contains("--memory takes sizes, not shares"));
}

/// `import -o x.csv` once wrote Parquet under that name.
// Promises: Traces 28.
#[test]
fn a_trace_as_csv_is_the_same_trace() {
    let folder = tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (csv, back) = (path("t.csv"), path("back.parquet"));
    let messenger = repository("testdata/messenger.parquet");
    run(&["import", &messenger, "-o", &csv]);
    let rows = fs::read_to_string(&csv).unwrap();
    assert!(rows.starts_with("at_us,action,file,offset,len,"), "{}", &rows[..80]);
    run(&["import", &csv, "-o", &back]);
    let of = |trace: &str| {
        let mut cells = cells(&["compare", trace, "--policy", "lru,mglru", "--memory", "4MiB"]);
        for cell in &mut cells {
            let cell = cell.as_object_mut().unwrap();
            cell.remove("cpu_ns_per_access");
            cell.remove("trace");
        }
        cells
    };
    let whole = of(&messenger);
    assert_eq!(of(&csv), whole);
    assert_eq!(of(&back), whole);
    let apart = path("apart.parquet");
    run(&["import", &messenger, "-o", &apart, "--split", "test"]);
    let refused = flashsift().args(["import", &apart, "-o", &path("apart.csv")]).output().unwrap();
    assert!(!refused.status.success() && !folder.path().join("apart.csv").exists());
    assert!(text(&refused.stderr).contains("held apart"));
    for name in ["t.json", "t.csv.gz"] {
        assert!(fails(&["import", &messenger, "-o", &path(name)]).contains("not as ."));
        assert!(!folder.path().join(name).exists());
    }
    assert!(fails(&["synth", "zipf", "-o", &path("s.csv")]).contains("import"));
}

/// Columns that no file can have ended with 1, as if the trace were at fault. They are an error of
/// the command line; columns that this file lacks are one of the trace.
#[test]
fn csv_of_any_columns_is_read() {
    let folder = tempdir().unwrap();
    let log = folder.path().join("log.csv");
    let log = log.to_str().unwrap();
    let lines: String =
        (0..200).map(|n| format!("{n};/f{};{};{}\n", n % 3, ["r", "W"][n % 2], n % 7)).collect();
    fs::write(log, format!("ms;name;rw;page\n{lines}")).unwrap();
    let columns = "time=ms,file=name,op=rw,offset=page,block=4096,unit=ms";
    let cells = cells(&["compare", log, "--columns", columns, "--policy", "lru", "--frames", "64"]);
    assert_eq!((&cells[0]["accesses"], &cells[0]["write_accesses"]), (&200.into(), &100.into()));
    let ends = |args: &[&str], code: i32| ended(flashsift().args(args), code).1;
    let says = |args: &[&str]| ends(args, 1);
    for columns in ["foo=1", "time=ms,time=ms", "unit=ms"] {
        for command in ["compare", "describe"] {
            let wrong = ends(&[command, log, "--columns", columns], 2);
            assert!(wrong.starts_with("flashsift: --columns "), "{wrong}");
        }
    }
    let wrong = says(&["compare", log, "--columns", "time=mx"]);
    assert!(wrong.contains("did you mean `ms`?") && wrong.contains("log.csv"), "{wrong}");
    let none = says(&["compare", log, "--format", "csv"]);
    assert!(none.contains("--columns") && none.contains("ms;name;rw;page"), "{none}");
}

/// A refusal did not name `--columns`. Now it shows the columns that the table probably has, and
/// they can be taken as they are.
#[test]
fn a_table_is_guessed_and_the_guess_can_be_taken() {
    let folder = tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let refusal = |log: &str| ended(flashsift().args(["describe", log]), 1).1;
    let disk = file("disk.csv", "7,W,0,8192,1577808144000000\n9,R,4096,4096,1577808144001000\n");
    let said = refusal(&disk);
    assert!(
        said.contains("it looks like alibaba") && said.contains("--columns device=1"),
        "{said}"
    );
    for words in [&["--format", "alibaba"][..], &["--format", "ALIBABA", "--columns", "unit=us"]] {
        let described = text(&run(&[&["describe", &*disk], words].concat()).stdout);
        assert!(described.contains("after"), "{described}");
    }
    let table =
        file("table.txt", "time_ms  path  rw  off  bytes\n5  /a  r  0  12\n9  /a  w  4  7\n");
    let said = refusal(&table);
    let (_, columns) = said.split_once("use --columns ").expect("a guess");
    let (columns, _) = columns.split_once(", if that is right").expect("a guess");
    let cells =
        cells(&["compare", &table, "--columns", columns, "--policy", "lru", "--frames", "64"]);
    assert_eq!((&cells[0]["accesses"], &cells[0]["write_accesses"]), (&2.into(), &1.into()));
}

/// The document had no line to copy for a public trace. Each line is run on a sample of its source.
// Promises: Traces 28.
#[test]
fn the_lines_for_public_traces_work() {
    let page = fs::read_to_string(repository("docs/formats.md")).unwrap();
    let section = page.split("\n## ").find(|part| part.starts_with("Public traces")).unwrap();
    let folder = tempdir().unwrap();
    let mut tried = Vec::new();
    for line in section.lines().filter_map(|line| line.trim().strip_prefix("flashsift import ")) {
        let words: Vec<_> = line.split(' ').collect();
        let (name, _) = words[0].rsplit_once('.').unwrap();
        let sample = match format::csv::named(name) {
            Some(preset) => preset.sample.as_bytes().to_vec(),
            None => (format::named(name).unwrap().sample)(),
        };
        fs::write(folder.path().join(words[0]), sample).unwrap();
        let output =
            flashsift().current_dir(folder.path()).arg("import").args(&words).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.success() && !said.contains("not understood"), "{line}: {said}");
        tried.push(name.to_owned());
    }
    for preset in format::csv::PRESETS {
        assert!(tried.iter().any(|name| name == preset.name), "no line for {}", preset.name);
    }
}
