//! Modelled devices: `--device` chooses some, and `flashsift list devices` shows them.

use crate::{records, size, text, usage::Usage};
use anyhow::Context;
use flashsift_events::params::Param;
use flashsift_host::wear::{self, LifeTime, Spare, Storage};
use flashsift_pages::device::{
    LabelledProfile, Profile, ProfileSelection,
    profile::{self, ALL},
};
use serde::Serialize;
use std::{
    fmt::Write as _,
    io::Write as _,
    path::{Path, PathBuf},
};

pub(crate) fn help() -> String {
    let each = ALL.iter().map(|spec| format!("\n  {:<16} {}", spec.name, (spec.profile)().what));
    let params = parameters().into_iter().map(|param| format!("\n  {param}"));
    format!(
        "Modelled devices that perform the requests: time and wear of each. \
         Names, or all, or FILE.toml; parameters as name:key=value. `flashsift list devices` shows \
         their constants and sources{}\nParameters of devices with a capacity:{}\n",
        each.collect::<String>(),
        params.collect::<String>()
    )
}

/// The requested devices, each once.
pub(crate) fn chosen(texts: &[String]) -> anyhow::Result<Vec<LabelledProfile>> {
    let mut chosen: Vec<LabelledProfile> = Vec::new();
    for text in text::joined(texts) {
        let found = match text.as_str() {
            all if all.eq_ignore_ascii_case("all") => {
                profile::all().iter().map(LabelledProfile::from).collect()
            }
            file if file.ends_with(".toml") => vec![from_file(Path::new(file))?],
            name => {
                let selection = ProfileSelection::parse(name);
                let selection =
                    selection.map_err(|error| Usage(format!("{error}; or a FILE.toml")))?;
                vec![LabelledProfile::from(&selection)]
            }
        };
        for device in found {
            if chosen.iter().all(|other| other.label != device.label) {
                device.profile.check().with_context(|| format!("--device {}", device.label))?;
                chosen.push(device);
            }
        }
    }
    Ok(chosen)
}

/// The one device that `--device` names.
pub(crate) fn chosen_one(name: &str) -> anyhow::Result<LabelledProfile> {
    let mut chosen = chosen(&[name.to_owned()])?;
    match (chosen.pop(), chosen.is_empty()) {
        (Some(device), true) => Ok(device),
        _ => Err(Usage("--device: give one device".to_owned()).into()),
    }
}

/// A profile from a file, labelled with the stem of the file's name.
fn from_file(path: &Path) -> anyhow::Result<LabelledProfile> {
    let at = || path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(at)?;
    let profile: Profile = toml::from_str(&text).with_context(at)?;
    profile.check().with_context(at)?;
    let label = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(LabelledProfile { label, profile })
}

/// Modelled devices, for --device, with the source of every constant; wear registers of this
/// machine
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flashsift list devices
  flashsift list devices microsd-2012 ufs-3.1
  flashsift list devices ufs-3.1 --toml > my.toml     for --device my.toml")]
pub(crate) struct Args {
    /// Devices to show in full; default: one line for each device
    #[arg(value_name = "DEVICE")]
    devices: Vec<String>,

    /// Print one JSON object for each device, one on a line
    #[arg(long)]
    json: bool,

    /// Print the same as CSV: a row for each object
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Print a file that --device takes
    #[arg(long, conflicts_with_all = ["json", "csv"], requires = "devices")]
    toml: bool,

    /// Directory in which the kernel shows devices; for tests
    #[arg(long, value_name = "DIR", default_value = "/sys", hide = true)]
    sys: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let all = args.devices.is_empty();
    let chosen = if all { chosen(&["all".to_owned()])? } else { chosen(&args.devices)? };
    let columns = text::columns().unwrap_or(110);
    let mut out = String::new();
    if args.json || args.csv {
        for device in &chosen {
            let record = Record { schema: 1, device: &device.label, profile: &device.profile };
            out += &serde_json::to_string(&record)?;
            out.push('\n');
        }
        for storage in if all { wear::storage(&args.sys)? } else { Vec::new() } {
            out += &serde_json::to_string(&StorageRecord { schema: 1, storage })?;
            out.push('\n');
        }
    } else if args.toml {
        for device in &chosen {
            out += &toml::to_string(&device.profile)?;
        }
    } else if all {
        for device in &chosen {
            let mut what = device.profile.what.clone();
            if !device.profile.best_case.is_empty() {
                write!(what, "; vendor's best case: {}", device.profile.best_case.join(", "))?;
            }
            out += &text::labelled(&format!("{}  ", device.label), 18, &what, columns);
        }
        out += "\nParameters:\n";
        for param in parameters() {
            out += &text::labelled("", 2, &param, columns);
        }
        out += "\nflashsift list devices NAME: every constant with its source.\n\nStorage of this machine:\n";
        out += &this_machine(&wear::storage(&args.sys)?, columns);
    } else {
        for device in &chosen {
            out += &constants(device, columns)?;
        }
    }
    let mut stdout = records::Output::rows(args.json, args.csv);
    stdout.write_all(out.as_bytes())?;
    stdout.finish()
}

