//! A program without its syncs.

use super::{Effect, Findings, MOST, Proposal, RemedySpec, quoted};
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
        let (commands, undo) = commands(&program, unit)?;
        Some(Proposal {
            title: format!("Run {program} without its syncs"),
            evidence: format!(
                "{program} syncs {syncs} times, {} times {}: each sync writes at least a page of \
                 the file, and mostly a commit of the journal",
                first.syncs, first.file
            ),
            price: format!(
                "a power cut loses up to {} of what it wrote; where it can, let the program sync \
                 less often instead",
                crate::show::duration(findings.facts.flusher.expire_us)
            ),
            commands,
            lasting: Vec::new(),
            undo,
            programs: vec![program.into()],
            effect: Effect::Change(Change::WithoutSyncs(group.files)),
        })
    };
    groups.into_iter().filter_map(propose).take(MOST).collect()
}

/// Returns the commands that run a program so, and those that undo it; `None` for a container,
/// which has programs of its own.
fn commands(program: &str, unit: Option<&str>) -> Option<(Vec<String>, Vec<String>)> {
    let install = "sudo apt-get install eatmydata".to_owned();
    let Some(unit) = unit else {
        let command = quoted(program);
        return Some((vec![install, format!("eatmydata {command}")], vec![command]));
    };
    if unit.starts_with(crate::doctor::files::CONTAINER) {
        return None;
    }
    let folder = quoted(&format!("/etc/systemd/system/{unit}.d"));
    let file = quoted(&format!("/etc/systemd/system/{unit}.d/flashsift.conf"));
    let again = [
        "sudo systemctl daemon-reload".to_owned(),
        format!("sudo systemctl restart {}", quoted(unit)),
    ];
    let line = r"printf '[Service]\nEnvironment=LD_PRELOAD=libeatmydata.so\n'";
    let set = [install, format!("sudo mkdir -p {folder}"), format!("{line} | sudo tee {file}")];
    let forget =
        [format!("sudo rm {file}"), format!("sudo rmdir --ignore-fail-on-non-empty {folder}")];
    Some((
        set.into_iter().chain(again.clone()).collect(),
        forget.into_iter().chain(again).collect(),
    ))
}
