//! The changes that are tried, the cheaper first: times of write-back, one line for each other
//! change, every fast online policy, and non-volatile memory of the sizes that are asked for.

use super::{Setting, WritebackTimes};
use flashsift_caches::{
    cache::FRAMES_MAX,
    policy::{self, PolicySpec},
};
use flashsift_events::show;
use flashsift_pages::{metadata, system};

/// A change of the baseline.
pub struct CandidateSpec {
    /// Name in output.
    pub name: &'static str,
    change: Change,
}

enum Change {
    /// Modes of `--writeback` instead of Linux's defaults, and the disadvantage in words that
    /// follow "Price:".
    WriteBack(&'static str, &'static str),
    /// Another file system of [`metadata::ALL`], and the age at which files are written, seconds;
    /// 0: as in the baseline. Its price: the disk is made anew, and what a power cut takes.
    FileSystem(&'static str, u64),
}

/// Every change that is tried beside times and policies.
pub const ALL: &[CandidateSpec] = &[
    CandidateSpec {
        name: "ratio=40",
        change: Change::WriteBack(
            "linux,ratio=40",
            "up to 40 % of the memory may be dirty, not 10 %",
        ),
    },
    CandidateSpec {
        name: "cluster=128KiB",
        change: Change::WriteBack("linux,cluster:128KiB", KERNEL),
    },
    CandidateSpec { name: "cluster=1MiB", change: Change::WriteBack("linux,cluster:1MiB", KERNEL) },
    CandidateSpec { name: "xfs", change: Change::FileSystem("xfs", 0) },
    CandidateSpec { name: "xfs,expire=5m", change: Change::FileSystem("xfs", 300) },
    CandidateSpec { name: "btrfs", change: Change::FileSystem("btrfs", 0) },
];

const KERNEL: &str = "a change of the kernel; no data is lost";

/// A change with the setting that it leads to, or the reason for which it is not tried.
pub(super) struct Candidate {
    pub(super) name: String,
    pub(super) price: String,
    pub(super) setting: Result<Setting, String>,
    pub(super) nvm: Option<NvmSize>,
    pub(super) times: Option<WritebackTimes>,
}

/// Non-volatile memory that a change adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvmSize {
    /// Name of the system that uses it.
    pub system: &'static str,
    /// Its size in pages.
    pub pages: u32,
}

/// Returns every change of a baseline but its times. `linux`: the baseline has Linux's write-back,
/// or else the reason for which it has not. `syncs`: the trace has syncs. `holds_all`: the cache
/// holds every page of the trace.
pub(super) fn all(
    baseline: &Setting,
    linux: Result<(), String>,
    syncs: bool,
    holds_all: bool,
) -> impl Iterator<Item = Candidate> {
    let specs = ALL.iter().map(move |spec| spec.candidate(baseline, &linux, syncs));
    let baseline_policy = baseline.policy.label();
    let policies = policy::all()
        .into_iter()
        .filter(|policy| !policy.spec.kind.is_offline() && !policy.spec.slow)
        .filter(move |policy| policy.label() != baseline_policy)
        .map(move |policy| Candidate {
            name: policy.label(),
            price: price_of(policy.spec),
            setting: match holds_all {
                true => Err("the cache holds every page of the trace".to_owned()),
                false => Ok(Setting { policy, ..baseline.clone() }),
            },
            nvm: None,
            times: None,
        });
    // Policies that Linux has are the cheaper ones.
    let mut policies: Vec<Candidate> = policies.collect();
    policies.sort_by_key(|candidate| !IN_LINUX.contains(&candidate.name.as_str()));
    specs.chain(policies)
}

/// Systems that add non-volatile memory to a cache in DRAM.
const WITH_NVM: [&str; 3] = ["flush-nvm", "hybrid-flush", "fslru"];

/// Returns systems with non-volatile memory of each size, the smaller first. FSLRU gets the DRAM of
/// the baseline and the memory as one cache. `has_bytes`: the trace has the table of bytes.
pub(super) fn with_nvm(baseline: &Setting, sizes: &[u32], has_bytes: bool) -> Vec<Candidate> {
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable();
    sizes.dedup();
    let of_size = |pages: u32| WITH_NVM.map(|system| of_nvm(baseline, system, pages, has_bytes));
    sizes.into_iter().flat_map(of_size).collect()
}

