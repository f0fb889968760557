//! Sets a maximum, lists changes, and undoes them.

use super::{Form, backing, found, kib, present_kib};
use crate::{records, size};
use flashsift_host::readahead::{
    self, Applied, Backing, ChangeState, FindError, Machine, Permanent, ReadAheadStatus, Undone,
};
use serde::Serialize;
use std::{ffi::OsStr, fmt::Write as _, io::Write, path::Path};
use tracing::warn;

const SCHEMA: u32 = 1;
/// More than any device gains by; the kernel's windows are 32-bit numbers of pages.
const BYTES_MAX: u64 = 1 << 30;
const RULE_PATH: &str = "/etc/udev/rules.d/99-flashsift-readahead.rules";

/// Parses a maximum: 0, or at least a page.
pub(super) fn parse_value(text: &str) -> Result<u64, String> {
    if text == "0" {
        return Ok(0);
    }
    match size::parse_bytes(text)? {
        bytes if bytes > BYTES_MAX => Err(format!("at most {}", size::bytes(BYTES_MAX))),
        bytes => Ok(bytes),
    }
}

#[derive(Serialize)]
struct SetRecord<'a> {
    schema: u32,
    action: &'static str,
    dry_run: bool,
    #[serde(flatten)]
    backing: &'a Backing,
    present_kib: u64,
    asked_bytes: u64,
    /// The asked value in whole pages.
    new_kib: u64,
    applied: Option<Applied>,
    permanent: &'a Permanent,
}

/// Shows what a change to `bytes` would write, and makes it if `apply` is given.
pub(super) fn set(
    machine: &Machine,
    device: &OsStr,
    bytes: u64,
    apply: bool,
    form: Form,
) -> anyhow::Result<()> {
    let backing = backing(machine, device)?;
    let before_kib = present_kib(&backing.path)?;
    let new_kib = readahead::kept_kib(bytes);
    let permanent = backing.permanent(new_kib);
    let applied = if apply { Some(machine.apply(&backing, new_kib)?) } else { None };
    if let Some(Applied { kept_kib, .. }) = applied
        && kept_kib != new_kib
    {
        warn!("the kernel kept {} instead of {}", kib(kept_kib), kib(new_kib));
    }
    if form.is_records() {
        let (schema, action, dry_run, asked_bytes) = (SCHEMA, "set", !apply, bytes);
        return print_records(
            form,
            &[SetRecord {
                schema,
                action,
                dry_run,
                backing: &backing,
                present_kib: applied.map_or(before_kib, |applied| applied.kept_kib),
                asked_bytes,
                new_kib,
                applied,
                permanent: &permanent,
            }],
        );
    }
    let mut text = found(&backing, before_kib);
    if new_kib * 1024 != bytes {
        let (asked, kept) = (size::bytes(bytes), kib(new_kib));
        let _ = writeln!(text, "The kernel keeps whole pages: {asked} becomes {kept}.");
    }
    let path = backing.path.display();
    let _ = match applied {
        None if before_kib == new_kib => {
            writeln!(text, "Dry run: --apply would change nothing, the value is there already.")
        }
        None => {
            writeln!(text, "Dry run, nothing was written. --apply would write {new_kib} to {path}.")
        }
        Some(Applied { id: None, .. }) => {
            writeln!(text, "Nothing was written: the value is there already.")
        }
        Some(Applied { id: Some(id), old_kib, kept_kib, .. }) => writeln!(
            text,
            "Set from {} to {}: change {id} in {}. Undo: flashsift tune readahead --undo {}",
            kib(old_kib),
            kib(kept_kib),
            machine.journal.display(),
            device.to_string_lossy()
        ),
    };
    text += "Files that are open keep the value that they were opened with.\n";
    text += &permanent_text(&permanent);
    print(&text)
}

fn permanent_text(permanent: &Permanent) -> String {
    let mut text = "The kernel forgets the value at a restart.".to_owned();
    match &permanent.udev {
        Some(rule) => {
            let _ = write!(text, " This line in {RULE_PATH} sets it again:\n  {rule}\n");
            if permanent.name_may_change {
                text += "  (The device has no serial number here: check that it is the one \
                         meant, names can change.)\n";
            }
        }
        None => text += " No udev rule can name this device, as its number changes.\n",
    }
    if let Some(line) = &permanent.android_init {
        let _ = write!(text, "On Android, in an init.rc, `on boot`:\n  {line}\n");
    }
    text
}

