//! Lists settings, sets them, lists changes, and undoes them.

use super::{WritebackArgs, present_times, usage};
use crate::{
    table, text,
    tune::{
        Form,
        apply::{at_in_words, print, print_records, state_in_words, torn_line},
    },
    usage::Usage,
};
use anyhow::Context;
use flashsift_events::{
    duration::{Exact, parse_us},
    params,
};
use flashsift_host::{
    change::{ChangeState, Outcome},
    mounts::Mount,
    settings::{
        ALL, NEVER, Place, SettingChange, SettingScope, SettingSpec, SettingsMachine, ValueForm,
        Wanted,
    },
};
use flashsift_study::recommend::{WritebackTimes, time_in_words};
use serde::Serialize;
use std::{fmt::Write as _, path::Path};
use tracing::warn;

const SCHEMA: u32 = 1;

#[derive(Serialize)]
struct SettingRecord {
    schema: u32,
    setting: &'static str,
    what: &'static str,
    crash: &'static str,
    scope: SettingScope,
    file_systems: Vec<&'static str>,
}

fn scope_in_words(spec: &SettingSpec) -> String {
    let kinds = spec.kinds().join(", ");
    match spec.scope {
        SettingScope::Machine => "all file systems".to_owned(),
        SettingScope::Type => format!("every {kinds}"),
        SettingScope::FileSystem => match kinds.rsplit_once(", ") {
            Some((others, last)) => format!("one {others} or {last}"),
            None => format!("one {kinds}"),
        },
        SettingScope::Device => "one device".to_owned(),
    }
}

/// Lists every setting.
pub(super) fn settings(form: Form) -> anyhow::Result<()> {
    if form.is_records() {
        let record = |spec: &SettingSpec| SettingRecord {
            schema: SCHEMA,
            setting: spec.name,
            what: spec.what,
            crash: spec.crash,
            scope: spec.scope,
            file_systems: spec.kinds(),
        };
        return print_records(form, &ALL.iter().map(record).collect::<Vec<_>>());
    }
    let columns = text::columns().unwrap_or(80);
    let indent = ALL.iter().map(|spec| spec.name.len()).max().unwrap_or(0) + 2;
    let mut out = String::new();
    for spec in ALL {
        out += &text::labelled(spec.name, indent, spec.what, columns);
        let effect = format!("Concerns {}. A power cut {}.", scope_in_words(spec), spec.crash);
        out += &text::labelled("", indent, &effect, columns);
    }
    out += "\nNever set, though some are accepted:\n";
    for (name, why) in NEVER {
        out += &text::labelled(name, indent + 4, why, columns);
    }
    print(&out)
}

/// Reads `NAME=VALUE` of settings.
pub(super) fn parse<'a>(
    texts: &[String],
    mount: Option<&'a Mount>,
) -> anyhow::Result<Vec<Wanted<'a>>> {
    let mut all: Vec<Wanted<'a>> = Vec::new();
    for text in texts {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| usage(&format!("--set {text}: write NAME=VALUE, as in commit=1m")))?;
        if let Some((never, why)) = NEVER.iter().find(|(never, _)| *never == name) {
            return Err(usage(&format!("--set {never}: it is never set: {why}")));
        }
        let spec = SettingSpec::named(name).ok_or_else(|| {
            let nearest = params::nearest(name, ALL.iter().map(|spec| spec.name));
            usage(&format!(
                "--set: no setting is called `{name}`{}; --settings lists them",
                params::did_you_mean(nearest)
            ))
        })?;
        if all.iter().any(|wanted| wanted.spec.name == name) {
            return Err(usage(&format!("--set: {name} is there twice")));
        }
        if spec.needs_mount() && mount.is_none() {
            return Err(usage(&format!("{name} belongs to one file system: name it by --on DIR")));
        }
        let Some(values) = spec.values(mount) else {
            let kind = mount.map_or("", |mount| &mount.kind);
            return Err(usage(&format!(
                "{name} is a setting of {}, and --on is a {kind}",
                spec.kinds().join(", ")
            )));
        };
        let value = value_of(spec, values, mount, value)
            .map_err(|why| Usage(format!("--set {name}={value}: {why}")))?;
        // A setting of the machine belongs to no mount.
        let mount = mount.filter(|_| spec.needs_mount() || spec.scope == SettingScope::Type);
        all.push(Wanted { spec, mount, value });
    }
    Ok(all)
}

