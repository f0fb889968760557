//! A program without its syncs.

use super::{Effect, Findings, MOST, Proposal, RemedySpec, RemedyStep, quoted};
use crate::doctor::{database, what_if::Change};

pub(super) const SPEC: RemedySpec = RemedySpec {
    id: "fewer-syncs",
    what: "a program that syncs often leaves its data to the kernel",
    propose,
};

/// Syncs below which a program is left alone.
const SYNCS_MIN: u64 = 10;

fn propose(findings: &Findings<'_>) -> Vec<Proposal> {
    let suits = |usage: &super::Usage| usage.syncs > 0 && &*usage.program != "dpkg";
    let groups = findings.groups(|usage| suits(usage).then(|| usage.program.to_string()));
    let propose = |(program, group): (String, super::Group)| {
        let own =
            || findings.usages.iter().filter(|usage| *usage.program == *program && suits(usage));
        let syncs: u64 = own().map(|usage| usage.syncs).sum();
        let first = own().max_by_key(|usage| usage.syncs)?;
        // Databases are damaged without syncs, and the command has to work.
        let is_possible = |facts: &crate::doctor::ProgramFacts| {
            facts.obeys_preload && !facts.open_files.iter().any(|file| database::is_file(file))
        };
        if syncs < SYNCS_MIN
            || findings.is_known(&program)
            || findings.may_keep_database(&program)
            || !findings.inspect.program(&program).as_ref().is_some_and(is_possible)
        {
            return None;
        }
        let unit = own().find_map(|usage| usage.unit.as_deref());
        let steps = steps(&program, unit)?;
        Some(Proposal {
            subject: program.clone(),
            title: format!("Run {program} without its syncs"),
            evidence: format!(
                "{program} syncs {syncs} times, {} times {}: each sync writes at least a page of \
                 the file, and mostly a commit of the journal",
                first.syncs, first.file
            ),
            price: format!(
                "a power cut loses up to {} of what it wrote; where it can, let the program sync \
                 less often instead",
                flashsift_events::show::duration(findings.facts.flusher.expire_us)
            ),
            steps,
            programs: vec![program.into()],
            effect: Effect::Change(Change::WithoutSyncs(group.files)),
        })
    };
    groups.into_iter().filter_map(propose).take(MOST).collect()
}

/// Returns the steps that run a program so; `None` for a container, which has programs of its own.
fn steps(program: &str, unit: Option<&str>) -> Option<Vec<RemedyStep>> {
    let install = RemedyStep::Needs {
        run: "apt-get install eatmydata".to_owned(),
        unless: "ldconfig -p | grep -q libeatmydata.so".to_owned(),
    };
    let Some(unit) = unit else {
        let undo = quoted(program);
        let run = format!("eatmydata {undo}");
        return Some(vec![install, RemedyStep::Person { run, undo, lasting: false }]);
    };
    if unit.starts_with(crate::doctor::processes::CONTAINER) {
        return None;
    }
    // A user's own manager reads /etc/systemd/user, and root reaches it by the user's number.
    let (unit, folder, systemctl) = match unit.split_once(crate::doctor::processes::OF_USER) {
        Some((unit, user)) => (unit, "user", format!("systemctl --user -M {user}@.host")),
        None => (unit, "system", "systemctl".to_owned()),
    };
    Some(vec![
        install,
        RemedyStep::File {
            path: format!("/etc/systemd/{folder}/{unit}.d/flashsift.conf"),
            content: "[Service]\nEnvironment=LD_PRELOAD=libeatmydata.so\n".to_owned(),
            new_folder: true,
        },
        RemedyStep::After { run: format!("{systemctl} daemon-reload") },
        RemedyStep::After { run: format!("{systemctl} restart {}", quoted(unit)) },
    ])
}
