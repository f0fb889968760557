//! A model of storage and of the file system on it, for power cuts.
//!
//! Pages go to a volatile cache in the device, and are durable after a FLUSH; a page is written
//! whole or not at all. The file system changes its metadata in memory and makes all changes
//! durable at once, at a commit of its journal, which flushes the device first. Blocks of a removed
//! page are kept until its removal is committed.

use super::{durable::Identity, medium::Power};
use flashsift_events::page::Page;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Metadata of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileState {
    /// Whether a name leads to it.
    pub exists: bool,
    /// Number of files that had this number before.
    pub generation: u64,
    /// Size in pages.
    pub pages: u32,
}

/// Metadata that a commit of the journal makes durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journaled {
    /// By file number.
    pub files: Vec<FileState>,
    /// By name: the number of the file.
    pub names: Vec<Option<u32>>,
    /// By page: writes with this number and lower ones were removed.
    removed: Vec<u64>,
}

/// A version of a page.
struct Written {
    number: u64,
    generation: u64,
    /// In the device's cache.
    cached: bool,
    content: Vec<u64>,
}

/// Storage with files of a fixed largest size.
pub struct Store {
    power: Power,
    file_pages_max: u32,
    page_words: usize,
    /// Journaled as applications see it.
    pub running: Journaled,
    committed: Journaled,
    /// By page, the oldest first.
    written: Vec<Vec<Written>>,
    next_write: u64,
}

impl Store {
    /// Returns storage with `files` file numbers and as many names, none in use.
    pub fn new(files: u32, file_pages_max: u32, page_words: usize, power: Power) -> Self {
        let pages = (files * file_pages_max) as usize;
        let metadata = Journaled {
            files: vec![FileState::default(); files as usize],
            names: vec![None; files as usize],
            removed: vec![0; pages],
        };
        Self {
            power,
            file_pages_max,
            page_words,
            committed: metadata.clone(),
            running: metadata,
            written: (0..pages).map(|_| Vec::new()).collect(),
            next_write: 1,
        }
    }

    /// Returns the ranks of a file's pages.
    pub fn pages_of(&self, file: u32) -> std::ops::Range<u32> {
        file * self.file_pages_max..(file + 1) * self.file_pages_max
    }

    /// Returns the identity of a page now.
    pub fn identity(&self, page: Page) -> Identity {
        let (file, number) = (page.0 / self.file_pages_max, page.0 % self.file_pages_max);
        let generation = self.running.files[file as usize].generation;
        Identity { file: file.into(), generation, page: number.into() }
    }

    /// Returns the rank of a page inside a file that exists now.
    pub fn rank(&self, identity: Identity) -> Option<Page> {
        let file = self.running.files.get(usize::try_from(identity.file).ok()?)?;
        let is_in = file.exists
            && file.generation == identity.generation
            && identity.page < u64::from(file.pages);
        let first = identity.file * u64::from(self.file_pages_max);
        is_in.then(|| Page((first + identity.page) as u32))
    }

    /// Returns a page's content; a hole is zero.
    pub fn read(&self, page: Page) -> Vec<u64> {
        let identity = self.identity(page);
        let newest = self.written[page.0 as usize].iter().rev().find(|written| {
            written.generation == identity.generation
                && written.number > self.running.removed[page.0 as usize]
        });
        match newest.filter(|_| self.rank(identity).is_some()) {
            Some(written) => written.content.clone(),
            None => vec![0; self.page_words],
        }
    }

    /// Writes a page into the device's cache.
    pub fn write(&mut self, page: Page, content: Vec<u64>) {
        if self.power.step() {
            let generation = self.identity(page).generation;
            let number = self.next_write;
            self.next_write += 1;
            let written = Written { number, generation, cached: true, content };
            self.written[page.0 as usize].push(written);
        }
    }

    /// Makes durable everything that was written.
    pub fn flush(&mut self) {
        if self.power.step() {
            for written in self.written.iter_mut().flatten() {
                written.cached = false;
            }
            // A version before a durable one of the same generation is never read again.
            for versions in &mut self.written {
                if let [.., last] = versions.as_slice() {
                    let generation = last.generation;
                    let keep = versions.len() - 1;
                    let mut n = 0;
                    versions.retain(|written| {
                        n += 1;
                        n > keep || written.generation != generation
                    });
                }
            }
        }
    }

    /// Makes the present metadata durable, and everything that was written.
    pub fn commit(&mut self) {
        self.flush();
        if self.power.step() {
            self.committed.clone_from(&self.running);
            for (page, versions) in self.written.iter_mut().enumerate() {
                let removed = self.committed.removed[page];
                versions.retain(|written| written.number > removed);
            }
        }
    }

    /// Returns whether a commit would change anything.
    pub fn is_committed(&self) -> bool {
        self.running == self.committed
    }

    /// Removes the pages of a file from this one on.
    pub fn truncate(&mut self, file: u32, pages: u32) {
        let ranks = self.pages_of(file);
        for removed in &mut self.running.removed[(ranks.start + pages) as usize..ranks.end as usize]
        {
            *removed = self.next_write - 1;
        }
        let state = &mut self.running.files[file as usize];
        state.pages = state.pages.min(pages);
    }

    /// Removes a file. Its number may be used again at once.
    pub fn remove(&mut self, file: u32) {
        self.truncate(file, 0);
        let state = &mut self.running.files[file as usize];
        *state = FileState { exists: false, generation: state.generation + 1, pages: 0 };
        for name in &mut self.running.names {
            *name = name.filter(|of| *of != file);
        }
    }

    /// The power has failed and is back: any of the pages in the device's cache may have arrived.
    pub fn cut(&mut self, seed: u64, power: Power) {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        self.running = self.committed.clone();
        self.power = power;
        for page in 0..self.written.len() {
            let identity = self.identity(Page(page as u32));
            let exists = self.rank(identity).is_some();
            // Blocks that the committed metadata does not name are free.
            self.written[page].retain_mut(|written| {
                let arrived = !std::mem::take(&mut written.cached) || rng.random();
                arrived && exists && written.generation == identity.generation
            });
        }
    }
}
