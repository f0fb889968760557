//! Accesses to memory with the latencies of a modelled one: each access to a line is performed in
//! this machine's DRAM, and takes at least as long as a profile says.
//!
//! The FSLRU paper (Kang & Eom, IEEE TCE 2016, section IV) delays accesses on a board with
//! non-volatile memory in the same way. No non-volatile memory is used here.
//!
//! A read loads the eight words of a line. A write stores them; a write of non-volatile memory also
//! flushes the line from the processor's caches and waits for that with a fence. The processor then
//! waits busily until the latency of the line has passed since the line before.
#![allow(unsafe_code, reason = "time-stamp counter and cache-line flush are intrinsics")]

use crate::{
    Error, Op, Request,
    target::{RequestResult, Target},
};
use flashsift_pages::nvm::{
    LINE_BYTES,
    profile::{MemoryProfile, NvmCost},
};
use std::{
    hint::{black_box, spin_loop},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// A counter that runs with time.
pub trait Ticks {
    /// Returns the present count.
    fn now(&mut self) -> u64;
    /// Returns the least number of ticks that last this long, nanoseconds.
    fn ticks_of(&self, ns: f64) -> u64;
    /// Returns how long these ticks last, nanoseconds.
    fn ns_of(&self, ticks: u64) -> f64;
}

/// The processor's time-stamp counter. A clock of the system takes about as long to read as a line
/// of memory.
#[derive(Debug)]
pub struct TimeStamps {
    ticks_per_ns: f64,
}

/// Time for which the counter is compared with the system's clock.
const CALIBRATION: Duration = Duration::from_millis(50);

impl TimeStamps {
    /// Compares the counter with the system's clock for 50 ms.
    ///
    /// # Errors
    ///
    /// This processor has no counter or cache-line flush that is known here.
    pub fn calibrated() -> Result<Self, Error> {
        if !cfg!(target_arch = "x86_64") {
            let message = "--nvm needs an x86-64 processor: the cache-line flush of others is not \
                           known here";
            return Err(Error::Refused(message.to_owned()));
        }
        let (begun, first) = both_clocks();
        while begun.elapsed() < CALIBRATION {
            spin_loop();
        }
        let (ended, last) = both_clocks();
        let ns = (ended - begun).as_nanos() as f64;
        Ok(Self { ticks_per_ns: (last - first) as f64 / ns })
    }
}

/// Reads both clocks at one time: of several tries, the one in which the least time passed, as
/// another process may run in between.
fn both_clocks() -> (Instant, u64) {
    let tries = (0..32).map(|_| {
        let before = time_stamp();
        let now = Instant::now();
        let passed = time_stamp() - before;
        (passed, now, before + passed / 2)
    });
    let (_, now, ticks) = tries.min_by_key(|(passed, ..)| *passed).expect("there are tries");
    (now, ticks)
}

impl Ticks for TimeStamps {
    #[inline(always)]
    fn now(&mut self) -> u64 {
        time_stamp()
    }

    fn ticks_of(&self, ns: f64) -> u64 {
        (ns * self.ticks_per_ns).ceil() as u64
    }

    fn ns_of(&self, ticks: u64) -> f64 {
        ticks as f64 / self.ticks_per_ns
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn time_stamp() -> u64 {
    // Safety: every x86-64 processor has the counter.
    #[allow(unused_unsafe, reason = "safe in newer compilers")]
    unsafe {
        std::arch::x86_64::_rdtsc()
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn time_stamp() -> u64 {
    0
}

/// Writes a line back to memory and waits until that is done.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn flush(line: &Line) {
    // Safety: every x86-64 processor has the instructions, and the line is mapped.
    #[allow(unused_unsafe, reason = "safe in newer compilers")]
    unsafe {
        std::arch::x86_64::_mm_clflush(std::ptr::from_ref(line).cast());
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn flush(_: &Line) {}

/// A line of the processor's caches.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line([AtomicU64; 8]);

const _: () = assert!(size_of::<Line>() as u64 == LINE_BYTES);

/// Lines of each medium that are accessed in turn: 16 MiB, more than most processors cache of one
/// core.
const LINES: usize = 1 << 18;

/// Accesses of one kind until now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    /// Lines accessed.
    pub lines: u64,
    /// Those whose own access took longer than the latency, so that nothing had to be waited for.
    pub slower_lines: u64,
    /// Ticks that all of them took.
    pub ticks: u64,
}

/// Memory whose accesses are delayed.
#[derive(Debug)]
pub struct DelayedMemory<C> {
    clock: C,
    /// Latency of a line, in ticks, in the order of [`Op::OF_MEMORY`].
    delays: [u64; 4],
    accesses: [Accesses; 4],
    lines: Box<[Line]>,
    next: usize,
}

impl<C: Ticks> DelayedMemory<C> {
    /// Maps memory and writes it once, so that no later access meets an unmapped page.
    pub fn new(profile: &MemoryProfile, clock: C) -> Self {
        let delays = latencies_ns(profile).map(|ns| clock.ticks_of(ns));
        let lines: Box<[Line]> = (0..LINES).map(|_| Line::default()).collect();
        for line in &lines {
            line.0[0].store(1, Relaxed);
        }
        Self { clock, delays, accesses: Default::default(), lines, next: 0 }
    }

    /// Accesses `lines` lines one after the other.
    fn access(&mut self, kind: usize, lines: u64) {
        let delay = self.delays[kind];
        let first = self.clock.now();
        let (mut begun, mut slower) = (first, 0);
        for _ in 0..lines {
            let line = &self.lines[self.next];
            self.next = (self.next + 1) % self.lines.len();
            match Op::OF_MEMORY[kind] {
                Op::DramRead | Op::NvmRead => {
                    for word in &line.0 {
                        black_box(word.load(Relaxed));
                    }
                }
                op => {
                    for word in &line.0 {
                        word.store(begun, Relaxed);
                    }
                    if op == Op::NvmWrite {
                        flush(line);
                    }
                }
            }
            let mut now = self.clock.now();
            slower += u64::from(now - begun > delay);
            while now - begun < delay {
                spin_loop();
                now = self.clock.now();
            }
            begun = now;
        }
        let of_kind = &mut self.accesses[kind];
        of_kind.lines += lines;
        of_kind.slower_lines += slower;
        of_kind.ticks += begun - first;
    }

    /// Returns the time of all accesses until now, nanoseconds.
    pub fn elapsed_ns(&self) -> f64 {
        self.clock.ns_of(self.accesses.iter().map(|of_kind| of_kind.ticks).sum())
    }

    /// Returns the accesses until now by operation.
    pub fn accesses(&self) -> impl Iterator<Item = (Op, Accesses)> {
        Op::OF_MEMORY.into_iter().zip(self.accesses)
    }
}

/// Returns the latency of a line in a profile by operation, in the order of [`Op::OF_MEMORY`].
///
/// # Panics
/// If the profile's non-volatile memory is flash, which has no lines.
pub fn latencies_ns(profile: &MemoryProfile) -> [f64; 4] {
    let NvmCost::Lines(nvm) = profile.nvm else { panic!("{} has no lines", profile.name) };
    [profile.dram.read_ns, profile.dram.write_ns, nvm.read_ns, nvm.write_ns]
}

/// Returns the number of an operation in [`Op::OF_MEMORY`].
pub(crate) fn kind_of(op: Op) -> Option<usize> {
    Op::OF_MEMORY.iter().position(|of_memory| *of_memory == op)
}

/// A target with memory: it performs requests for the target, and accesses to memory itself, each
/// before [`Target::start`] returns.
pub struct WithMemory<T, C> {
    target: T,
    memory: DelayedMemory<C>,
    done: Vec<(u32, RequestResult)>,
}

impl<T: Target, C: Ticks> WithMemory<T, C> {
    /// Puts memory beside a target of depth 1.
    ///
    /// # Errors
    ///
    /// The target performs several requests at a time. An application waits for its memory, which
    /// such a target would not show.
    pub fn new(target: T, memory: DelayedMemory<C>) -> Result<Self, Error> {
        if target.depth() > 1 {
            let message = "accesses to memory are performed one at a time, with the requests \
                           between them: leave --queue-depth at 1";
            return Err(Error::Refused(message.to_owned()));
        }
        Ok(Self { target, memory, done: Vec::new() })
    }

    /// Returns the memory.
    pub fn memory(&self) -> &DelayedMemory<C> {
        &self.memory
    }
}

impl<T: Target + ?Sized> Target for &mut T {
    fn depth(&self) -> u32 {
        (**self).depth()
    }
    fn discards_alone(&self) -> bool {
        (**self).discards_alone()
    }
    fn start(&mut self, slot: u32, request: &Request) -> Result<(), Error> {
        (**self).start(slot, request)
    }
    fn wait(
        &mut self,
        at_most: Option<Duration>,
        done: &mut Vec<(u32, RequestResult)>,
    ) -> Result<(), Error> {
        (**self).wait(at_most, done)
    }
}

impl<T: Target, C: Ticks> Target for WithMemory<T, C> {
    fn depth(&self) -> u32 {
        self.target.depth()
    }

    fn discards_alone(&self) -> bool {
        self.target.discards_alone()
    }

    fn start(&mut self, slot: u32, request: &Request) -> Result<(), Error> {
        match kind_of(request.op) {
            Some(kind) => {
                self.memory.access(kind, request.len / LINE_BYTES);
                self.done.push((slot, Ok(request.len)));
                Ok(())
            }
            None => self.target.start(slot, request),
        }
    }

    fn wait(
        &mut self,
        at_most: Option<Duration>,
        done: &mut Vec<(u32, RequestResult)>,
    ) -> Result<(), Error> {
        if self.done.is_empty() {
            return self.target.wait(at_most, done);
        }
        done.append(&mut self.done);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Null;
    use flashsift_pages::nvm::profile;

    /// A clock whose every reading is some ticks later; a tick is a nanosecond.
    struct Steps {
        now: u64,
        step: u64,
    }

    impl Ticks for Steps {
        fn now(&mut self) -> u64 {
            self.now += self.step;
            self.now
        }
        fn ticks_of(&self, ns: f64) -> u64 {
            ns.ceil() as u64
        }
        fn ns_of(&self, ticks: u64) -> f64 {
            ticks as f64
        }
    }

    fn profile_of(name: &str) -> &'static MemoryProfile {
        profile::Selection::parse(name).unwrap().spec
    }

    fn with_memory(step: u64) -> WithMemory<Null, Steps> {
        let memory = DelayedMemory::new(profile_of("pcm-2016"), Steps { now: 0, step });
        WithMemory::new(Null::new(1), memory).unwrap()
    }

    fn request(op: Op, lines: u64) -> Request {
        Request { number: 1, at_us: 0, op, offset: 0, len: lines * LINE_BYTES }
    }

    /// Table III of the paper: 50 ns a line, 250 ns a line written to non-volatile memory. By a
    /// clock of coarse steps, an access ends at the first reading at which its latency has passed.
    // Promises: Replay 15.
    #[test]
    fn each_line_is_counted_and_takes_at_least_its_latency() {
        for step in [1, 7, 60, 300] {
            let mut target = with_memory(step);
            let mut done = Vec::new();
            for (op, lines) in [(Op::DramRead, 3), (Op::NvmWrite, 5), (Op::NvmWrite, 64)] {
                target.start(0, &request(op, lines)).unwrap();
                target.wait(None, &mut done).unwrap();
            }
            let moved: Vec<u64> = done.iter().map(|(_, moved)| *moved.as_ref().unwrap()).collect();
            assert_eq!(moved, [3 * 64, 5 * 64, 64 * 64]);
            let found: Vec<(Op, Accesses)> = target.memory().accesses().collect();
            let line = |latency: u64| latency.div_ceil(step) * step;
            let wanted = [(3, 50), (0, 50), (0, 50), (69, 250)].map(|(lines, latency)| Accesses {
                lines,
                slower_lines: if step > latency { lines } else { 0 },
                ticks: lines * line(latency),
            });
            let ticks: u64 = wanted.iter().map(|of_kind| of_kind.ticks).sum();
            assert_eq!(target.memory().elapsed_ns(), ticks as f64);
            assert_eq!(found, Op::OF_MEMORY.into_iter().zip(wanted).collect::<Vec<_>>());
        }
    }

    /// By the processor's own counter, whatever else the machine does.
    // Promises: Replay 15.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_processors_counter_passes_the_latency() {
        // Flash has no lines.
        let has_lines = |profile: &&MemoryProfile| matches!(profile.nvm, NvmCost::Lines(_));
        for name in profile::ALL.iter().filter(has_lines).map(|profile| profile.name) {
            let clock = TimeStamps::calibrated().unwrap();
            let mut memory = DelayedMemory::new(profile_of(name), clock);
            for kind in 0..4 {
                memory.access(kind, 1000);
            }
            for (at, (op, found)) in memory.accesses().enumerate() {
                assert_eq!(found.lines, 1000, "{name}");
                assert!(found.ticks >= 1000 * memory.delays[at], "{name}: {op:?} {found:?}");
            }
        }
    }

    // Promises: Replay 15.
    #[test]
    fn requests_pass_to_the_target_and_a_queue_is_refused() {
        let mut target = with_memory(1);
        let mut done = Vec::new();
        target.start(0, &request(Op::Write, 64)).unwrap();
        target.wait(None, &mut done).unwrap();
        assert!(done.len() == 1 && target.memory().accesses().all(|(_, found)| found.lines == 0));
        let memory = DelayedMemory::new(profile_of("optane"), Steps { now: 0, step: 1 });
        let refused = WithMemory::new(Null::new(2), memory).err();
        assert!(refused.unwrap().to_string().contains("--queue-depth at 1"));
    }
}
