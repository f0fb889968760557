//! Performs the steps of a remedy with the journal of `tune writeback`, and undoes them.

use super::{
    Args,
    kept::{Remedy, Report},
};
use crate::{text, tune};
use anyhow::Context;
use flashsift_host::{
    change::ChangeError,
    settings::{
        Place, SettingChange, SettingsMachine,
        remedy::{OLD, is_plain, marked, shell},
    },
};
use flashsift_study::doctor::{RemedyStep, lines_script};
use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

/// The changes of a remedy.
struct Plan {
    changes: Vec<SettingChange>,
    /// Commands that are needed first.
    needs: Vec<String>,
    /// Sentences on what is left out.
    notes: Vec<String>,
}

/// Shows the steps of a remedy of the last report, and performs them if `--yes` is given.
pub(super) fn apply(machine: &SettingsMachine, wanted: &str, args: &Args) -> anyhow::Result<()> {
    let report = Report::read(&args.last_report)?;
    let remedy = report.remedy(wanted)?;
    let Plan { changes, needs, notes } = plan(machine, remedy)?;
    let columns = text::columns().unwrap_or(80);
    let mut out = text::labelled("", 0, &format!("{}. {}", remedy.number, remedy.title), columns);
    out += &text::labelled("  price  ", 9, &remedy.price, columns);
    for need in &needs {
        out += &format!("  first  sudo {need}\n");
    }
    for change in &changes {
        out += &step_in_words(change);
    }
    for note in &notes {
        out += &text::labelled("  note   ", 9, note, columns);
    }
    let undo = format!("sudo flashsift doctor --undo {}", quoted(&remedy.name));
    if !changes.iter().any(is_value) {
        out += "Nothing is to be changed: all of it is there already.\n";
    } else if !args.yes {
        out += "Dry run, nothing was changed. --yes performs the steps.\n";
    } else {
        anyhow::ensure!(
            needs.is_empty(),
            "nothing was changed: it needs a program first: sudo {}",
            needs.join(" && sudo ")
        );
        machine.apply(&changes)?;
        // A command is not wrapped: it is to be copied.
        out += &format!("Done, and read back. Undo:\n  {undo}\n");
    }
    tune::print(&out)
}

/// Undoes the steps of a remedy, or of all.
pub(super) fn undo(machine: &SettingsMachine, wanted: &str, args: &Args) -> anyhow::Result<()> {
    let (statuses, _) = machine.status()?;
    let names = || statuses.iter().filter_map(|one| one.change.intent.plan.remedy.clone());
    let name = match wanted {
        "all" => None,
        wanted if names().any(|name| name == wanted) => Some(wanted.to_owned()),
        // A number is one of the last report.
        wanted if wanted.parse::<usize>().is_ok() => {
            Some(Report::read(&args.last_report)?.remedy(wanted)?.name.clone())
        }
        wanted => Some(wanted.to_owned()),
    };
    let chosen = |plan: &SettingChange| match &name {
        Some(name) => plan.remedy.as_ref() == Some(name),
        None => plan.remedy.is_some(),
    };
    if let Some(name) = &name {
        let mut all: Vec<String> = names().collect();
        all.dedup();
        anyhow::ensure!(
            all.contains(name),
            "flashsift has not applied {name}, or all of it is undone{}",
            match all.is_empty() {
                true => String::new(),
                false => format!("; applied: {}", all.join(", ")),
            }
        );
    }
    tune::undo_changes(machine, chosen, args.force, args.form())
}

/// Returns whether something of a remedy is applied.
pub(super) fn is_applied(machine: &SettingsMachine, name: &str) -> anyhow::Result<bool> {
    let (statuses, _) = machine.status()?;
    Ok(statuses.iter().any(|one| one.change.intent.plan.remedy.as_deref() == Some(name)))
}

/// Whether a person has to make the change.
pub(super) fn is_for_a_person(remedy: &Remedy) -> bool {
    let is_person = |step: &RemedyStep| matches!(step, RemedyStep::Person { lasting: false, .. });
    remedy.steps.iter().any(is_person)
}

fn is_value(change: &SettingChange) -> bool {
    !matches!(change.place, Place::After { .. })
}

