//! `flashsift diff`: the differences of two saved runs of `compare --json` or `describe --json`.

use crate::{html_page::Report, records, size, table, text};
use anyhow::{Context, bail, ensure};
use serde::Serialize;
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    path::{Path, PathBuf},
};

mod page;

/// Compare two saved runs and list the values that changed
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flashsift compare trace.xz --json > before.json
  flashsift compare trace.xz --json --drain > after.json
  flashsift diff before.json after.json
  flashsift diff before.json after.json --report diff.html")]
pub(crate) struct Args {
    /// Output of `compare --json` or `describe --json`
    before: PathBuf,

    /// The same for another time, trace or setting
    after: PathBuf,

    /// Number of the largest changes to list
    #[arg(long, value_name = "N", default_value = "10", value_parser = size::parse_count)]
    top: u64,

    /// Print one JSON object for each changed value, one on a line
    #[arg(long)]
    json: bool,

    /// Print the same as CSV: a row for each object
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Write a page with figures for a browser
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

/// Owner of a value, and its field.
type Key = (String, String);

/// The values of a saved run.
struct Saved {
    kind: RunKind,
    traces: BTreeSet<String>,
    values: BTreeMap<Key, f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunKind {
    Compare,
    Describe,
}

/// A value that differs between the runs.
#[derive(Clone, Serialize)]
struct Change {
    schema: u32,
    /// The cell, or the row of a description, that it belongs to.
    of: String,
    /// Name of the field in the run.
    field: String,
    before: f64,
    after: f64,
    /// after / before − 1; `None` if the value before is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<f64>,
}

/// All differences of two runs.
struct Diff {
    kind: RunKind,
    changes: Vec<Change>,
    /// Number of values of each field that both runs have.
    both: BTreeMap<String, u64>,
    only_before: BTreeSet<String>,
    only_after: BTreeSet<String>,
    /// Median CPU time of an access; it is measured, and differs in every run.
    cpu_ns: Option<(f64, f64)>,
    traces: [String; 2],
    /// Each policy of a comparison, and whether it is better or worse than before.
    judged: Vec<(String, String)>,
    /// Options that one run alone has and that count more, with the run: before or after.
    uncommon: Vec<(&'static str, &'static str)>,
}

/// A quantity of a cell that is better if it is larger, or smaller.
struct Measure {
    name: &'static str,
    /// Its value is the sum of these fields of a cell. The first must be there.
    fields: &'static [&'static str],
    more_is_better: bool,
    /// Whether it counts the same with and without the options of [`COUNT_MORE`].
    is_common: bool,
}

/// Options of `compare` that count more writes, each with a field that only runs with it have.
const COUNT_MORE: [(&str, &str); 2] = [("--drain", "drained"), ("--metadata", "journal_writes")];

/// Returns the options that one run alone has, with the run.
fn uncommon(before: &Saved, after: &Saved) -> Vec<(&'static str, &'static str)> {
    let has = |saved: &Saved, field: &str| saved.values.keys().any(|(_, known)| known == field);
    let in_one =
        |(option, field): (&'static str, &str)| match (has(before, field), has(after, field)) {
            (true, false) => Some((option, "before")),
            (false, true) => Some((option, "after")),
            _ => None,
        };
    COUNT_MORE.into_iter().filter_map(in_one).collect()
}

const fn more(name: &'static str, fields: &'static [&'static str]) -> Measure {
    Measure { name, fields, more_is_better: true, is_common: true }
}

const fn less(name: &'static str, fields: &'static [&'static str], is_common: bool) -> Measure {
    Measure { name, fields, more_is_better: false, is_common }
}

const MEASURES: [Measure; 5] = [
    more("hits", &["hits"]),
    less("reads", &["device_reads"], true),
    less("writes", &["device_writes", "dirty_left", "nvm_left"], true),
    less("non-sequential writes", &["nonsequential_writes"], false),
    less("time on the device", &["elapsed_s"], false),
];

impl Measure {
    fn value(&self, saved: &Saved, cell: &str) -> Option<f64> {
        let value = |field: &str| saved.values.get(&(cell.to_owned(), field.to_owned())).copied();
        let others = self.fields[1..].iter().filter_map(|field| value(field)).sum::<f64>();
        Some(value(self.fields[0])? + others)
    }

    /// Says how much better or worse the cells are, by their relative changes; `None` if all are
    /// the same.
    fn render(&self, changes: &[f64]) -> Option<(Judgement, String)> {
        let changed: Vec<f64> = changes.iter().copied().filter(|change| *change != 0.0).collect();
        let end = |pick: fn(f64, f64) -> f64| changed.iter().copied().reduce(pick);
        let (least, most) = (end(f64::min)?, end(f64::max)?);
        let judgement = match (least > 0.0, most < 0.0) {
            (false, false) => Judgement::Mixed,
            (rises, _) if rises == self.more_is_better => Judgement::Better,
            _ => Judgement::Worse,
        };
        let by = match signed(least) == signed(most) {
            true => signed(least),
            false => format!("{} to {}", signed(least), signed(most)),
        };
        let cells = match changed.len() == changes.len() {
            true => String::new(),
            false => format!(" in {} of {} cells", changed.len(), changes.len()),
        };
        Some((judgement, format!("{} {by}{cells}", self.name)))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Judgement {
    Better,
    Worse,
    Mixed,
}

impl Judgement {
    fn word(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Mixed => "better and worse",
        }
    }
}

/// Says of each policy that both runs have whether it is better or worse, and by how much.
fn judge(before: &Saved, after: &Saved) -> Vec<(String, String)> {
    let mut cells: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (of, _) in before.values.keys().filter(|key| after.values.contains_key(*key)) {
        let policy = of.split_once(" at ").map_or(&**of, |(policy, _)| policy);
        cells.entry(policy).or_default().insert(of);
    }
    let all_common = uncommon(before, after).is_empty();
    let judged = |cells: &BTreeSet<&str>| {
        let said: Vec<_> = MEASURES
            .iter()
            .filter(|measure| all_common || measure.is_common)
            .filter_map(|measure| {
                let change = |cell: &&str| {
                    let pair = measure.value(before, cell).zip(measure.value(after, cell));
                    pair.filter(|(before, _)| *before != 0.0)
                        .map(|(before, after)| after / before - 1.0)
                };
                measure.render(&cells.iter().filter_map(change).collect::<Vec<_>>())
            })
            .collect();
        let Some((first, _)) = said.first() else { return "the same".to_owned() };
        match said.iter().all(|(judgement, _)| judgement == first) {
            true => {
                let words: Vec<&str> = said.iter().map(|(_, words)| &**words).collect();
                format!("{}: {}", first.word(), words.join(", "))
            }
            false => {
                let each =
                    said.iter().map(|(judgement, words)| format!("{words} ({})", judgement.word()));
                each.collect::<Vec<_>>().join(", ")
            }
        }
    };
    cells.iter().map(|(policy, cells)| ((*policy).to_owned(), judged(cells))).collect()
}

/// The field that is measured again in each run.
const CPU: &str = "cpu_ns_per_access";
/// Longer tables are data of figures.
const ROWS_MAX: usize = 64;

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let report = args.report.as_deref().map(Report::new).transpose()?;
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    ensure!(
        before.kind == after.kind,
        "{} was written by {}, {} by {}: only runs of the same command can be compared",
        args.before.display(),
        before.kind.name(),
        args.after.display(),
        after.kind.name()
    );
    let diff = Diff::new(&before, &after);
    let names = [&args.before, &args.after].map(|path| path.display().to_string());
    if let Some(report) = report {
        report.write(&page::build(&diff, &names))?;
    }
    let mut out = records::Output::rows(args.json, args.csv);
    if args.json || args.csv {
        for change in &diff.changes {
            serde_json::to_writer(&mut out, change)?;
            writeln!(out)?;
        }
    } else {
        let top = usize::try_from(args.top).unwrap_or(usize::MAX);
        out.write_all(render(&diff, &names, top).as_bytes())?;
    }
    out.finish()
}

impl RunKind {
    fn name(self) -> &'static str {
        match self {
            Self::Compare => "compare --json",
            Self::Describe => "describe --json",
        }
    }
}

const SAVE: &str = "diff takes what was saved with: flashsift compare TRACE --json > run.json";

fn read(path: &Path) -> anyhow::Result<Saved> {
    let at = || format!("cannot read {}", path.display());
    let bytes = std::fs::read(path).with_context(at)?;
    let text = String::from_utf8(bytes).map_err(|_| anyhow::anyhow!("it is no text; {SAVE}"));
    parse(&text.with_context(at)?).with_context(at)
}

fn parse(text: &str) -> anyhow::Result<Saved> {
    let mut saved: Option<Saved> = None;
    let objects = serde_json::Deserializer::from_str(text).into_iter::<Map<String, Value>>();
    let objects = objects.enumerate().map(|(n, object)| {
        object.with_context(|| format!("object {} is not one of flashsift's; {SAVE}", n + 1))
    });
    let objects = objects.collect::<anyhow::Result<Vec<_>>>()?;
    let modes: BTreeSet<&str> = objects
        .iter()
        .filter(|object| object.contains_key("policy"))
        .filter_map(|object| object.get("writeback")?.as_str())
        .collect();
    for (n, object) in objects.iter().enumerate() {
        let n = n + 1;
        match object.get("schema").and_then(Value::as_u64) {
            Some(1) => {}
            Some(other) => bail!("object {n} has schema {other}; this version knows 1"),
            None => bail!("object {n} has no schema, so it is not one of flashsift's; {SAVE}"),
        }
        let kind = match () {
            () if object.contains_key("policy") => RunKind::Compare,
            () if object.contains_key("requests") => RunKind::Describe,
            // It repeats the values of the cells.
            () if object.contains_key("verdict") => continue,
            () => bail!("object {n} is neither of compare --json nor of describe --json"),
        };
        let saved =
            saved.get_or_insert(Saved { kind, traces: BTreeSet::new(), values: BTreeMap::new() });
        ensure!(saved.kind == kind, "object {n} is of {}, those before are not", kind.name());
        saved.traces.extend(object.get("trace").and_then(Value::as_str).map(str::to_owned));
        match kind {
            RunKind::Compare => cell(object, modes.len() > 1, saved)?,
            RunKind::Describe => section("", object, saved)?,
        }
    }
    saved.with_context(|| format!("there is no run in it; {SAVE}"))
}

/// Reads one cell of a comparison: its texts name it, and its numbers are the values.
/// `several_modes`: the run compared several choices of write-back modes.
fn cell(object: &Map<String, Value>, several_modes: bool, saved: &mut Saved) -> anyhow::Result<()> {
    let word = |key: &str| object.get(key).and_then(Value::as_str);
    let frames = object.get("frames").and_then(Value::as_u64).context("a cell without frames")?;
    let size = match object.get("memory_bytes").and_then(Value::as_u64) {
        Some(_) => size::memory(frames),
        None => format!("{} objects", size::count(frames)),
    };
    let mut of = format!("{} at {size}", word("policy").context("a cell without a policy")?);
    // Defaults are left out of the name.
    for (key, usual) in [("system", "storage"), ("device", "")] {
        if let Some(word) = word(key).filter(|word| *word != usual) {
            of += &format!(", {word}");
        }
    }
    if several_modes && let Some(modes) = word("writeback") {
        of += &format!(", --writeback {modes}");
    }
    for (key, value) in object {
        if let Some(value) =
            value.as_f64().filter(|_| !["schema", "frames", "memory_bytes"].contains(&&**key))
        {
            insert(saved, &of, key, value)?;
        }
    }
    Ok(())
}

/// Reads a part of a description and its contents.
fn section(of: &str, object: &Map<String, Value>, saved: &mut Saved) -> anyhow::Result<()> {
    let within = |name: &str| if of.is_empty() { name.to_owned() } else { format!("{of}, {name}") };
    for (key, value) in object {
        match value {
            Value::Number(number) if key != "schema" => {
                insert(
                    saved,
                    if of.is_empty() { "all" } else { of },
                    key,
                    number.as_f64().unwrap_or(f64::NAN),
                )?;
            }
            Value::Object(inner) => section(&within(key), inner, saved)?,
            Value::Array(rows) if rows.len() <= ROWS_MAX => {
                let words = |row: &Map<String, Value>| {
                    row.values().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
                };
                let rows: Vec<_> =
                    rows.iter().filter_map(Value::as_object).map(|row| (words(row), row)).collect();
                let names: BTreeSet<&str> = rows.iter().map(|(name, _)| &**name).collect();
                // Rows that their texts do not distinguish are points of a figure.
                if names.len() == rows.len() && !names.contains("") {
                    for (name, row) in &rows {
                        section(&format!("{}, {name}", within(key)), row, saved)?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn insert(saved: &mut Saved, of: &str, field: &str, value: f64) -> anyhow::Result<()> {
    let before = saved.values.insert((of.to_owned(), field.to_owned()), value);
    ensure!(before.is_none(), "{of} has two values of {field}: are two runs in one file?");
    Ok(())
}

impl Diff {
    fn new(before: &Saved, after: &Saved) -> Self {
        let subjects =
            |saved: &Saved| saved.values.keys().map(|(of, _)| of.clone()).collect::<BTreeSet<_>>();
        let (ours, theirs) = (subjects(before), subjects(after));
        let mut changes = Vec::new();
        let mut both: BTreeMap<String, u64> = BTreeMap::new();
        for ((of, field), &value) in before.values.iter().filter(|((_, field), _)| field != CPU) {
            let Some(&other) = after.values.get(&(of.clone(), field.clone())) else { continue };
            *both.entry(field.clone()).or_default() += 1;
            if value != other {
                let change = (value != 0.0).then(|| other / value - 1.0);
                changes.push(Change {
                    schema: 1,
                    of: of.clone(),
                    field: field.clone(),
                    before: value,
                    after: other,
                    change,
                });
            }
        }
        let weight = |change: &Change| change.change.map_or(f64::INFINITY, f64::abs);
        changes.sort_by(|one, other| weight(other).total_cmp(&weight(one)));
        let median = |saved: &Saved| {
            let mut all: Vec<f64> = saved
                .values
                .iter()
                .filter(|((_, field), _)| field == CPU)
                .map(|(_, value)| *value)
                .collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied()
        };
        let traces = [before, after]
            .map(|saved| saved.traces.iter().cloned().collect::<Vec<_>>().join(", "));
        Self {
            kind: before.kind,
            changes,
            both,
            only_before: ours.difference(&theirs).cloned().collect(),
            only_after: theirs.difference(&ours).cloned().collect(),
            cpu_ns: median(before).zip(median(after)),
            traces,
            uncommon: uncommon(before, after),
            judged: match before.kind {
                RunKind::Compare => judge(before, after),
                RunKind::Describe => Vec::new(),
            },
        }
    }

    /// Returns each changed field with its changes, largest first.
    fn by_field(&self) -> Vec<(&str, Vec<&Change>)> {
        let changed = |field: &str| {
            self.changes.iter().filter(|change| change.field == field).collect::<Vec<_>>()
        };
        let fields = self.both.keys().map(|field| (&**field, changed(field)));
        let mut fields: Vec<_> = fields.filter(|(_, changes)| !changes.is_empty()).collect();
        fields.sort_by_key(|(_, changes)| std::cmp::Reverse(changes.len()));
        fields
    }

    /// Returns the summary in sentences.
    fn sentences(&self) -> Vec<String> {
        let what = |n: u64| match (self.kind, n) {
            (RunKind::Compare, 1) => "cell",
            (RunKind::Compare, _) => "cells",
            (RunKind::Describe, 1) => "row",
            (RunKind::Describe, _) => "rows",
        };
        let mut out = Vec::new();
        if self.traces[0] != self.traces[1] {
            out.push(format!(
                "The runs are of different traces: {} before, {} after.",
                self.traces[0], self.traces[1]
            ));
        }
        for (option, when) in &self.uncommon {
            out.push(format!(
                "Only the run {when} has {option}, which counts more writes: non-sequential writes \
                 and the time on the device are not judged."
            ));
        }
        let fields = self.by_field();
        let values: u64 = self.both.values().sum();
        out.push(match self.changes.len() as u64 {
            _ if values == 0 => "The runs have nothing in common.".to_owned(),
            0 => format!("Nothing changed: all {} values are the same.", size::count(values)),
            n => format!(
                "{} of {} values changed, in {} of {} fields.",
                size::count(n),
                size::count(values),
                fields.len(),
                self.both.len()
            ),
        });
        for (subjects, when) in [(&self.only_before, "before"), (&self.only_after, "after")] {
            let n = subjects.len() as u64;
            if n > 0 {
                let some: Vec<&str> = subjects.iter().take(3).map(String::as_str).collect();
                let more = if n > 3 { ", …" } else { "" };
                out.push(format!(
                    "Only {when}: {} {} ({}{more}).",
                    size::count(n),
                    what(n),
                    some.join("; ")
                ));
            }
        }
        if let Some((before, after)) = self.cpu_ns {
            out.push(format!(
                "CPU time, measured, median: {before:.1} ns an access before, {after:.1} after; it \
                 differs in every run."
            ));
        }
        out
    }
}

/// Formats a relative change: `−2.1 %`, `+34 %`, `new`.
fn relative(change: &Change) -> String {
    change.change.map_or_else(|| "new".to_owned(), signed)
}

fn signed(change: f64) -> String {
    let sign = if change < 0.0 { "−" } else { "+" };
    match change.abs() {
        much if much >= 0.995 => {
            format!("{sign}{} %", size::count((much * 100.0).round() as u64))
        }
        some => format!("{sign}{}", size::share(some)),
    }
}

/// Formats a value in the unit of its field's suffix.
fn shown(field: &str, value: f64) -> String {
    let whole = value.max(0.0) as u64;
    match field.rsplit('_').next() {
        Some("bytes") => size::bytes(whole),
        Some("us") => size::duration(whole),
        Some("share") => format!("{:.2} %", value * 100.0),
        _ => flashsift_report::show::number(value),
    }
}

fn render(diff: &Diff, names: &[String; 2], top: usize) -> String {
    let columns = text::columns().unwrap_or(120);
    let mut out = format!("{} → {}\n", names[0], names[1]);
    for sentence in diff.sentences() {
        out += &text::labelled("", 0, &sentence, columns);
    }
    let fields = diff.by_field();
    if !fields.is_empty() {
        if !diff.judged.is_empty() {
            out += "\nBy policy, after beside before:\n";
        }
        let widest = diff.judged.iter().map(|(policy, _)| policy.chars().count()).max();
        let indent = widest.unwrap_or(0).min(24) + 4;
        for (policy, words) in &diff.judged {
            out += &text::labelled(&format!("  {policy}  "), indent, words, columns);
        }
        let mut rows =
            vec![["field", "changed", "from", "to", "most changed"].map(str::to_owned).to_vec()];
        for (field, changes) in &fields {
            let relatives = || changes.iter().filter_map(|change| change.change);
            let ends = [relatives().reduce(f64::min), relatives().reduce(f64::max)].map(|end| {
                end.map_or("new".to_owned(), |end| {
                    relative(&Change { change: Some(end), ..(*changes[0]).clone() })
                })
            });
            let [least, most] = ends;
            let changed = format!(
                "{} of {}",
                size::count(changes.len() as u64),
                size::count(diff.both[*field])
            );
            rows.push(vec![(*field).to_owned(), changed, least, most, changes[0].of.clone()]);
        }
        out += &format!("\n{}", table::for_terminal(rows, &[0, 4]));
        let mut rows = vec![
            ["largest changes", "field", "before", "after", "change"].map(str::to_owned).to_vec(),
        ];
        for change in diff.changes.iter().take(top) {
            let (before, after) =
                (shown(&change.field, change.before), shown(&change.field, change.after));
            rows.push(vec![
                change.of.clone(),
                change.field.clone(),
                before,
                after,
                relative(change),
            ]);
        }
        out += &format!("\n{}", table::for_terminal(rows, &[0, 1]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(policy: &str, hits: u64, cpu: f64) -> String {
        format!(
            r#"{{"schema":1,"trace":"t","policy":"{policy}","system":"storage","frames":256,"memory_bytes":1048576,"hits":{hits},"cpu_ns_per_access":{cpu}}}"#
        )
    }

    /// Cells of a run with several choices of modes are named by them; of a run with one, they are
    /// not, so that runs of different modes can be compared.
    #[test]
    fn modes_of_one_run_are_told_apart() {
        let of = |mode: &str, hits: u64| {
            let cell = cell("lru", hits, 9.0);
            cell.replace(r#""system""#, &format!(r#""writeback":"{mode}","system""#))
        };
        let both = parse(&[of("evict", 1), of("evict,sync", 2)].join("\n")).unwrap();
        let names: BTreeSet<&str> = both.values.keys().map(|(of, _)| &**of).collect();
        let expected = ["--writeback evict", "--writeback evict,sync"];
        let expected = expected.map(|mode| format!("lru at 1 MiB, {mode}"));
        assert!(names.iter().eq(&expected), "{names:?}");
        let (one, other) = (parse(&of("evict", 1)).unwrap(), parse(&of("sync", 2)).unwrap());
        assert_eq!(Diff::new(&one, &other).changes[0].of, "lru at 1 MiB");
    }

    #[test]
    fn changed_values_are_listed_and_measured_ones_apart() {
        let before =
            parse(&[cell("lru", 100, 9.0), cell("arc", 50, 9.0), cell("fab", 1, 9.0)].join("\n"))
                .unwrap();
        let after =
            parse(&[cell("lru", 100, 8.0), cell("arc", 60, 8.0), cell("car", 1, 8.0)].join("\n"))
                .unwrap();
        let diff = Diff::new(&before, &after);
        let changes: Vec<_> =
            diff.changes.iter().map(|c| (&*c.of, &*c.field, c.before, c.after)).collect();
        assert_eq!(changes, [("arc at 1 MiB", "hits", 50.0, 60.0)]);
        assert_eq!(diff.cpu_ns, Some((9.0, 8.0)));
        let words = render(&diff, &["a".to_owned(), "b".to_owned()], 10);
        for part in [
            "1 of 2 values changed",
            "Only before: 1 cell (fab at 1 MiB)",
            "Only after: 1 cell (car at 1 MiB)",
            "+20 %",
        ] {
            assert!(words.contains(part), "{part}: {words}");
        }
        let grown = |before: f64, after: f64| {
            let change = Some(after / before - 1.0);
            relative(&Change {
                schema: 1,
                of: String::new(),
                field: String::new(),
                before,
                after,
                change,
            })
        };
        assert_eq!(
            [grown(1.0, 4.4), grown(8.0, 4.0), grown(1e6, 1e6 + 1.0)],
            ["+340 %", "−50 %", "+< 0.1 %"]
        );
        let same = Diff::new(&before, &before);
        assert!(
            same.changes.is_empty()
                && same.sentences()[0] == "Nothing changed: all 3 values are the same."
        );
    }

    /// The differences were once only columns of numbers: whether a policy had become better was
    /// left to the reader.
    #[test]
    fn policies_are_better_or_worse_by_how_much() {
        let cell = |policy: &str, mib: u64, [hits, writes, dirty, elapsed]: [u64; 4]| {
            let bytes = mib << 20;
            format!(
                r#"{{"schema":1,"trace":"t","policy":"{policy}","frames":{mib},"memory_bytes":{bytes},"hits":{hits},"device_writes":{writes},"dirty_left":{dirty},"elapsed_s":{elapsed}}}"#
            )
        };
        let run = |cells: &[String]| parse(&cells.join("\n")).unwrap();
        let before = run(&[
            cell("lru", 1, [100, 90, 10, 5]),
            cell("lru", 2, [200, 50, 0, 5]),
            cell("arc", 1, [100, 100, 0, 5]),
            cell("fab", 1, [100, 100, 0, 5]),
            cell("car", 1, [100, 100, 0, 5]),
            cell("car", 2, [100, 100, 0, 5]),
        ]);
        let after = run(&[
            cell("lru", 1, [110, 60, 20, 5]),
            cell("lru", 2, [300, 50, 0, 5]),
            cell("arc", 1, [90, 110, 0, 10]),
            cell("fab", 1, [100, 100, 0, 5]),
            cell("car", 1, [110, 120, 0, 5]),
            cell("car", 2, [90, 120, 0, 5]),
        ]);
        let judged = judge(&before, &after);
        let judged: Vec<_> = judged.iter().map(|(policy, words)| (&**policy, &**words)).collect();
        assert_eq!(
            judged,
            [
                ("arc", "worse: hits −10 %, writes +10 %, time on the device +100 %"),
                ("car", "hits −10 % to +10 % (better and worse), writes +20 % (worse)"),
                ("fab", "the same"),
                ("lru", "better: hits +10 % to +50 %, writes −20 % in 1 of 2 cells"),
            ]
        );
        let words = render(&Diff::new(&before, &after), &["a".to_owned(), "b".to_owned()], 10);
        assert!(
            words.contains("By policy, after beside before:\n  arc  worse: hits −10 %"),
            "{words}"
        );
    }

    /// A run with `--drain` was "worse" than one without by its non-sequential writes, though only
    /// pages were counted that the other run left dirty. Such runs count different things.
    #[test]
    fn what_one_run_alone_counts_is_not_judged() {
        let cell = |rest: &str| {
            parse(&format!(
                r#"{{"schema":1,"trace":"t","policy":"lru","frames":256,"memory_bytes":1048576,"hits":9,{rest}}}"#
            ))
            .unwrap()
        };
        let before = cell(r#""device_writes":90,"dirty_left":10,"nonsequential_writes":50"#);
        let after =
            cell(r#""device_writes":100,"dirty_left":0,"drained":10,"nonsequential_writes":60"#);
        let diff = Diff::new(&before, &after);
        assert_eq!(diff.judged, [("lru".to_owned(), "the same".to_owned())]);
        assert!(
            diff.sentences()[0].starts_with("Only the run after has --drain, which counts more"),
            "{:?}",
            diff.sentences()
        );
        let both = Diff::new(&after, &after);
        assert!(both.uncommon.is_empty());
    }

    #[test]
    fn rows_of_a_description_are_known_by_their_words() {
        let text = |bytes: u64| {
            format!(
                r#"{{"schema":1,"trace":"t","requests":7,"top":{{"files":[{{"name":"a","written_bytes":{bytes}}},{{"name":"b","written_bytes":2}}],"points":[{{"x":1,"y":2}}],"curve":[{{"of":"c","y":2}},{{"of":"c","y":3}}]}}}}"#
            )
        };
        let diff = Diff::new(&parse(&text(4096)).unwrap(), &parse(&text(8192)).unwrap());
        assert_eq!(diff.both, [("requests".to_owned(), 1), ("written_bytes".to_owned(), 2)].into());
        assert_eq!(diff.changes[0].of, "top, files, a");
        assert_eq!(shown("written_bytes", 8192.0), "8 KiB");
    }

    #[test]
    fn other_files_are_refused() {
        for (text, message) in [
            ("", "no run"),
            ("hello", "object 1"),
            ("[1]", "object 1"),
            (r#"{"a":1}"#, "no schema"),
            (r#"{"schema":9,"policy":"lru"}"#, "schema 9"),
            (r#"{"schema":1}"#, "neither"),
            (r#"{"schema":1,"policy":"lru"}"#, "without frames"),
        ] {
            let error = format!("{:#}", parse(text).err().unwrap());
            assert!(error.contains(message), "{text}: {error}");
        }
        let twice = [cell("lru", 1, 1.0), cell("lru", 2, 1.0)].join("\n");
        assert!(parse(&twice).err().unwrap().to_string().contains("two values"));
        let mixed = format!("{}\n{}", cell("lru", 1, 1.0), r#"{"schema":1,"requests":7}"#);
        assert!(parse(&mixed).is_err());
    }
}
