use super::{LineCost, MemoryProfile, NvmCost, StorageEnergy};

pub(super) const PROFILE: MemoryProfile = MemoryProfile {
    name: "battery-dram",
    what: "DRAM with a battery in place of non-volatile memory",
    source: "both as the DRAM of Kang & Eom, IEEE TCE 2016, Table III; neither the battery nor \
             refreshes are counted",
    dram: LineCost { read_ns: 50.0, write_ns: 50.0, energy_nj_per_bit: Some([0.1, 0.1]) },
    nvm: NvmCost::Lines(LineCost {
        read_ns: 50.0,
        write_ns: 50.0,
        energy_nj_per_bit: Some([0.1, 0.1]),
    }),
    storage: Some(StorageEnergy { current_ma: 3.3, read_us: 30.0, write_us: 300.0 }),
};
