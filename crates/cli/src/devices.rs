//! Modelled devices: those asked for with `--device`, what a cell came to on them, and `flashsift
//! devices`.

use crate::{Usage, compare::cpu_ns, size, text};
use anyhow::Context;
use flashsift_core::{
    back::Io,
    device::{
        Clocks, DeviceTimes, Prepared, Profile, ProfileSelection,
        profile::{ALL, StorageKind},
        wear::{Endurance, lifetime_gain},
    },
    page::PAGE_BYTES,
    params::Param,
    policy,
    system::Outcome,
    trace::Trace,
    verdict::{Best, REFERENCE},
};
use flashsift_host::wear::{self, LifeTime, Spare, Storage};
use serde::Serialize;
use std::{
    fmt::Write as _,
    io::Write as _,
    path::{Path, PathBuf},
};

/// A device, ready for any number of cells.
pub(crate) struct Chosen {
    pub(crate) label: String,
    pub(crate) profile: Profile,
    pub(crate) prepared: Prepared,
}

pub(crate) fn help() -> String {
    let each = ALL.iter().map(|spec| format!("\n  {:<16} {}", spec.name, (spec.profile)().what));
    let params = ALL[0].params.iter().map(|param| format!("\n  {param}"));
    format!(
        "Modelled devices that take what reaches storage: time and wear for each policy. Profiles, \
         or all, or FILE.toml; parameters as name:key=value; their constants and sources: \
         flashsift devices{}\nParameters of those with a capacity:{}\n",
        each.collect::<String>(),
        params.collect::<String>()
    )
}

/// The devices asked for, each once.
pub(crate) fn chosen(texts: &[String]) -> anyhow::Result<Vec<Chosen>> {
    let mut chosen: Vec<Chosen> = Vec::new();
    for text in text::joined(texts) {
        let found = match text.as_str() {
            "all" => ProfileSelection::all(),
            file if file.ends_with(".toml") => vec![from_file(Path::new(file))?],
            name => vec![
                ProfileSelection::parse(name).map_err(|error| Usage(format!("{error}; or a FILE.toml")))?,
            ],
        };
        for ProfileSelection { label, profile } in found {
            if chosen.iter().all(|other| other.label != label) {
                let prepared = Prepared::new(&profile).with_context(|| format!("--device {label}"))?;
                chosen.push(Chosen { label, profile, prepared });
            }
        }
    }
    Ok(chosen)
}

/// A profile that is not of the list. It is called as its file is.
fn from_file(path: &Path) -> anyhow::Result<ProfileSelection> {
    let at = || path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(at)?;
    let profile: Profile = toml::from_str(&text).with_context(at)?;
    profile.check().with_context(at)?;
    let label = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok(ProfileSelection { label, profile })
}

/// Hands the requests of a cell to every device, some at a time: so the tables of each stay in the
/// near caches for a while, and its CPU time can be told from the policy's.
pub(crate) struct Feed {
    clocks: Vec<Clocks>,
    batch: Vec<Io>,
    spent_ns: u64,
}

const BATCH: usize = 4096;

impl Feed {
    pub(crate) fn new(devices: &[Chosen], times: bool) -> Self {
        let clocks = devices.iter().map(|device| Clocks::new(&device.prepared, times)).collect();
        Self { clocks, batch: Vec::new(), spent_ns: 0 }
    }

    pub(crate) fn io(&mut self, io: Io) {
        if self.clocks.is_empty() {
            return;
        }
        self.batch.push(io);
        if self.batch.len() == BATCH {
            self.serve();
        }
    }

    fn serve(&mut self) {
        let before = cpu_ns();
        for clocks in &mut self.clocks {
            self.batch.iter().for_each(|io| clocks.io(io));
        }
        self.batch.clear();
        self.spent_ns += cpu_ns() - before;
    }

    /// What it came to by device, and the CPU time of all.
    pub(crate) fn finish(mut self) -> (Vec<DeviceTimes>, u64) {
        if !self.batch.is_empty() {
            self.serve();
        }
        (self.clocks.iter().map(Clocks::times).collect(), self.spent_ns)
    }
}

/// What a cell came to on a device.
#[derive(Clone)]
pub(crate) struct OnDevice {
    pub(crate) elapsed_s: f64,
    pub(crate) stall_s: Option<f64>,
    pub(crate) write_amplification: Option<f64>,
    /// Pages programmed for what is written and what is due to be.
    flash_pages: Option<f64>,
    /// How much longer the flash lives than under the policy that this one is held against.
    pub(crate) lifetime_gain: Option<f64>,
    pub(crate) lifetime: Option<Lifetime>,
}

