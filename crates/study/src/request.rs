//! The request of a study: the policies, sizes and devices to compare, and the conditions.

use super::{
    device::PreparedDevice,
    note::{Note, OmissionReason},
};
use flashsift_caches::{policy, trace::Unit};
use flashsift_events::params;
use flashsift_pages::{layout, metadata, nvm::profile, readahead, system, writeback::Modes};

/// A comparison to run over a trace. The default: every fast policy at the default sizes, dirty
/// pages written on eviction, one cell at a time, no memory limit.
#[derive(Clone)]
pub struct Request {
    /// The systems, in the order in which rows list them; empty: plain storage.
    pub systems: Vec<system::Selection>,
    /// The read-aheads, in the order in which rows list them; empty: none, and rows do not name it.
    /// The trace has the table of reads for the farthest of them.
    pub readaheads: Vec<readahead::Selection>,
    /// The policies, in the order in which rows list them.
    pub policies: Policies,
    /// Cache sizes in frames; empty: [`super::default_frames`].
    pub frames: Vec<u32>,
    /// The unit that one frame holds. The trace was built with the same unit.
    pub unit: Unit,
    /// Whether the trace was built without removals, which records tell.
    pub without_removals: bool,
    /// The layout of pages on the device; `None`: the default for the trace.
    pub layout: Option<layout::Selection>,
    /// When dirty pages are written, besides at eviction.
    pub writeback: Modes,
    /// Whether every dirty page is written at the end.
    pub drain: bool,
    /// Whether a write miss that covers a part of its page reads the page first.
    pub write_miss_reads: bool,
    /// The longest request to a device, in pages; 1 sends each page as a request.
    pub request_pages_max: u32,
    /// Whether places that become free are discarded.
    pub discards: bool,
    /// The file system whose journal and metadata are written, too.
    pub metadata: Option<metadata::Selection>,
    /// Whether the pages written are counted by program and reason. The trace then has the table
    /// of owners.
    pub attribution: bool,
    /// Modelled memory, whose time and energy are given for every cell.
    pub memory: Vec<profile::Selection>,
    /// Modelled devices that take the requests of every cell.
    pub devices: Vec<PreparedDevice>,
    /// Memory of the observer that [`super::Plan::run`] gets for a cell; `None`: it gets none.
    pub observer_bytes: Option<u64>,
    /// Memory that the trace and the running cells may take.
    pub memory_limit_bytes: u64,
    /// Cells that the caller can run at once, at least 1.
    pub workers: usize,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            systems: Vec::new(),
            readaheads: Vec::new(),
            policies: Policies::all(),
            frames: Vec::new(),
            unit: Unit::Page,
            without_removals: false,
            layout: None,
            writeback: Modes::default(),
            drain: false,
            write_miss_reads: false,
            request_pages_max: 128,
            discards: true,
            metadata: None,
            attribution: false,
            memory: Vec::new(),
            devices: Vec::new(),
            observer_bytes: None,
            memory_limit_bytes: u64::MAX,
            workers: 1,
        }
    }
}

/// Policies with their parameters, each once, in the order asked for.
///
/// `all` stands for every policy that is fast at any size. A policy that only `all` asked for is
/// left out if it does not fit into memory; a policy asked for by name is an error then.
#[derive(Clone, Default)]
pub struct Policies {
    chosen: Vec<Choice>,
    all: bool,
}

#[derive(Clone)]
struct Choice {
    policy: policy::Selection,
    by_name: bool,
}

impl Policies {
    /// Reads the policies. Each text is `all`, `name` or `name:key=value,…`.
    ///
    /// # Errors
    /// A text names no policy, or gives a parameter that its policy does not take.
    pub fn parse<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Result<Self, params::Error> {
        let mut policies = Self::default();
        for text in texts {
            match text.as_ref() {
                all if all.eq_ignore_ascii_case("all") => policies.add_all(),
                text => policies.add(policy::Selection::parse(text)?),
            }
        }
        Ok(policies)
    }

    /// Returns every policy that is fast at any size.
    pub fn all() -> Self {
        let mut policies = Self::default();
        policies.add_all();
        policies
    }

    /// Adds a policy by name.
    pub fn add(&mut self, policy: policy::Selection) {
        match self.chosen.iter_mut().find(|choice| choice.policy.label() == policy.label()) {
            Some(choice) => choice.by_name = true,
            None => self.chosen.push(Choice { policy, by_name: true }),
        }
    }

    /// Adds every policy that is fast at any size.
    pub fn add_all(&mut self) {
        self.all = true;
        for policy in policy::all() {
            if self.chosen.iter().all(|choice| choice.policy.label() != policy.label()) {
                self.chosen.push(Choice { policy, by_name: false });
            }
        }
    }

    /// Returns whether no policy was asked for.
    pub fn is_empty(&self) -> bool {
        self.chosen.is_empty()
    }

    /// Returns each policy, in the order asked for.
    pub fn iter(&self) -> impl Iterator<Item = &policy::Selection> {
        self.chosen.iter().map(|choice| &choice.policy)
    }

    /// Returns whether offline policies may be left out: only `all` asked for them.
    pub(super) fn offline_is_optional(&self) -> bool {
        let named = |choice: &Choice| choice.by_name && choice.policy.spec.kind.is_offline();
        self.all && !self.chosen.iter().any(named)
    }

    /// Returns an offline policy that was asked for by name.
    pub(super) fn named_offline(&self) -> Option<&'static str> {
        let named = |choice: &&Choice| choice.by_name && choice.policy.spec.kind.is_offline();
        self.chosen.iter().find(named).map(|choice| choice.policy.spec.name)
    }

    /// Returns a note on the slow policies, if `all` was asked for and none of them by name.
    pub(super) fn left_out_as_slow(&self) -> Option<Note> {
        let left_out = self.all && !self.iter().any(|policy| policy.spec.slow);
        left_out.then(|| Note::left_out(OmissionReason::Slow, |spec| spec.slow))
    }
}