fn of_nvm(baseline: &Setting, system: &'static str, pages: u32, has_bytes: bool) -> Candidate {
    let memory = show::memory(pages.into());
    let setting = || {
        let (dram, frames) = (baseline.frames, baseline.frames.checked_add(pages));
        let (text, frames) = match system {
            "fslru" if !has_bytes => return Err("the trace was read without bytes".to_owned()),
            "fslru" => {
                let frames = frames.filter(|frames| *frames <= FRAMES_MAX);
                let frames = frames.ok_or("the cache would be larger than 1 TiB")?;
                let share = 100.0 * f64::from(dram) / f64::from(frames);
                (format!("fslru:dram={share}"), frames)
            }
            buffer => (format!("{buffer}:pages={pages}"), dram),
        };
        let system = system::Selection::parse(&text).map_err(|error| error.to_string())?;
        Ok(Setting { system, frames, ..baseline.clone() })
    };
    Candidate {
        name: format!("{system} {memory}"),
        price: format!("{memory} of non-volatile memory, and a change of the kernel"),
        setting: setting(),
        nvm: Some(NvmSize { system, pages }),
        times: None,
    }
}

/// The policies that Linux has: the two-list LRU and MGLRU.
const IN_LINUX: [&str; 2] = ["linux2q", "mglru"];

fn price_of(policy: &PolicySpec) -> String {
    match IN_LINUX.contains(&policy.name) {
        true => "none: Linux has it (/sys/kernel/mm/lru_gen/enabled)".to_owned(),
        false => format!("a change of the kernel; memory: {}", policy.memory),
    }
}

/// Returns the baseline with each of these times.
pub(super) fn with_times(
    baseline: &Setting,
    linux: &Result<(), String>,
    times: &[WritebackTimes],
) -> Vec<Candidate> {
    let own = WritebackTimes::of(baseline).unwrap_or(WritebackTimes::LINUX);
    let candidate = |times: &WritebackTimes| Candidate {
        name: times.name(own),
        price: times.price(own),
        setting: linux.clone().and_then(|()| times.in_place_of(baseline)),
        nvm: None,
        times: Some(*times),
    };
    times.iter().map(candidate).collect()
}

/// Returns the baseline on another file system.
fn of_file_system(
    baseline: &Setting,
    kind: &str,
    expire_us: u64,
    syncs: bool,
) -> Result<Setting, String> {
    let own = baseline.metadata.as_ref();
    let own = own.ok_or("the file system's own writes are not modelled")?;
    if own.spec.name == kind {
        return Err("it is the present file system".to_owned());
    }
    if kind == "btrfs" && syncs {
        return Err("each fsync would write 68 KiB or more".to_owned());
    }
    let metadata = metadata::Selection::parse(kind).map_err(|error| error.to_string())?;
    let mut writeback = baseline.writeback;
    if let Some(expire) = writeback.expire.as_mut().filter(|_| expire_us > 0) {
        expire.after_us = expire_us;
    }
    Ok(Setting { writeback, metadata: Some(metadata), ..baseline.clone() })
}

