//! The layouts beside the real file systems: the same files are written, appended to, synced and
//! deleted on a loop device, and the extents of both are compared. For F2FS this happens in an
//! emulated guest, because few machines have it.

use crate::emulated;
use flashsift_caches::{
    back::Why,
    trace::{Trace, TraceBuilder, Unit},
};
use flashsift_events::{
    event::{About, Action, Create, Event, FileId, Knows, MaybeOwned, Side, Space},
    page::{PAGE_BYTES, Page},
};
use flashsift_pages::layout::Selection;
use flashsift_testbed::{Disk, FileSystem, or_skip, output};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
    process::Command,
};

/// One step of a history. Files are numbered in the order of their creation.
#[derive(Clone, Copy)]
enum Step {
    Create {
        directory: u32,
    },
    /// Over pages that it has, or at its end.
    Write {
        file: usize,
        page: u64,
        pages: u64,
    },
    Close {
        file: usize,
    },
    Fsync {
        file: usize,
    },
    SyncAll,
    Delete {
        file: usize,
    },
}

/// A linear congruential generator (Knuth's MMIX), so that a seed names a history for ever.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % n
    }
}

#[derive(Default)]
struct History {
    steps: Vec<Step>,
    /// Sizes in pages; deleted files have none.
    sizes: Vec<Option<u64>>,
    used: u64,
    /// Whether it writes over pages, too.
    overwrites: bool,
}

impl History {
    /// Fills a quarter of a device of so many pages, or ages it and then fills another share, whose
    /// reciprocal is given.
    fn new(seed: u64, device_pages: u64, aged: Option<u64>, overwrites: bool) -> (Self, usize) {
        let mut dice = Dice(seed);
        let mut history = Self { overwrites, ..Self::default() };
        if aged.is_some() {
            history.age(&mut dice, device_pages);
        }
        let first = history.sizes.len();
        history.go_on(&mut dice, device_pages / aged.unwrap_or(4), device_pages * 93 / 100);
        (history, first)
    }

    fn create(&mut self, directory: u32) -> usize {
        self.steps.push(Step::Create { directory });
        self.sizes.push(Some(0));
        self.sizes.len() - 1
    }

    fn append(&mut self, file: usize, pages: u64) {
        let size = self.sizes[file].as_mut().expect("it exists");
        self.steps.push(Step::Write { file, page: *size, pages });
        (*size, self.used) = (*size + pages, self.used + pages);
    }

    /// A file that is written and closed: most are small, a few hold most of the bytes.
    fn whole_file(&mut self, dice: &mut Dice) {
        let pages = match dice.below(10) {
            0..6 => 1 + dice.below(16),
            6..9 => 17 + dice.below(240),
            _ => 257 + dice.below(3_744),
        };
        let file = self.create(dice.below(8) as u32);
        self.append(file, pages);
        self.steps.push(Step::Close { file });
    }

    fn delete_one(&mut self, dice: &mut Dice, from: usize) {
        let live: Vec<_> =
            (from..self.sizes.len()).filter(|file| self.sizes[*file].is_some()).collect();
        if !live.is_empty() {
            let file = live[dice.below(live.len() as u64) as usize];
            self.used -= self.sizes[file].take().expect("it exists");
            self.steps.push(Step::Delete { file });
        }
    }

    /// Fills a device to 88 %, then deletes files at random until 80 % are used. The rest holds the
    /// journal and the inodes.
    fn age(&mut self, dice: &mut Dice, device_pages: u64) {
        while self.used < device_pages * 88 / 100 {
            self.whole_file(dice);
            if dice.below(10) == 0 {
                self.steps.push(Step::SyncAll);
            }
        }
        self.steps.push(Step::SyncAll);
        while self.used > device_pages * 80 / 100 {
            self.delete_one(dice, 0);
        }
        self.steps.push(Step::SyncAll);
    }

    /// Writes over some pages of a file, which it syncs, as a database does.
    fn update(&mut self, dice: &mut Dice, file: usize) {
        let pages = self.sizes[file].expect("it exists");
        for _ in 0..5 {
            for _ in 0..=[0, 1, 2, 5, 12, 30][dice.below(6) as usize] {
                self.steps.push(Step::Write { file, page: dice.below(pages), pages: 1 });
            }
            self.steps.push([Step::Fsync { file }, Step::SyncAll][dice.below(8) as usize / 7]);
        }
    }

