use super::{LineCost, MemoryProfile, NvmCost, StorageEnergy};

pub(super) const PROFILE: MemoryProfile = MemoryProfile {
    name: "pcm-board",
    what: "phase-change memory as measured on the FSLRU paper's board",
    source: "Kang & Eom, IEEE TCE 2016, Fig. 1: reads take 1.2 and writes 5.1 times those of DRAM, \
             here Table III's 50 ns; energies of Table III",
    dram: LineCost { read_ns: 50.0, write_ns: 50.0, energy_nj_per_bit: Some([0.1, 0.1]) },
    nvm: NvmCost::Lines(LineCost {
        read_ns: 60.0,
        write_ns: 255.0,
        energy_nj_per_bit: Some([0.2, 1.0]),
    }),
    storage: Some(StorageEnergy { current_ma: 3.3, read_us: 30.0, write_us: 300.0 }),
};
