use super::*;

fn count(points: &[(u32, u64, Seen)]) -> Counter {
    let mut counter = Counter::default();
    for (n, &(tid, ino, seen)) in points.iter().enumerate() {
        let at_ns = n as u64 + 1;
        counter.point(&CachePoint { at_ns, tid, ino, seen }, &mut |tid| format!("p{tid}"));
    }
    counter
}

fn total(points: &[(u32, u64, Seen)]) -> ReadAheadTally {
    count(points).finish().0
}

use Seen::{Added, Deleted, Dirtied, Faulted, Mapped, Read};

/// A sequential reader of pages of 4 KiB: the first read finds nothing and reads four pages.
#[test]
fn pages_of_the_read_that_brings_them_in_are_demanded_and_later_ones_ahead() {
    let mut points: Vec<_> = (0..4).map(|first| (1, 7, Added { first, pages: 1 })).collect();
    points.push((1, 7, Read { first: 0, last: 0 }));
    assert_eq!(
        total(&points),
        ReadAheadTally { demanded_pages: 1, unused_pages: 3, ..ReadAheadTally::default() }
    );
    points.extend([(1, 7, Read { first: 1, last: 1 }), (2, 7, Read { first: 2, last: 2 })]);
    points.push((9, 7, Deleted { first: 3, pages: 1 }));
    // It was read once already.
    points.push((9, 7, Deleted { first: 0, pages: 1 }));
    let tally = total(&points);
    let used = ReadAheadTally { demanded_pages: 1, used_pages: 2, dropped_pages: 1, ..tally };
    assert_eq!((tally, tally.ahead_pages()), (used, 3));
    assert_eq!(tally.efficiency(), Some(2.0 / 3.0));
    assert_eq!(total(&[]).efficiency(), None);
}

#[test]
fn the_page_of_a_fault_is_demanded_and_mapped_neighbours_are_apart() {
    let tally = total(&[
        (1, 7, Faulted { page: 5 }),
        (1, 7, Added { first: 4, pages: 4 }),
        (1, 7, Mapped { first: 0, last: 6 }),
        (1, 7, Faulted { page: 7 }),
    ]);
    let wanted = ReadAheadTally { demanded_pages: 1, mapped_pages: 2, used_pages: 1, ..tally };
    assert_eq!((tally, tally.ahead_pages()), (wanted, 3));
}

#[test]
fn pages_of_writes_are_not_counted() {
    let tally = total(&[
        (1, 7, Added { first: 0, pages: 16 }),
        (1, 7, Dirtied { page: 0 }),
        // Another thread overwrites one page of what was read ahead.
        (1, 7, Added { first: 32, pages: 4 }),
        (1, 7, Read { first: 32, last: 32 }),
        (2, 7, Dirtied { page: 33 }),
    ]);
    let wanted = ReadAheadTally { demanded_pages: 1, unused_pages: 2, ..Default::default() };
    assert_eq!(tally, wanted);
}

#[test]
fn pages_are_charged_to_the_file_and_to_the_program_that_brought_them_in() {
    let counter = count(&[
        (1, 7, Added { first: 0, pages: 4 }),
        (1, 7, Read { first: 0, last: 0 }),
        (2, 8, Added { first: 0, pages: 8 }),
        (2, 8, Read { first: 0, last: 0 }),
        (2, 7, Read { first: 1, last: 3 }),
    ]);
    let (_, mut files, programs) = counter.finish();
    files.sort_unstable_by_key(|(ino, _)| *ino);
    let of = |tally: &ReadAheadTally| (tally.used_pages, tally.unused_pages);
    assert_eq!(
        files.iter().map(|(ino, t)| (*ino, of(t))).collect::<Vec<_>>(),
        [(7, (3, 0)), (8, (0, 7))]
    );
    let programs: Vec<_> = programs.iter().map(|(name, t)| (&**name, of(t))).collect();
    assert_eq!(programs, [("p1", (3, 0)), ("p2", (0, 7))]);
}

/// One entry for each page.
#[derive(Default)]
struct Model {
    waiting: BTreeMap<(u64, u64), (u32, u64)>,
    reads: HashMap<u32, u64>,
    faults: HashMap<u32, (u64, u64)>,
    added: HashMap<u32, (u64, u64, u64)>,
    number: u64,
    tally: ReadAheadTally,
}