/// CacheSifter's equation 3, with what it was computed from.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct Lifetime {
    years: f64,
    #[serde(flatten)]
    endurance: Endurance,
}

impl OnDevice {
    /// `own` and `other`: what came of a cell, and of the one that it is held against.
    pub(crate) fn new(
        device: &Chosen,
        trace: &Trace,
        own: (&Outcome, &DeviceTimes),
        other: (&Outcome, &DeviceTimes),
    ) -> Self {
        let flash_pages = |(outcome, times): (&Outcome, &DeviceTimes)| {
            Some(times.wear.write_amplification()? * outcome.writes_due() as f64)
        };
        let (outcome, times) = own;
        let own_pages = flash_pages(own);
        let gain = flash_pages(other).zip(own_pages).and_then(|(before, after)| lifetime_gain(before, after));
        Self {
            elapsed_s: times.elapsed_ns as f64 / 1e9,
            stall_s: times.stall_ns.map(|ns| ns as f64 / 1e9),
            write_amplification: times.wear.write_amplification(),
            flash_pages: own_pages,
            // A constant time a page is no flash.
            lifetime_gain: gain.filter(|_| device.profile.cycles.is_some()),
            lifetime: lifetime(&device.profile, trace, outcome, times),
        }
    }
}

/// Years, if every day were as the trace, without pause. Not of memory cards: nobody says what they
/// stand.
fn lifetime(profile: &Profile, trace: &Trace, outcome: &Outcome, times: &DeviceTimes) -> Option<Lifetime> {
    let days = trace.totals().duration_us as f64 / 86_400e6;
    let written_bytes = outcome.writes_due() as f64 * PAGE_BYTES as f64;
    if profile.kind == StorageKind::Sd || !trace.about().knows.times || days == 0.0 || written_bytes == 0.0 {
        return None;
    }
    let endurance = Endurance {
        cycles: profile.cycles?,
        over_provisioning: profile.model.over_provisioning(),
        drive_writes_per_day: written_bytes / days / profile.model.capacity_bytes()? as f64,
        write_amplification: times.wear.write_amplification()?,
        compression: 1.0,
    };
    Some(Lifetime { years: endurance.lifetime_years(), endurance })
}

/// Who is best on a device at one size.
pub(crate) struct Judged<'a> {
    pub(crate) device: &'a str,
    /// Least elapsed time, µs.
    pub(crate) fastest: Best<'a>,
    /// Fewest pages programmed; `None` where nothing wears, or nothing is written.
    pub(crate) lives_longest: Option<Best<'a>>,
}

