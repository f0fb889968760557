//! Memory of a machine: latencies and energies of DRAM and non-volatile memory. One file each.

use flashsift_caches::lines::Traffic;
use flashsift_events::params::{self, Listed, Param};

mod battery_dram;
mod optane;
mod pcm_2016;
mod pcm_board;
mod slc_area;

/// A profile of memory in the list.
pub struct MemoryProfile {
    /// Name in `--nvm`.
    pub name: &'static str,
    /// One-line description.
    pub what: &'static str,
    /// The origin of every constant.
    pub source: &'static str,
    /// DRAM.
    pub dram: LineCost,
    /// Non-volatile memory.
    pub nvm: NvmCost,
    /// Energy of the storage behind it, where the source gives one.
    pub storage: Option<StorageEnergy>,
}

/// The cost of a line in one kind of memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LineCost {
    /// Read of a line of 64 bytes, ns.
    pub read_ns: f64,
    /// Write of a line, ns.
    pub write_ns: f64,
    /// Energy of a read and of a write, nJ a bit.
    pub energy_nj_per_bit: Option<[f64; 2]>,
}

/// Non-volatile memory by the unit in which it is accessed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NvmCost {
    /// Lines of 64 bytes.
    Lines(LineCost),
    /// Pages of 4 KiB: flash. An access to a part of a page takes as long as one to the whole page.
    Pages(PageCost),
}

/// The cost of a page of 4 KiB in flash that is used as memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PageCost {
    /// Read, µs.
    pub read_us: f64,
    /// Write, µs.
    pub program_us: f64,
    /// Erasures that a block bears.
    pub cycles: u32,
}

/// Energy of storage as a current through the time of a page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StorageEnergy {
    /// Current while a page is read or written, mA.
    pub current_ma: f64,
    /// Time of a page read, µs.
    pub read_us: f64,
    /// Time of a page write, µs.
    pub write_us: f64,
}

/// Voltage of the storage, V. Table III of the FSLRU paper gives a current and no voltage; 3.3 V is
/// the supply of NAND chips of its time.
pub const STORAGE_V: f64 = 3.3;

/// Every profile.
pub const ALL: &[MemoryProfile] = &[
    pcm_2016::PROFILE,
    pcm_board::PROFILE,
    optane::PROFILE,
    battery_dram::PROFILE,
    slc_area::PROFILE,
];

/// A profile selected from the list.
pub type Selection = params::Selection<MemoryProfile>;

impl Listed for MemoryProfile {
    const KIND: &'static str = "memory for --nvm";
    const ALL: &'static [Self] = ALL;

    fn declared(&self) -> (&'static str, &'static [Param]) {
        (self.name, &[])
    }
}

/// Time and energy of a cell's memory, and energy with its storage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryCost {
    /// Time of all accesses to DRAM, seconds.
    pub dram_s: f64,
    /// Time of all reads of non-volatile memory, seconds.
    pub nvm_read_s: f64,
    /// Time of all writes of non-volatile memory, seconds.
    pub nvm_write_s: f64,
    /// Energy, where the profile tells it.
    pub energy: Option<Energy>,
    /// Erasures of each block of flash that is used as memory, if wear is even and nothing but the
    /// buffer writes there.
    pub erasures: Option<f64>,
    /// The same as a share of those that a block bears.
    pub wear_share: Option<f64>,
}

/// Energy of memory and storage. The paper's Table III gives storage a current, which can be read
/// in four ways.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Energy {
    /// Joules, storage drawing its current at [`STORAGE_V`] for the time of each page.
    pub energy_j: f64,
    /// Joules, each page of storage taking as many millijoules as its current has milliamperes.
    pub energy_mj_page_j: f64,
    /// Joules, a page written to storage taking so many millijoules, and a page read the share of
    /// them that its time is of a write's. Of the four readings, only this one allows the savings
    /// that the paper shows together with its numbers of requests: in
    /// [`Self::energy_mj_page_j`], 11.8 times fewer requests save at most 91.5 %, and it shows 99.
    pub energy_by_time_j: f64,
    /// The paper's own measure, energy / latency of each access, summed; watts.
    pub energy_quotient_w: f64,
}

