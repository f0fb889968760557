//! How much non-volatile memory is worth having: the knee of writes over the size of a buffer.

use super::results::{ResultRow, SizeResults};
use serde::Serialize;

/// Share of the largest saving that the knee brings.
pub const KNEE_SHARE: f64 = 0.9;

/// The smallest buffer of a system that brings most of what the largest one saves.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Knee {
    /// Name of the system, without parameters.
    pub system: String,
    /// The cache size in frames.
    pub frames: u32,
    /// Pages of the smallest compared buffer that brings [`KNEE_SHARE`] of the largest saving.
    pub knee_pages: u32,
    /// Share of the writes that it saves against plain storage under the same policy. Pages left
    /// dirty or in the buffer count as written.
    pub knee_saving: f64,
    /// Pages of the buffer that saves most.
    pub most_pages: u32,
    /// The share that this one saves.
    pub most_saving: f64,
}

/// Returns the knee of each system that is compared with at least three sizes of its buffer, beside
/// plain storage, if a buffer saves anything.
pub(super) fn knees(size: &SizeResults) -> Vec<Knee> {
    let name = |row: &ResultRow| row.system.split(':').next().unwrap_or_default().to_owned();
    let mut knees: Vec<Knee> = Vec::new();
    for plain in size.rows.iter().filter(|row| row.nvm_pages.is_none() && row.is_plain) {
        let before = plain.outcome.writes_due();
        let buffers = || {
            let beside = |row: &&ResultRow| {
                row.nvm_pages.is_some() && row.policy == format!("{} {}", plain.policy, row.system)
            };
            size.rows.iter().filter(beside)
        };
        let mut systems: Vec<String> = buffers().map(name).collect();
        systems.dedup();
        for system in systems {
            let saving =
                |row: &ResultRow| 1.0 - row.outcome.writes_due() as f64 / before.max(1) as f64;
            let sizes = buffers()
                .filter(|row| name(row) == system)
                .filter_map(|row| Some((row.nvm_pages?, saving(row))));
            let Some([knee, most]) = knee_and_most(sizes.collect()) else { continue };
            knees.push(Knee {
                system,
                frames: size.frames,
                knee_pages: knee.0,
                knee_saving: knee.1,
                most_pages: most.0,
                most_saving: most.1,
            });
        }
    }
    knees
}

/// Returns the knee and the size that saves most, of pages and savings: the knee is the least size
/// that brings [`KNEE_SHARE`] of the largest saving. `None` for fewer than three sizes, or if
/// nothing is saved.
pub(super) fn knee_and_most(mut sizes: Vec<(u32, f64)>) -> Option<[(u32, f64); 2]> {
    sizes.sort_by_key(|(pages, _)| *pages);
    sizes.dedup_by_key(|(pages, _)| *pages);
    let most = sizes.iter().copied().max_by(|one, other| {
        // Of equals, the smaller one.
        one.1.total_cmp(&other.1).then(other.0.cmp(&one.0))
    });
    let most = most.filter(|most| most.1 > 0.0 && sizes.len() >= 3)?;
    let knee = sizes.into_iter().find(|(_, saving)| *saving >= KNEE_SHARE * most.1)?;
    Some([knee, most])
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_caches::{back::DeviceCounts, policy::Kind};
    use flashsift_pages::system::Outcome;

    fn row(system: &str, nvm_pages: Option<u32>, writes: u64) -> ResultRow {
        let device = DeviceCounts { writes, ..DeviceCounts::default() };
        let is_plain = nvm_pages.is_none();
        ResultRow {
            readahead: None,
            policy: if is_plain { "lru".to_owned() } else { format!("lru {system}") },
            system: system.to_owned(),
            is_plain,
            nvm_pages,
            kind: Kind::Online,
            frames: 8,
            outcome: Outcome { device, ..Outcome::default() },
            cpu_ns_per_access: 1.0,
            devices: Vec::new(),
            memory: Vec::new(),
            charged: None,
        }
    }

    // Promises: Systems 7.
    #[test]
    fn the_knee_brings_most_of_the_saving() {
        let rows = vec![
            row("storage", None, 1000),
            row("flush-nvm:pages=64", Some(64), 700),
            row("flush-nvm:pages=16", Some(16), 900),
            row("flush-nvm:pages=256", Some(256), 680),
            // Two sizes have no knee.
            row("hybrid-flush:pages=16", Some(16), 800),
            row("hybrid-flush:pages=64", Some(64), 700),
        ];
        let found = knees(&SizeResults { frames: 8, rows });
        let [knee] = &found[..] else { panic!("{found:?}") };
        assert_eq!((&*knee.system, knee.knee_pages, knee.most_pages), ("flush-nvm", 64, 256));
        assert!((knee.knee_saving - 0.3).abs() < 1e-9 && (knee.most_saving - 0.32).abs() < 1e-9);
    }

    #[test]
    fn buffers_that_save_nothing_have_no_knee() {
        let mut rows = vec![row("storage", None, 100)];
        rows.extend(
            [1, 2, 3].map(|pages| row(&format!("flush-nvm:pages={pages}"), Some(pages), 100)),
        );
        assert_eq!(knees(&SizeResults { frames: 8, rows }), []);
    }
}