    /// Writes new files, appends to logs that are synced, and loads two files at once. It ends when
    /// it has added so many pages, or when more than `most` are used.
    fn go_on(&mut self, dice: &mut Dice, pages: u64, most: u64) {
        let first = self.sizes.len();
        let logs: Vec<_> = (0..4).map(|_| self.create(8)).collect();
        let database = self.create(8);
        self.append(database, 64);
        self.steps.push(Step::Fsync { file: database });
        let mut written = 0;
        while written < pages && self.used < most {
            if self.overwrites {
                self.update(dice, database);
            }
            let before = self.used;
            match dice.below(10) {
                0..5 => {
                    for _ in 0..=dice.below(12) {
                        if self.used < most {
                            self.whole_file(dice);
                        }
                    }
                }
                5..8 => {
                    for _ in 0..3 + dice.below(17) {
                        let file = logs[dice.below(4) as usize];
                        self.append(file, [1, 1, 1, 2, 4, 8][dice.below(6) as usize]);
                        self.steps.push(Step::Fsync { file });
                    }
                }
                8 => {
                    let files = [self.create(9), self.create(9)];
                    for _ in 0..3 + dice.below(7) {
                        files.iter().for_each(|file| self.append(*file, 16 + dice.below(284)));
                        self.steps.push(Step::SyncAll);
                    }
                    self.steps.extend(files.map(|file| Step::Close { file }));
                }
                _ => {
                    let closed = first + logs.len() + 1;
                    (0..=dice.below(8)).for_each(|_| self.delete_one(dice, closed));
                }
            }
            self.steps.push(Step::SyncAll);
            written += self.used.saturating_sub(before);
        }
    }
}

/// An extent: first page, first place, pages.
type Extent = (u64, u64, u64);

/// The name of a file. Its extension makes some files hot and some cold on F2FS.
fn name(file: usize, directory: u32) -> String {
    let extension = match file % 10 {
        3 => ".jpg",
        7 => ".db",
        _ => "",
    };
    format!("top/{directory}/{file}{extension}")
}

/// Performs a history in a directory, and reads each file's extents with `filefrag`.
fn really(root: &Path, steps: &[Step]) -> BTreeMap<usize, Vec<Extent>> {
    let mut open: Vec<Option<File>> = Vec::new();
    let mut directories = Vec::new();
    let directory = File::open(root).unwrap();
    let content = vec![1; 4096 * PAGE_BYTES as usize];
    let path = |file: usize, directory: u32| root.join(name(file, directory));
    for step in steps {
        match *step {
            Step::Create { directory } => {
                let path = path(open.len(), directory);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                open.push(Some(File::create(path).unwrap()));
                directories.push(Some(directory));
            }
            Step::Write { file, page, pages } => {
                let content = &content[..(pages * PAGE_BYTES) as usize];
                open[file].as_ref().unwrap().write_all_at(content, page * PAGE_BYTES).unwrap();
            }
            Step::Close { file } => drop(open[file].take()),
            Step::Fsync { file } => open[file].as_ref().unwrap().sync_all().unwrap(),
            Step::SyncAll => rustix::fs::syncfs(&directory).unwrap(),
            Step::Delete { file } => {
                fs::remove_file(path(file, directories[file].take().unwrap())).unwrap();
                open[file] = None;
            }
        }
    }
    let live = directories.iter().enumerate().filter_map(|(file, dir)| Some((file, (*dir)?)));
    let live: Vec<_> = live.collect();
    let mut filefrag = Command::new("filefrag");
    filefrag.arg("-v").args(live.iter().map(|(file, directory)| path(*file, *directory)));
    let shown = output(&mut filefrag).unwrap();
    let mut files = shown.split("File size of ").skip(1);
    let extents = live.iter().map(|(file, _)| (*file, extents_of(files.next().unwrap())));
    extents.collect()
}

/// Reads `   0:        0..       3:      34816..     34819:      4:             last,eof`.
fn extents_of(shown: &str) -> Vec<Extent> {
    let extent = |line: &str| {
        let mut fields = line.split(':').map(|field| field.split("..").next().unwrap().trim());
        let [number, page, place, pages] = [(); 4].map(|()| fields.next());
        number?.parse::<u32>().ok()?;
        Some((page?.parse().ok()?, place?.parse().ok()?, pages?.parse().ok()?))
    };
    shown.lines().filter_map(extent).collect()
}