#[derive(Serialize)]
struct StatusRecord<'a> {
    schema: u32,
    action: &'static str,
    id: u64,
    at_us: u64,
    bdi: &'a str,
    device: &'a readahead::Identity,
    old_kib: u64,
    new_kib: u64,
    kept_kib: Option<u64>,
    undoes: &'a [u64],
    state: ChangeState,
    present_kib: Option<u64>,
}

/// Lists the changes that are not undone.
pub(super) fn status(machine: &Machine, form: Form) -> anyhow::Result<()> {
    let (statuses, torn) = machine.status()?;
    if torn {
        warn!("{}", torn_line(&machine.journal));
    }
    if form.is_records() {
        let records = statuses.iter().map(|ReadAheadStatus { change, state, present }| {
            let intent = &change.intent;
            StatusRecord {
                schema: SCHEMA,
                action: "status",
                id: intent.id,
                at_us: intent.at_us,
                bdi: &intent.plan.bdi,
                device: &intent.plan.device,
                old_kib: intent.plan.old_kib,
                new_kib: intent.plan.new_kib,
                kept_kib: change.kept,
                undoes: &intent.undoes,
                state: *state,
                present_kib: *present,
            }
        });
        return print_records(form, &records.collect::<Vec<_>>());
    }
    if statuses.is_empty() {
        return print(&format!(
            "flashsift has changed nothing, or all of it is undone ({}).\n",
            machine.journal.display()
        ));
    }
    let mut text = String::new();
    for status in &statuses {
        let intent = &status.change.intent;
        let at = at_in_words(intent.at_us);
        let _ = writeln!(
            text,
            "change {}{at}: {} ({}) from {} to {}: {}",
            intent.id,
            intent.plan.bdi,
            intent.plan.device,
            kib(intent.plan.old_kib),
            kib(intent.plan.new_kib),
            in_words(status)
        );
    }
    print(&text)
}

fn in_words(status: &ReadAheadStatus) -> String {
    let now = status.present.map_or_else(|| "gone".to_owned(), kib);
    state_in_words(status.state, &now, "only a udev rule makes it permanent (--set shows one)")
}

/// `permanent`: the way to a value that outlives a restart, as half a sentence.
pub(super) fn state_in_words(state: ChangeState, now: &str, permanent: &str) -> String {
    match state {
        ChangeState::InForce => "in force".to_owned(),
        ChangeState::Superseded => format!("replaced by a later change; now {now}"),
        ChangeState::Replaced => {
            format!("another program has changed it; now {now} (--undo needs --force)")
        }
        ChangeState::UnfinishedWritten => format!(
            "flashsift or the machine stopped during this change; the value was written: now {now}"
        ),
        ChangeState::UnfinishedNotWritten => format!(
            "flashsift or the machine stopped before this change; the value was not written: now \
             {now}"
        ),
        ChangeState::UnfinishedReplaced => format!(
            "flashsift or the machine stopped during this change; now {now}, which is neither \
             value"
        ),
        ChangeState::Restarted => {
            format!("gone: the machine has restarted since, and {permanent}")
        }
        ChangeState::Gone => "gone: the device is not there, or another has its number".to_owned(),
    }
}

/// The time of a change.
pub(super) fn at_in_words(at_us: u64) -> String {
    let at = i64::try_from(at_us).ok();
    let at = at.and_then(|at_us| jiff::Timestamp::from_microsecond(at_us).ok());
    at.map_or_else(String::new, |at| format!(", {}", at.strftime("%F %T UTC")))
}

/// Warns of changes that have no mark. A journal that cannot be read must not stop commands that
/// change nothing; the others find out by themselves.
pub(super) fn warn_of_crashes(machine: &Machine) {
    let (statuses, torn) = match machine.status() {
        Ok(found) => found,
        Err(error) => return warn!("the journal of changes cannot be read: {error}"),
    };
    if torn {
        warn!("{}", torn_line(&machine.journal));
    }
    for status in statuses.iter().filter(|status| status.change.kept.is_none()) {
        let intent = &status.change.intent;
        warn!(
            "change {} of {} has no end in the journal: {}; `flashsift tune readahead --undo {}` \
             clears it",
            intent.id,
            intent.plan.bdi,
            in_words(status),
            intent.plan.bdi
        );
    }
}