impl MemoryProfile {
    /// Returns the cost of accesses to memory, with pages read from and written to storage.
    pub fn cost(&self, traffic: &Traffic, pages_read: u64, pages_written: u64) -> MemoryCost {
        let dram = self.dram;
        let dram_lines = [traffic.dram_read_lines, traffic.dram_written_lines].map(|n| n as f64);
        let nvm_lines = [traffic.nvm_read_lines, traffic.nvm_written_lines].map(|n| n as f64);
        let nvm_accesses = [traffic.nvm_reads, traffic.nvm_writes].map(|n| n as f64);
        let nvm_s = match self.nvm {
            NvmCost::Lines(line) => {
                [nvm_lines[0] * line.read_ns * 1e-9, nvm_lines[1] * line.write_ns * 1e-9]
            }
            NvmCost::Pages(page) => {
                [nvm_accesses[0] * page.read_us * 1e-6, nvm_accesses[1] * page.program_us * 1e-6]
            }
        };
        let erasures = match self.nvm {
            NvmCost::Pages(_) if traffic.nvm_lines > 0 => {
                Some(nvm_accesses[1] * super::PAGE_LINES as f64 / traffic.nvm_lines as f64)
            }
            _ => None,
        };
        let cycles = match self.nvm {
            NvmCost::Pages(page) => f64::from(page.cycles),
            NvmCost::Lines(_) => f64::INFINITY,
        };
        let of_lines = match self.nvm {
            NvmCost::Lines(line) => line.energy_nj_per_bit.map(|energy| (line, energy)),
            NvmCost::Pages(_) => None,
        };
        let pages = [pages_read, pages_written].map(|n| n as f64);
        let energy = match (dram.energy_nj_per_bit, of_lines, self.storage) {
            (Some(of_dram), Some((nvm, of_nvm)), Some(storage)) => {
                let line_bits = super::LINE_BYTES as f64 * 8.0;
                let of = |medium: LineCost, nj_per_bit: [f64; 2], lines: [f64; 2]| {
                    let ns = [medium.read_ns, medium.write_ns];
                    let each = [0, 1].map(|n| {
                        let line_nj = nj_per_bit[n] * line_bits;
                        (lines[n] * line_nj, lines[n] * line_nj / ns[n])
                    });
                    (each[0].0 + each[1].0, each[0].1 + each[1].1)
                };
                let memory = [of(dram, of_dram, dram_lines), of(nvm, of_nvm, nvm_lines)];
                let memory_j: f64 = memory.iter().map(|(nj, _)| nj * 1e-9).sum();
                let memory_w: f64 = memory.iter().map(|(_, w)| w).sum();
                let power_w = storage.current_ma * 1e-3 * STORAGE_V;
                let storage_s = (pages[0] * storage.read_us + pages[1] * storage.write_us) * 1e-6;
                let all_pages = pages[0] + pages[1];
                Some(Energy {
                    energy_j: memory_j + power_w * storage_s,
                    energy_mj_page_j: memory_j + all_pages * storage.current_ma * 1e-3,
                    energy_by_time_j: memory_j
                        + storage_s / (storage.write_us * 1e-6) * storage.current_ma * 1e-3,
                    energy_quotient_w: memory_w + all_pages * power_w,
                })
            }
            _ => None,
        };
        MemoryCost {
            dram_s: (dram_lines[0] * dram.read_ns + dram_lines[1] * dram.write_ns) * 1e-9,
            nvm_read_s: nvm_s[0],
            nvm_write_s: nvm_s[1],
            energy,
            erasures,
            wear_share: erasures.map(|erasures| erasures / cycles),
        }
    }
}

/// Returns the time of a line at this throughput.
const fn line_ns(gb_per_s: f64) -> f64 {
    super::LINE_BYTES as f64 / gb_per_s
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand, from Table III: one line of each kind and a page each way.
    // Promises: Systems 6.
    #[test]
    fn costs_are_those_of_the_table() {
        let traffic = Traffic {
            dram_read_lines: 1,
            dram_written_lines: 1,
            nvm_read_lines: 1,
            nvm_written_lines: 1,
            ..Traffic::default()
        };
        let cost = pcm_2016::PROFILE.cost(&traffic, 1, 1);
        let near = |found: f64, wanted: f64| {
            assert!((found / wanted - 1.0).abs() < 1e-9, "{found}, not {wanted}");
        };
        near(cost.dram_s, 100e-9);
        near(cost.nvm_read_s, 50e-9);
        near(cost.nvm_write_s, 250e-9);
        let energy = cost.energy.unwrap();
        let memory_j = 512.0 * (0.1 + 0.1 + 0.2 + 1.0) * 1e-9;
        near(energy.energy_j, memory_j + 3.3e-3 * 3.3 * 330e-6);
        near(energy.energy_mj_page_j, memory_j + 6.6e-3);
        near(energy.energy_by_time_j, memory_j + 3.3e-3 * (1.0 + 30.0 / 300.0));
        let memory_w = 512.0 * (0.1 / 50.0 + 0.1 / 50.0 + 0.2 / 50.0 + 1.0 / 250.0);
        near(energy.energy_quotient_w, memory_w + 2.0 * 3.3e-3 * 3.3);
        let cost = optane::PROFILE.cost(&traffic, 1, 1);
        assert_eq!((cost.energy, cost.erasures, cost.wear_share), (None, None, None));
    }

    /// Flash is read and written by pages: how many lines of them matter changes nothing. Two pages
    /// that were written 30 times were erased 15 times each.
    // Promises: Systems 6.
    #[test]
    fn flash_costs_pages_and_wears() {
        let traffic = Traffic {
            nvm_read_lines: 3,
            nvm_written_lines: 70,
            nvm_reads: 2,
            nvm_writes: 30,
            nvm_lines: 2 * crate::nvm::PAGE_LINES,
            ..Traffic::default()
        };
        let cost = slc_area::PROFILE.cost(&traffic, 1, 1);
        let near = |found: f64, wanted: f64| {
            assert!((found / wanted - 1.0).abs() < 1e-9, "{found}, not {wanted}");
        };
        near(cost.nvm_read_s, 50e-6);
        near(cost.nvm_write_s, 7500e-6);
        near(cost.erasures.unwrap(), 15.0);
        near(cost.wear_share.unwrap(), 15.0 / 100_000.0);
        assert_eq!(cost.energy, None);
    }
}
