//! Spatial sampling: the accesses to a share of the pages, chosen by a hash of their place.
//!
//! Waldspurger et al., "Efficient MRC Construction with SHARDS", FAST '15: a cache of `R · n`
//! frames over a share `R` of the pages has about the hit ratio of a cache of `n` frames over all
//! of them.
//! Samples of other numbers hold other pages, so that their spread shows the error.

use super::Unit;
use flashsift_events::{
    event::{About, Action, Event, FileId, OpenId, Space},
    page::PAGE_BYTES,
};

/// The largest share of pages that each of [`SAMPLES`] disjoint samples can have.
pub const RATE_MAX: f64 = 1.0 / SAMPLES as f64;

/// Number of disjoint samples, of which the error is estimated.
pub const SAMPLES: usize = 4;

/// Sorts accesses into samples by their pages, and passes every other event on to each of them.
#[derive(Clone, Debug)]
pub struct Sampler {
    unit: Unit,
    /// Objects are what begins at one place of a file or device.
    keyed_by_place: bool,
    /// Hashes of a sample: the first sample has the lowest ones.
    hashes: u64,
    read_accesses: u64,
    write_accesses: u64,
}

/// The events of each sample.
pub type Sampled = [Vec<Event<'static>>; SAMPLES];

impl Sampler {
    /// Returns a sampler for samples that each have this share of the pages.
    ///
    /// # Panics
    /// If the rate is not above 0 and at most [`RATE_MAX`].
    pub fn new(unit: Unit, rate: f64) -> Self {
        assert!(rate > 0.0 && rate <= RATE_MAX, "{rate} is no rate");
        let hashes = ((rate * u64::MAX as f64) as u64).max(1);
        Self { unit, hashes, keyed_by_place: false, read_accesses: 0, write_accesses: 0 }
    }

    /// Tells the sampler what the trace is about, before its events.
    pub fn about(&mut self, about: &About) {
        self.keyed_by_place = about.space != Space::Objects;
    }

    /// Returns the pages that all events until now read and write, in a sample or not.
    pub fn accesses(&self) -> (u64, u64) {
        (self.read_accesses, self.write_accesses)
    }

    /// Returns the sample that holds a page, if one does.
    #[inline]
    fn sample_of(&self, file: FileId, page: u64) -> Option<usize> {
        let number = hash(file, page) / self.hashes;
        (number < SAMPLES as u64).then_some(number as usize)
    }

    /// Appends an event to the samples. A request becomes one for each run of pages in a sample.
    pub fn take(&mut self, event: &Event<'static>, into: &mut Sampled) {
        let (file, offset, len) = match event.action {
            Action::Read { file, offset, len, .. }
            | Action::Write { file, offset, len, .. }
            | Action::Direct { file, offset, len, .. } => (file, offset, len),
            Action::Folio { file, offset, len } if len > 0 => (file, offset, len),
            _ => return into.iter_mut().for_each(|sample| sample.push(event.clone())),
        };
        let end = offset.saturating_add(len);
        let (first, last) = (offset / PAGE_BYTES, end.saturating_sub(1) / PAGE_BYTES);
        let pages = match (self.unit, len) {
            (Unit::Request, _) => 1,
            (Unit::Page, 0) => 0,
            (Unit::Page, _) => last - first + 1,
        };
        match event.action {
            Action::Read { .. } => self.read_accesses += pages,
            Action::Write { .. } => self.write_accesses += pages,
            _ => {}
        }
        if self.unit == Unit::Request && !matches!(event.action, Action::Folio { .. }) {
            // An object is one unit, whatever its size.
            let place = if self.keyed_by_place { offset } else { 0 };
            if let Some(sample) = self.sample_of(file, place) {
                into[sample].push(event.clone());
            }
            return;
        }
        let (mut from, end_page) = (first, first + pages);
        while from < end_page {
            let sample = self.sample_of(file, from);
            let mut page = from + 1;
            while page < end_page && self.sample_of(file, page) == sample {
                page += 1;
            }
            if let Some(sample) = sample {
                let from_bytes = (from * PAGE_BYTES).max(offset);
                let to_bytes = page.saturating_mul(PAGE_BYTES).min(end);
                into[sample].push(part(event, from_bytes, to_bytes - from_bytes));
            }
            from = page;
        }
    }
}

/// Returns a part of a request.
fn part(event: &Event<'static>, offset: u64, len: u64) -> Event<'static> {
    let action = match event.action {
        Action::Read { file, open, .. } => Action::Read { file, open, offset, len },
        Action::Write { file, open, sync, .. } => Action::Write { file, open, offset, len, sync },
        Action::Direct { file, open, write, .. } => direct(file, open, offset, len, write),
        Action::Folio { file, .. } => Action::Folio { file, offset, len },
        ref other => other.clone(),
    };
    Event { action, ..event.clone() }
}

fn direct(
    file: FileId,
    open: Option<OpenId>,
    offset: u64,
    len: u64,
    write: bool,
) -> Action<'static> {
    Action::Direct { file, open, offset, len, write }
}

/// Returns a number that looks random, the same in each run: SplitMix64 of both numbers.
fn hash(file: FileId, page: u64) -> u64 {
    let mix = |number: u64| {
        let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    };
    mix(mix(file.0.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ page.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use super::{RATE_MAX, SAMPLES, Sampled, Sampler, hash};
    use crate::trace::Unit;
    use flashsift_events::{
        event::{Action, Event, FileId},
        page::PAGE_BYTES,
    };
    use std::collections::BTreeMap;

    fn read(file: u64, offset: u64, len: u64) -> Event<'static> {
        let action = Action::Read { file: FileId(file), open: None, offset, len };
        Event { at_us: 1, pid: 2, tid: 3, action }
    }

    /// Returns the bytes that are read of each page.
    fn pages(events: &[Event<'static>]) -> BTreeMap<(u64, u64), u64> {
        let mut pages = BTreeMap::new();
        for event in events {
            let Action::Read { file, offset, len, .. } = event.action else { continue };
            for page in offset / PAGE_BYTES..=(offset + len - 1) / PAGE_BYTES {
                let from = offset.max(page * PAGE_BYTES);
                let to = (offset + len).min((page + 1) * PAGE_BYTES);
                *pages.entry((file.0, page)).or_default() += to - from;
            }
        }
        pages
    }

    /// At the largest rate, each byte of each request is in exactly one sample, and each page
    /// always in the same one.
    // Promises: Sampling and sweeps 1.
    #[test]
    fn samples_are_disjoint_and_complete() {
        let requests: Vec<_> = (0..400_u64)
            .map(|n| read(n % 7, (n * 7919) % 100_000, 1 + (n * 104_729) % 50_000))
            .collect();
        let mut all: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        let mut sampler = Sampler::new(Unit::Page, RATE_MAX);
        let mut samples = Sampled::default();
        requests.iter().for_each(|request| sampler.take(request, &mut samples));
        for sample in samples {
            assert!(!sample.is_empty());
            for (page, bytes) in pages(&sample) {
                assert_eq!(all.insert(page, bytes), None, "{page:?} is in two samples");
            }
        }
        let whole: u64 =
            requests.iter().map(|one| pages(std::slice::from_ref(one)).len() as u64).sum();
        assert_eq!(sampler.accesses(), (whole, 0));
        assert_eq!(all, pages(&requests));
    }

    /// Neighbouring pages of neighbouring files fall into a sample as often as its rate says.
    // Promises: Sampling and sweeps 1.
    #[test]
    fn a_sample_has_its_share_of_pages() {
        for rate in [0.001, 0.01, 0.1, 0.25] {
            let sampler = Sampler::new(Unit::Page, rate);
            let mut counts = [0; SAMPLES];
            for n in 0..1_000_000 {
                if let Some(sample) = sampler.sample_of(FileId(n / 1000), n % 1000) {
                    counts[sample] += 1;
                }
            }
            for count in counts {
                let found = f64::from(count) / 1e6;
                // Five standard deviations.
                assert!((found - rate).abs() < 5.0 * (rate / 1e6).sqrt(), "{found} for {rate}");
            }
        }
        assert_ne!(hash(FileId(1), 2), hash(FileId(2), 1));
    }

    #[test]
    fn what_is_no_access_is_kept_and_objects_stay_whole() {
        let mut sampler = Sampler::new(Unit::Page, 0.001);
        let mut samples = Sampled::default();
        let gone = Event { action: Action::Gone { file: FileId(5) }, ..read(5, 0, 1) };
        sampler.take(&gone, &mut samples);
        sampler.take(&read(5, 0, 0), &mut samples);
        assert!(samples.iter().all(|sample| sample.len() == 1));
        assert_eq!(sampler.accesses(), (0, 0));
        let mut objects = Sampled::default();
        let mut sampler = Sampler::new(Unit::Request, RATE_MAX);
        (0..1000).for_each(|n| sampler.take(&read(n, 0, 1 << 20), &mut objects));
        assert_eq!(objects.iter().map(Vec::len).sum::<usize>(), 1000);
        assert!(objects.iter().all(|sample| (150..350).contains(&sample.len())));
        assert_eq!(sampler.accesses(), (1000, 0));
    }
}
