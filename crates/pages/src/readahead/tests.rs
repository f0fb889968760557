//! The models against recorded windows of real kernels, and against the papers' examples.

use super::*;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A file whose pages never leave the cache.
#[derive(Default)]
struct Cached {
    /// By page, the order of its folio and whether that is marked.
    pages: BTreeMap<u64, (u32, bool)>,
    /// Pages that were prefetched.
    ahead: BTreeSet<u64>,
    windows: Vec<Window>,
    /// Pages added since the last step, as runs in order of addition.
    added: Vec<(u64, u64)>,
}

impl FilePages for Cached {
    fn has(&self, page: u64) -> bool {
        self.pages.contains_key(&page)
    }
    fn order(&self, page: u64) -> u32 {
        self.pages[&page].0
    }
    fn is_marked(&self, page: u64) -> bool {
        self.pages.get(&page).is_some_and(|(_, marked)| *marked)
    }
    fn unmark(&mut self, page: u64) {
        let order = self.pages[&page].0;
        let folio = page >> order << order;
        self.pages.range_mut(folio..folio + (1 << order)).for_each(|(_, page)| page.1 = false);
    }
    fn add(&mut self, first: u64, order: u32, marked: bool) {
        for page in first..first + (1 << order) {
            assert!(self.pages.insert(page, (order, marked)).is_none(), "page {page} was there");
        }
        match self.added.last_mut() {
            Some((start, pages)) if *start + *pages == first => *pages += 1 << order,
            _ => self.added.push((first, 1 << order)),
        }
    }
    fn window(&mut self, window: Window) {
        self.windows.push(window);
    }
    fn is_prefetched(&self, page: u64) -> bool {
        self.ahead.contains(&page)
    }
    fn add_ahead(&mut self, page: u64) {
        self.add(page, 0, false);
        self.ahead.insert(page);
    }
}

/// The pages that a process has mapped: an access to another one is a fault.
struct Mapped {
    descriptor: u64,
    mapped: BTreeSet<u64>,
    mapping: Mapping,
}

/// Pages that a fault maps around it at most (`fault_around_bytes`).
const AROUND_PAGES: u64 = 16;

impl Mapped {
    /// Maps the cached pages around a fault, without folios that carry a marker. Returns whether
    /// the page itself was mapped, and how many were.
    fn map_around(&mut self, page: u64, cache: &Cached) -> (bool, u32) {
        let first = page / AROUND_PAGES * AROUND_PAGES;
        let end = (first + AROUND_PAGES).min(self.mapping.end);
        let mut count = 0;
        for page in first.max(self.mapping.first)..end {
            if cache.has(page) && !cache.is_marked(page) && self.mapped.insert(page) {
                count += 1;
            }
        }
        (self.mapped.contains(&page), count)
    }
}

struct Replay {
    linux: Linux,
    file_pages: u64,
    cache: Cached,
    descriptors: BTreeMap<u64, Descriptor>,
    mappings: BTreeMap<u64, Mapped>,
}

impl Replay {
    fn request(&self, first: u64, end: u64, prev_page: u64) -> ReadRequest {
        ReadRequest { first, end, file_pages: self.file_pages, prev_page }
    }

    fn step(&mut self, step: &Value) {
        let number = |name: &str| step[name].as_u64().unwrap_or_else(|| panic!("{name}: {step}"));
        match step["op"].as_str().expect("a step has an operation") {
            "open" => {
                self.descriptors.insert(number("fd"), Descriptor::default());
            }
            "read" => {
                let (at, bytes) = (number("at"), number("bytes"));
                if at.div_ceil(4096) > self.file_pages {
                    return;
                }
                // The end of what was read: not beyond the end of the file.
                let read_end = (at + bytes).min(self.file_pages * 4096);
                let request = self.request(at / 4096, (at + bytes).div_ceil(4096), read_end / 4096);
                let descriptor = self.descriptors.get_mut(&number("fd")).expect("it is open");
                if request.first < self.file_pages {
                    self.linux.read(descriptor, request, &mut self.cache);
                }
            }
            "map" => {
                let first = step["page"].as_u64().unwrap_or(0);
                let mapping = Mapping {
                    is_executable: step["kind"] == "executable",
                    first,
                    end: step["pages"].as_u64().map_or(self.file_pages, |pages| first + pages),
                    ..Mapping::PLAIN
                };
                let (descriptor, mapped) = (number("fd"), BTreeSet::new());
                self.mappings.insert(number("map"), Mapped { descriptor, mapped, mapping });
            }
            "fault" => self.fault(number("map"), number("page"), step["write"] == true),
            "advise" => self.advise(step),
            "close" => {}
            other => panic!("no operation {other}"),
        }
    }

