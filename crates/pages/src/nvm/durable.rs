//! Memory that holds content on a [`Medium`], and finds the durable pages after a power cut.
//!
//! A frame is the lines of a page and one line more, its header. The header is free, or names a
//! durable page, or marks the frame's lines as the undo copy of an update in progress:
//!
//! | word | durable page | undo copy |
//! |---|---|---|
//! | 0 | checksum of the words after | checksum of the words after |
//! | 1 | `PAGE` | `UNDO` |
//! | 2 | file | frame that is updated |
//! | 3 | generation of the file | first word of the update |
//! | 4 | page in the file | word after the last |
//! | 5 | sequence number | sequence number |
//!
//! Clearing word 0 frees a header in one store. The words of an earlier header stay behind it: were
//! word 0 the kind, the first store of a later header could make the earlier one valid again. A
//! header whose checksum is wrong was torn by a power cut. It counts as free, and recovery clears
//! it: otherwise a later header, torn too, could complete it.
//!
//! Each effect is durable before the next step relies on it; [`PersistStep`] names the flushes and
//! fences that this takes:
//!
//! - Publication: the page, fence; the header, fence. Then the header of the version before it is
//!   cleared, fence. Until then both versions are valid, and recovery takes the higher sequence
//!   number.
//! - Byte-atomic update: the undo copy, fence; its mark, fence; the bytes in place, fence; the mark
//!   is cleared, fence.
//! - A copy that is not durable has no header, and recovery does not find it.
//!
//! Dulloor et al., "System Software for Persistent Memory", EuroSys '14, section 3.2, order stores
//! in the same way. Fig. 4 of FSLRU's paper names the copies, and neither fences nor marks.

use super::{
    Memory, PageCopy,
    medium::{LINE_WORDS, Medium},
};
use flashsift_caches::trace::Bytes;
use flashsift_events::page::{Frame, PAGE_BYTES, Page};
use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

const PAGE: u64 = 0x5041_4745;
const UNDO: u64 = 0x554e_444f;

/// Words of a header, without its checksum.
const HEADER_WORDS: usize = 5;

/// A flush of lines, or a fence, on which durability depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PersistStep {
    /// Publication: flushes the page.
    PageFlush,
    /// Publication: the page is durable before its header names it.
    PageFence,
    /// Publication: flushes the header.
    HeaderFlush,
    /// Publication: the header is durable when the fsync returns.
    HeaderFence,
    /// Erasure: flushes the cleared header.
    EraseFlush,
    /// Erasure: the frame is free before it is used again.
    EraseFence,
    /// Byte-atomic update: flushes the undo copy.
    UndoFlush,
    /// Byte-atomic update: the undo copy is durable before it is marked.
    UndoFence,
    /// Byte-atomic update: flushes the mark.
    MarkFlush,
    /// Byte-atomic update: the mark is durable before the page changes.
    MarkFence,
    /// Byte-atomic update: flushes the changed lines.
    UpdateFlush,
    /// Byte-atomic update: the changes are durable before the mark goes.
    UpdateFence,
    /// Byte-atomic update: flushes the cleared mark.
    ClearFlush,
    /// Byte-atomic update: the mark is gone when the fsync returns.
    ClearFence,
    /// Recovery: flushes the lines that the undo copy restored.
    RestoreFlush,
    /// Recovery: the page is restored before the mark goes.
    RestoreFence,
    /// Recovery: flushes the cleared mark.
    UnmarkFlush,
    /// Recovery: the mark is gone before the frame is used again.
    UnmarkFence,
    /// Recovery: flushes the cleared headers of superseded and removed pages, and torn ones.
    DiscardFlush,
    /// Recovery: they are free before their frames are used again.
    DiscardFence,
}