/// Returns the text that the machine takes for a value.
fn value_of(
    spec: &SettingSpec,
    values: ValueForm,
    mount: Option<&Mount>,
    text: &str,
) -> Result<String, String> {
    match values {
        ValueForm::Time { unit_us, least, most } => {
            let us = parse_us(text).map_err(|error| error.to_string())?;
            let bounds = [least, most].map(|n| time_in_words(n * unit_us)).join(" to ");
            let units = us / unit_us;
            match us.is_multiple_of(unit_us) && (least..=most).contains(&units) {
                true => Ok(units.to_string()),
                false => Err(format!("it takes {bounds}, in steps of {}", Exact(unit_us))),
            }
        }
        ValueForm::Percent => match text.parse::<u32>() {
            Ok(percent) if percent <= 100 => Ok(percent.to_string()),
            _ => Err("it takes a percentage, 0 to 100".to_owned()),
        },
        ValueForm::Switch => match (text, spec.words(mount)) {
            ("on", Some([on, _])) => Ok(on.to_owned()),
            ("off", Some([_, off])) => Ok(off.to_owned()),
            _ => Err("it takes on or off".to_owned()),
        },
    }
}

/// Returns the time that a value of a setting is, µs.
pub(super) fn time_us(spec: &SettingSpec, mount: Option<&Mount>, value: &str) -> Option<u64> {
    match spec.values(mount)? {
        ValueForm::Time { unit_us, .. } => value.parse::<u64>().ok()?.checked_mul(unit_us),
        _ => None,
    }
}

/// Returns times with these settings.
pub(super) fn times_with(mut times: WritebackTimes, wanted: &[Wanted<'_>]) -> WritebackTimes {
    for Wanted { spec, mount, value } in wanted {
        let us = time_us(spec, *mount, value);
        match (spec.name, us) {
            ("dirty-expire", Some(us)) => times.expire_us = us,
            ("dirty-writeback", Some(us)) => times.tick_us = us,
            ("commit" | "xfssyncd", Some(us)) => times.commit_us = us,
            _ => {}
        }
    }
    times
}

/// A value as people read it.
fn shown(change: &SettingChange, value: &str) -> String {
    // A value of a program's configuration may have several lines.
    let value = value.trim_end();
    let is_file = change.place.point().is_none();
    let spec = SettingSpec::named(&change.setting);
    let units = spec.and_then(|spec| match (spec.values(None), is_file) {
        (values @ Some(ValueForm::Time { .. }), _) => values,
        // A number of a mount option is one of seconds.
        (_, false) => Some(ValueForm::Time { unit_us: 1_000_000, least: 0, most: 0 }),
        _ => None,
    });
    match (units, value.parse::<u64>()) {
        _ if value.is_empty() => "none".to_owned(),
        _ if value.contains('\n') => {
            format!("{:?} and more", value.lines().next().unwrap_or_default())
        }
        (Some(ValueForm::Time { unit_us, .. }), Ok(n)) => time_in_words(n.saturating_mul(unit_us)),
        _ => value.to_owned(),
    }
}

#[derive(Serialize)]
struct SetRecord<'a> {
    schema: u32,
    action: &'static str,
    dry_run: bool,
    lost_before_us: Option<u64>,
    lost_after_us: Option<u64>,
    changes: Vec<ChangeRecord<'a>>,
}

#[derive(Serialize)]
struct ChangeRecord<'a> {
    id: Option<u64>,
    #[serde(flatten)]
    change: &'a SettingChange,
}

