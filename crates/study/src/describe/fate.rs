//! Fate of each page write: overwritten or deleted soon or later, and whether it was ever read.
//!
//! A version of a page lasts from the request that writes it to the next write into the page, or to
//! the truncation, hole or deletion that removes the page. Soon means within the time after which
//! the kernel writes dirty pages back ([`WRITE_BACK_US`](super::WRITE_BACK_US)): unless a sync came
//! between, that version never had to reach flash. Content that a file still has when it is deleted
//! later was written to flash for nothing.
//!
//! Bytes count as read as soon as any part of their page is read after them. A request that writes
//! a whole page ends the unread bytes in it. So "never read" is a lower bound.

use super::{
    Characterisation, CharacterisationSpec, Figure, Found, Ledger, Need, Seen, Value,
    WRITE_BACK_US,
    page_set::{PageSet, removed},
};
use flashsift_events::{
    event::{About, Action, Event, Knows},
    page::PAGE_BYTES,
};
use prefetch_index::prefetch_index;

pub(super) const SPEC: CharacterisationSpec = CharacterisationSpec {
    name: "fate",
    title: "Fate of the page writes",
    paper: "Liang et al., CacheSifter: §1 and §5.1 (the kernel's 30 s)",
    paper_saw: "Android writes cache files back 30 s after they are written; some are used only once throughout \
                their lifetime, some deleted without being read again at all.",
    opens: true,
    needs: &[Need::Writes],
    build: |setup| Box::new(Fate::new(setup.about)),
};

/// The current version of a page.
#[derive(Clone, Copy, Default)]
struct Version {
    written_us: u64,
    /// Bytes written to the page and not read yet.
    unread_bytes: u32,
    exists: bool,
}

#[derive(Default)]
struct Count {
    soon: u64,
    later: u64,
}

impl Count {
    fn add(&mut self, lasted_us: u64) {
        *if lasted_us < WRITE_BACK_US { &mut self.soon } else { &mut self.later } += 1;
    }

    fn all(&self) -> u64 {
        self.soon + self.later
    }
}

struct Fate {
    removals: bool,
    versions: Vec<Version>,
    /// Pages with a version, if the trace can remove them.
    existing: PageSet,
    page_writes: u64,
    written_bytes: u64,
    rewritten: Count,
    removed: Count,
    never_read_bytes: u64,
}

impl Fate {
    fn new(about: &About) -> Self {
        Self {
            removals: about.knows.removals,
            versions: Vec::new(),
            existing: PageSet::default(),
            page_writes: 0,
            written_bytes: 0,
            rewritten: Count::default(),
            removed: Count::default(),
            never_read_bytes: 0,
        }
    }
}

impl Characterisation for Fate {
    fn event(&mut self, event: &Event, seen: &Seen<'_>) {
        match event.action {
            Action::Read { .. } => {
                for page in seen.pages {
                    if let Some(version) = self.versions.get_mut(*page as usize) {
                        version.unread_bytes = 0;
                    }
                }
            }
            Action::Write { file, offset, len, .. } => {
                let Some(most) = seen.pages.iter().max() else { return };
                self.versions
                    .resize((*most as usize + 1).max(self.versions.len()), Version::default());
                self.page_writes += seen.pages.len() as u64;
                self.written_bytes = self.written_bytes.saturating_add(len);
                for (number, page) in (offset / PAGE_BYTES..).zip(seen.pages) {
                    let version = &mut self.versions[*page as usize];
                    if version.exists {
                        self.rewritten.add(event.at_us - version.written_us);
                    } else if self.removals {
                        self.existing.insert(file, number);
                    }
                    let start = offset.max(number * PAGE_BYTES);
                    let bytes = offset.saturating_add(len).min((number + 1) * PAGE_BYTES) - start;
                    if bytes == PAGE_BYTES {
                        self.never_read_bytes += u64::from(version.unread_bytes);
                        version.unread_bytes = 0;
                    }
                    let unread_bytes = version.unread_bytes.saturating_add(bytes as u32);
                    *version = Version { written_us: event.at_us, unread_bytes, exists: true };
                }
            }
            _ => {
                let Some((file, pages)) = removed(&event.action).filter(|_| self.removals) else {
                    return;
                };
                let Self { existing, versions, removed, never_read_bytes, .. } = self;
                existing.drain(file, pages, |number| {
                    let page = seen.ledger.pages.find(file, number).expect("it was written");
                    let version = std::mem::take(&mut versions[page as usize]);
                    removed.add(event.at_us - version.written_us);
                    *never_read_bytes += u64::from(version.unread_bytes);
                });
            }
        }
    }

    fn prefetch(&self, pages: &[u32]) {
        pages.iter().for_each(|page| prefetch_index(&self.versions, *page as usize));
    }

    fn held_bytes(&self) -> usize {
        self.versions.len() * size_of::<Version>() + self.existing.held_bytes()
    }