/// eMMC, UFS and memory cards of this machine, with their wear registers.
fn this_machine(found: &[Storage], columns: usize) -> String {
    let mut out = String::new();
    for Storage { name, model, kind } in found {
        let (kind, wear) = match kind {
            wear::Kind::Sd => ("SD card", None),
            wear::Kind::Emmc { wear } => ("eMMC", *wear),
            wear::Kind::Ufs { wear } => ("UFS", *wear),
        };
        let state = match wear {
            Some(wear::Wear { life_time: [a, b], spare }) => {
                let spare = match spare {
                    Spare::NotDefined => "not defined",
                    Spare::Normal => "less than 80 % used",
                    Spare::Warning => "80 % used",
                    Spare::Urgent => "90 % used",
                };
                format!(
                    "life used: {} (A), {} (B); spare blocks: {spare}",
                    life_used(a),
                    life_used(b)
                )
            }
            None if kind == "SD card" => {
                "no wear register: its remaining lifetime is unknown".to_owned()
            }
            None => "the device or the kernel shows no wear registers".to_owned(),
        };
        let named = [&**name, kind, &**model].join(" ");
        out += &text::labelled(&format!("  {}: ", named.trim()), 4, &state, columns);
    }
    if found.is_empty() {
        out += "  no eMMC, UFS or SD card; smartctl shows the wear of disks and SSDs\n";
    }
    out
}

pub(crate) fn life_used(life: LifeTime) -> String {
    match life {
        LifeTime::NotDefined => "not defined".to_owned(),
        LifeTime::PercentUsedBelow(percent) => format!("{} to {percent} %", percent - 10),
        LifeTime::Exceeded => "more than estimated".to_owned(),
    }
}

#[derive(Serialize)]
struct StorageRecord {
    schema: u32,
    storage: Storage,
}

/// The parameters of all devices with their values, each once.
fn parameters() -> Vec<String> {
    let mut each = Vec::new();
    for param in ALL.iter().flat_map(|spec| spec.params).map(Param::to_string) {
        if !each.contains(&param) {
            each.push(param);
        }
    }
    each
}

#[derive(Serialize)]
struct Record<'a> {
    schema: u32,
    device: &'a str,
    #[serde(flatten)]
    profile: &'a Profile,
}

/// Renders a device's constants, one a line, with their sources.
fn constants(device: &LabelledProfile, columns: usize) -> anyhow::Result<String> {
    let profile = &device.profile;
    let fields = serde_json::to_value(profile)?;
    // Whole without a terminal: a program reads a constant a line.
    let source_columns = text::columns().unwrap_or(usize::MAX);
    let mut out = text::labelled(&format!("{}: ", device.label), 0, &device.profile.what, columns);
    let model = fields["model"].as_object().into_iter().flatten();
    let constants = model.filter_map(|(_, constants)| constants.as_object()).flatten();
    let own = ["kind", "cycles"].into_iter().filter_map(|name| Some((name, fields.get(name)?)));
    for (name, value) in own.chain(constants.map(|(name, value)| (&**name, value))) {
        let shown = match value {
            serde_json::Value::Number(number) if name.ends_with("_bytes") => {
                size::bytes(number.as_u64().unwrap_or_default())
            }
            serde_json::Value::Number(number) => {
                let number = (number.as_f64().unwrap_or_default() * 1000.0).round() / 1000.0;
                number.to_string()
            }
            serde_json::Value::String(word) => word.clone(),
            other => other.to_string(),
        };
        let source = profile.sources.get(name).map_or("", |source| source);
        let line = format!("  {name:<18} {shown:>12}");
        out += &match source {
            "" => format!("{line}\n"),
            source => text::labelled(&format!("{line}  "), 35, source, source_columns),
        };
    }
    if !profile.best_case.is_empty() {
        let best = format!(
            "{}: of a new device, with deep queues and requests of the best size and place",
            profile.best_case.join(", ")
        );
        out += &text::labelled("  Vendor's best case: ", 4, &best, columns);
    }
    Ok(out)
}
