//! Runs the cells of a study on threads, as many at once as the plan allows, with progress.

use super::{after_cache, places::Places};
use crate::load;
use flashsift_study::{CellResult, Plan, Sent, Wave};
use rayon::prelude::*;

/// The cells to run, and the receivers of their requests to storage.
pub(super) struct Schedule<'a> {
    pub(super) plan: &'a Plan<'a>,
    pub(super) after_cache: Option<&'a after_cache::Writers<'a>>,
    pub(super) places: Option<&'a Places>,
}

impl Schedule<'_> {
    /// Runs every cell once.
    pub(super) fn run(&self) -> anyhow::Result<Vec<CellResult>> {
        let bar = load::progress("cells", "{spinner} {msg} {bar:30} {pos}/{len}");
        bar.set_length(self.plan.cells().len() as u64);
        let results = in_waves(self.plan.waves(), |cell| {
            let result = self.run_cell(cell)?;
            bar.inc(1);
            Ok(result)
        });
        bar.finish_and_clear();
        results
    }

    fn run_cell(&self, cell: usize) -> anyhow::Result<CellResult> {
        let planned = &self.plan.cells()[cell];
        let mut writer = match self.after_cache {
            Some(after_cache) => Some(after_cache.open(&planned.label(), planned.frames)?),
            None => None,
        };
        let mut grid = self.places.and_then(|places| places.grid_for(planned));
        let is_observed = writer.is_some() || grid.is_some();
        let mut observe = |sent: Sent<'_>| {
            if let Some(writer) = &mut writer {
                writer.take(sent);
            }
            if let (Some(grid), Sent::Requests(requests)) = (&mut grid, sent) {
                grid.take(requests);
            }
        };
        let result = match is_observed {
            true => self.plan.run(cell, &cpu_ns, Some(&mut observe)),
            false => self.plan.run(cell, &cpu_ns, None),
        };
        if let Some(writer) = writer {
            writer.finish()?;
        }
        if let Some((places, grid)) = self.places.zip(grid) {
            places.keep(planned, &result, grid);
        }
        Ok(result)
    }
}

/// Runs each cell of each wave once; never more at a time than the wave allows.
pub(crate) fn in_waves<T: Send>(
    waves: &[Wave],
    run: impl Fn(usize) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<Vec<T>> {
    let mut results = Vec::new();
    for wave in waves {
        let cells = wave.cells.clone();
        match wave.at_once.min(cells.len()) {
            // No pool either: for small traces, its start costs more than the work.
            0 | 1 => results.extend(cells.map(&run).collect::<anyhow::Result<Vec<_>>>()?),
            threads => {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
                let run_wave = || cells.into_par_iter().map(&run).collect();
                results.extend(pool.install::<_, anyhow::Result<Vec<_>>>(run_wave)?);
            }
        }
    }
    Ok(results)
}

/// Returns the CPU time of this thread.
pub(super) fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    };

    /// Cells run in waves, each cell once, and each wave begins after the previous one has ended.
    // Promises: Traces 6.
    #[test]
    fn waves_are_obeyed() {
        let waves = [(0..7, 3), (7..8, 2), (8..12, 1)];
        let waves = waves.map(|(cells, at_once)| Wave { cells, at_once });
        let (running, most) = (AtomicUsize::new(0), [0; 3].map(AtomicUsize::new));
        let order = Mutex::new(Vec::new());
        let cells = in_waves(&waves, |cell| {
            let wave = waves.iter().position(|wave| wave.cells.contains(&cell)).unwrap();
            order.lock().unwrap().push(wave);
            most[wave].fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
            std::thread::yield_now();
            running.fetch_sub(1, SeqCst);
            Ok(cell)
        });
        assert_eq!(cells.unwrap(), (0..12).collect::<Vec<_>>());
        assert!(order.into_inner().unwrap().is_sorted());
        let most = most.map(|most| most.into_inner());
        assert!(
            most.iter().zip(&waves).all(|(most, wave)| (1..=wave.at_once).contains(most)),
            "{most:?}"
        );
    }

    #[test]
    fn an_error_ends_the_schedule() {
        let waves = [Wave { cells: 0..2, at_once: 1 }, Wave { cells: 2..4, at_once: 2 }];
        let ran = AtomicUsize::new(0);
        let failed = in_waves(&waves, |cell| {
            ran.fetch_add(1, SeqCst);
            anyhow::ensure!(cell != 0, "cell {cell}");
            Ok(cell)
        });
        assert_eq!(failed.unwrap_err().to_string(), "cell 0");
        assert_eq!(ran.into_inner(), 1);
    }
}
