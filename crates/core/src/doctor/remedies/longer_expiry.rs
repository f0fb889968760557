//! Dirty pages stay in memory for longer.

use super::{Effect, Findings, Proposal, RemedySpec};
use crate::{doctor::what_if::Change, writeback::flusher::FlusherSettings};

pub(super) const SPEC: RemedySpec = RemedySpec {
    id: "longer-expiry",
    what: "the kernel keeps dirty pages for five minutes",
    propose,
};

const EXPIRE_US: u64 = 300_000_000;

fn propose(findings: &Findings<'_>) -> Vec<Proposal> {
    let now = findings.facts.flusher;
    if now.expire_us >= EXPIRE_US || now.tick_us == 0 {
        return Vec::new();
    }
    let set =
        |expire_us: u64| format!("sudo sysctl vm.dirty_expire_centisecs={}", expire_us / 10_000);
    vec![Proposal {
        title: "Let the kernel keep dirty pages for five minutes".to_owned(),
        evidence: format!(
            "pages are written {} after they change; some of them change again or are deleted soon \
             after",
            crate::show::duration(now.expire_us)
        ),
        price: "a power cut loses up to five minutes of what no program synced".to_owned(),
        commands: vec![set(EXPIRE_US)],
        undo: vec![set(now.expire_us)],
        programs: Vec::new(),
        effect: Effect::Change(Change::Flusher(FlusherSettings { expire_us: EXPIRE_US, ..now })),
    }]
}
