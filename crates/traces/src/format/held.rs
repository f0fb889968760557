//! Lines that are held until the reader knows how to interpret the trace.

const LINES_MAX: usize = 4096;
const BYTES_MAX: usize = 4 << 20;

/// The first lines of a trace, with their numbers.
#[derive(Default)]
pub(super) struct Held {
    lines: Vec<(u64, Box<str>)>,
    bytes: usize,
}

impl Held {
    /// Holds one more line and returns whether that is enough.
    pub(super) fn keep(&mut self, number: u64, line: &str) -> bool {
        self.lines.push((number, line.into()));
        self.bytes += line.len();
        self.lines.len() == LINES_MAX || self.bytes >= BYTES_MAX
    }

    /// Returns the held lines.
    pub(super) fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(|(_, line)| &**line)
    }

    /// Stops holding lines.
    pub(super) fn take(&mut self) -> Vec<(u64, Box<str>)> {
        std::mem::take(&mut self.lines)
    }
}