impl CandidateSpec {
    fn candidate(&self, baseline: &Setting, linux: &Result<(), String>, syncs: bool) -> Candidate {
        let name = self.name.to_owned();
        match self.change {
            Change::WriteBack(text, price) => {
                let setting = linux.clone().and_then(|()| {
                    let mut writeback: flashsift_pages::writeback::Modes =
                        text.parse().map_err(|error| format!("{error}"))?;
                    if let (Some(expire), Some(own)) =
                        (&mut writeback.expire, baseline.writeback.expire)
                    {
                        expire.ram_pages = own.ram_pages;
                    }
                    let writeback = writeback.on(baseline.writeback.file_system);
                    Ok(Setting { writeback, ..baseline.clone() })
                });
                Candidate { name, price: price.to_owned(), setting, nvm: None, times: None }
            }
            Change::FileSystem(kind, expire_s) => {
                let setting = linux
                    .clone()
                    .and_then(|()| of_file_system(baseline, kind, expire_s * 1_000_000, syncs));
                let own = WritebackTimes::of(baseline).unwrap_or(WritebackTimes::LINUX);
                let then = setting.as_ref().ok().and_then(WritebackTimes::of).unwrap_or(own);
                let price = format!(
                    "the disk is formatted anew; {}, and may empty files that were replaced \
                     without a sync",
                    then.price(own)
                );
                Candidate { name, price, setting, nvm: None, times: None }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_pages::writeback::Modes;

    fn baseline() -> Setting {
        Setting {
            policy: policy::Selection::parse("mglru").unwrap(),
            writeback: Modes::linux(),
            metadata: Some(metadata::Selection::parse("ext4").unwrap()),
            system: system::PLAIN.clone(),
            frames: 1000,
        }
    }

    /// Every change parses, is named once, has a price, and changes one thing.
    // Promises: Recommend 1, Recommend 4.
    #[test]
    fn every_change_is_possible_and_has_a_price() {
        let baseline = baseline();
        let changes: Vec<Candidate> = all(&baseline, Ok(()), false, false).collect();
        for change in &changes {
            let setting = change.setting.as_ref().unwrap();
            let differ = [
                setting.policy.label() != baseline.policy.label(),
                setting.writeback != baseline.writeback,
                setting.metadata.as_ref().map(|own| own.label())
                    != baseline.metadata.as_ref().map(|own| own.label()),
            ];
            let changed = differ.iter().filter(|differs| **differs).count();
            // Expiry and commit are tried together, too.
            assert_eq!(changed, change.name.split(',').count(), "{}", change.name);
            assert!(!change.price.is_empty());
            let same = changes.iter().filter(|other| other.name == change.name).count();
            assert_eq!(same, 1, "{}", change.name);
        }
        assert!(changes.len() > ALL.len() + 10 && changes.iter().all(|one| one.name != "mglru"));
    }

    /// FSLRU has the baseline's DRAM beside the memory; the buffers leave the cache as it is.
    // Promises: Recommend 6.
    #[test]
    fn memory_comes_on_top_of_the_cache() {
        let baseline = Setting { metadata: None, ..baseline() };
        let names = |found: &[Candidate]| -> Vec<String> {
            found.iter().map(|one| one.name.clone()).collect()
        };
        let found = with_nvm(&baseline, &[3000, 256, 256], true);
        assert_eq!(
            names(&found),
            [
                "flush-nvm 1 MiB",
                "hybrid-flush 1 MiB",
                "fslru 1 MiB",
                "flush-nvm 11.7 MiB",
                "hybrid-flush 11.7 MiB",
                "fslru 11.7 MiB"
            ]
        );
        let settings: Vec<(String, u32)> = found
            .iter()
            .map(|one| one.setting.as_ref().unwrap())
            .map(|setting| (setting.system.label(), setting.frames))
            .collect();
        assert_eq!(settings[3], ("flush-nvm:pages=3000".to_owned(), 1000));
        assert_eq!(settings[5], ("fslru:dram=25".to_owned(), 4000));
        assert!(found.iter().all(|one| one.price.contains("of non-volatile memory")));
        let without = with_nvm(&baseline, &[256], false);
        assert!(without[2].setting.is_err() && without[0].setting.is_ok());
    }

    #[test]
    fn changes_without_effect_are_left_out_with_a_reason() {
        let plain = Setting { metadata: None, ..baseline() };
        let changes: Vec<Candidate> =
            all(&plain, Err("no times".to_owned()), false, true).collect();
        assert!(changes.iter().all(|change| change.setting.is_err()));
        let f2fs = metadata::Selection::parse("f2fs").unwrap();
        let f2fs = Setting { metadata: Some(f2fs), ..baseline() };
        let own = WritebackTimes::of(&f2fs).unwrap();
        let commit = WritebackTimes { commit_us: 2 * own.commit_us, ..own };
        let commit = with_times(&f2fs, &Ok(()), &[commit]).remove(0);
        assert!(commit.setting.err().unwrap().contains("commit"), "f2fs has no such interval");
        let tried = |baseline: &Setting, syncs| -> Vec<_> {
            let all = all(baseline, Ok(()), syncs, true).filter(|change| change.setting.is_ok());
            let names = all.map(|change| change.name);
            names.filter(|name| name.starts_with("xfs") || name == "btrfs").collect()
        };
        assert_eq!(tried(&baseline(), false), ["xfs", "xfs,expire=5m", "btrfs"]);
        assert_eq!(tried(&baseline(), true), ["xfs", "xfs,expire=5m"], "btrfs is not for syncs");
        let xfs = Some(metadata::Selection::parse("xfs").unwrap());
        assert!(tried(&Setting { metadata: xfs, ..baseline() }, true).is_empty());
    }
}
