//! The files of `strace -ff`, one for each thread, as one text: lines in the order of their times,
//! each behind the number of its thread, as `strace -f -o` prints them.
//!
//! A line has the time at which its call was entered, so that a clone stands before the lines of
//! its child. Lines of equal time keep the order of the files, which begin with the oldest.

use super::{
    super::day::{self, DAY_US},
    ABSOLUTE_US, Confidence, is_mark,
    line::{Time, head},
};
use crate::{Error, input::LINE_BYTES_MAX};
use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    io::{self, BufRead, Read, Write},
};

type Bytes<'a> = Box<dyn BufRead + Send + 'a>;
type Open<'a, F> = Box<dyn FnMut(&F) -> io::Result<Bytes<'a>> + Send + 'a>;

/// A stream of the lines of all files. A file is open only while its thread runs: there may be more
/// files than a process may have open.
pub(crate) struct Merged<'a, F> {
    /// Files whose thread has not begun, the next one last, each with the time of its first line.
    waiting: Vec<(u64, u32, F)>,
    open: Open<'a, F>,
    /// Files in the order in which they began; `None` once they have ended.
    files: Vec<Option<Lines<'a>>>,
    /// The open files, by the time of their next line.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    text: Vec<u8>,
    /// Bytes of the text that were read.
    taken: usize,
}

/// The rest of a file.
struct Lines<'a> {
    tid: u32,
    bytes: Bytes<'a>,
    /// The next line and its time.
    line: Vec<u8>,
    at_us: u64,
}

impl Lines<'_> {
    /// Reads the next line. Returns whether there is one.
    fn advance(&mut self) -> io::Result<bool> {
        self.line.clear();
        // The rest of a longer line is a line of its own, which is no call.
        let most = (&mut self.bytes).take(LINE_BYTES_MAX as u64);
        let found = { most }.read_until(b'\n', &mut self.line)? > 0;
        match head(&self.line).time {
            Some(Time::Seconds { us }) if us >= ABSOLUTE_US => self.at_us = self.at_us.max(us),
            Some(Time::OfDay { us }) => {
                self.at_us = self.at_us.max(day::after(self.at_us, us));
            }
            _ => {}
        }
        Ok(found)
    }
}

impl<'a, F> Merged<'a, F> {
    /// Merges the files of these threads. `open` opens each file twice.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or several have no times that can be compared.
    pub(crate) fn new(
        files: Vec<(u32, F)>,
        open: impl FnMut(&F) -> io::Result<Bytes<'a>> + Send + 'a,
    ) -> Result<Self, Error> {
        let stopped = |source| Error::Io { offset: 0, source };
        let mut open: Open<'a, F> = Box::new(open);
        let single = files.len() == 1;
        let (mut waiting, mut of_day) = (Vec::new(), false);
        for (tid, file) in files {
            let mut lines =
                Lines { tid, bytes: open(&file).map_err(stopped)?, line: Vec::new(), at_us: 0 };
            if !lines.advance().map_err(stopped)? {
                continue;
            }
            let line = lines.line.trim_ascii_end();
            if super::detect(line) == Confidence::No && !is_mark(head(line).body) {
                return Err(Error::Lacks(format!(
                    "the file of thread {tid} is none that strace -ff writes"
                )));
            }
            let first_us = match head(line).time {
                Some(Time::Seconds { us }) if us >= ABSOLUTE_US => us,
                Some(Time::OfDay { us }) => {
                    of_day = true;
                    us
                }
                _ if single => 0,
                _ => {
                    return Err(Error::Lacks(
                        "the files of strace -ff have no order without the time of each line: \
                         record with strace -ff -ttt"
                            .to_owned(),
                    ));
                }
            };
            waiting.push((first_us, tid, file));
        }
        waiting.sort_by_key(|&(first_us, tid, _)| (first_us, tid));
        if of_day {
            past_midnight(&mut waiting);
        }
        waiting.reverse();
        let (files, next, text) = (Vec::new(), BinaryHeap::new(), Vec::new());
        Ok(Self { waiting, open, files, next, text, taken: 0 })
    }