    fn finish(&mut self, ledger: &Ledger, _: usize) -> Result<Found, &'static str> {
        if self.page_writes == 0 {
            return Err("no writes");
        }
        let left = self.versions.iter().filter(|version| version.exists).count() as u64;
        self.never_read_bytes +=
            self.versions.iter().map(|version| u64::from(version.unread_bytes)).sum::<u64>();
        let page_writes = self.page_writes;
        let part = |key, label, count| {
            Figure::new(key, label, Value::Count(count)).share(count, page_writes)
        };
        let Knows { times, removals, .. } = ledger.about.knows;
        let Self { rewritten, removed, .. } = self;
        let mut figures = Vec::new();
        if times {
            figures.push(part(
                "rewritten_soon",
                "page writes written again within 30 s",
                rewritten.soon,
            ));
            figures.push(part("rewritten_later", "written again later", rewritten.later));
        } else {
            figures.push(part("rewritten", "page writes written again", rewritten.all()));
        }
        match (removals, times) {
            (true, true) => {
                figures.push(part(
                    "removed_soon",
                    "deleted or truncated within 30 s",
                    removed.soon,
                ));
                figures.push(part("removed_later", "deleted or truncated later", removed.later));
            }
            (true, false) => figures.push(part("removed", "deleted or truncated", removed.all())),
            (false, _) => {}
        }
        figures.push(part("left", "still there at the end", left));
        let label = "bytes never read after they were written";
        let never_read =
            Figure::new("never_read_bytes", label, Value::Bytes(self.never_read_bytes));
        figures.push(never_read.share(self.never_read_bytes, self.written_bytes));
        let mut found = Found::default().figures(figures);
        if times {
            found = found.note(
                "Page writes that end within 30 s need no write-back, unless a sync comes first.",
            );
        }

        // Without times, the two writes of a page may be hours apart.
        let soon = if times { rewritten.soon } else { 0 };
        let share = |part| Value::share(part, page_writes).into();
        found.sentence = match (soon, removed.all()) {
            (0, 0) => None,
            (soon, 0) => {
                Some(vec![share(soon), "of the page writes are written again within 30 s.".into()])
            }
            (0, gone) => Some(vec![
                share(gone),
                "of the page writes are deleted or truncated before the trace ends.".into(),
            ]),
            (soon, gone) => Some(vec![
                share(soon + gone),
                "of the page writes do not last:".into(),
                share(soon),
                "are written again within 30 s,".into(),
                share(gone),
                "deleted or truncated before the trace ends.".into(),
            ]),
        };
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;

    /// Four versions of one page, one of another.
    // Promises: Describe 3, Describe 4.
    #[test]
    fn every_version_ends_once() {
        let events = [
            at(0, write(1, 0, 4096)),
            at(29, write(1, 0, 100)),     // 29 s: soon
            at(59, write(1, 50, 100)),    // 30 s: later
            at(60, write(1, 4096, 8192)), // two pages more
            at(80, truncate(1, 8192)),    // the third page, after 20 s
            at(100, truncate(1, 4097)),   // reaches no whole page
            at(120, gone(1)),             // the first two, after 61 and 60 s
            at(121, write(2, 0, 10)),
        ];
        let found = describe("fate", &events);
        let fates = ["rewritten_soon", "rewritten_later", "removed_soon", "removed_later", "left"];
        assert_eq!(fates.map(|fate| figure(&found, fate)).to_vec(), counts([1, 1, 1, 2, 1]));
        assert_eq!(figure(&found, "never_read_bytes"), bytes(4096 + 100 + 100 + 8192 + 10));
    }

    // Promises: Describe 4.
    #[test]
    fn a_read_of_any_part_saves_what_the_page_holds() {
        let events = [
            at(0, write(1, 0, 100)),
            at(1, write(1, 200, 100)),
            at(2, read(1, 4000, 1)),
            at(3, write(1, 300, 7)),
            at(4, write(1, 0, 4096)), // whole: the 7 are lost
            at(5, write(1, 5000, 3)),
            at(6, read(1, 0, 4096)),
        ];
        let found = describe("fate", &events);
        assert_eq!(figure(&found, "never_read_bytes"), bytes(7 + 3));
    }

    /// Without times no write is overwritten soon; without deletions none is deleted.
    // Promises: Describe 1.
    #[test]
    fn unknown_values_are_left_out() {
        let events = [at(0, write(1, 0, 1)), at(0, write(1, 0, 1)), at(0, truncate(1, 0))];
        let mut about = about();
        about.knows.times = false;
        let found = describe_as(about, "fate", &events).unwrap();
        let counted = |found: &_, fates: &[&str]| {
            fates.iter().map(|fate| figure(found, fate)).collect::<Vec<_>>()
        };
        assert_eq!(counted(&found, &["rewritten", "removed", "left"]), counts([1, 1, 0]));
        assert!(!found.parts.iter().any(|part| format!("{part:?}").contains("soon")));
        about.knows.removals = false;
        let found = describe_as(about, "fate", &events).unwrap();
        assert_eq!(counted(&found, &["rewritten", "left"]), counts([1, 1]));
        assert_eq!(found.sentence, None);
        about.knows.writes = false;
        assert!(describe_as(about, "fate", &events).is_err());
    }
}
