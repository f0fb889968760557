//! When dirty pages leave the cache other than by eviction: the modes of `--writeback`, as a
//! machine without I/O. SEMANTICS.md, "Write-back", defines them.
//!
//! Modes are combined. Eviction writes what is dirty in all of them, and with none of them nothing else does. They are:
//!
//! - `periodic:5s`: at each multiple of this time from the trace's beginning, everything dirty. This is how papers describe
//!   ext4's commit (Lim & Bahn, "Characterizing File Accesses in Android Applications and Caching Implications", IEEE Access
//!   2021, §III). The ext4 of today does so only with `nodelalloc` or `data=journal`: otherwise its commit waits for no data
//!   whose place is not allocated yet.
//! - `expire:30s,tick=5s,ratio=10`: Linux' flusher, by `vm.dirty_expire_centisecs`, `vm.dirty_writeback_centisecs` and
//!   `vm.dirty_background_ratio` (the kernel's `Documentation/admin-guide/sysctl/vm.rst`). At each multiple of `tick`, files
//!   whose age has reached `expire` are written, whole: the kernel ages inodes, not pages. A file's age counts from its first
//!   dirtying after the flusher last saw it; neither fsync nor eviction makes it young again. And as soon as a request
//!   leaves more than `ratio` percent of the cache dirty, files are written, whole, the oldest first, until no more than
//!   that is: the memory that the kernel takes the ratio of is here the cache. `vm.dirty_ratio`, at which writers have to
//!   wait, is never reached, since writing takes no time here.
//! - `sync`: fsync, fdatasync, `msync`, `sync_file_range` and writes with `O_SYNC` write the dirty pages of their range of
//!   their file (for all but the last two usually the whole file), `sync` and `syncfs` everything dirty.
//! - `sync-all`: any of these writes everything dirty (Lim & Bahn).
//!
//! Order: files by their first dirtying (as above), pages of a file ascending; `sync-all` ascending over all files. Pages
//! that are written stay, clean. A block trace has one file a device.

use crate::{
    duration::{DurationError, Exact, parse_us},
    event::Space,
    trace::Trace,
};
use std::{fmt, str::FromStr};

mod machine;

#[cfg(test)]
mod tests;

pub use machine::Machine;
pub(crate) use machine::{OnEviction, WriteBack};

/// Which modes are on. The default is none of them: dirty pages are written when they are evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// Everything dirty, so often.
    pub periodic_us: Option<u64>,
    /// Files of this age, and the oldest where too much is dirty.
    pub expire: Option<Expire>,
    /// What syncs write.
    pub syncs: Syncs,
}

/// Linux' flusher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expire {
    /// A file is written at this age.
    pub after_us: u64,
    /// How often the flusher looks.
    pub tick_us: u64,
    /// Percent of the cache that may be dirty; at 100 it all may.
    pub ratio: u32,
}

impl Default for Expire {
    /// The kernel's own defaults.
    fn default() -> Self {
        Self { after_us: 30_000_000, tick_us: 5_000_000, ratio: 10 }
    }
}

/// What calls like fsync write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Syncs {
    /// Nothing.
    #[default]
    Nothing,
    /// What they ask for.
    TheirFile,
    /// Everything dirty.
    Everything,
}

/// Every mode and name for several, for help: what is given, and what it does.
pub const ALL: &[(&str, &str)] = &[
    ("evict", "what is evicted; so it is in every mode"),
    ("periodic:5s", "everything, so often (ext4's commit, as papers have it)"),
    ("expire:30s,tick=5s,ratio=10", "Linux' flusher: old files; the oldest above 10 % dirty"),
    ("sync", "what fsync, fdatasync, sync_file_range, O_SYNC ask for"),
    ("sync-all", "everything, at any of these"),
    (LINUX, "expire:30s,tick=5s,ratio=10,sync: Linux by default"),
    (HYBRID_FLUSH, "periodic:5s,sync-all: Android in the Hybrid Flush paper"),
];

const LINUX: &str = "linux";
const HYBRID_FLUSH: &str = "hf";

/// A text that names no modes.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModesError {
    /// No such mode.
    #[error(
        "no mode of write-back is called `{0}`; there are: evict, periodic:5s, expire:30s, sync, sync-all, linux and hf"
    )]
    Mode(String),
    /// A parameter that belongs to no mode before it.
    #[error("`{0}` belongs to no mode: expire takes tick and ratio, as in expire:30s,tick=5s,ratio=10")]
    Param(String),
    /// Not a time.
    #[error(transparent)]
    Time(#[from] DurationError),
    /// Not a share.
    #[error("ratio={0}: it is a percentage of the cache, 0 to 100")]
    Ratio(String),
}

impl FromStr for Modes {
    type Err = ModesError;

