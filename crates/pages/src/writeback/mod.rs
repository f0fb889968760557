//! Write-back modes: when dirty pages are written other than by eviction, as a machine without I/O.
//! SEMANTICS.md, "Write-back", defines the modes of `--writeback`.
//!
//! Modes can be combined. In every mode an evicted page is written if it is dirty; without other
//! modes, only eviction writes. The modes are:
//!
//! - `periodic:5s`: everything dirty is written at each multiple of this time from the beginning of
//!   the trace. Papers describe ext4's commit this way (Lim & Bahn, "Characterizing File Accesses
//!   in Android Applications and Caching Implications", IEEE Access 2021, §III). Today's ext4 does
//!   so only with `nodelalloc` or `data=journal`. Otherwise its commit does not wait for data
//!   without an allocated block.
//! - `expire:30s,tick=5s,ratio=10`: Linux's flusher with `vm.dirty_expire_centisecs`,
//!   `vm.dirty_writeback_centisecs` and `vm.dirty_background_ratio` (the kernel's
//!   `Documentation/admin-guide/sysctl/vm.rst`). At each multiple of `tick`, every file whose age
//!   has reached `expire` is written whole: the kernel ages inodes, not pages. The age of a file
//!   counts from the first write that made it dirty after the flusher last wrote it; neither fsync
//!   nor eviction resets it. In addition, as soon as a request leaves more pages dirty than `ratio`
//!   percent of `ram`, whole files are written, the oldest first, until no more are dirty. The
//!   kernel takes the ratio of available memory, which is far more than the simulated cache where
//!   applications, too, need memory. `vm.dirty_ratio`, at which writers block, is never reached,
//!   because writing takes no time here.
//! - `sync`: fsync, fdatasync, `msync`, `sync_file_range` and writes with `O_SYNC` write the dirty
//!   pages of their range of their file (for all but the last two usually the whole file). `sync`
//!   and `syncfs` write everything dirty.
//! - `sync-all`: each of these calls writes everything dirty (Lim & Bahn).
//!
//! - `cluster:128KiB`: which page leaves and what is written are decided apart. If a dirty page is
//!   evicted, all dirty pages of the same aligned range of addresses are written in the order of
//!   their addresses, and the others stay in the cache, clean. Pages without an address count by
//!   their rank in (file, page) order. The drain writes single pages.
//! - `cluster:128KiB,idle=5s,ratio=10,first=fullest` also writes such ranges ahead, so that an
//!   eviction finds clean pages. With `idle`, one range is written each time the device had no
//!   request for this time while a page was dirty (Golding et al., "Idleness is Not Sloth", USENIX
//!   Winter 1995, §3: the detector that waits for a fixed time without work). The write is a
//!   request, too, so at most one range is written in this time. With `ratio`, as soon as a request
//!   leaves more pages dirty than this percentage of the *cache*, ranges are written until no more
//!   are dirty. `first` says which range: the `fullest` one, with the most dirty pages (the lower
//!   addresses win ties), or the `oldest` one, whose first page has been dirty for the longest
//!   time. No source decides between them. FAB takes the fullest block (Jo et al., IEEE
//!   Transactions on Consumer Electronics 52(2), 2006), Linux's flusher the oldest file. The
//!   default is the fullest: a request costs about the same for one page as for a few, so it saves
//!   the most requests.
//!
//! Files are written in the order in which they became dirty (as above), and the pages of a file in
//! ascending order; `sync-all` writes in ascending order over all files. Written pages stay in the
//! cache and are clean. A block trace has one file per device.

use flashsift_caches::trace::Trace;
use flashsift_events::{
    duration::{DurationError, Exact, parse_us},
    event::{FileSystemKind, Space},
    page::PAGE_BYTES,
    params, show,
};
use std::{fmt, str::FromStr};

mod default;
mod dirty_pages;
pub mod rules;

#[cfg(test)]
mod tests;

pub use default::{DefaultModes, DefaultReason};
pub use dirty_pages::DirtyPages;
pub(crate) use dirty_pages::{OnEviction, WriteBack};

/// Which modes are on. The default is none of them: dirty pages are written when they are evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// Interval at which everything dirty is written.
    pub periodic_us: Option<u64>,
    /// Linux's flusher: writes files of a given age, and the oldest ones if too much is dirty.
    pub expire: Option<Expire>,
    /// The pages that syncs write.
    pub syncs: Syncs,
    /// Ranges of addresses that are written together; `None`: single pages.
    pub cluster: Option<Cluster>,
    /// The file system by whose rule some data is written at once ([`rules`]).
    pub file_system: Option<FileSystemKind>,
}

