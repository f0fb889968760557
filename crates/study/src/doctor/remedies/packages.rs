//! dpkg without syncs.

use super::{Effect, Findings, Proposal, RemedySpec, RemedyStep};
use crate::doctor::what_if::Change;

pub(super) const SPEC: RemedySpec = RemedySpec {
    id: "packages-without-syncs",
    what: "dpkg installs files without a sync of each",
    propose,
};

fn propose(findings: &Findings<'_>) -> Vec<Proposal> {
    // dpkg goes on to sync its own database.
    let suits = |usage: &&super::Usage| {
        &*usage.program == "dpkg" && usage.syncs > 0 && !usage.file.contains("/lib/dpkg/")
    };
    let own = findings.usages.iter().filter(suits);
    let (mut files, mut syncs, mut synced) = (std::collections::BTreeSet::new(), 0, 0);
    for usage in own {
        files.extend(&usage.files);
        syncs += usage.syncs;
        synced += usage.synced_bytes;
    }
    if files.is_empty() {
        return Vec::new();
    }
    vec![Proposal {
        subject: String::new(),
        title: "Let dpkg install packages without syncs".to_owned(),
        evidence: format!(
            "dpkg syncs {syncs} times and writes {} so",
            findings.data_per_hour(synced)
        ),
        price: "a power cut during an installation may leave empty files of that package"
            .to_owned(),
        steps: vec![RemedyStep::File {
            path: "/etc/dpkg/dpkg.cfg.d/flashsift".to_owned(),
            content: "force-unsafe-io\n".to_owned(),
            new_folder: false,
        }],
        programs: vec!["dpkg".into()],
        effect: Effect::Change(Change::WithoutSyncs(files)),
    }]
}
