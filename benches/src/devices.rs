//! `--devices`: requests per second that the modelled devices serve.

use crate::{Report, median, thread_cpu_s};
use anyhow::Context;
use flashsift_events::io::{Cause, Io, IoOp};
use flashsift_pages::device::{
    AnyDevice, Device, Prepared, Profile, ProfileSelection, profile::ALL,
};

const REQUESTS: u64 = 10_000_000;
/// Devices with garbage collection, of a size at which their tables exceed the near caches.
const COLLECTING: [&str; 2] = ["emmc-5.1:fill=random,gib=8", "ufs-3.1:fill=random,gib=8"];
const SPAN_PAGES: u64 = 1 << 21;

pub(crate) fn report(report: &mut Report, rounds: usize) -> anyhow::Result<()> {
    report.line(&format!(
        "M requests/s of one page, one core, {REQUESTS} requests in the first 8 GiB. Required: 5 \
         (FlashSim's hybrid FTLs 0.001 to 0.4, MQSim 0.04). Mixed: random, every third a read. A \
         device filled at random collects garbage all the time; the last column has its programs \
         for each write.\n\n| device | writes in order | random writes | random reads | mixed | \
         programs a random write |\n|---|---:|---:|---:|---:|---:|"
    ));
    let listed = ALL.iter().map(|spec| spec.name);
    for name in listed.chain(COLLECTING) {
        let prepared = Prepared::new(&Profile::from(&ProfileSelection::parse(name)?))?;
        let mut row = format!("| {name} |");
        let mut amplification = 0.0;
        for (kind, which) in ["order", "writes", "reads", "mixed"].into_iter().enumerate() {
            let mut times = Vec::new();
            for _ in 0..rounds {
                let mut device = prepared.new_device();
                let before = thread_cpu_s();
                serve(&mut device, which);
                times.push(thread_cpu_s() - before);
                if kind == 1 {
                    amplification =
                        device.wear().write_amplification().context("the device was written to")?;
                }
            }
            row.push_str(&format!(" {:.1} |", REQUESTS as f64 / 1e6 / median(&mut times)));
        }
        report.line(&format!("{row} {amplification:.2} |"));
    }
    report.line("");
    Ok(())
}

/// Sends each request when its predecessor completes.
fn serve(device: &mut AnyDevice, which: &str) {
    let mut now_ns = 0;
    for n in 0..REQUESTS {
        let random = mixed_up(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) % SPAN_PAGES;
        let (lba, op) = match which {
            "order" => (n % SPAN_PAGES, IoOp::Write),
            "reads" => (random, IoOp::Read),
            "mixed" if n % 3 == 0 => (random, IoOp::Read),
            _ => (random, IoOp::Write),
        };
        now_ns = device.serve(
            &Io {
                at_us: 0,
                op,
                lba,
                pages: 1,
                sync: false,
                awaited: false,
                cause: Cause::default(),
            },
            now_ns,
        );
    }
    std::hint::black_box(now_ns);
}

/// The output function of SplitMix64: nearly random, and fast.
fn mixed_up(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}