/// Aligned ranges of addresses whose dirty pages are written together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Size of a range, in pages.
    pub pages: u32,
    /// A range is written ahead each time the device had no request for this time.
    pub idle_us: Option<u64>,
    /// Percentage of the cache that may be dirty before ranges are written ahead.
    pub ratio: Option<u32>,
    /// The range that is written ahead first.
    pub first: First,
}

/// The range of addresses that is written ahead first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum First {
    /// The one with the most dirty pages.
    #[default]
    Fullest,
    /// The one whose first page has been dirty for the longest time.
    Oldest,
}

impl Cluster {
    /// Ranges of this many pages that are written on eviction only.
    pub fn new(pages: u32) -> Self {
        Self { pages, idle_us: None, ratio: None, first: First::Fullest }
    }

    /// Whether ranges are written before a page of them is evicted.
    pub fn writes_ahead(&self) -> bool {
        self.idle_us.is_some() || self.ratio.is_some()
    }
}

/// Parameters of Linux's flusher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expire {
    /// Age at which a file is written.
    pub after_us: u64,
    /// Interval at which the flusher runs.
    pub tick_us: u64,
    /// Percentage of `ram_pages` that may be dirty; 100 sets no limit.
    pub ratio: u32,
    /// The machine's memory, in pages.
    pub ram_pages: u64,
}

/// The memory of a machine, unless said otherwise: 2 GiB.
pub const RAM_PAGES: u64 = (2 << 30) / PAGE_BYTES;

impl Default for Expire {
    /// The kernel's own defaults, on a machine of 2 GiB.
    fn default() -> Self {
        Self { after_us: 30_000_000, tick_us: 5_000_000, ratio: 10, ram_pages: RAM_PAGES }
    }
}

/// The pages that calls like fsync write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Syncs {
    /// Nothing.
    #[default]
    Nothing,
    /// The pages that the call names.
    TheirFile,
    /// Everything dirty.
    Everything,
}

/// The modes and the names of their combinations, each with a description for help.
pub const ALL: &[(&str, &str)] = &[
    ("evict", "dirty pages that are evicted; part of every mode"),
    ("periodic:5s", "everything dirty, at this interval (ext4's commit in papers)"),
    ("expire:30s,tick=5s,ratio=10", "Linux's flusher: old files; the oldest above 10 % of --ram"),
    ("sync", "pages named by fsync, fdatasync, sync_file_range, O_SYNC"),
    ("sync-all", "everything dirty, at each of these calls"),
    (
        "cluster:128KiB",
        "with an evicted dirty page, the dirty ones of its aligned range of addresses",
    ),
    (
        "cluster:128KiB,idle=5s",
        "such ranges also ahead: one after each 5 s without a request to the device; with ratio=10 \
         when more than 10 % of the cache is dirty; the fullest first, or first=oldest",
    ),
    (LINUX, "expire:30s,tick=5s,ratio=10,sync: Linux's defaults"),
    (
        "linux,fs=xfs",
        "also the data that this file system writes at once: fs=ext4, f2fs, xfs or btrfs; default: \
         that of the recording",
    ),
    (HYBRID_FLUSH, "periodic:5s,sync-all: Android in the Hybrid Flush paper"),
];

const LINUX: &str = "linux";
const HYBRID_FLUSH: &str = "hf";

