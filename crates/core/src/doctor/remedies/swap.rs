//! Swap in compressed memory.

use super::{Effect, Findings, Proposal, RemedySpec, quoted};

pub(super) const SPEC: RemedySpec =
    RemedySpec { id: "swap-in-ram", what: "swap goes to compressed memory", propose };

fn propose(findings: &Findings<'_>) -> Vec<Proposal> {
    let facts = findings.facts;
    let on_flash: Vec<_> = facts.swaps.iter().filter(|swap| !swap.path.contains("zram")).collect();
    if on_flash.is_empty() || facts.swapped_out_bytes == 0 {
        return Vec::new();
    }
    let paths: Vec<Box<str>> = on_flash.iter().map(|swap| swap.path.as_str().into()).collect();
    vec![Proposal {
        title: "Swap to compressed memory".to_owned(),
        evidence: format!(
            "the kernel swaps {} out to {}",
            findings.per_hour(facts.swapped_out_bytes),
            super::listed(&paths)
        ),
        price: "a part of the memory holds compressed pages".to_owned(),
        commands: std::iter::once("sudo apt-get install zram-tools".to_owned())
            .chain(on_flash.iter().map(|swap| format!("sudo swapoff {}", quoted(&swap.path))))
            .collect(),
        lasting: vec!["# in /etc/fstab: # before each line of type swap".to_owned()],
        undo: std::iter::once("# in /etc/fstab: remove these #".to_owned())
            .chain(on_flash.iter().map(|swap| format!("sudo swapon {}", quoted(&swap.path))))
            .chain(["sudo apt-get remove zram-tools".to_owned()])
            .collect(),
        programs: Vec::new(),
        effect: Effect::Bytes(facts.swapped_out_bytes),
    }]
}