    /// Modes with commas between them, in any order; what comes later counts.
    fn from_str(text: &str) -> Result<Self, ModesError> {
        let mut modes = Self::default();
        let mut in_expire = false;
        for part in text.split(',').map(str::trim) {
            let unknown = || ModesError::Mode(part.to_owned());
            let is_param = part.contains('=') && !part.contains(':');
            if let Some((key, value)) = part.split_once('=').filter(|_| is_param) {
                let expire = modes.expire.as_mut().filter(|_| in_expire);
                match (key, expire) {
                    ("tick", Some(expire)) => expire.tick_us = parse_us(value)?,
                    ("ratio", Some(expire)) => {
                        let ratio = value.parse().ok().filter(|ratio| *ratio <= 100);
                        expire.ratio = ratio.ok_or_else(|| ModesError::Ratio(value.to_owned()))?;
                    }
                    _ => return Err(ModesError::Param(part.to_owned())),
                }
                continue;
            }
            in_expire = false;
            match part.split_once(':') {
                Some(("periodic", every)) => modes.periodic_us = Some(parse_us(every)?),
                Some(("expire", after)) => {
                    modes.expire = Some(Expire { after_us: parse_us(after)?, ..Expire::default() });
                    in_expire = true;
                }
                Some(_) => return Err(unknown()),
                None => match part {
                    "evict" => {}
                    "periodic" => modes.periodic_us = Some(PERIOD_US),
                    "expire" => {
                        modes.expire = Some(Expire::default());
                        in_expire = true;
                    }
                    "sync" => modes.syncs = Syncs::TheirFile,
                    "sync-all" => modes.syncs = Syncs::Everything,
                    LINUX => {
                        (modes.expire, modes.syncs) = (Some(Expire::default()), Syncs::TheirFile);
                        in_expire = true;
                    }
                    HYBRID_FLUSH => {
                        (modes.periodic_us, modes.syncs) = (Some(PERIOD_US), Syncs::Everything);
                    }
                    _ => return Err(unknown()),
                },
            }
        }
        Ok(modes)
    }
}

/// ext4's commit interval.
const PERIOD_US: u64 = 5_000_000;

/// As they are given: reading it again gives the same.
impl fmt::Display for Modes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("evict")?;
        if let Some(every) = self.periodic_us {
            write!(f, ",periodic:{}", Exact(every))?;
        }
        if let Some(Expire { after_us, tick_us, ratio }) = self.expire {
            write!(f, ",expire:{},tick={},ratio={ratio}", Exact(after_us), Exact(tick_us))?;
        }
        f.write_str(match self.syncs {
            Syncs::Nothing => "",
            Syncs::TheirFile => ",sync",
            Syncs::Everything => ",sync-all",
        })
    }
}

/// Modes that a trace says too little for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsuited {
    /// Something is to be written at a time.
    #[error(
        "it goes by time and the trace has none: give --rate N, requests a second, or leave periodic and expire out"
    )]
    NoTimes,
    /// Syncs are to write, and cannot be known.
    #[error("this kind of trace does not tell who syncs: leave sync and sync-all out")]
    NoSyncs,
}

/// How far a trace, which suits the modes, answers for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caveat {
    /// Syncs are to write, and the trace has none.
    NoSyncs,
    /// Syncs are to write, and the trace may lack some.
    SyncsIncomplete,
    /// The modes go by file, and a block trace has one file a device.
    OneFile,
}

impl fmt::Display for Caveat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSyncs => "nobody syncs in this trace: syncs write nothing",
            Self::SyncsIncomplete => "this kind of trace tells syncs incompletely: more may have written",
            Self::OneFile => "a block trace has one file a device: it ages, and is synced, as a whole",
        })
    }
}

/// Memory that a [`Machine`] takes at most: what is dirty and whose, by page; since when, by file, of which there are no more
/// than runs.
pub fn machine_bytes(trace: &Trace) -> u64 {
    u64::from(trace.pages()) / 2 + trace.runs().len() as u64 * 20
}

impl Modes {
    /// Nothing but eviction writes.
    pub fn on_eviction_only(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a trace says what the modes go by.
    pub fn suit(&self, trace: &Trace) -> Result<(), Unsuited> {
        let knows = trace.about().knows;
        if (self.periodic_us.is_some() || self.expire.is_some()) && !knows.times {
            return Err(Unsuited::NoTimes);
        }
        if self.syncs != Syncs::Nothing && !knows.syncs && trace.syncing_steps() == 0 {
            return Err(Unsuited::NoSyncs);
        }
        Ok(())
    }

    /// What to know of these modes over this trace, which suits them.
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
        caveats
    }

    /// When dirty pages are written, in words that follow "Dirty pages are written".
    pub fn when(&self) -> String {
        let mut when = vec!["on eviction".to_owned()];
        if let Some(every) = self.periodic_us {
            when.push(format!("all of them every {:#}", Exact(every)));
        }
        if let Some(Expire { after_us, tick_us, ratio }) = self.expire {
            let (after, tick) = (Exact(after_us), Exact(tick_us));
            when.push(format!(
                "with their file when it has been dirty for {after:#} (looked at every {tick:#})"
            ));
            if ratio < 100 {
                when.push(format!("oldest files first when more than {ratio} % of the cache is dirty"));
            }
        }
        match self.syncs {
            Syncs::Nothing => {}
            Syncs::TheirFile => when.push("by a sync of their file".to_owned()),
            Syncs::Everything => when.push("all of them at any sync".to_owned()),
        }
        if let [only] = &when[..] { format!("{only} only") } else { when.join(", ") }
    }
}