/// A text that is not a list of modes.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModesError {
    /// An unknown mode.
    #[error(
        "no mode of write-back is called `{0}`{near}; there are: evict, periodic:5s, expire:30s, \
         sync, sync-all, cluster:128KiB, linux and hf",
        near = params::did_you_mean(params::nearest(
            .0.split(':').next().unwrap_or_default(),
            ALL.iter().map(|(name, _)| name.split(':').next().unwrap_or(name)),
        ))
    )]
    Mode(String),
    /// A parameter of no mode before it.
    #[error(
        "`{0}` belongs to no mode: expire takes tick, ratio, ram and fs, as in \
         expire:30s,tick=5s,ratio=10,ram=2GiB,fs=ext4; cluster takes idle, ratio and first, as in \
         cluster:128KiB,idle=5s,ratio=10,first=oldest"
    )]
    Param(String),
    /// A value that is not a time.
    #[error(transparent)]
    Time(#[from] DurationError),
    /// A value that is not a size of pages.
    #[error("cluster:{0}: it is a number of KiB or MiB, 4KiB to 16MiB, of whole pages")]
    Cluster(String),
    /// A value that is not a percentage.
    #[error("ratio={0}: it is a percentage of {1}, 0 to 100")]
    Ratio(String, &'static str),
    /// An order that there is not.
    #[error("first={0}: it is fullest or oldest")]
    First(String),
    /// A value that is not the memory of a machine.
    #[error("ram={0}: it is a number of KiB, MiB or GiB, of whole pages")]
    Ram(String),
    /// A value that is not a file system with a rule.
    #[error("fs={0}: it is ext4, f2fs, xfs or btrfs")]
    FileSystem(String),
}

impl FromStr for Modes {
    type Err = ModesError;

    /// Reads modes separated by commas, in any order. A later value of the same mode replaces an
    /// earlier one.
    fn from_str(text: &str) -> Result<Self, ModesError> {
        let mut modes = Self::default();
        let mut mode = Parametrised::None;
        for part in text.split(',').map(str::trim) {
            let (name, value) =
                part.split_once(':').map_or((part, None), |(name, value)| (name, Some(value)));
            let is_param = part.contains('=') && !part.contains(':');
            if let Some((key, value)) = part.split_once('=').filter(|_| is_param) {
                let is_known = match (mode, &mut modes) {
                    (Parametrised::Expire, modes) if key == "fs" => {
                        let named = FileSystemKind::named(value);
                        modes.file_system =
                            Some(named.ok_or_else(|| ModesError::FileSystem(value.to_owned()))?);
                        true
                    }
                    (Parametrised::Expire, Self { expire: Some(expire), .. }) => {
                        expire.set(key, value)?
                    }
                    (Parametrised::Cluster, Self { cluster: Some(cluster), .. }) => {
                        cluster.set(key, value)?
                    }
                    _ => false,
                };
                if !is_known {
                    return Err(ModesError::Param(part.to_owned()));
                }
                continue;
            }
            mode = Parametrised::None;
            match (name.to_ascii_lowercase().as_str(), value) {
                ("periodic", Some(every)) => modes.periodic_us = Some(parse_us(every)?),
                ("cluster", Some(size)) => {
                    modes.cluster = Some(Cluster::new(cluster_pages(size)?));
                    mode = Parametrised::Cluster;
                }
                ("expire", Some(after)) => {
                    modes.expire = Some(Expire { after_us: parse_us(after)?, ..Expire::default() });
                    mode = Parametrised::Expire;
                }
                ("evict", None) => {}
                ("periodic", None) => modes.periodic_us = Some(PERIOD_US),
                ("expire", None) => {
                    modes.expire = Some(Expire::default());
                    mode = Parametrised::Expire;
                }
                ("sync", None) => modes.syncs = Syncs::TheirFile,
                ("sync-all", None) => modes.syncs = Syncs::Everything,
                (LINUX, None) => {
                    let linux = Self::linux();
                    (modes.expire, modes.syncs) = (linux.expire, linux.syncs);
                    mode = Parametrised::Expire;
                }
                (HYBRID_FLUSH, None) => {
                    (modes.periodic_us, modes.syncs) = (Some(PERIOD_US), Syncs::Everything);
                }
                _ => return Err(ModesError::Mode(part.to_owned())),
            }
        }
        Ok(modes)
    }
}

/// The mode to which a parameter belongs: the one before it.
#[derive(Clone, Copy)]
enum Parametrised {
    None,
    Expire,
    Cluster,
}

impl Expire {
    /// Sets a parameter. Returns whether it is one of these.
    fn set(&mut self, key: &str, value: &str) -> Result<bool, ModesError> {
        match key {
            "tick" => self.tick_us = parse_us(value)?,
            "ratio" => self.ratio = percentage(value, "ram")?,
            "ram" => {
                let pages = pages_in(value).filter(|pages| *pages > 0);
                self.ram_pages = pages.ok_or_else(|| ModesError::Ram(value.to_owned()))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl Cluster {
    /// Sets a parameter. Returns whether it is one of these.
    fn set(&mut self, key: &str, value: &str) -> Result<bool, ModesError> {
        match (key, value) {
            ("idle", _) => self.idle_us = Some(parse_us(value)?),
            ("ratio", _) => self.ratio = Some(percentage(value, "the cache")?),
            ("first", "fullest") => self.first = First::Fullest,
            ("first", "oldest") => self.first = First::Oldest,
            ("first", _) => return Err(ModesError::First(value.to_owned())),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn percentage(text: &str, of: &'static str) -> Result<u32, ModesError> {
    let ratio = text.parse().ok().filter(|ratio| *ratio <= 100);
    ratio.ok_or_else(|| ModesError::Ratio(text.to_owned(), of))
}

/// Reads a size of whole pages: `128KiB`, `1MiB`, `128K`, `1M`.
fn pages_in(text: &str) -> Option<u64> {
    let units = [("K", 10), ("M", 20), ("G", 30)];
    let text = text.strip_suffix("iB").unwrap_or(text);
    let in_unit = |(unit, shift): (&str, u32)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(1 << shift)
    };
    let bytes = units.into_iter().find_map(in_unit)?;
    bytes.is_multiple_of(PAGE_BYTES).then_some(bytes / PAGE_BYTES)
}

fn cluster_pages(text: &str) -> Result<u32, ModesError> {
    let pages = pages_in(text).filter(|pages| (1..=CLUSTER_PAGES_MAX).contains(pages));
    pages.map(|pages| pages as u32).ok_or_else(|| ModesError::Cluster(text.to_owned()))
}

/// The largest cluster: 16 MiB.
const CLUSTER_PAGES_MAX: u64 = (16 << 20) / PAGE_BYTES;

/// ext4's commit interval.
const PERIOD_US: u64 = 5_000_000;

/// The list of modes in the form that `--writeback` reads: parsing it returns equal modes.
impl fmt::Display for Modes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("evict")?;
        if let Some(every) = self.periodic_us {
            write!(f, ",periodic:{}", Exact(every))?;
        }
        if let Some(Expire { after_us, tick_us, ratio, ram_pages }) = self.expire {
            write!(f, ",expire:{},tick={},ratio={ratio}", Exact(after_us), Exact(tick_us))?;
            if ram_pages != RAM_PAGES {
                write!(f, ",ram={}KiB", ram_pages * (PAGE_BYTES >> 10))?;
            }
            if let Some(file_system) = self.file_system {
                write!(f, ",fs={}", file_system.name())?;
            }
        }
        f.write_str(match self.syncs {
            Syncs::Nothing => "",
            Syncs::TheirFile => ",sync",
            Syncs::Everything => ",sync-all",
        })?;
        if let Some(Cluster { pages, idle_us, ratio, first }) = self.cluster {
            write!(f, ",cluster:{}KiB", pages * 4)?;
            if let Some(idle_us) = idle_us {
                write!(f, ",idle={}", Exact(idle_us))?;
            }
            if let Some(ratio) = ratio {
                write!(f, ",ratio={ratio}")?;
            }
            f.write_str(match first {
                First::Fullest => "",
                First::Oldest => ",first=oldest",
            })?;
        }
        Ok(())
    }
}

/// Reason for which a trace cannot be replayed under the modes: it lacks the information that they
/// need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsuited {
    /// A mode goes by time, and the trace has no times.
    #[error(
        "it goes by time and the trace has none: give --rate N, requests a second, or leave out \
         periodic, expire and idle"
    )]
    NoTimes,
    /// A mode writes at syncs, and this kind of trace does not record syncs.
    #[error("this kind of trace does not record syncs: leave out sync and sync-all")]
    NoSyncs,
}

/// Limit of the results for a trace that suits the modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caveat {
    /// A mode writes at syncs, and the trace has none.
    NoSyncs,
    /// A mode writes at syncs, and the trace may lack some.
    SyncsIncomplete,
    /// The modes go by file, and a block trace has one file per device.
    OneFile,
    /// So many stores through mappings are recorded without their folio.
    FoliosUnknown(u64),
}

/// The most pages of a folio: those of a huge page.
const FOLIO_PAGES_MAX: u64 = 512;

impl fmt::Display for Caveat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FoliosUnknown(stores) => {
                let more = stores.saturating_mul(FOLIO_PAGES_MAX - 1);
                return write!(
                    f,
                    "the folios of {stores} stores through mappings are unknown: the kernel writes \
                     whole folios, here up to {more} pages ({}) more",
                    show::bytes(more.saturating_mul(PAGE_BYTES))
                );
            }
            Self::NoSyncs => "the trace contains no sync: syncs write nothing",
            Self::SyncsIncomplete => {
                "this kind of trace may lack some syncs: more may have written"
            }
            Self::OneFile => {
                "a block trace has one file per device: it ages, and is synced, as a whole"
            }
        })
    }
}

