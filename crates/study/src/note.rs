//! Notes that a reader of a study's figures needs.

use super::error::FutureProblem;
use flashsift_caches::policy;
use flashsift_events::show;
use flashsift_pages::{
    device::{Fill, lifetime::GUESS_BELOW_US, wear::COLLECTED_MIN},
    writeback::{Caveat, Modes},
};
use std::fmt;

/// A note on a study; [`fmt::Display`] writes it as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The write-back modes suit the trace only in part.
    WriteBack(Caveat),
    /// Policies that `all` leaves out in this study.
    LeftOut {
        /// Their names.
        policies: Vec<&'static str>,
        /// The reason.
        reason: OmissionReason,
    },
    /// The recording tells no place of some pages.
    PagesWithoutPlaces {
        /// Their number.
        without: u32,
        /// Pages of the trace.
        pages: u32,
    },
    /// The unit of reads and writes.
    Units,
    /// The trace is of objects, and the cache of pages.
    PagesOfObjects,
    /// The cost model, and the meaning of sequential.
    Costs,
    /// The layout.
    Layout(&'static str),
    /// Some pages were read or written past the cache.
    Direct {
        /// Pages read.
        reads: u64,
        /// Pages written.
        writes: u64,
    },
    /// Some pages were dropped dirty.
    DroppedDirty,
    /// When dirty pages are written.
    WhenWritten {
        /// The modes of write-back.
        modes: Modes,
        /// The file system whose own writes are counted apart; `None`: they are not modelled.
        metadata: Option<String>,
    },
    /// The trace was recorded below a cache.
    AfterCache,
    /// The figures of read-ahead are bounds: the trace lacks facts that decide on windows.
    ReadAheadBounds {
        /// It tells which open file was read.
        opens: bool,
        /// It tells the sizes of files.
        sizes: bool,
    },
    /// The meaning of the cases of reads.
    ReadCases {
        /// The trace has times.
        times: bool,
    },
    /// Devices are models; the meaning of elapsed time.
    Devices,
    /// Memory is modelled; what its figures contain.
    Memory,
    /// The meaning of stalls.
    Stall,
    /// The trace has no times.
    StallUnknown,
    /// The meaning of a lifetime gain.
    LifetimeGain {
        /// The policy that the others are compared with.
        reference: String,
    },
    /// The meaning of bytes a day, drive writes a day and years.
    Years {
        /// Duration that was scaled to a day, microseconds.
        observed_us: u64,
        /// Labels of devices whose write amplification is that of random writes, because a run did
        /// not show it.
        random_writes: Vec<String>,
    },
    /// Devices without a figure of endurance have no years.
    NoEndurance {
        /// Their labels.
        devices: Vec<String>,
    },
    /// The state of some devices before the first request.
    Filled {
        /// Their labels.
        devices: Vec<String>,
        /// The state.
        fill: Fill,
    },
    /// The speed of some devices is their vendor's best case.
    BestCase {
        /// Their labels.
        devices: Vec<String>,
    },
    /// Some runs were too short to show a write amplification.
    AmplificationNotShown,
}

/// The reason for which a policy is left out of `all`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OmissionReason {
    /// Its cost grows with the cache.
    Slow,
    /// It needs the future of the trace, which cannot be held.
    Future(FutureProblem),
}

impl Note {
    pub(super) fn left_out(reason: OmissionReason, which: fn(&policy::PolicySpec) -> bool) -> Self {
        let specs = policy::ALL.iter().filter(|spec| which(spec));
        Self::LeftOut { policies: specs.map(|spec| spec.name).collect(), reason }
    }
}

