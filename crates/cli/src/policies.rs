//! `flashsift list policies`: the replacement policies as text, as JSON, and as docs/policies.md.

use crate::{records, text, usage::Usage};
use flashsift_caches::policy::{self, Kind, PolicySpec, Selection};
use flashsift_events::{
    duration::Exact,
    params::{self, Param, ParamKind, Params},
};
use flashsift_files::sift;
use serde::Serialize;
use std::{fmt::Write as _, io::Write as _};

/// Replacement policies, for --policy: purpose, parameters and costs
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Policies to list; default: all
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// List sifters: of the command's old spelling.
    #[arg(long, hide = true)]
    sifters: bool,

    /// Print one JSON object for each policy, one on a line
    #[arg(long)]
    json: bool,

    /// Print the same as CSV: a row for each object
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Print a page of documentation
    #[arg(long, conflicts_with_all = ["json", "csv", "sifters"])]
    markdown: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if args.sifters || name_sifters(args) {
        return crate::list::sifters(&args.names, args.json, args.csv);
    }
    let page = of_policies(args)?;
    let mut out = records::Output::rows(args.json || args.markdown, args.csv);
    out.write_all(page.as_bytes())?;
    out.finish()
}

/// Whether all names are those of sifters, and none that of a policy.
fn name_sifters(args: &Args) -> bool {
    let is_sifter =
        |text: &String| sift::Selection::parse(text).is_ok() && Selection::parse(text).is_err();
    !args.markdown && !args.names.is_empty() && args.names.iter().all(is_sifter)
}

fn of_policies(args: &Args) -> anyhow::Result<String> {
    let named: Result<Vec<&PolicySpec>, _> =
        args.names.iter().map(|text| Selection::parse(text).map(|policy| policy.spec)).collect();
    let named = named.map_err(|error| Usage(error.to_string()))?;
    let chosen = if named.is_empty() { policy::ALL.iter().collect() } else { named };
    Ok(match (args.json || args.csv, args.markdown) {
        (true, _) => json(&chosen)?,
        (_, true) => markdown(&chosen),
        _ => terminal(chosen.iter().map(|spec| (spec.name, spec.what, facts(spec)))),
    })
}

fn kind(spec: &PolicySpec) -> &'static str {
    match spec.kind {
        Kind::Online if spec.slow => "online, and left out of `all` because it is slow",
        Kind::Online => "online: it could run in a kernel",
        Kind::Bound => "bound: it knows the future, and no policy hits more often",
        Kind::Heuristic => "offline heuristic: it knows the future, but is not a bound",
    }
}

/// Returns what the policy does in a cache of objects with sizes.
fn objects(spec: &PolicySpec) -> &'static str {
    match spec.takes_objects() {
        true => "of any size, with --object-cache and --memory",
        false => "as if all had one size, with --object-cache and --frames",
    }
}

/// Returns where a sifter can run.
pub(crate) fn runs(spec: &sift::Spec) -> &'static str {
    let takes_model = spec.params.iter().any(|param| matches!(param.kind, ParamKind::Text));
    match ((spec.offline)(&Params::default()), takes_model) {
        (false, _) => "in simulation and in a mount",
        (true, true) => {
            "in simulation, and with a model in a mount; without a model it knows the future"
        }
        (true, false) => "in simulation alone, as it knows the future",
    }
}

pub(crate) const PARAMETER: &str = "parameter";

/// Facts about a policy or a sifter: labels and texts.
pub(crate) type Facts = Vec<(&'static str, String)>;

/// Facts about a policy, after its name and purpose.
fn facts(spec: &PolicySpec) -> Facts {
    let mut facts = vec![("optimises", spec.goal.to_owned()), ("use it", spec.when.to_owned())];
    facts.extend(spec.params.iter().map(|param| (PARAMETER, param.to_string())));
    facts.extend([
        ("time", spec.time.to_owned()),
        ("memory", spec.memory.to_owned()),
        ("kind", kind(spec).to_owned()),
        ("objects", objects(spec).to_owned()),
        ("paper", spec.paper.to_owned()),
    ]);
    facts
}

/// Formats names, purposes and facts.
pub(crate) fn terminal<'a>(entries: impl Iterator<Item = (&'a str, &'a str, Facts)>) -> String {
    let columns = text::columns().unwrap_or(110);
    let mut out = String::new();
    for (name, what, facts) in entries {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&text::labelled(&format!("{name}: "), 0, what, columns));
        for (label, fact) in facts {
            out.push_str(&text::labelled(&format!("  {label}"), 13, &fact, columns));
        }
    }
    out
}

fn markdown(specs: &[&PolicySpec]) -> String {
    let mut out = "\
# Policies

<!-- Made by `flashsift list policies --markdown > docs/policies.md`, from each policy's file. -->

Replacement policies for `--policy`, as `name` or `name:parameter=value`. Each parameter is listed \
with its default and its other values. Time and memory are those of this implementation; memory is \
in addition to the cache's own table. The head of each policy's file in \
[crates/caches/src/policy](../crates/caches/src/policy) explains how its paper was read.

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
    /// It orders objects with sizes.
    objects: bool,
    paper: &'a str,
}

#[derive(Serialize)]
pub(crate) struct Parameter<'a> {
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
    Expression { default: &'a str, variables: &'a [&'a str] },
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
            params::ParamKind::Expression { default, variables } => {
                Values::Expression { default, variables }
            }
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
            objects: spec.takes_objects(),
            paper: spec.paper,
        })?;
        out.push('\n');
    }
    Ok(out)
}