/// Returns the most memory that a [`DirtyPages`] takes: half a byte per page, for dirty pages and
/// their files, and 20 bytes per file. A trace has no more files than runs.
pub fn machine_bytes(trace: &Trace) -> u64 {
    u64::from(trace.pages()) / 2 + trace.runs().len() as u64 * 20
}

impl Modes {
    /// Returns a short name, which `--writeback` reads as the same modes: that of a combination, or
    /// the list of modes.
    pub fn name(&self) -> String {
        let plain = Self { file_system: None, ..*self };
        for name in [LINUX, HYBRID_FLUSH] {
            if name.parse::<Self>().is_ok_and(|modes| modes == plain) {
                let rule =
                    self.file_system.map(|file_system| format!(",fs={}", file_system.name()));
                return name.to_owned() + &rule.unwrap_or_default();
            }
        }
        let list = self.to_string();
        list.strip_prefix("evict,").map_or(list.clone(), str::to_owned)
    }

    /// Whether only eviction writes.
    pub fn on_eviction_only(&self) -> bool {
        *self == Self::default()
    }

    /// Checks that the trace has the information that the modes need.
    ///
    /// # Errors
    ///
    /// Fails if a mode goes by time and the trace has no times, or if a mode writes at syncs and
    /// the trace neither records them all nor contains any.
    pub fn suit(&self, trace: &Trace) -> Result<(), Unsuited> {
        let knows = trace.about().knows;
        let idle_us = self.cluster.and_then(|cluster| cluster.idle_us);
        let by_time = self.periodic_us.is_some() || self.expire.is_some() || idle_us.is_some();
        if by_time && !knows.times {
            return Err(Unsuited::NoTimes);
        }
        if self.syncs != Syncs::Nothing && !knows.syncs && trace.syncing_steps() == 0 {
            return Err(Unsuited::NoSyncs);
        }
        Ok(())
    }