impl PersistStep {
    /// Every step.
    pub const ALL: [Self; 20] = [
        Self::PageFlush,
        Self::PageFence,
        Self::HeaderFlush,
        Self::HeaderFence,
        Self::EraseFlush,
        Self::EraseFence,
        Self::UndoFlush,
        Self::UndoFence,
        Self::MarkFlush,
        Self::MarkFence,
        Self::UpdateFlush,
        Self::UpdateFence,
        Self::ClearFlush,
        Self::ClearFence,
        Self::RestoreFlush,
        Self::RestoreFence,
        Self::UnmarkFlush,
        Self::UnmarkFence,
        Self::DiscardFlush,
        Self::DiscardFence,
    ];
}

/// The identity of a page that survives a power cut. File numbers are used again, each time with a
/// new generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// Number of the file.
    pub file: u64,
    /// Number of files that had this number before.
    pub generation: u64,
    /// Number of the page in the file.
    pub page: u64,
}

/// Content on its way between an application, memory and storage, a page each.
#[derive(Clone, Debug, Default)]
pub struct Bus {
    /// The page that an application writes; only the bytes of the access are used.
    pub stored: Vec<u64>,
    /// The page that an application read.
    pub loaded: Vec<u64>,
    /// The page that storage delivered.
    pub arriving: Vec<u64>,
    /// The page that storage gets.
    pub leaving: Vec<u64>,
    /// The identities of pages.
    pub identities: Vec<Identity>,
    /// Durable copies are not erased: a planted fault.
    pub keeps_erased: bool,
}

/// The numbers and the shape of a memory.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Frames of DRAM, that of the page in flight included.
    pub slots: u32,
    /// Frames of non-volatile memory.
    pub frames: u32,
    /// Lines of a page; 64 in reality. Fewer make tests faster: each word then stands for more than
    /// 8 bytes.
    pub page_lines: usize,
}

impl Shape {
    /// Returns the number of words of a page.
    pub fn page_words(self) -> usize {
        self.page_lines * LINE_WORDS
    }

    /// Returns the number of lines of the medium.
    pub fn lines(self) -> usize {
        self.frames as usize * (self.page_lines + 1)
    }

    fn header_line(self, frame: Frame) -> usize {
        self.first_line(frame) + self.page_lines
    }

    fn first_line(self, frame: Frame) -> usize {
        frame.0 as usize * (self.page_lines + 1)
    }

    /// Returns the words that these bytes touch.
    fn words(self, bytes: Bytes) -> std::ops::Range<usize> {
        let per_word = PAGE_BYTES as usize / self.page_words();
        usize::from(bytes.from) / per_word..usize::from(bytes.to).div_ceil(per_word)
    }
}

/// DRAM, and a medium on which pages are durable.
pub struct Durable {
    shape: Shape,
    dram: Vec<u64>,
    medium: Medium,
    bus: Rc<RefCell<Bus>>,
    next_sequence: u64,
    /// A step that is left out, to show that it is needed.
    without: Option<PersistStep>,
}

/// A page that recovery found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Its frame.
    pub frame: Frame,
    /// Its rank.
    pub page: Page,
}

impl Durable {
    /// Returns memory on an empty medium. `without` names a step that is left out: a planted fault.
    pub fn new(
        shape: Shape,
        medium: Medium,
        bus: Rc<RefCell<Bus>>,
        without: Option<PersistStep>,
    ) -> Self {
        let dram = vec![0; shape.slots as usize * shape.page_words()];
        Self { shape, dram, medium, bus, next_sequence: 1, without }
    }

