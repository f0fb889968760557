//! Swap in compressed memory.

use super::{Effect, Findings, Proposal, RemedySpec, RemedyStep, quoted};

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
        subject: String::new(),
        title: "Swap to compressed memory".to_owned(),
        evidence: format!(
            "the kernel swaps {} out to {}",
            findings.per_hour(facts.swapped_out_bytes),
            super::listed(&paths)
        ),
        price: "a part of the memory holds compressed pages".to_owned(),
        steps: person("sudo apt-get install zram-tools", "sudo apt-get remove zram-tools", false)
            .chain(on_flash.iter().flat_map(|swap| {
                let [off, on] =
                    ["swapoff", "swapon"].map(|word| format!("sudo {word} {}", quoted(&swap.path)));
                person(&off, &on, false)
            }))
            .chain(person(
                "# in /etc/fstab: # before each line of type swap",
                "# in /etc/fstab: remove these #",
                true,
            ))
            .collect(),
        programs: Vec::new(),
        effect: Effect::Bytes(facts.swapped_out_bytes),
    }]
}

fn person(run: &str, undo: &str, lasting: bool) -> std::option::IntoIter<RemedyStep> {
    Some(RemedyStep::Person { run: run.to_owned(), undo: undo.to_owned(), lasting }).into_iter()
}