impl fmt::Display for OmissionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slow => f.write_str("its cost grows with the cache"),
            Self::Future(problem) => problem.fmt(f),
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WriteBack(caveat) => caveat.fmt(f),
            Self::LeftOut { policies, reason } => {
                let policies = policies.join("`, `");
                write!(f, "`all` does not include `{policies}` ({reason}); ask for it by name")
            }
            Self::PagesWithoutPlaces { without, pages } => write!(
                f,
                "the recording tells no place of {without} of {pages} pages; they lie beside their \
                 file's other pages or behind all"
            ),
            Self::Units => f.write_str("Reads and writes in pages."),
            Self::PagesOfObjects => f.write_str(
                "The trace is of objects, and hits count their pages of 4 KiB: --object-cache \
                 counts requests for objects.",
            ),
            Self::Costs => f.write_str(
                "Cost: 100 µs a page read, 800 µs a page written. Not sequential: not right \
                 behind the write before it.",
            ),
            Self::Layout(layout) => write!(f, "Places on the device: {layout}."),
            Self::Direct { reads, writes } => write!(
                f,
                "Among reads and writes, for every policy: {} read and {} written past the cache \
                 (O_DIRECT).",
                show::counted(*reads, "page"),
                show::counted(*writes, "page")
            ),
            Self::DroppedDirty => f.write_str(
                "Dropped dirty: pages whose file was cut or deleted before they were written: \
                 writes saved.",
            ),
            Self::WhenWritten { modes, metadata: None } => write!(
                f,
                "Dirty pages are written {}. Journal and metadata writes are not modelled.",
                modes.when()
            ),
            Self::WhenWritten { modes, metadata: Some(metadata) } => write!(
                f,
                "Dirty pages are written {}. Writes of the journal and of metadata in place \
                 ({metadata}) are counted apart.",
                modes.when()
            ),
            Self::AfterCache => f.write_str(
                "After-cache trace: the hits that matter to applications are no longer in it.",
            ),
            Self::ReadAheadBounds { opens, sizes } => {
                let lacks = [
                    (
                        *opens,
                        "which open file was read, so all reads of a file count as one reader",
                    ),
                    (*sizes, "the sizes of files, so read-ahead ends with the last byte read"),
                ];
                let lacks = lacks.iter().filter(|(known, _)| !known).map(|(_, lack)| *lack);
                let lacks = lacks.collect::<Vec<_>>().join("; nor ");
                write!(f, "The figures of read-ahead are bounds. The trace does not tell {lacks}.")
            }
            Self::ReadCases { times } => {
                f.write_str(
                    "Cases of reads: nothing was missing in the cache; pages came into free \
                     frames; clean pages left for them; dirty pages were written first. µs: mean \
                     time of a read's requests and of these writes, as fast as the device can.",
                )?;
                match times {
                    true => f.write_str(
                        " Wait µs: the same at recorded times, behind earlier requests and until \
                         pages read ahead have arrived.",
                    ),
                    false => Ok(()),
                }
            }
            Self::Memory => f.write_str(
                "Memory is modelled: accesses of applications and copies between DRAM and NVM, by \
                 lines of 64 bytes, without transfers from and to storage. Left in NVM: pages of \
                 which storage has an older version, or none.",
            ),
            Self::Devices => f.write_str(
                "Devices are modelled: flashsift list devices NAME has every constant with its \
                 source. Elapsed: all requests as fast as the device can, one at a time.",
            ),
            Self::Stall => f.write_str(
                "Stall: with requests at their recorded times, how long applications wait for \
                 reads, for writes that must be durable, and for the frames of dirty pages.",
            ),
            Self::StallUnknown => {
                f.write_str("Stall is not known: the trace has no times (--rate N gives it some).")
            }
            Self::LifetimeGain { reference } => write!(
                f,
                "Lifetime gain: over {reference}, by CacheSifter's equation 3 with n = 1, the same \
                 cycles, over-provisioning and hours of use, no compression: pages programmed \
                 under {reference} / pages programmed − 1. Pages still dirty count as written, \
                 copies still due as made."
            ),
            Self::Years { observed_us, random_writes } => {
                write!(
                    f,
                    "GB/day, drive writes and years take every day to be like this trace of {}, \
                     without pause, and pages still dirty at its end as written. Years: \
                     CacheSifter's equation 3 with the profile's cycles and capacity and the \
                     write amplification of the run.",
                    show::duration(*observed_us)
                )?;
                if !random_writes.is_empty() {
                    write!(
                        f,
                        " Where {} shows none, it is that of random writes everywhere: the years \
                         are then a low estimate.",
                        random_writes.join(", ")
                    )?;
                }
                match *observed_us < GUESS_BELOW_US {
                    true => f.write_str(" Less than an hour was scaled to a day: it is a guess."),
                    false => Ok(()),
                }
            }
            Self::NoEndurance { devices } => {
                write!(f, "No years for {}: no endurance figure.", devices.join(", "))
            }
            Self::Filled { devices, fill } => {
                let fill = match fill {
                    Fill::Empty => "empty",
                    Fill::InOrder => "full, written in order",
                    Fill::Random => {
                        "full and aged, in the steady state after random writes everywhere"
                    }
                };
                write!(f, "Before the first request, {}: {fill}.", devices.join(", "))
            }
            Self::BestCase { devices } => write!(
                f,
                "Speeds of {} follow from the vendor's best case; flashsift list devices NAME \
                 names these constants.",
                devices.join(", ")
            ),
            Self::AmplificationNotShown => write!(
                f,
                "No write amplification (–) where garbage collection freed fewer than \
                 {COLLECTED_MIN} blocks: the run wrote too little to show it."
            ),
        }
    }
}
