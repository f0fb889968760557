//! Prints the decisions that `--explain` chose, with the numbers that led to them.

use super::Cell;
use crate::{size, text};
use flashsift_events::{
    page::PAGE_BYTES,
    show::{self, number},
};
use flashsift_files::sift::{
    Criterion, Decision, Explanation, Feature, Intent, Reason,
    simulate::{ExplainedDecision, Followed},
};
use serde::Serialize;
use std::io::Write;

/// Decisions of each sifter and size that the text shows.
const SHOWN: usize = 50;

/// Prints the decisions of all sifters.
pub(super) fn print(
    out: &mut impl Write,
    patterns: &[String],
    cells: &[Cell],
) -> anyhow::Result<()> {
    let columns = text::columns().unwrap_or(100);
    let of = patterns.join(", ");
    if cells.iter().all(|cell| cell.sifted.explained.is_empty()) {
        let none = format!(
            "No sifter decides on a file like {of}. Files that may not be dropped are on flash \
             from the start, and there are no decisions on them."
        );
        return Ok(write!(out, "\n{}", text::labelled("", 0, &none, columns))?);
    }
    for cell in cells.iter().filter(|cell| cell.ram_pages > 0) {
        let (sifter, explained) = (&cell.sifter, &cell.sifted.explained);
        let memory = size::memory(cell.memory_pages.into());
        let decisions = size::counted(explained.len() as u64, "decision");
        writeln!(out, "\n{sifter}, memory of {memory}: {decisions} on files like {of}")?;
        for decision in explained.iter().take(SHOWN) {
            print_one(out, decision, columns)?;
        }
        if explained.len() > SHOWN {
            let more = size::count((explained.len() - SHOWN) as u64);
            writeln!(out, "\n  … and {more} more; --json has all of them")?;
        }
    }
    Ok(())
}

fn print_one(
    out: &mut impl Write,
    decided: &ExplainedDecision,
    columns: usize,
) -> anyhow::Result<()> {
    let at = size::duration(decided.at_us);
    let (name, bytes) = (show::name(&decided.name), size::bytes(decided.bytes));
    let end = end(decided);
    writeln!(out, "\n  {at}  {name} ({bytes}): {end}")?;
    print_numbers(out, &decided.explanation, decided.bytes, columns)
}

/// Prints the rule of a decision on a file of this size, and its numbers.
pub(crate) fn print_numbers(
    out: &mut impl Write,
    explanation: &Explanation,
    bytes: u64,
    columns: usize,
) -> anyhow::Result<()> {
    let Explanation { rule, criteria, features, meaning, .. } = explanation;
    let criteria = criteria.iter().map(criterion).collect::<Vec<_>>().join("; ");
    let features = features.iter().filter(|feature| is_shown(feature));
    let features = features.map(feature).collect::<Vec<_>>().join(", ");
    let meaning = meaning.iter().map(|meaning| format!("cache of {meaning}")).collect();
    for words in [rule.to_string(), meaning, criteria, costs(explanation, bytes), features] {
        if !words.is_empty() {
            write!(out, "{}", text::labelled("", 6, &words, columns))?;
        }
    }
    Ok(())
}

/// Returns the decision and the event that followed.
fn end(decided: &ExplainedDecision) -> String {
    let is_drop = decided.explanation.intent == Intent::Drop;
    let decision = match decided.decision {
        Decision::WriteBack { keep_in_ram: true, .. } => "written, and kept in RAM",
        _ if is_drop => "dropped",
        _ => "written",
    };
    let followed = match decided.followed {
        Followed::Nothing => "never used again".to_owned(),
        Followed::Use(after_us) if is_drop => {
            format!("fetched again after {}", size::duration(after_us))
        }
        Followed::Use(after_us) => format!("used again after {}", size::duration(after_us)),
        Followed::Deletion(after_us) => format!("deleted after {}", size::duration(after_us)),
    };
    format!("{decision}; {followed}")
}