fn step_in_words(change: &SettingChange) -> String {
    let shown = |value: &str| match value {
        "" => "(nothing)".to_owned(),
        value => value.trim_end().replace('\n', "\n           "),
    };
    match &change.place {
        Place::After { run } => format!("  run    {run}\n"),
        Place::Command { run, .. } => {
            let (old, new) = (shown(&change.old), shown(&change.new));
            format!("  run    {run}\n         from {old} to {new}\n")
        }
        Place::Folder { path } => format!("  make   {}/\n", path.display()),
        Place::Text { path } => {
            format!("  write  {}\n           {}\n", path.display(), shown(&change.new))
        }
        Place::Marked { path } => {
            format!("  edit   {}\n           {}\n", path.display(), shown(&change.new))
        }
        place => {
            let (old, new) = (shown(&change.old), shown(&change.new));
            // A setting of the kernel has a name of its own.
            let of = match change.remedy.as_deref() == Some(&*change.setting) {
                true => String::new(),
                false => format!("{} of ", change.setting),
            };
            format!("  set    {of}{place}\n         from {old} to {new}\n")
        }
    }
}

fn quoted(name: &str) -> String {
    match name.contains(|c: char| c.is_whitespace() || "'\"$`\\;&|()<>*?".contains(c)) {
        true => format!("'{}'", name.replace('\'', r"'\''")),
        false => name.to_owned(),
    }
}

fn plan(machine: &SettingsMachine, remedy: &Remedy) -> anyhow::Result<Plan> {
    if is_for_a_person(remedy) {
        let all: Vec<_> = remedy.commands.iter().chain(&remedy.lasting).cloned().collect();
        anyhow::bail!(
            "a person has to do this one, as flashsift cannot undo it:\n  {}\nUndo:\n  {}",
            all.join("\n  "),
            remedy.undo.join("\n  ")
        );
    }
    let mut plan = Plan { changes: Vec::new(), needs: Vec::new(), notes: Vec::new() };
    for step in &remedy.steps {
        plan.add(machine, remedy, step)?;
    }
    Ok(plan)
}

impl Plan {
    fn add(
        &mut self,
        machine: &SettingsMachine,
        remedy: &Remedy,
        step: &RemedyStep,
    ) -> anyhow::Result<()> {
        match step {
            RemedyStep::File { path, content, .. } => self.text(remedy, path, content.clone())?,
            RemedyStep::Output { path, command } => match shell(command)? {
                empty if empty.is_empty() => {}
                content => self.text(remedy, path, content + "\n")?,
            },
            RemedyStep::Lines { path, from, into } => {
                let path = found(path)?;
                let text = fs::read_to_string(&path).with_context(|| shown(&path))?;
                // Lines with a mark are replaced already.
                if !marked(&text).is_empty() {
                    return Ok(());
                }
                let script = lines_script(from, into);
                let edited = shell(&format!(
                    "sed -E {} {}",
                    always_quoted(&script),
                    always_quoted(&path.to_string_lossy())
                ))?;
                let new = changed_pairs(&marked(&(edited + "\n")));
                anyhow::ensure!(
                    !new.is_empty() || text.lines().any(|line| line.trim().starts_with(key(into))),
                    "{}: no line is like `{from}`, so nothing can be replaced",
                    path.display()
                );
                if !new.is_empty() {
                    self.push(remedy, Place::Marked { path }, String::new(), new);
                }
            }
            RemedyStep::Line { path, begins, command } => {
                let place = Place::Line { path: found(path)?, begins: begins.clone() };
                let (old, new) = (place.read()?, shell(command)? + "\n");
                self.push(remedy, place, old, new);
            }
            RemedyStep::MountOption { point, option } => {
                let path = fs::canonicalize(machine.roots.etc.join("fstab"));
                let path = path.unwrap_or_else(|_| machine.roots.etc.join("fstab"));
                let place = Place::Fstab { path, point: point.into() };
                match place.read() {
                    Ok(old) if old.split(',').any(|one| one == option) => {}
                    Ok(old) => self.push(remedy, place, old.clone(), format!("{old},{option}")),
                    Err(error) => self.only_until_restart(&error),
                }
            }
            RemedyStep::Command { run, undo, read, value, .. } => {
                let place = Place::Command {
                    run: run.clone(),
                    undo: undo.clone(),
                    read: read.clone(),
                    value: value.clone(),
                };
                let old = place.read()?;
                anyhow::ensure!(
                    old == *value || !undo.contains(OLD) || is_plain(&old),
                    "`{read}` prints {old:?}, which `{undo}` could not restore"
                );
                self.push(remedy, place, old, value.clone());
            }
            RemedyStep::After { run } => {
                self.push(remedy, Place::After { run: run.clone() }, String::new(), run.clone());
            }
            RemedyStep::Needs { run, unless } => {
                if shell(unless).is_err() {
                    self.needs.push(run.clone());
                }
            }
            RemedyStep::WriteBack { set, on } => {
                let on = Path::new(on);
                let changes = match tune::plan_writeback(machine, set, on, true) {
                    Err(error) if is_refused(&error) => {
                        self.only_until_restart(&error);
                        tune::plan_writeback(machine, set, on, false)?
                    }
                    changes => changes?,
                };
                let remedy = Some(remedy.name.clone());
                let of_it = |change| SettingChange { remedy: remedy.clone(), ..change };
                self.changes.extend(changes.into_iter().map(of_it));
            }
            RemedyStep::Person { run, .. } => self.notes.push(format!("for a person: {run}")),
        }
        Ok(())
    }