    /// A store into a private mapping copies its page, and maps nothing around it.
    fn fault(&mut self, map: u64, page: u64, is_private_store: bool) {
        let request = self.request(page, page + 1, page);
        let mapping = self.mappings.get_mut(&map).expect("it is mapped");
        if mapping.mapped.contains(&page) {
            return;
        }
        let descriptor = self.descriptors.get_mut(&mapping.descriptor).expect("it is open");
        if !is_private_store {
            let (is_mapped, around) = mapping.map_around(page, &self.cache);
            self.linux.mapped_around(descriptor, around);
            if is_mapped {
                return;
            }
        }
        let retried = self.linux.fault(descriptor, &mapping.mapping, request, &mut self.cache);
        if retried && !is_private_store {
            let (_, around) = mapping.map_around(page, &self.cache);
            self.linux.mapped_around(descriptor, around);
        }
        mapping.mapped.insert(page);
    }

    fn advise(&mut self, step: &Value) {
        let advice = match step["advice"].as_str().expect("advice has a name") {
            "normal" => AccessAdvice::Normal,
            "random" => AccessAdvice::Random,
            "sequential" => AccessAdvice::Sequential,
            "willneed" => {
                let (at, bytes) = (step["at"].as_u64().unwrap_or(0), step["bytes"].as_u64());
                let end = match bytes {
                    None | Some(0) => self.file_pages,
                    Some(bytes) => (at + bytes).div_ceil(4096),
                };
                let request = self.request(at / 4096, end, 0);
                let fd = step["fd"]
                    .as_u64()
                    .or_else(|| Some(self.mappings[&step["map"].as_u64()?].descriptor));
                let descriptor = self.descriptors[&fd.expect("advice is for something")];
                return self.linux.will_need(&descriptor, request, &mut self.cache);
            }
            "dontneed" => {
                let (at, bytes) = (step["at"].as_u64().unwrap_or(0), step["bytes"].as_u64());
                let end = bytes.filter(|bytes| *bytes > 0).map_or(u64::MAX, |bytes| at + bytes);
                self.cache.pages.retain(|page, _| *page < at.div_ceil(4096) || *page >= end / 4096);
                return;
            }
            other => panic!("no advice {other}"),
        };
        match step["fd"].as_u64() {
            Some(fd) => self.descriptors.get_mut(&fd).expect("it is open").advise(advice),
            None => {
                let map = step["map"].as_u64().expect("advice is for a file or a mapping");
                self.mappings.get_mut(&map).expect("it is mapped").mapping.advice = advice;
            }
        }
    }
}

/// Pages in order, from runs of them.
fn pages(runs: impl IntoIterator<Item = (u64, u64)>) -> Vec<u64> {
    runs.into_iter().flat_map(|(first, count)| first..first + count).collect()
}

/// Replays a recording of readers, one a line. Returns the first difference of each reader that
/// differs.
fn differences(text: &str, kernel: Kernel, large_folios: bool) -> (usize, Vec<String>) {
    let mut lines = text.lines().map(|line| {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"))
    });
    let header = lines.next().expect("a recording has a header");
    let io_kib = header["header"]["max_sectors_kb"].as_u64().expect("the header has it");
    let (mut readers, mut found) = (0, Vec::new());
    for reader in lines {
        readers += 1;
        let number = |name: &str| reader[name].as_u64().expect("a reader has it");
        let pages_max = number("read_ahead_kb") / 4;
        let mut replay = Replay {
            linux: Linux { kernel, large_folios, pages_max, io_pages: io_kib / 4 },
            file_pages: number("file_bytes").div_ceil(4096),
            cache: Cached::default(),
            descriptors: BTreeMap::new(),
            mappings: BTreeMap::new(),
        };
        let name = format!("{} at {} KiB", reader["reader"], number("read_ahead_kb"));
        for (n, step) in reader["steps"].as_array().expect("a reader has steps").iter().enumerate()
        {
            replay.step(step);
            let run = |run: &Value| (run[0].as_u64().unwrap(), run[1].as_u64().unwrap());
            let wanted = pages(step["added"].as_array().into_iter().flatten().map(run));
            let ours = pages(std::mem::take(&mut replay.cache.added));
            let number = |value: &Value| value.as_u64().expect("a window has it");
            let windows = |window: &Value| Window {
                start: number(&window["start"]),
                pages: number(&window["pages"]),
                async_pages: number(&window["async"]),
                order: number(&window["order"]) as u32,
            };
            let given = step["windows"].as_array();
            let mut given: Vec<&Value> = given.into_iter().flatten().collect();
            // A window that meets a cached page goes on page by page, which is traced again.
            let is_rest =
                |pair: &[&Value]| pair[0]["from"] == "order" && pair[1]["from"] != "order";
            while let Some(n) = given.windows(2).position(is_rest) {
                given.remove(n + 1);
            }
            let windows: Vec<Window> = given.into_iter().map(windows).collect();
            let decided = std::mem::take(&mut replay.cache.windows);
            let same_windows = header["header"]["windows"] != true || windows == decided;
            if wanted != ours || !same_windows {
                let mut step = step.clone();
                for name in ["windows", "added"] {
                    step.as_object_mut().expect("it is one").remove(name);
                }
                found.push(format!(
                    "{name}, step {n} {step}:\n  kernel {windows:?}\n         {wanted:?}\n  \
                     model  {decided:?}\n         {ours:?}"
                ));
                break;
            }
        }
    }
    (readers, found)
}