/// Performs the same history on the layout. It gets no word of what comes later.
fn modelled(layout: &str, steps: &[Step]) -> BTreeMap<usize, Vec<Extent>> {
    let (trace, ranks) = trace_of(steps);
    let chosen = Selection::parse(layout).unwrap();
    let mut layout = (chosen.spec.build)(&trace, &chosen.params);
    let mut dirty: BTreeMap<usize, BTreeSet<u64>> = BTreeMap::new();
    let mut order: Vec<usize> = Vec::new();
    let mut sizes: Vec<Option<u64>> = Vec::new();
    let rank = |file: usize, page: u64| Page(ranks[file] + page as u32);
    for step in steps {
        let why = if matches!(step, Step::SyncAll) { Why::SyncAll } else { Why::Sync };
        let flushed = match *step {
            Step::Create { .. } => {
                sizes.push(Some(0));
                Vec::new()
            }
            Step::Write { file, page, pages } => {
                sizes[file] = sizes[file].max(Some(page + pages));
                (page..page + pages).for_each(|page| layout.dirtied(rank(file, page)));
                dirty.entry(file).or_default().extend(page..page + pages);
                if !order.contains(&file) {
                    order.push(file);
                }
                Vec::new()
            }
            Step::Close { .. } => Vec::new(),
            Step::Fsync { file } => vec![file],
            Step::SyncAll => order.clone(),
            Step::Delete { file } => {
                let pages = sizes[file].take().expect("it exists") as u32;
                layout.free(ranks[file]..ranks[file] + pages);
                dirty.remove(&file);
                Vec::new()
            }
        };
        for file in flushed {
            order.retain(|other| *other != file);
            for page in dirty.remove(&file).unwrap_or_default() {
                layout.write_for(rank(file, page), why);
            }
        }
    }
    layout.check();
    let live = sizes.iter().enumerate().filter_map(|(file, size)| Some((file, (*size)?)));
    live.map(|(file, size)| {
        let places = (0..size).map(|page| (page, layout.place(rank(file, page)).unwrap(), 1));
        (file, places.collect())
    })
    .collect()
}

/// A trace that touches the pages of a history, and each file's first rank in it.
fn trace_of(steps: &[Step]) -> (Trace, Vec<u32>) {
    let knows = Knows { writes: true, removals: true, ..Knows::NOTHING };
    let about =
        About { epoch_us: None, boot_us: None, side: Side::Before, space: Space::Files, knows };
    let mut builder = TraceBuilder::new(about, Unit::Page, u64::MAX);
    let mut sizes = Vec::new();
    for step in steps {
        let action = match *step {
            Step::Create { directory } => {
                let file = FileId(sizes.len() as u64);
                let name = format!("/{}", name(sizes.len(), directory)).into();
                sizes.push(0);
                let create = Create { file, name, owner: None, mode: None, sync: false };
                Action::Create(MaybeOwned::owned(create))
            }
            Step::Write { file, page, pages } => {
                sizes[file] = sizes[file].max(page + pages);
                let (offset, len) = (page * PAGE_BYTES, pages * PAGE_BYTES);
                Action::Write { open: None, file: FileId(file as u64), offset, len, sync: false }
            }
            _ => continue,
        };
        builder.extend(&[Event { at_us: 0, pid: 0, tid: 0, action }]).unwrap();
    }
    let ranks = sizes.iter().scan(0, |next, size| {
        let first = *next;
        *next += *size as u32;
        Some(first)
    });
    (builder.finish().unwrap(), ranks.collect())
}

/// Extents a file that has any, and the share of pages whose successor in the file lies directly
/// behind them.
fn figures(files: &BTreeMap<usize, Vec<Extent>>, from: usize) -> [f64; 2] {
    let (mut extents, mut pages, mut adjacent) = (0, 0, 0);
    let mut count = 0_u32;
    for file in files.range(from..).map(|(_, file)| file).filter(|file| !file.is_empty()) {
        count += 1;
        let mut last: Option<Extent> = None;
        for (page, place, len) in file {
            let follows = last.is_some_and(|(p, at, n)| (p + n, at + n) == (*page, *place));
            extents += u64::from(!follows);
            adjacent += len - 1 + u64::from(follows);
            pages += len;
            last = Some((*page, *place, *len));
        }
        pages -= 1;
    }
    [extents as f64 / f64::from(count), adjacent as f64 / pages as f64]
}

