//! `flashsift list`: everything that an option takes by name, from the lists of the core.

use crate::{compare::fields, devices, policies, records};
use flashsift_events::params::{self, Param};
use flashsift_files::sift;
use flashsift_pages::{layout, metadata, nvm, readahead, system, writeback};
use flashsift_study::doctor::{self, KnownSetting};
use serde::{Serialize, Serializer, ser::SerializeMap};
use std::io::Write as _;

/// List policies, sifters, devices, formats and other names
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flashsift list policies
  flashsift list policies spatialclock mglru
  flashsift list policies --json | jq -r .policy
  flashsift list sifters controller
  flashsift list devices ufs-3.1 --toml > my.toml     for --device my.toml")]
pub(crate) struct Args {
    #[command(subcommand)]
    list: List,
}

#[derive(clap::Subcommand)]
enum List {
    Policies(policies::Args),
    /// Sifters, for --sift
    Sifters(Named),
    Devices(devices::Args),
    /// Trace formats, for --format
    Formats(Named),
    /// Systems with and without non-volatile memory, for --system
    Systems(Named),
    /// Modelled memory, for --nvm
    Memories(Named),
    /// Read-aheads, for --readahead
    Readaheads(Named),
    /// Occasions on which dirty pages are written, for --writeback
    Writebacks(Named),
    /// Places of pages on the device, for --layout
    Layouts(Named),
    /// File systems with journal and metadata, for --metadata
    Metadata(Named),
    /// Programs with settings of their own that write less, which doctor knows
    Programs(Named),
    /// Known caches whose files a mount's sifter may drop, for --profile
    Profiles(Named),
    /// Fields of compare --json, as a JSON Schema
    Fields,
}

#[derive(clap::Args)]
struct Named {
    /// Entries to list; default: all
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Print one JSON object for each entry, one on a line
    #[arg(long)]
    json: bool,

    /// Print the same as CSV: a row for each object
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

/// An entry of a list.
struct Entry {
    /// Noun for an entry, and its key in JSON.
    noun: &'static str,
    name: String,
    what: String,
    params: &'static [Param],
    /// Further facts: labels and texts.
    facts: policies::Facts,
}

impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("schema", &1)?;
        map.serialize_entry(self.noun, &self.name)?;
        map.serialize_entry("what", &self.what)?;
        let params: Vec<_> = self.params.iter().map(policies::Parameter::from).collect();
        map.serialize_entry("parameters", &params)?;
        for (label, fact) in &self.facts {
            map.serialize_entry(label, fact)?;
        }
        map.end()
    }
}

/// Makes the entries of a list of the core, whose entries have a name, a purpose and parameters.
macro_rules! entries {
    ($noun:literal, $list:expr $(, $label:literal: $fact:ident)?) => {
        $list
            .iter()
            .map(|spec| Entry {
                noun: $noun,
                name: spec.name.to_owned(),
                what: spec.what.to_owned(),
                params: params::Listed::declared(spec).1,
                facts: vec![$(($label, spec.$fact.to_owned()))?],
            })
            .collect()
    };
}

/// Returns an entry without parameters.
fn plain(noun: &'static str, name: &str, what: &str) -> Entry {
    Entry { noun, name: name.to_owned(), what: what.to_owned(), params: &[], facts: Vec::new() }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (named, entries): (_, Vec<Entry>) = match &args.list {
        List::Policies(args) => return policies::run(args),
        List::Devices(args) => return devices::run(args),
        List::Sifters(named) => return sifters(&named.names, named.json, named.csv),
        List::Formats(named) => {
            let all = flashsift_traces::format::ALL.iter();
            (named, all.map(|spec| plain("format", spec.name, spec.what)).collect())
        }
        List::Systems(named) => (named, entries!("system", system::ALL, "paper": paper)),
        List::Memories(named) => (named, entries!("memory", nvm::profile::ALL, "source": source)),
        List::Readaheads(named) => (named, entries!("readahead", readahead::ALL, "paper": paper)),
        List::Writebacks(named) => {
            let all = writeback::ALL.iter();
            (named, all.map(|(name, what)| plain("writeback", name, what)).collect())
        }
        List::Layouts(named) => (named, entries!("layout", layout::ALL)),
        List::Metadata(named) => (named, entries!("metadata", metadata::ALL)),
        List::Programs(named) => return programs(named),
        List::Fields => {
            let mut out = records::Output::exact();
            out.write_all(fields::schema().as_bytes())?;
            return out.finish();
        }
        List::Profiles(named) => {
            let profiles = sift::profile::shipped().into_iter();
            (
                named,
                profiles.map(|profile| plain("profile", &profile.name, &profile.title)).collect(),
            )
        }
    };
    print(&named.names, named.json, named.csv, entries)
}