fn agrees(text: &str, kernel: Kernel, large_folios: bool, known: &[&str]) {
    let (readers, found) = differences(text, kernel, large_folios);
    assert!(readers > 50, "there are {readers} readers");
    let is_known =
        |text: &&String| known.iter().any(|name| text.starts_with(&format!("\"{name}\"")));
    let unknown: Vec<_> = found.iter().filter(|text| !is_known(text)).cloned().collect();
    assert!(
        unknown.is_empty(),
        "{} of {readers} readers differ:\n{}",
        unknown.len(),
        unknown.join("\n")
    );
    assert_eq!(found.len(), known.len(), "each reader named as different differs: {found:#?}");
}

// Promises: Read-ahead 1.
#[test]
fn agrees_with_linux_6_18_on_ext4() {
    agrees(
        include_str!("../../../../testdata/readahead/6.18-ext4.jsonl"),
        Kernel::V6_18,
        true,
        &[],
    );
}

// Promises: Read-ahead 1.
#[test]
fn agrees_with_linux_6_1_on_f2fs() {
    agrees(include_str!("../../../../testdata/readahead/6.1-f2fs.jsonl"), Kernel::V6_1, false, &[]);
}

/// ext4 supports no large folios with `data=journal`.
// Promises: Read-ahead 1.
#[test]
fn agrees_with_linux_6_18_without_large_folios() {
    agrees(
        include_str!("../../../../testdata/readahead/6.18-ext4-data-journal.jsonl"),
        Kernel::V6_18,
        false,
        &[],
    );
}

// Promises: Read-ahead 1.
#[test]
fn agrees_with_linux_6_12_on_ext4() {
    agrees(
        include_str!("../../../../testdata/readahead/6.12-ext4.jsonl"),
        Kernel::V6_12,
        false,
        &[],
    );
}

fn paper_of(pages_max: u64) -> Paper {
    Paper { pages_max, resident_hits: false }
}

/// The paper's own examples (sections 2.4 and 4.1): 7 pages, and 32 pages with three maxima.
// Promises: Read-ahead 2.
#[test]
fn the_papers_prefetches_are_counted_as_it_does() {
    for (pages, pages_max, wanted) in [(7, 32, 156), (32, 32, 956), (32, 16, 492), (32, 8, 252)] {
        let mut cache = Cached::default();
        let (paper, mut sequence) = (paper_of(pages_max), Sequence::default());
        for page in 0..pages {
            let request =
                ReadRequest { first: page, end: page + 1, file_pages: 5000, prev_page: 0 };
            paper.read(&mut sequence, request, &mut cache);
        }
        let asked: u64 = cache.windows.iter().map(|window| window.pages).sum();
        assert_eq!(asked, wanted, "{pages} pages, maximum {pages_max}");
    }
}

/// A request out of order prefetches nothing; the next one in order begins anew.
// Promises: Read-ahead 2.
#[test]
fn the_papers_sequence_ends_with_a_request_out_of_order() {
    let mut cache = Cached::default();
    let (paper, mut sequence) = (paper_of(32), Sequence::default());
    for page in [0, 1, 2, 1000, 1001, 5000] {
        let request = ReadRequest { first: page, end: page + 1, file_pages: 9000, prev_page: 0 };
        paper.read(&mut sequence, request, &mut cache);
    }
    let sizes: Vec<_> = cache.windows.iter().map(|window| (window.start, window.pages)).collect();
    assert_eq!(sizes, [(1, 4), (2, 8), (3, 16), (1002, 4)]);
}

#[test]
fn a_maximum_can_be_given_without_its_name() {
    let label = |text: &str| parse(text).unwrap().label();
    assert_eq!(label("linux:128k"), "linux:kib=128");
    assert_eq!(label("linux:64,kernel=6.1"), "linux:kib=64,kernel=6.1");
    assert_eq!(label("paper:16"), "paper:pages=16");
    assert_eq!(label("linux:kernel=6.12"), "linux:kernel=6.12");
    assert_eq!(label("off"), "off");
    for text in ["linux:128m", "paper:2", "off:3", "windows", "linux:"] {
        let result = parse(text).map(|selection| selection.label());
        assert!(result.is_err() || text == "linux:", "{text}: {result:?}");
    }
}
