use super::{LineCost, MemoryProfile, NvmCost, StorageEnergy};

pub(super) const PROFILE: MemoryProfile = MemoryProfile {
    name: "pcm-2016",
    what: "phase-change memory as the FSLRU paper models it",
    source: "Kang & Eom, IEEE TCE 2016, Table III; latencies taken for a line of 64 bytes",
    dram: LineCost { read_ns: 50.0, write_ns: 50.0, energy_nj_per_bit: Some([0.1, 0.1]) },
    nvm: NvmCost::Lines(LineCost {
        read_ns: 50.0,
        write_ns: 250.0,
        energy_nj_per_bit: Some([0.2, 1.0]),
    }),
    storage: Some(StorageEnergy { current_ma: 3.3, read_us: 30.0, write_us: 300.0 }),
};