    fn only_until_restart(&mut self, why: &dyn std::fmt::Display) {
        let why = why.to_string();
        let why = why.trim_start_matches("--persist: ");
        self.notes.push(format!("it lasts until the machine restarts: {why}"));
    }

    /// Plans a file, and its folder if that is not there.
    fn text(&mut self, remedy: &Remedy, path: &str, content: String) -> anyhow::Result<()> {
        let path = PathBuf::from(path);
        let is_file = |meta: fs::Metadata| meta.is_file();
        anyhow::ensure!(
            fs::symlink_metadata(&path).map_or(true, is_file),
            "{} is there and no regular file",
            path.display()
        );
        if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
            let place = Place::Folder { path: folder.to_owned() };
            self.push(remedy, place, String::new(), "there".to_owned());
        }
        let place = Place::Text { path };
        let old = place.read()?;
        anyhow::ensure!(
            old.is_empty() || old == content,
            "{place} is there and has another content: another change of it is in force, or it is \
             not flashsift's"
        );
        self.push(remedy, place, old, content);
        Ok(())
    }

    fn push(&mut self, remedy: &Remedy, place: Place, old: String, new: String) {
        if old != new {
            let (setting, remedy) = (remedy.name.clone(), Some(remedy.name.clone()));
            self.changes.push(SettingChange { setting, place, old, new, permanent: true, remedy });
        }
    }
}

/// Leaves out the pairs whose replacement is the line that was there.
fn changed_pairs(pairs: &str) -> String {
    let lines: Vec<&str> = pairs.split_inclusive('\n').collect();
    let is_changed = |pair: &&[&str]| match pair {
        [old, new] => old.strip_prefix(flashsift_study::doctor::MARK) != Some(*new),
        _ => false,
    };
    lines.chunks(2).filter(is_changed).flatten().copied().collect()
}

/// The begin of a replacement before the parts that a regular expression fills in.
fn key(into: &str) -> &str {
    let into = into.trim_start_matches(r"\1");
    into.split('\\').next().unwrap_or(into)
}

fn is_refused(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ChangeError::Refused(why)) if why.starts_with("--persist"))
}

