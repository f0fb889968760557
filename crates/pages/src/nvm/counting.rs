//! Memory that counts lines.

use super::{LINE_BYTES, Memory, PAGE_LINES, PageCopy, lines};
use flashsift_caches::{
    lines::{Lines, Traffic},
    trace::Bytes,
};
use flashsift_events::page::{Frame, Page};
use prefetch_index::prefetch_index;

/// Counts the lines of each access and the writes of each line of non-volatile memory; holds no
/// content.
///
/// A frame has [`PAGE_LINES`] lines and one line more for its header. Publication and erasure write
/// the header. A byte-atomic update reads and writes the lines of its bytes once for the undo copy,
/// which has the same position in the log's frame, and writes them once more in place; it writes
/// the header of the log's frame twice, to mark the undo copy valid and to clear the mark.
pub struct Counting {
    traffic: Traffic,
    /// Reads, of DRAM and of non-volatile memory, and the lines that they read. By index, because a
    /// branch would often be mispredicted.
    reads: [u64; 2],
    read_lines: [u64; 2],
    /// By frame.
    frames: Vec<Wear>,
    /// Writes of each line by writes that do not cover the whole page; allocated at the first of a
    /// frame.
    partial: Vec<Option<Box<[u32; PAGE_LINES as usize]>>>,
}

/// Writes of one frame.
#[derive(Clone, Copy, Default)]
struct Wear {
    whole: u32,
    header: u32,
}

impl Counting {
    /// Returns memory with this many frames of non-volatile memory.
    pub fn new(frames: u32) -> Self {
        let traffic = Traffic { nvm_lines: u64::from(frames) * PAGE_LINES, ..Traffic::default() };
        let frames = frames as usize;
        Self {
            traffic,
            reads: [0; 2],
            read_lines: [0; 2],
            frames: vec![Wear::default(); frames],
            partial: vec![None; frames],
        }
    }

    #[inline(always)]
    fn write_nvm(&mut self, frame: Frame, bytes: Bytes) {
        self.traffic.nvm_writes += 1;
        let count = lines_of(bytes);
        self.traffic.nvm_written_lines += count;
        if count == PAGE_LINES {
            let wear = &mut self.frames[frame.0 as usize];
            wear.whole = wear.whole.saturating_add(1);
        } else if count != 0 {
            let partial = self.partial[frame.0 as usize]
                .get_or_insert_with(|| Box::new([0; PAGE_LINES as usize]));
            let first = (u64::from(bytes.from) / LINE_BYTES) as usize;
            for writes in &mut partial[first..][..count as usize] {
                *writes = writes.saturating_add(1);
            }
        }
    }

    #[inline(always)]
    fn write_header(&mut self, frame: Frame) {
        self.traffic.nvm_written_lines += 1;
        let wear = &mut self.frames[frame.0 as usize];
        wear.header = wear.header.saturating_add(1);
    }

    fn hottest_line_writes(&self) -> u64 {
        let hottest = |(wear, partial): (&Wear, &Option<Box<[u32; PAGE_LINES as usize]>>)| {
            let partial = partial.as_ref().and_then(|lines| lines.iter().max().copied());
            (u64::from(wear.whole) + u64::from(partial.unwrap_or(0))).max(wear.header.into())
        };
        self.frames.iter().zip(&self.partial).map(hottest).max().unwrap_or(0)
    }
}

#[inline(always)]
fn lines_of(bytes: Bytes) -> u64 {
    lines(bytes.from.into(), bytes.count().into())
}

impl Memory for Counting {
    #[inline(always)]
    fn read(&mut self, at: PageCopy, bytes: Bytes) {
        let medium = usize::from(matches!(at, PageCopy::Nvm(_)));
        self.reads[medium] += 1;
        self.read_lines[medium] += lines_of(bytes);
    }

    #[inline(always)]
    fn write(&mut self, at: PageCopy, bytes: Bytes) {
        match at {
            PageCopy::Dram(_) => self.traffic.dram_written_lines += lines_of(bytes),
            PageCopy::Nvm(frame) => self.write_nvm(frame, bytes),
        }
    }

    #[inline(always)]
    fn copy(&mut self, from: PageCopy, to: PageCopy) {
        self.read(from, Bytes::PAGE);
        self.write(to, Bytes::PAGE);
    }

    #[inline(always)]
    fn publish(&mut self, frame: Frame, _: Page) {
        self.write_header(frame);
    }

    #[inline(always)]
    fn update_bytes(&mut self, from: Frame, to: Frame, bytes: Bytes, log: Frame) {
        self.read(PageCopy::Nvm(to), bytes);
        self.write_nvm(log, bytes);
        self.write_header(log);
        self.read(PageCopy::Dram(from), bytes);
        self.write_nvm(to, bytes);
        self.write_header(log);
    }

    #[inline(always)]
    fn erase(&mut self, frame: Frame) {
        self.write_header(frame);
    }

    #[inline(always)]
    fn prefetch(&self, frame: Frame) {
        prefetch_index(&self.frames, frame.0 as usize);
    }

    fn lines(&self) -> Lines {
        let [dram_read_lines, nvm_read_lines] = self.read_lines;
        Traffic { dram_read_lines, nvm_read_lines, ..self.traffic }.lines()
    }

    fn traffic(&self) -> Traffic {
        let [dram_read_lines, nvm_read_lines] = self.read_lines;
        Traffic {
            dram_read_lines,
            nvm_read_lines,
            nvm_reads: self.reads[1],
            nvm_hottest_line_writes: self.hottest_line_writes(),
            ..self.traffic
        }
    }
}