impl Model {
    fn point(&mut self, tid: u32, ino: u64, seen: Seen) {
        let read = self.reads.get(&tid).copied().unwrap_or_default();
        let all = |from: u64, to: u64, waiting: &mut BTreeMap<(u64, u64), (u32, u64)>| {
            (from..to).filter_map(|page| waiting.remove(&(ino, page))).collect::<Vec<_>>()
        };
        match seen {
            Added { first, pages } => {
                let again = all(first, first + pages, &mut self.waiting);
                self.tally.dropped_pages += again.len() as u64;
                self.added.insert(tid, (ino, first, pages));
                for page in first..first + pages {
                    if self.faults.get(&tid) == Some(&(ino, page)) {
                        self.faults.remove(&tid);
                        self.tally.demanded_pages += 1;
                    } else {
                        self.waiting.insert((ino, page), (tid, read));
                    }
                }
            }
            Deleted { first, pages } => {
                self.tally.dropped_pages +=
                    all(first, first + pages, &mut self.waiting).len() as u64;
            }
            Read { first, last } => {
                for by in all(first, last + 1, &mut self.waiting) {
                    match by == (tid, read) {
                        true => self.tally.demanded_pages += 1,
                        false => self.tally.used_pages += 1,
                    }
                }
                self.number += 1;
                self.reads.insert(tid, self.number);
                self.faults.remove(&tid);
                self.added.remove(&tid);
            }
            Faulted { page } => {
                self.tally.used_pages += all(page, page + 1, &mut self.waiting).len() as u64;
                self.number += 1;
                self.reads.insert(tid, self.number);
                self.faults.insert(tid, (ino, page));
                self.added.remove(&tid);
            }
            Mapped { first, last } => {
                self.tally.mapped_pages += all(first, last + 1, &mut self.waiting).len() as u64;
            }
            Dirtied { page } => {
                let pages = match self.added.get(&tid) {
                    Some(&(of, first, pages)) if (of, first) == (ino, page) => pages,
                    _ => 1,
                };
                all(page, page + pages, &mut self.waiting);
            }
        }
    }
}

// Promises: Tune 6.
#[test]
fn ranges_count_as_single_pages_do() {
    for seed in 1..=300_u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let (mut counter, mut model) = (Counter::default(), Model::default());
        for at_ns in 1..400 {
            let (tid, ino, first) = (random(3) as u32, random(2), random(40));
            let (pages, last) = (1 << random(4), first + random(6));
            let seen = match random(8) {
                0..=2 => Added { first, pages },
                3 => Deleted { first, pages },
                4 => Read { first, last },
                5 => Faulted { page: first },
                6 => Mapped { first, last },
                _ => Dirtied { page: first },
            };
            counter.point(&CachePoint { at_ns, tid, ino, seen }, &mut |tid| tid.to_string());
            model.point(tid, ino, seen);
        }
        let ranges: usize = counter.files.values().map(|file| file.waiting.len()).sum();
        assert_eq!(counter.ranges, ranges, "seed {seed}");
        model.tally.unused_pages = model.waiting.len() as u64;
        let (total, files, programs) = counter.finish();
        assert_eq!(total, model.tally, "seed {seed}");
        let ahead = |tallies: Vec<ReadAheadTally>| -> u64 {
            tallies.iter().map(ReadAheadTally::ahead_pages).sum()
        };
        let of_files = ahead(files.iter().map(|(_, tally)| *tally).collect());
        let of_programs = ahead(programs.iter().map(|(_, tally)| *tally).collect());
        assert_eq!((of_files, of_programs), (total.ahead_pages(), total.ahead_pages()));
    }
}

// Promises: Tune 6.
#[test]
fn memory_is_bounded_and_the_rest_is_said() {
    let bounds = Bounds { files: 2, ranges: 3, tasks: 2, programs: 2 };
    let mut counter = Counter::within(bounds);
    for n in 0..100_u64 {
        let (tid, ino) = ((n % 5) as u32, n % 4);
        let seen = Added { first: n * 10, pages: 2 };
        counter.point(&CachePoint { at_ns: n + 1, tid, ino, seen }, &mut |tid| tid.to_string());
    }
    let used = (counter.files.len(), counter.ranges, counter.programs.len());
    assert!(used.0 <= 2 && used.1 <= 3 && counter.tasks.len() <= 2 && used.2 <= 2, "{used:?}");
    assert_eq!(counter.untracked_pages() + counter.finish().0.ahead_pages(), 200);
}