    /// Puts the next line into `text`, which is empty at the end.
    fn line(&mut self) -> io::Result<()> {
        self.text.clear();
        self.taken = 0;
        while let Some(&(first_us, ..)) = self.waiting.last()
            && self.next.peek().is_none_or(|Reverse((at_us, _))| first_us <= *at_us)
        {
            let Some((at_us, tid, file)) = self.waiting.pop() else { break };
            let bytes = (self.open)(&file)?;
            self.files.push(Some(Lines { tid, bytes, line: Vec::new(), at_us }));
            self.advance(self.files.len() - 1)?;
        }
        let Some(Reverse((_, n))) = self.next.pop() else { return Ok(()) };
        if let Some(Lines { tid, line, .. }) = &self.files[n] {
            write!(self.text, "{tid} ")?;
            self.text.extend_from_slice(line);
            if !line.ends_with(b"\n") {
                self.text.push(b'\n');
            }
        }
        self.advance(n)
    }

    fn advance(&mut self, n: usize) -> io::Result<()> {
        if let Some(lines) = &mut self.files[n] {
            match lines.advance()? {
                true => self.next.push(Reverse((lines.at_us, n))),
                false => self.files[n] = None,
            }
        }
        Ok(())
    }
}

/// Moves files by a day that began after a midnight in the trace: those before the longest pause,
/// if it is longer than half a day.
fn past_midnight<F>(files: &mut [(u64, u32, F)]) {
    let gap = |n: &usize| files[*n].0 - files[*n - 1].0;
    if let Some(n) = (1..files.len()).max_by_key(gap).filter(|n| gap(n) > DAY_US / 2) {
        files[..n].iter_mut().for_each(|(first_us, ..)| *first_us += DAY_US);
        files.rotate_left(n);
    }
}

impl<F> Read for Merged<'_, F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.text.len() {
            self.line()?;
        }
        let given = (&self.text[self.taken..]).read(into)?;
        self.taken += given;
        Ok(given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(files: &[(u32, &'static str)]) -> Result<String, Error> {
        let open = |text: &&'static str| Ok(Box::new(text.as_bytes()) as Bytes<'static>);
        let mut text = String::new();
        Merged::new(files.to_vec(), open)?.read_to_string(&mut text).expect("text in memory");
        Ok(text)
    }

    #[test]
    fn lines_of_all_threads_stand_in_the_order_of_time() {
        let files = [
            (21, "1700000000.5 read(3, \"\", 1) = 0\n1700000000.7 +++ exited with 0 +++"),
            (
                20,
                "1700000000.1 fork() = 21\n1700000000.5 close(3) = 0\n1700000000.9 close(4) = 0\n",
            ),
            (22, ""),
        ];
        assert_eq!(
            merged(&files).expect("times"),
            "20 1700000000.1 fork() = 21\n20 1700000000.5 close(3) = 0\n21 1700000000.5 read(3, \
             \"\", 1) = 0\n21 1700000000.7 +++ exited with 0 +++\n20 1700000000.9 close(4) = 0\n"
        );
    }

    #[test]
    fn times_of_day_go_past_midnight() {
        let files = [
            (7, "23:59:59.9 fork() = 8\n00:00:00.3 close(3) = 0\n"),
            (8, "00:00:00.1 close(3) = 0\n"),
        ];
        assert_eq!(
            merged(&files).expect("times"),
            "7 23:59:59.9 fork() = 8\n8 00:00:00.1 close(3) = 0\n7 00:00:00.3 close(3) = 0\n"
        );
    }

    #[test]
    fn several_files_without_times_are_refused() {
        for line in ["close(3) = 0\n", "     0.000100 close(3) = 0\n"] {
            let error = merged(&[(1, line), (2, line)]).expect_err("no order");
            assert!(error.to_string().contains("-ff -ttt"), "{error}");
            assert_eq!(merged(&[(1, line)]).expect("one file"), format!("1 {line}"));
        }
    }
}