/// On a fresh and on an aged file system (80 % full, files deleted at random), the number of
/// extents a file and the share of adjacent neighbours are within 15 % of the real ones. All steps
/// run on one CPU, because ext4 has a locality group for each.
// Promises: Placement 6.
#[test]
fn ext4_places_files_as_the_real_one() {
    const GROUPS: u64 = 4;
    const GROUP_PAGES: u64 = 32_768;
    let seed = std::env::var("FLASHSIFT_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut cpu = rustix::thread::CpuSet::new();
    cpu.set(0);
    rustix::thread::sched_setaffinity(None, &cpu).unwrap();
    for aged in [None, Some(20)] {
        let (history, first) = History::new(seed, GROUPS * GROUP_PAGES, aged, false);
        let ext4 = FileSystem::new("ext4", GROUPS * GROUP_PAGES * PAGE_BYTES);
        let Some(disk) = or_skip(Disk::mounted(&ext4.with(&["-b", "4096"]), "defaults")) else {
            return;
        };
        let real = figures(&really(&disk.point(), &history.steps), first);
        let layout = format!("ext4:groups={GROUPS}");
        let model = figures(&modelled(&layout, &history.steps), first);
        compare(&format!("seed {seed}, aged: {}", aged.is_some()), real, model);
    }
}

/// Checks that the figures of the layout are within 15 % of the real ones.
fn compare(what: &str, real: [f64; 2], model: [f64; 2]) {
    println!("{what}; real {real:?}, layout {model:?}");
    for (real, model) in real.iter().zip(model) {
        assert!((model / real - 1.0).abs() <= 0.15, "{what}; {model}, not {real}");
    }
}

/// A history on an F2FS volume.
struct OnF2fs {
    what: &'static str,
    /// Size of the volume, and of its main area as mkfs.f2fs makes it.
    size: &'static str,
    segments: u64,
    /// The pages that the history takes as the size of the device.
    pages: u64,
    aged: Option<u64>,
}

/// The volume of 512 MB gives its users 198 of 248 segments. The aged one is filled until its logs
/// go on in holes. The one of 32 GB is larger than those on which F2FS overwrites every page.
const ON_F2FS: [OnF2fs; 3] = [
    OnF2fs { what: "small, fresh", size: "512M", segments: 248, pages: 198 * 512, aged: None },
    OnF2fs { what: "small, aged", size: "512M", segments: 248, pages: 198 * 512, aged: Some(6) },
    OnF2fs { what: "large, fresh", size: "32G", segments: 16_275, pages: 100 * 512, aged: None },
];
/// Environment variable of a test that runs in a guest: number in [`ON_F2FS`], seed, directory.
const IN_GUEST: &str = "FLASHSIFT_HISTORY";

fn on_f2fs(about: &OnF2fs, seed: u64) -> (History, usize) {
    History::new(seed, about.pages, about.aged, true)
}

/// Performs a history in the guest, and prints the extents.
#[test]
#[ignore = "f2fs_places_files_as_the_real_one runs it in a guest"]
fn performs_a_history() {
    let Ok(about) = std::env::var(IN_GUEST) else { return };
    let [number, seed, root] = about.split(' ').collect::<Vec<_>>()[..] else { panic!("{about}") };
    let (history, _) = on_f2fs(&ON_F2FS[number.parse::<usize>().unwrap()], seed.parse().unwrap());
    for (file, extents) in really(Path::new(root), &history.steps) {
        for (page, place, pages) in extents {
            println!("extent {file} {page} {place} {pages}");
        }
    }
}

/// As for ext4, on a small and on a large volume of F2FS in an emulated guest. The guest's volumes
/// are in its memory, since its card is slow. Cleaning in the background is off: it depends on idle
/// time.
// Promises: Placement 5.
#[test]
fn f2fs_places_files_as_the_real_one() {
    let Some(guest) = emulated::guest(emulated::DEBIAN) else { return };
    let seed = std::env::var("FLASHSIFT_SEED").map_or(1, |seed| seed.parse().unwrap());
    let out = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    let mut script = "set -eu
        mkdir /memory /volume
        mount -t tmpfs -o size=90% memory /memory\n"
        .to_owned();
    for (number, OnF2fs { size, .. }) in ON_F2FS.iter().enumerate() {
        script += &format!(
            "truncate -s {size} /memory/image
            mkfs.f2fs -q /memory/image
            mount -t f2fs -o loop,background_gc=off,nodiscard /memory/image /volume
            {IN_GUEST}='{number} {seed} /volume' {} --ignored --exact --nocapture \
              layouts::performs_a_history > /out/{number}
            umount /volume
            rm /memory/image\n",
            program.display()
        );
    }
    let options = [("FLASHSIFT_GUEST_MEMORY", "2G"), ("FLASHSIFT_GUEST_SECONDS", "600")];
    if !emulated::run(&guest, "f2fs", &options, out.path(), &[&script]) {
        return;
    }
    for (number, about) in ON_F2FS.iter().enumerate() {
        let printed = fs::read_to_string(out.path().join(number.to_string())).unwrap();
        let mut real: BTreeMap<usize, Vec<Extent>> = BTreeMap::new();
        for line in printed.lines().filter_map(|line| line.split_once("extent ")) {
            let fields: Vec<u64> = line.1.split(' ').map(|field| field.parse().unwrap()).collect();
            let [file, page, place, pages] = fields[..] else { panic!("{line:?}") };
            real.entry(file as usize).or_default().push((page, place, pages));
        }
        let (history, first) = on_f2fs(about, seed);
        let layout = format!("f2fs:segments={}", about.segments);
        let model = modelled(&layout, &history.steps);
        let what = format!("{}, seed {seed}", about.what);
        compare(&what, figures(&real, first), figures(&model, first));
    }
}