/// Shows the changes that these values need, and makes them if `--apply` is given.
pub(super) fn set(
    machine: &SettingsMachine,
    wanted: &[Wanted<'_>],
    mount: Option<&Mount>,
    args: &WritebackArgs,
) -> anyhow::Result<()> {
    let changes = machine.plan(wanted, args.persist)?;
    let before = mount.map(|mount| present_times(machine, mount)).transpose()?;
    let after = before.map(|times| times_with(times, wanted));
    let done = match args.apply {
        true => Some(machine.apply(&changes)?),
        false => None,
    };
    let ids: Vec<Option<u64>> = match &done {
        Some(done) => done.iter().map(|applied| applied.id).collect(),
        None => vec![None; changes.len()],
    };
    let form = args.form();
    if form.is_records() {
        let loss = |times: Option<WritebackTimes>| times.map(WritebackTimes::loss_us);
        let changes = ids.iter().zip(&changes);
        return print_records(
            form,
            &[SetRecord {
                schema: SCHEMA,
                action: "set",
                dry_run: !args.apply,
                lost_before_us: loss(before),
                lost_after_us: loss(after),
                changes: changes.map(|(id, change)| ChangeRecord { id: *id, change }).collect(),
            }],
        );
    }
    let columns = text::columns().unwrap_or(80);
    let mut out = String::new();
    if changes.is_empty() {
        return print("Nothing is to be written: the values are there already.\n");
    }
    let mut rows =
        vec![["setting", "now", "then", "concerns", "where"].map(str::to_owned).to_vec()];
    for change in &changes {
        let spec = SettingSpec::named(&change.setting);
        rows.push(vec![
            change.setting.clone(),
            shown(change, &change.old),
            shown(change, &change.new),
            spec.map_or_else(String::new, scope_in_words),
            change.place.to_string(),
        ]);
    }
    out += &table::for_terminal(rows, &[0, 1, 2, 3, 4]);
    out += "\n";
    if let (Some(before), Some(after)) = (before, after)
        && before != after
    {
        let price = after.price(before);
        out += &text::labelled("price", 8, &price, columns);
    }
    for Wanted { spec, .. } in wanted {
        let sentence = format!("{}: a power cut {}", spec.name, spec.crash);
        out += &text::labelled("", 8, &sentence, columns);
    }
    let last = match &done {
        None => {
            "Dry run, nothing was written. --apply sets it, and --apply --persist also at every \
                 start."
                .to_owned()
        }
        Some(_) => format!(
            "Set and read back. Undo: sudo flashsift tune writeback --undo all{}",
            match args.persist {
                true => "",
                false => ". The kernel forgets it at a restart, unless --persist is given",
            }
        ),
    };
    out += "\n";
    out += &text::labelled("", 0, &last, columns);
    print(&out)
}

const FORGETS: &str = "the kernel forgot the value";

#[derive(Serialize)]
struct StatusRecord<'a> {
    schema: u32,
    action: &'static str,
    id: u64,
    at_us: u64,
    #[serde(flatten)]
    change: &'a SettingChange,
    state: ChangeState,
    present: Option<&'a str>,
}

/// Lists the changes of settings that are not undone.
pub(super) fn status(machine: &SettingsMachine, form: Form) -> anyhow::Result<()> {
    status_of(machine, is_setting, form)
}

/// Whether a change is one of a setting, not of a program's configuration.
fn is_setting(plan: &SettingChange) -> bool {
    SettingSpec::named(&plan.setting).is_some()
}

/// Lists the chosen changes that are not undone.
pub(crate) fn status_of(
    machine: &SettingsMachine,
    chosen: impl Fn(&SettingChange) -> bool,
    form: Form,
) -> anyhow::Result<()> {
    let (mut statuses, torn) = machine.status()?;
    statuses.retain(|status| chosen(&status.change.intent.plan));
    if torn {
        warn!("{}", torn_line(&machine.journal));
    }
    if form.is_records() {
        let records = statuses.iter().map(|status| StatusRecord {
            schema: SCHEMA,
            action: "status",
            id: status.change.intent.id,
            at_us: status.change.intent.at_us,
            change: &status.change.intent.plan,
            state: status.state,
            present: status.present.as_deref(),
        });
        return print_records(form, &records.collect::<Vec<_>>());
    }
    if statuses.is_empty() {
        return print(&format!(
            "flashsift has changed nothing, or all of it is undone ({}).\n",
            machine.journal.display()
        ));
    }
    let mut out = String::new();
    for status in &statuses {
        let intent = &status.change.intent;
        let plan = &intent.plan;
        let now = status.present.as_ref().map_or("gone".to_owned(), |now| shown(plan, now));
        let _ = writeln!(
            out,
            "change {}{}: {} ({}) from {} to {}: {}",
            intent.id,
            at_in_words(intent.at_us),
            plan.setting,
            plan.place,
            shown(plan, &plan.old),
            shown(plan, &plan.new),
            state_in_words(status.state, &now, FORGETS)
        );
    }
    print(&out)
}