    /// Returns memory on a medium after a power cut, and the durable pages, the one published first
    /// first. `rank` returns the rank of a page that exists.
    ///
    /// An update in progress is undone. Of several versions of a page the one published last is
    /// kept. Pages that exist no more, older versions and torn headers are erased.
    pub fn recover(
        shape: Shape,
        medium: Medium,
        bus: Rc<RefCell<Bus>>,
        without: Option<PersistStep>,
        rank: impl Fn(Identity) -> Option<Page>,
    ) -> (Self, Vec<Recovered>) {
        let mut memory = Self::new(shape, medium, bus, without);
        let mut kept: BTreeMap<Page, (u64, Frame)> = BTreeMap::new();
        let mut discarded = Vec::new();
        for frame in (0..shape.frames).map(Frame) {
            match memory.header(frame) {
                Some([UNDO, to, from_word, to_word, _]) => {
                    memory.undo(frame, Frame(to as u32), from_word as usize..to_word as usize);
                }
                Some([PAGE, file, generation, page, sequence]) => {
                    memory.next_sequence = memory.next_sequence.max(sequence + 1);
                    let Some(page) = rank(Identity { file, generation, page }) else {
                        discarded.push(frame);
                        continue;
                    };
                    match kept.get_mut(&page) {
                        Some((newest, _)) if *newest > sequence => discarded.push(frame),
                        Some(held) => {
                            discarded.push(std::mem::replace(held, (sequence, frame)).1);
                        }
                        None => {
                            kept.insert(page, (sequence, frame));
                        }
                    }
                }
                // Torn: a later header of this frame, torn too, could complete it.
                _ if !memory.is_free(frame) => discarded.push(frame),
                _ => {}
            }
        }
        for frame in discarded {
            memory.clear_header(frame, PersistStep::DiscardFlush, PersistStep::DiscardFence);
        }
        let mut found: Vec<_> = kept.into_iter().collect();
        found.sort_by_key(|(_, (sequence, _))| *sequence);
        let found = found.into_iter().map(|(page, (_, frame))| Recovered { frame, page }).collect();
        (memory, found)
    }

    /// Returns the content of a copy.
    pub fn content(&self, at: PageCopy) -> &[u64] {
        let words = self.shape.page_words();
        match at {
            PageCopy::Dram(slot) => &self.dram[slot.0 as usize * words..][..words],
            PageCopy::Nvm(frame) => self.medium.load(self.first_word(frame), words),
        }
    }

    /// Returns the medium.
    pub fn medium(&self) -> &Medium {
        &self.medium
    }

    fn first_word(&self, frame: Frame) -> usize {
        self.shape.first_line(frame) * LINE_WORDS
    }

    fn set(&mut self, at: PageCopy, word: usize, value: u64) {
        match at {
            PageCopy::Dram(slot) => {
                self.dram[slot.0 as usize * self.shape.page_words() + word] = value;
            }
            PageCopy::Nvm(frame) => self.medium.store(self.first_word(frame) + word, value),
        }
    }

    fn set_all(&mut self, at: PageCopy, values: impl IntoIterator<Item = u64>) {
        for (word, value) in values.into_iter().enumerate() {
            self.set(at, word, value);
        }
    }

    /// Returns a header without its checksum, if it is valid.
    fn header(&self, frame: Frame) -> Option<[u64; HEADER_WORDS]> {
        let first = self.shape.header_line(frame) * LINE_WORDS;
        let (sum, words) = self.medium.load(first, 1 + HEADER_WORDS).split_first()?;
        let words = words.try_into().ok()?;
        (*sum == checksum(&words)).then_some(words)
    }

    fn is_free(&self, frame: Frame) -> bool {
        let first = self.shape.header_line(frame) * LINE_WORDS;
        self.medium.load(first, 1) == [0]
    }

    fn set_header(
        &mut self,
        frame: Frame,
        words: [u64; HEADER_WORDS],
        flush: PersistStep,
        fence: PersistStep,
    ) {
        let line = self.shape.header_line(frame);
        for (n, word) in [checksum(&words)].iter().chain(&words).enumerate() {
            self.medium.store(line * LINE_WORDS + n, *word);
        }
        self.flush(line..line + 1, flush);
        self.fence(fence);
    }

    fn clear_header(&mut self, frame: Frame, flush: PersistStep, fence: PersistStep) {
        let line = self.shape.header_line(frame);
        self.medium.store(line * LINE_WORDS, 0);
        self.flush(line..line + 1, flush);
        self.fence(fence);
    }

    fn flush(&mut self, lines: std::ops::Range<usize>, step: PersistStep) {
        if self.without != Some(step) {
            lines.for_each(|line| self.medium.flush_line(line));
        }
    }

    fn fence(&mut self, step: PersistStep) {
        if self.without != Some(step) {
            self.medium.fence();
        }
    }