/// `None` if nobody competes.
pub(crate) fn judge<'a>(device: &'a Chosen, on: &[(&'a str, policy::Kind, &OnDevice)]) -> Option<Judged<'a>> {
    let best = |count: fn(&OnDevice) -> Option<f64>| {
        let counts: Option<Vec<_>> =
            on.iter().map(|(policy, kind, on)| Some((*policy, *kind, count(on)?.round() as u64))).collect();
        Best::least(&counts?)
    };
    Some(Judged {
        device: &device.label,
        fastest: best(|on| Some(on.elapsed_s * 1e6))?,
        lives_longest: device.profile.cycles.and_then(|_| best(|on| on.flash_pages)),
    })
}

/// What has to be said with the figures of devices.
pub(crate) fn notes(
    devices: &[Chosen],
    trace: &Trace,
    mut policies: impl Iterator<Item = String>,
) -> Vec<String> {
    if devices.is_empty() {
        return Vec::new();
    }
    let mut notes = vec![
        "Devices are modelled: flashsift devices NAME has every constant with its source. Elapsed: \
         all requests as fast as the device can, one at a time."
            .to_owned(),
    ];
    notes.push(match trace.about().knows.times {
        true => "Stall: with requests at their recorded times, how long applications wait for reads, for writes that must be durable, \
                 and for dirty pages to make room."
            .to_owned(),
        false => "Stall is not known: the trace has no times (--rate N gives it some).".to_owned(),
    });
    let first = policies.next().unwrap_or_default();
    let reference =
        if first == REFERENCE || policies.any(|policy| policy == REFERENCE) { REFERENCE } else { &first };
    if devices.iter().any(|device| device.profile.cycles.is_some()) {
        notes.push(format!(
            "Lifetime gain: over {reference}, by CacheSifter's equation 3 with n = 1, the same \
             cycles, over-provisioning and hours of use, no compression: pages programmed under \
             {reference} / pages programmed − 1. Pages still dirty count as written, copies still \
             due as made."
        ));
    }
    for device in devices {
        if let Some(fill) = device.profile.model.fill() {
            let fill = serde_json::to_value(fill).expect("a word");
            let fill = match fill.as_str() {
                Some("empty") => "empty",
                Some("random") => "full, written over at random",
                _ => "full, written in order",
            };
            match notes.iter_mut().find(|note| note.ends_with(&format!(": {fill}."))) {
                Some(note) => *note = note.replacen(": ", &format!(", {}: ", device.label), 1),
                None => notes.push(format!("Before the first request, {}: {fill}.", device.label)),
            }
        }
    }
    notes
}

/// Modelled devices for --device, every constant with its source; and what this machine's storage
/// says of its wear
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flashsift devices
  flashsift devices microsd-2012 ufs-3.1
  flashsift devices ufs-3.1 --toml > mine.toml       to be changed, for --device mine.toml")]
pub(crate) struct Args {
    /// Which; default: all, in short
    #[arg(value_name = "DEVICE")]
    devices: Vec<String>,

    /// One JSON object a device and line
    #[arg(long)]
    json: bool,

    /// As a file that --device takes
    #[arg(long, conflicts_with = "json", requires = "devices")]
    toml: bool,

    /// Where the kernel shows devices: for tests
    #[arg(long, value_name = "DIR", default_value = "/sys", hide = true)]
    sys: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let all = args.devices.is_empty();
    let chosen = if all { chosen(&["all".to_owned()])? } else { chosen(&args.devices)? };
    let columns = text::columns().unwrap_or(110);
    let mut out = String::new();
    if args.json {
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
            out += &text::labelled(&format!("{}  ", device.label), 18, &device.profile.what, columns);
        }
        out += "\nParameters:\n";
        for param in parameters() {
            out += &text::labelled("", 2, &param.to_string(), columns);
        }
        out += "\nflashsift devices NAME: every constant with its source.\n\nStorage of this machine:\n";
        out += &this_machine(&wear::storage(&args.sys)?, columns);
    } else {
        for device in &chosen {
            out += &constants(device, columns)?;
        }
    }
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(out.as_bytes())?;
    Ok(stdout.flush()?)
}

/// eMMC, UFS and memory cards, and what they say of their wear.
fn this_machine(found: &[Storage], columns: usize) -> String {
    let mut out = String::new();
    for Storage { name, model, kind } in found {
        let (kind, wear) = match kind {
            wear::Kind::Sd => ("SD card", None),
            wear::Kind::Emmc { wear } => ("eMMC", *wear),
            wear::Kind::Ufs { wear } => ("UFS", *wear),
        };
        let says = match wear {
            Some(wear::Wear { life_time: [a, b], spare }) => {
                let spare = match spare {
                    Spare::NotDefined => "not defined",
                    Spare::Normal => "less than 80 % used",
                    Spare::Warning => "80 % used",
                    Spare::Urgent => "90 % used",
                };
                format!("life used: {} (A), {} (B); spare blocks: {spare}", life_used(a), life_used(b))
            }
            None if kind == "SD card" => "no wear register: what life it has left nobody knows".to_owned(),
            None => "it or the kernel shows no wear registers".to_owned(),
        };
        let named = [&**name, kind, &**model].join(" ");
        out += &text::labelled(&format!("  {}: ", named.trim()), 4, &says, columns);
    }
    if found.is_empty() {
        out += "  no eMMC, UFS or SD card; of disks and SSDs smartctl tells\n";
    }
    out
}

fn life_used(life: LifeTime) -> String {
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

fn parameters() -> &'static [Param] {
    ALL[0].params
}

#[derive(Serialize)]
struct Record<'a> {
    schema: u32,
    device: &'a str,
    #[serde(flatten)]
    profile: &'a Profile,
}

/// A device's constants, a line each, with their sources.
fn constants(device: &Chosen, columns: usize) -> anyhow::Result<String> {
    let profile = serde_json::to_value(&device.profile)?;
    let mut out = text::labelled(&format!("{}: ", device.label), 0, &device.profile.what, columns);
    let model = profile["model"].as_object().into_iter().flatten();
    let constants = model.filter_map(|(_, constants)| constants.as_object()).flatten();
    let own = ["kind", "cycles"].into_iter().filter_map(|name| Some((name, profile.get(name)?)));
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
        let source = device.profile.sources.get(name).map_or("", |source| source);
        let mut line = format!("  {name:<18} {shown:>12}");
        if !source.is_empty() {
            write!(line, "  {source}")?;
        }
        out += &line;
        out.push('\n');
    }
    Ok(out)
}