/// Warns of changes that have no mark.
pub(crate) fn warn_of_crashes(machine: &SettingsMachine) {
    let (statuses, torn) = match machine.status() {
        Ok(found) => found,
        Err(error) => return warn!("the journal of changes cannot be read: {error}"),
    };
    if torn {
        warn!("{}", torn_line(&machine.journal));
    }
    for status in statuses.iter().filter(|status| status.change.kept.is_none()) {
        let plan = &status.change.intent.plan;
        let now = status.present.as_ref().map_or("gone".to_owned(), |now| shown(plan, now));
        warn!(
            "change {} of {} has no end in the journal: {}; `flashsift {} --undo all` clears it",
            status.change.intent.id,
            plan.setting,
            state_in_words(status.state, &now, FORGETS),
            if plan.remedy.is_some() { "doctor" } else { "tune writeback" }
        );
    }
}

#[derive(Serialize)]
struct UndoRecord<'a> {
    schema: u32,
    action: &'static str,
    setting: &'a str,
    place: &'a flashsift_host::settings::Place,
    outcome: &'static str,
    present: Option<&'a str>,
}

/// Restores the values from before the changes of a setting, of a directory, or of all.
pub(super) fn undo(
    machine: &SettingsMachine,
    target: &Path,
    force: bool,
    form: Form,
) -> anyhow::Result<()> {
    let is_all = target == Path::new("all");
    let is_named = target.to_str().is_some_and(|name| SettingSpec::named(name).is_some());
    let point =
        match is_all || is_named {
            true => None,
            false => Some(super::mount_of(target).context(
                "--undo takes a setting, a directory of a mounted file system, or `all`",
            )?),
        };
    let chosen = |plan: &SettingChange| match &point {
        Some(mount) => plan.place.point() == Some(&*mount.point),
        None if is_all => is_setting(plan),
        None => target == Path::new(&plan.setting),
    };
    if !is_all {
        let (statuses, _) = machine.status()?;
        anyhow::ensure!(
            statuses.iter().any(|status| chosen(&status.change.intent.plan)),
            "flashsift has changed nothing of {}, or all of it is undone",
            target.display()
        );
    }
    undo_chosen(machine, chosen, force, form)
}

/// Restores the values from before the chosen changes.
pub(crate) fn undo_chosen(
    machine: &SettingsMachine,
    chosen: impl Fn(&SettingChange) -> bool,
    force: bool,
    form: Form,
) -> anyhow::Result<()> {
    let outcomes = machine.undo(chosen, force)?;
    if outcomes.is_empty() {
        return if form.is_records() { Ok(()) } else { print("There is nothing to undo.\n") };
    }
    let mut refused = Vec::new();
    let mut out = String::new();
    let mut records = Vec::new();
    for (change, outcome) in &outcomes {
        let plan = &change.intent.plan;
        let shown = |value: &str| shown(plan, value);
        let (name, present) = match outcome {
            Outcome::Restored { to, .. } if matches!(plan.place, Place::After { .. }) => {
                let _ = writeln!(out, "{}: ran {}.", plan.setting, plan.place);
                ("restored", Some(&**to))
            }
            Outcome::Restored { from, to } => {
                let _ = writeln!(
                    out,
                    "{} ({}): restored from {} to {}.",
                    plan.setting,
                    plan.place,
                    shown(from),
                    shown(to)
                );
                ("restored", Some(&**to))
            }
            Outcome::WasThere(value) => {
                let _ = writeln!(
                    out,
                    "{} ({}): nothing to do: it is {} already.",
                    plan.setting,
                    plan.place,
                    shown(value)
                );
                ("was-there", Some(&**value))
            }
            Outcome::Restarted => {
                let _ = writeln!(
                    out,
                    "{} ({}): nothing to do: the machine has restarted since.",
                    plan.setting, plan.place
                );
                ("restarted", None)
            }
            Outcome::Gone => {
                let _ = writeln!(
                    out,
                    "{} ({}): nothing to do: it is not there any more.",
                    plan.setting, plan.place
                );
                ("gone", None)
            }
            Outcome::Refused { present, ours, old } => {
                refused.push(format!(
                    "{} ({}): it is {} now, not {} as flashsift set it, so another program has \
                     changed it; --force restores {} all the same",
                    plan.setting,
                    plan.place,
                    shown(present),
                    shown(ours),
                    shown(old)
                ));
                ("refused", Some(&**present))
            }
        };
        records.push(UndoRecord {
            schema: SCHEMA,
            action: "undo",
            setting: &plan.setting,
            place: &plan.place,
            outcome: name,
            present,
        });
    }
    match form.is_records() {
        true => print_records(form, &records)?,
        false => print(&out)?,
    }
    anyhow::ensure!(refused.is_empty(), "not undone: {}", refused.join("; "));
    Ok(())
}