fn criterion(criterion: &Criterion) -> String {
    let Criterion { score, value, threshold, or_equal } = criterion;
    let (name, unit) = score.rsplit_once(", ").unwrap_or((score, ""));
    let (value, threshold) = (with_unit(*value, unit), with_unit(*threshold, unit));
    let sign = match (criterion.holds(), or_equal) {
        (true, true) => "≤",
        (true, false) => "<",
        (false, true) => ">",
        (false, false) => "≥",
    };
    format!("{name} {} {sign} {}", text::unbroken(&value), text::unbroken(&threshold))
}

fn costs(explanation: &Explanation, bytes: u64) -> String {
    let Explanation { chance, drop_costs_bytes, write_costs_bytes, .. } = *explanation;
    let write = size::bytes(write_costs_bytes);
    match (chance, drop_costs_bytes) {
        (Some(chance), Some(drop)) => format!(
            "chance of a later use {}; a drop costs {} fetched again on average, a write {write} \
             of flash",
            number(chance),
            size::bytes(drop.round() as u64)
        ),
        _ => format!(
            "a wrong drop costs {} fetched again, a wrong write {write} of flash",
            size::bytes(bytes)
        ),
    }
}

/// Of a model's values, those that are not 0 are shown.
fn is_shown(feature: &Feature) -> bool {
    !feature.name.starts_with("unit_") || feature.value != 0.0
}

fn feature(feature: &Feature) -> String {
    let name = &*feature.name;
    let unit = name.rsplit_once('_').map_or("", |(_, unit)| unit);
    let plain = match unit {
        "bytes" | "s" | "share" => name.strip_suffix(unit).unwrap_or(name),
        _ => name,
    };
    let plain = plain.trim_end_matches('_').replace('_', " ");
    text::unbroken(&format!("{plain} {}", with_unit(feature.value, unit)))
}

fn with_unit(value: f64, unit: &str) -> String {
    let sign = if value < 0.0 { "−" } else { "" };
    match unit {
        "bytes" => format!("{sign}{}", size::bytes(value.abs().round() as u64)),
        "s" => format!("{sign}{}", size::duration((value.abs() * 1e6) as u64)),
        "share" => size::share(value),
        _ => number(value),
    }
}

/// A decision, as one line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    schema: u32,
    trace: &'a str,
    sifter: &'a str,
    memory_bytes: u64,
    decision: Record<'a>,
}

#[derive(Serialize)]
struct Record<'a> {
    at_us: u64,
    name: &'a str,
    bytes: u64,
    why: Option<Reason>,
    keep_in_ram: bool,
    #[serde(flatten)]
    explanation: &'a Explanation,
    /// `use` or `deletion`.
    followed: Option<&'static str>,
    followed_after_us: Option<u64>,
}

/// Prints the decisions of a sifter, one a line.
pub(super) fn print_json(out: &mut impl Write, trace: &str, cell: &Cell) -> anyhow::Result<()> {
    for decided in &cell.sifted.explained {
        let (followed, followed_after_us) = match decided.followed {
            Followed::Nothing => (None, None),
            Followed::Use(after_us) => (Some("use"), Some(after_us)),
            Followed::Deletion(after_us) => (Some("deletion"), Some(after_us)),
        };
        let keep_in_ram = matches!(decided.decision, Decision::WriteBack { keep_in_ram: true, .. });
        let decision = Record {
            at_us: decided.at_us,
            name: &decided.name,
            bytes: decided.bytes,
            why: decided.decision.why(),
            keep_in_ram,
            explanation: &decided.explanation,
            followed,
            followed_after_us,
        };
        let memory_bytes = u64::from(cell.memory_pages) * PAGE_BYTES;
        let line = Line { schema: 1, trace, sifter: &cell.sifter, memory_bytes, decision };
        serde_json::to_writer(&mut *out, &line)?;
        writeln!(out)?;
    }
    Ok(())
}
