//! `flashsift policies`: the list of replacement policies as text, as JSON, and as
//! docs/policies.md.

use crate::{records, text, usage::Usage};
use flashsift_core::{
    duration::Exact,
    params::{self, Param},
    policy::{self, Kind, PolicySpec, Selection},
};
use serde::Serialize;
use std::{fmt::Write as _, io::Write as _};

/// List the replacement policies: purpose, goal, parameters and costs
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flashsift policies
  flashsift policies spatialclock mglru
  flashsift policies --json | jq -r .policy")]
pub(crate) struct Args {
    /// Policies to list; default: all
    #[arg(value_name = "POLICY")]
    policies: Vec<String>,

    /// Print one JSON object for each policy, one on a line
    #[arg(long)]
    json: bool,

    /// Print the same as CSV: a row for each object
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Print a page of documentation
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    markdown: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let named: Result<Vec<&PolicySpec>, _> =
        args.policies.iter().map(|text| Selection::parse(text).map(|policy| policy.spec)).collect();
    let named = named.map_err(|error| Usage(error.to_string()))?;
    let chosen = if named.is_empty() { policy::ALL.iter().collect() } else { named };
    let page = match (args.json || args.csv, args.markdown) {
        (true, _) => json(&chosen)?,
        (_, true) => markdown(&chosen),
        _ => terminal(&chosen, text::columns().unwrap_or(110)),
    };
    let mut out = records::Output::rows(args.csv);
    out.write_all(page.as_bytes())?;
    out.finish()
}

fn kind(spec: &PolicySpec) -> &'static str {
    match spec.kind {
        Kind::Online if spec.slow => "online, and left out of `all` because it is slow",
        Kind::Online => "online: it could run in a kernel",
        Kind::Bound => "bound: it knows the future, and no policy hits more often",
        Kind::Heuristic => "offline heuristic: it knows the future, but is not a bound",
    }
}

const PARAMETER: &str = "parameter";

/// Facts about a policy, after its name and purpose.
fn facts(spec: &PolicySpec) -> Vec<(&'static str, String)> {
    let mut facts = vec![("optimises", spec.goal.to_owned()), ("use it", spec.when.to_owned())];
    facts.extend(spec.params.iter().map(|param| (PARAMETER, param.to_string())));
    facts.extend([
        ("time", spec.time.to_owned()),
        ("memory", spec.memory.to_owned()),
        ("kind", kind(spec).to_owned()),
        ("paper", spec.paper.to_owned()),
    ]);
    facts
}

fn terminal(specs: &[&PolicySpec], columns: usize) -> String {
    let mut out = String::new();
    for spec in specs {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&text::labelled(&format!("{}: ", spec.name), 0, spec.what, columns));
        for (label, fact) in facts(spec) {
            out.push_str(&text::labelled(&format!("  {label}"), 13, &fact, columns));
        }
    }
    out
}

fn markdown(specs: &[&PolicySpec]) -> String {
    let mut out = "\
# Policies

<!-- Made by `flashsift policies --markdown > docs/policies.md`, from each policy's file. -->

Replacement policies for `--policy`, as `name` or `name:parameter=value`. Each parameter is listed \
with its default and its other values. Time and memory are those of this implementation; memory is \
in addition to the cache's own table. The head of each policy's file in \
[crates/core/src/policy](../crates/core/src/policy) explains how its paper was read.

| policy | what it does |
|---|---|
"
    .to_owned();
    let mut lines = String::new();
    for spec in specs {
        writeln!(out, "| [`{0}`](#{0}) | {1} |", spec.name, spec.what)
            .expect("writing to a string does not fail");
        writeln!(lines, "\n## {}\n\n{}.\n", spec.name, sentence(spec.what)).expect("as before");
        for (label, fact) in facts(spec) {
            let fact = if label == PARAMETER { code(&fact) } else { fact };
            writeln!(lines, "- **{label}**: {fact}").expect("as before");
        }
    }
    out + &lines
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Formats the parameter's `key=default` as code.
fn code(param: &str) -> String {
    param.split_once(' ').map_or_else(|| param.to_owned(), |(key, rest)| format!("`{key}` {rest}"))
}

#[derive(Serialize)]
struct PolicyRecord<'a> {
    schema: u32,
    policy: &'a str,
    what: &'a str,
    optimises: &'a str,
    use_it: &'a str,
    parameters: Vec<Parameter<'a>>,
    time: &'a str,
    memory: &'a str,
    kind: &'static str,
    in_all: bool,
    paper: &'a str,
}

#[derive(Serialize)]
struct Parameter<'a> {
    name: &'a str,
    what: &'a str,
    #[serde(flatten)]
    values: Values<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Values<'a> {
    Number { default: f64, min: f64, max: f64 },
    Word { default: &'a str, words: &'a [&'a str] },
    Duration { default: String, min: String, max: String },
    Text { default: &'a str },
}

impl<'a> From<&'a Param> for Parameter<'a> {
    fn from(param: &'a Param) -> Self {
        let values = match param.kind {
            params::ParamKind::Number { default, min, max } => Values::Number { default, min, max },
            params::ParamKind::Word(words) => Values::Word { default: words[0], words },
            params::ParamKind::Duration { default_us, min_us, max_us } => Values::Duration {
                default: Exact(default_us).to_string(),
                min: Exact(min_us).to_string(),
                max: Exact(max_us).to_string(),
            },
            params::ParamKind::Text => Values::Text { default: "" },
        };
        Self { name: param.name, what: param.what, values }
    }
}

fn json(specs: &[&PolicySpec]) -> serde_json::Result<String> {
    let mut out = String::new();
    for spec in specs {
        out += &serde_json::to_string(&PolicyRecord {
            schema: 1,
            policy: spec.name,
            what: spec.what,
            optimises: spec.goal,
            use_it: spec.when,
            parameters: spec.params.iter().map(Parameter::from).collect(),
            time: spec.time,
            memory: spec.memory,
            kind: match spec.kind {
                Kind::Online => "online",
                Kind::Bound => "bound",
                Kind::Heuristic => "heuristic",
            },
            in_all: !spec.slow,
            paper: spec.paper,
        })?;
        out.push('\n');
    }
    Ok(out)
}