    /// Copies words of a page in a frame, and flushes their lines.
    fn move_words(
        &mut self,
        from: PageCopy,
        to: Frame,
        words: std::ops::Range<usize>,
        flush: PersistStep,
        fence: PersistStep,
    ) {
        for word in words.clone() {
            let value = self.content(from)[word];
            self.set(PageCopy::Nvm(to), word, value);
        }
        let first = self.shape.first_line(to);
        self.flush(first + words.start / LINE_WORDS..first + words.end.div_ceil(LINE_WORDS), flush);
        self.fence(fence);
    }

    fn undo(&mut self, log: Frame, to: Frame, words: std::ops::Range<usize>) {
        self.move_words(
            PageCopy::Nvm(log),
            to,
            words,
            PersistStep::RestoreFlush,
            PersistStep::RestoreFence,
        );
        self.clear_header(log, PersistStep::UnmarkFlush, PersistStep::UnmarkFence);
    }
}

/// Mixes the words of a header (the finaliser of MurmurHash3 on each). It is never 0, which means
/// free.
fn checksum(words: &[u64; HEADER_WORDS]) -> u64 {
    let sum = words.iter().fold(0x9e37_79b9_7f4a_7c15, |sum: u64, word| {
        let mut mixed = sum.rotate_left(23) ^ word;
        mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        mixed ^ (mixed >> 33)
    });
    sum | 1
}

impl Memory for Durable {
    fn read(&mut self, at: PageCopy, _: Bytes) {
        let loaded = &mut self.bus.borrow_mut().loaded;
        loaded.clear();
        loaded.extend_from_slice(self.content(at));
    }

    fn write(&mut self, at: PageCopy, bytes: Bytes) {
        let bus = self.bus.clone();
        for word in self.shape.words(bytes) {
            self.set(at, word, bus.borrow().stored[word]);
        }
    }

    fn fetched(&mut self, to: PageCopy) {
        let arriving = self.bus.borrow().arriving.clone();
        self.set_all(to, arriving);
    }

    fn blank(&mut self, to: PageCopy) {
        self.set_all(to, std::iter::repeat_n(0, self.shape.page_words()));
    }

    fn copy(&mut self, from: PageCopy, to: PageCopy) {
        for word in 0..self.shape.page_words() {
            let value = self.content(from)[word];
            self.set(to, word, value);
        }
    }

    fn publish(&mut self, frame: Frame, page: Page) {
        let first = self.shape.first_line(frame);
        self.flush(first..first + self.shape.page_lines, PersistStep::PageFlush);
        self.fence(PersistStep::PageFence);
        let Identity { file, generation, page } = self.bus.borrow().identities[page.0 as usize];
        let words = [PAGE, file, generation, page, self.next_sequence];
        self.next_sequence += 1;
        self.set_header(frame, words, PersistStep::HeaderFlush, PersistStep::HeaderFence);
    }

    fn update_bytes(&mut self, from: Frame, to: Frame, bytes: Bytes, log: Frame) {
        let words = self.shape.words(bytes);
        self.move_words(
            PageCopy::Nvm(to),
            log,
            words.clone(),
            PersistStep::UndoFlush,
            PersistStep::UndoFence,
        );
        let mark = [UNDO, to.0.into(), words.start as u64, words.end as u64, self.next_sequence];
        self.next_sequence += 1;
        self.set_header(log, mark, PersistStep::MarkFlush, PersistStep::MarkFence);
        self.move_words(
            PageCopy::Dram(from),
            to,
            words,
            PersistStep::UpdateFlush,
            PersistStep::UpdateFence,
        );
        self.clear_header(log, PersistStep::ClearFlush, PersistStep::ClearFence);
    }

    fn erase(&mut self, frame: Frame) {
        if self.bus.borrow().keeps_erased {
            return;
        }
        self.clear_header(frame, PersistStep::EraseFlush, PersistStep::EraseFence);
    }

    fn send(&mut self, from: PageCopy) {
        let leaving = &mut self.bus.borrow_mut().leaving;
        leaving.clear();
        leaving.extend_from_slice(self.content(from));
    }
}