#[derive(Serialize)]
struct ProgramRecord {
    schema: u32,
    #[serde(flatten)]
    setting: KnownSetting,
}

/// Prints the settings of the programs that doctor knows: as JSON one object a setting.
fn programs(named: &Named) -> anyhow::Result<()> {
    let mut all: Vec<Entry> = Vec::new();
    let settings = doctor::known_settings();
    for KnownSetting { program, name, change, lost, .. } in &settings {
        if all.last().is_none_or(|entry| entry.name != *program) {
            all.push(plain("program", program, name));
        }
        let facts = [("setting", change.clone()), ("loses", lost.clone())];
        all.last_mut().expect("it was added").facts.extend(facts);
    }
    if !named.json && !named.csv {
        return print(&named.names, false, false, all);
    }
    // An unknown name is an error here, too.
    let chosen: Vec<String> = chosen(&named.names, &all)?.iter().map(|e| e.name.clone()).collect();
    let mut out = records::Output::rows(named.json, named.csv);
    for setting in settings.into_iter().filter(|one| chosen.iter().any(|n| n == one.program)) {
        serde_json::to_writer(&mut out, &ProgramRecord { schema: 1, setting })?;
        writeln!(out)?;
    }
    out.finish()
}

/// Prints the sifters with these names, or all.
pub(crate) fn sifters(names: &[String], json: bool, csv: bool) -> anyhow::Result<()> {
    let mut all: Vec<Entry> = entries!("sifter", sift::ALL, "paper": paper);
    for (entry, spec) in all.iter_mut().zip(sift::ALL) {
        entry.facts.insert(0, ("runs", policies::runs(spec).to_owned()));
    }
    print(names, json, csv, all)
}

/// Prints the chosen entries of a list as text, JSON or CSV.
fn print(names: &[String], json: bool, csv: bool, all: Vec<Entry>) -> anyhow::Result<()> {
    let chosen = chosen(names, &all)?;
    let mut out = records::Output::rows(json, csv);
    if json || csv {
        for entry in chosen {
            writeln!(out, "{}", serde_json::to_string(entry)?)?;
        }
    } else {
        let entries = chosen.iter().map(|entry| {
            let params = entry.params.iter().map(|param| (policies::PARAMETER, param.to_string()));
            (&*entry.name, &*entry.what, params.chain(entry.facts.iter().cloned()).collect())
        });
        out.write_all(policies::terminal(entries).as_bytes())?;
    }
    out.finish()
}

/// Returns the entries with these names, or all.
fn chosen<'a>(names: &[String], all: &'a [Entry]) -> anyhow::Result<Vec<&'a Entry>> {
    let mut chosen: Vec<&Entry> = Vec::new();
    for name in names {
        let found = all.iter().find(|entry| entry.name.eq_ignore_ascii_case(name));
        chosen.push(found.ok_or_else(|| {
            let noun = all.first().map_or("entry", |entry| entry.noun);
            let known = || all.iter().map(|entry| &*entry.name);
            let near = params::did_you_mean(params::nearest(name, known()));
            let known = known().collect::<Vec<_>>().join(", ");
            crate::usage::Usage(format!("no {noun} is called `{name}`{near}; there are {known}"))
        })?);
    }
    if names.is_empty() {
        chosen.extend(all);
    }
    Ok(chosen)
}
