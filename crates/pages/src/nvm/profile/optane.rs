use super::{LineCost, MemoryProfile, NvmCost, line_ns};

/// As the hybrid flush paper does, this takes the greatest throughput of a module for each access.
pub(super) const PROFILE: MemoryProfile = MemoryProfile {
    name: "optane",
    what: "an Optane module at its greatest throughput, as the hybrid flush paper models it",
    source: "Izraelevitz et al., arXiv:1903.05714v3, summary, and Yang et al., FAST 2020, of the \
             same group: one module reads 6.6 GB/s and writes 2.3 GB/s at most; DRAM: DDR4-2666, \
             one channel, 21.3 GB/s (JEDEC)",
    dram: LineCost { read_ns: line_ns(21.3), write_ns: line_ns(21.3), energy_nj_per_bit: None },
    nvm: NvmCost::Lines(LineCost {
        read_ns: line_ns(6.6),
        write_ns: line_ns(2.3),
        energy_nj_per_bit: None,
    }),
    storage: None,
};
