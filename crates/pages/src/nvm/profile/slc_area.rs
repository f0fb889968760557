use super::{LineCost, MemoryProfile, NvmCost, PageCost};

/// The device's own flash as the buffer: its blocks hold one bit a cell, so they are programmed
/// faster and wear less than the others.
///
/// Another area that eMMC and UFS devices have, RPMB, is no buffer. It takes frames of 256 bytes,
/// 16 for a page, with a counter and a signature that needs a secret key (`struct rpmb_frame` in
/// Linux's `include/linux/rpmb.h`). Trusted firmware usually holds the key. A frame's address has
/// 16 bits, so the area ends at 16 MiB.
pub(super) const PROFILE: MemoryProfile = MemoryProfile {
    name: "slc-area",
    what: "an area of the device's own flash with one bit a cell, written by pages",
    source: "HP, \"Solid State Drive Technology: Differences between SLC, MLC and TLC NAND\", \
             Table 1: SLC reads in 25 µs, programs in 200 to 300 µs, here 250, and bears 100000 \
             cycles; no command overhead; DRAM: as optane",
    dram: LineCost {
        read_ns: super::line_ns(21.3),
        write_ns: super::line_ns(21.3),
        energy_nj_per_bit: None,
    },
    nvm: NvmCost::Pages(PageCost { read_us: 25.0, program_us: 250.0, cycles: 100_000 }),
    storage: None,
};