/// The file itself, where its name is a link.
fn found(path: &str) -> anyhow::Result<PathBuf> {
    fs::canonicalize(path).with_context(|| path.to_owned())
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn always_quoted(word: &str) -> String {
    let mut out = String::new();
    let _ = write!(out, "'{}'", word.replace('\'', r"'\''"));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_host::settings::{Roots, remedy};

    struct Stage {
        folder: tempfile::TempDir,
    }

    impl Stage {
        fn machine(&self) -> SettingsMachine {
            let at = |name: &str| self.folder.path().join(name);
            let roots = Roots { proc: at("proc"), sys: at("sys"), etc: at("etc") };
            let (journal, boot_id) = (at("state/journal.jsonl"), "this".to_owned());
            SettingsMachine { roots, journal, boot_id }
        }

        fn path(&self, name: &str) -> String {
            self.folder.path().join(name).display().to_string()
        }

        /// A remedy with one step of each kind that needs no system.
        fn remedy(&self) -> Remedy {
            let value = self.path("value");
            let steps = vec![
                RemedyStep::File {
                    path: self.path("etc/app.d/flashsift.conf"),
                    content: "a = 1\n".to_owned(),
                    new_folder: true,
                },
                RemedyStep::Lines {
                    path: self.path("etc/app.conf"),
                    from: "( *)sync (.*)".to_owned(),
                    into: r"\1sync no".to_owned(),
                },
                RemedyStep::Command {
                    run: format!("echo 2 > {value}"),
                    undo: format!("echo OLD > {value}"),
                    read: format!("cat {value}"),
                    value: "2".to_owned(),
                    old: "1".to_owned(),
                    of_user: false,
                },
                RemedyStep::After { run: format!("cat {value} >> {}", self.path("reloads")) },
                RemedyStep::After { run: format!("echo again >> {}", self.path("reloads")) },
            ];
            Remedy {
                number: 1,
                name: "own-setting:app".to_owned(),
                title: "App: sync less".to_owned(),
                price: "nothing".to_owned(),
                saving: None,
                commands: Vec::new(),
                lasting: Vec::new(),
                undo: Vec::new(),
                steps,
            }
        }

        fn new() -> Self {
            let stage = Self { folder: tempfile::tempdir().unwrap() };
            fs::create_dir(stage.path("etc")).unwrap();
            fs::write(stage.path("etc/app.conf"), CONF).unwrap();
            fs::write(stage.path("value"), "7\n").unwrap();
            stage
        }

        /// Names and contents, without the journal and what a reload did.
        fn content(&self) -> Vec<(String, String)> {
            let read = |name: &str| fs::read_to_string(self.path(name)).ok();
            let names = ["etc/app.conf", "etc/app.d/flashsift.conf", "value"];
            names.iter().filter_map(|name| Some(((*name).to_owned(), read(name)?))).collect()
        }
    }

    const CONF: &str = "# sync each\n  sync each\nother\n\tsync each\nlast";

    /// An undo restarted InfluxDB before systemd had read its unit again, so that it kept the
    /// setting.
    // Promises: Doctor 11, Doctor 12.
    #[test]
    fn applied_and_undone_all_is_as_before_and_programs_are_told() {
        let stage = Stage::new();
        let (machine, remedy) = (stage.machine(), stage.remedy());
        let before = stage.content();
        let changes = plan(&machine, &remedy).unwrap().changes;
        assert_eq!(stage.content(), before, "a plan changes nothing");
        machine.apply(&changes).unwrap();
        let conf = fs::read_to_string(stage.path("etc/app.conf")).unwrap();
        assert_eq!(
            conf,
            "# sync each\n#flashsift   sync each\n  sync no\nother\n\tsync each\nlast"
        );
        assert_eq!(fs::read_to_string(stage.path("value")).unwrap(), "2\n");
        // A second time nothing is left to do but the reload, and a plan says so.
        assert!(!plan(&machine, &remedy).unwrap().changes.iter().any(is_value));
        let undone = machine.undo(|plan| plan.remedy.is_some(), false).unwrap();
        assert_eq!(undone.len(), 6);
        assert_eq!(stage.content(), before);
        assert!(!Path::new(&stage.path("etc/app.d")).exists());
        // The reload came after the value was set, and after it was restored.
        let reloads = fs::read_to_string(stage.path("reloads")).unwrap();
        assert_eq!(reloads, "2\nagain\n7\nagain\n");
        assert!(machine.status().unwrap().0.is_empty());
    }

    /// flashsift is killed after each line of the journal, and an undo leads back.
    // Promises: Doctor 12.
    #[test]
    fn a_kill_at_each_step_can_be_undone() {
        let stage = Stage::new();
        let machine = stage.machine();
        machine.apply(&plan(&machine, &stage.remedy()).unwrap().changes).unwrap();
        let lines = fs::read_to_string(&machine.journal).unwrap().lines().count();
        assert_eq!(lines, 12, "an intent and its end for each of six changes");
        for kept in 0..=lines {
            // A kill before the change of an intent, and after it.
            for is_made in [false, true] {
                let stage = Stage::new();
                let (machine, before) = (stage.machine(), stage.content());
                let changes = plan(&machine, &stage.remedy()).unwrap().changes;
                let made = kept.div_ceil(2) - usize::from(kept % 2 == 1 && !is_made);
                machine.apply(&changes).unwrap();
                let journal = fs::read_to_string(&machine.journal).unwrap();
                let cut: Vec<&str> = journal.lines().take(kept).collect();
                fs::write(&machine.journal, cut.join("\n") + if kept > 0 { "\n" } else { "" })
                    .unwrap();
                // Those that the kill prevented.
                for change in changes[made..].iter().rev().filter(|change| is_value(change)) {
                    let back = SettingChange { new: change.old.clone(), ..change.clone() };
                    write(&machine, &back);
                }
                machine.undo(|plan| plan.remedy.is_some(), false).unwrap();
                assert_eq!(stage.content(), before, "{kept} {is_made}");
                assert!(machine.status().unwrap().0.is_empty(), "{kept} {is_made}");
            }
        }
    }

    fn write(machine: &SettingsMachine, change: &SettingChange) {
        use flashsift_host::change::PlanValues;
        machine.write(change).unwrap();
    }

    // Promises: Doctor 12.
    #[test]
    fn a_file_that_others_have_changed_is_left_alone() {
        let stage = Stage::new();
        let machine = stage.machine();
        machine.apply(&plan(&machine, &stage.remedy()).unwrap().changes).unwrap();
        let own = stage.path("etc/app.d/flashsift.conf");
        fs::write(&own, "a = 3\n").unwrap();
        // Another line of a file is no conflict.
        let conf = fs::read_to_string(stage.path("etc/app.conf")).unwrap();
        fs::write(stage.path("etc/app.conf"), format!("new\n{conf}")).unwrap();
        let undone = machine.undo(|plan| plan.remedy.is_some(), false).unwrap();
        let refused = undone.iter().filter(|(_, outcome)| {
            matches!(outcome, flashsift_host::change::Outcome::Refused { .. })
        });
        let places: Vec<_> = refused.map(|(one, _)| one.intent.plan.place.clone()).collect();
        let folder = Place::Folder { path: stage.path("etc/app.d").into() };
        assert_eq!(places, [Place::Text { path: own.clone().into() }, folder]);
        assert_eq!(fs::read_to_string(&own).unwrap(), "a = 3\n");
        let conf = fs::read_to_string(stage.path("etc/app.conf")).unwrap();
        assert_eq!(conf, format!("new\n{CONF}"));
        machine.undo(|plan| plan.remedy.is_some(), true).unwrap();
        assert!(!Path::new(&own).exists());
    }

    /// The last step fails, as `nginx -t` does. The others are taken back.
    // Promises: Doctor 11.
    #[test]
    fn a_step_that_fails_leaves_all_as_it_was() {
        let stage = Stage::new();
        let (machine, mut remedy) = (stage.machine(), stage.remedy());
        remedy.steps.push(RemedyStep::After { run: "echo it is wrong >&2; false".to_owned() });
        let before = stage.content();
        let changes = plan(&machine, &remedy).unwrap().changes;
        let said = machine.apply(&changes).unwrap_err().to_string();
        assert!(said.contains("it is wrong"), "{said}");
        assert_eq!(stage.content(), before);
        let last = fs::read_to_string(stage.path("reloads")).unwrap();
        let last: Vec<&str> = last.lines().rev().take(2).collect();
        assert_eq!(last, ["again", "7"], "it reads what is there again");
    }

    #[test]
    fn a_remedy_for_people_is_refused() {
        let stage = Stage::new();
        let mut remedy = stage.remedy();
        let run = "# in a.conf: b".to_owned();
        remedy.commands.push(run.clone());
        remedy.steps.push(RemedyStep::Person { run, undo: String::new(), lasting: false });
        let said = plan(&stage.machine(), &remedy).err().unwrap().to_string();
        assert!(said.contains("a person has to") && said.contains("# in a.conf: b"), "{said}");
    }

    #[test]
    fn marks_are_those_of_the_core() {
        assert_eq!(remedy::MARK, flashsift_study::doctor::MARK);
        assert_eq!(remedy::OLD, flashsift_study::doctor::OLD);
        assert_eq!(changed_pairs("#flashsift a\na\n#flashsift b\nc\n"), "#flashsift b\nc\n");
        assert_eq!((key(r"\1sync no"), key("appendfsync no")), ("sync no", "appendfsync no"));
    }
}