pub(super) fn torn_line(journal: &Path) -> String {
    format!(
        "the last line of {} is incomplete: flashsift or the machine stopped while it was written",
        journal.display()
    )
}

#[derive(Serialize)]
struct UndoRecord<'a> {
    schema: u32,
    action: &'static str,
    bdi: &'a str,
    device: &'a readahead::Identity,
    #[serde(flatten)]
    outcome: &'a Undone,
}

/// Restores the values from before the changes to a device, or to all.
pub(super) fn undo(
    machine: &Machine,
    target: &OsStr,
    force: bool,
    form: Form,
) -> anyhow::Result<()> {
    let bdi = if target == "all" { None } else { Some(bdi_of(machine, target)?) };
    let outcomes = machine.undo(bdi.as_deref(), force)?;
    if outcomes.is_empty() {
        match bdi {
            Some(bdi) => {
                anyhow::bail!("flashsift has changed nothing of {bdi}, or all of it is undone")
            }
            None if form.is_records() => return Ok(()),
            None => return print("There is nothing to undo.\n"),
        }
    }
    let mut refused = Vec::new();
    if form.is_records() {
        let records = outcomes.iter().map(|(change, outcome)| {
            let (bdi, device) = (&change.intent.plan.bdi, &change.intent.plan.device);
            UndoRecord { schema: SCHEMA, action: "undo", bdi, device, outcome }
        });
        print_records(form, &records.collect::<Vec<_>>())?;
    }
    for (change, outcome) in &outcomes {
        let bdi = &change.intent.plan.bdi;
        let text = match *outcome {
            Undone::Restored { from_kib, to_kib } => {
                format!("restored from {} to {}", kib(from_kib), kib(to_kib))
            }
            Undone::WasThere { kib: now } => format!("nothing to do: it is {} already", kib(now)),
            Undone::Restarted => "nothing to do: the machine has restarted since, and the kernel \
                                  forgot the value; remove your udev rule, if you made one"
                .to_owned(),
            Undone::Gone => "nothing to do: the device is gone".to_owned(),
            Undone::Refused { present_kib, ours_kib, old_kib } => {
                refused.push(format!(
                    "{bdi}: it is {} now, not {} as flashsift set it, so another program has \
                     changed it; --force restores {} all the same",
                    kib(present_kib),
                    kib(ours_kib),
                    kib(old_kib)
                ));
                continue;
            }
        };
        if !form.is_records() {
            print(&format!("{bdi}: {text}.\n"))?;
        }
    }
    anyhow::ensure!(refused.is_empty(), "not undone: {}", refused.join("; "));
    Ok(())
}

/// The bdi that `--undo` means. Its device may be gone, so the journal is searched first.
fn bdi_of(machine: &Machine, target: &OsStr) -> anyhow::Result<String> {
    let text = target.to_string_lossy();
    let (statuses, _) = machine.status()?;
    let named = statuses.iter().map(|status| &status.change.intent).find(|intent| {
        let name = intent.plan.device.name.as_deref();
        intent.plan.bdi == text || name.is_some_and(|name| name == text.trim_start_matches("/dev/"))
    });
    if let Some(intent) = named {
        return Ok(intent.plan.bdi.clone());
    }
    match backing(machine, target) {
        Ok(backing) => Ok(backing.bdi),
        Err(error) if matches!(error.downcast_ref(), Some(FindError::Absent(_))) => {
            Err(error.context("--undo takes a device, a mount point, a bdi of --status, or `all`"))
        }
        Err(error) => Err(error),
    }
}

pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = records::Output::text();
    out.write_all(text.as_bytes())?;
    out.finish()
}

/// Prints JSON, an object a line, or CSV, an object a row.
pub(super) fn print_records(form: Form, records: &[impl Serialize]) -> anyhow::Result<()> {
    let mut out = records::Output::rows(true, form.csv);
    for record in records {
        serde_json::to_writer(&mut out, record)?;
        writeln!(out)?;
    }
    out.finish()
}