    /// Returns the limits of the results of these modes for a trace that suits them.
    pub fn caveats(&self, trace: &Trace) -> Vec<Caveat> {
        let mut caveats = Vec::new();
        if self.syncs != Syncs::Nothing {
            match (trace.about().knows.syncs, trace.syncing_steps()) {
                (true, 0) => caveats.push(Caveat::NoSyncs),
                (false, _) => caveats.push(Caveat::SyncsIncomplete),
                _ => {}
            }
        }
        let by_file = self.expire.is_some() || self.syncs == Syncs::TheirFile;
        if by_file && trace.about().space == Space::Blocks {
            caveats.push(Caveat::OneFile);
        }
        let stores = trace.totals().stores_without_folio;
        if stores > 0 {
            caveats.push(Caveat::FoliosUnknown(stores));
        }
        caveats
    }

    /// Describes when dirty pages are written, in words that follow "Dirty pages are written".
    pub fn when(&self) -> String {
        let mut when = vec![match self.cluster {
            None => "on eviction".to_owned(),
            Some(Cluster { pages, .. }) => format!(
                "on eviction with the dirty ones of the same {} KiB of addresses",
                pages * 4
            ),
        }];
        if let Some(Cluster { idle_us, ratio, first, .. }) = self.cluster {
            let first = match first {
                First::Fullest => "fullest",
                First::Oldest => "oldest",
            };
            if let Some(idle_us) = idle_us {
                let idle = Exact(idle_us);
                when.push(format!(
                    "the {first} such range after each {idle:#} without a request to the device"
                ));
            }
            if let Some(ratio) = ratio {
                when.push(format!(
                    "such ranges, the {first} first, when more than {ratio} % of the cache is dirty"
                ));
            }
        }
        if let Some(every) = self.periodic_us {
            when.push(format!("all of them every {:#}", Exact(every)));
        }
        if let Some(Expire { after_us, tick_us, ratio, ram_pages }) = self.expire {
            let (after, tick) = (Exact(after_us), Exact(tick_us));
            when.push(format!(
                "with their file when it has been dirty for {after:#} (looked at every {tick:#})"
            ));
            if ratio < 100 {
                when.push(format!(
                    "oldest files first when more than {ratio} % of {} is dirty",
                    show::bytes(ram_pages * PAGE_BYTES)
                ));
            }
        }
        match self.syncs {
            Syncs::Nothing => {}
            Syncs::TheirFile => when.push("by a sync of their file".to_owned()),
            Syncs::Everything => when.push("all of them at any sync".to_owned()),
        }
        if let Some(file_system) = self.file_system {
            when.push(format!("by the rule of {}", file_system.name()));
        }
        if let [only] = &when[..] { format!("{only} only") } else { when.join(", ") }
    }
}
