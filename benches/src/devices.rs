//! `--devices`: how many requests a second the modelled devices serve.

use crate::{Report, median, thread_cpu_s};
use anyhow::Context;
use flashsift_core::{
    back::{Io, IoOp},
    device::{Device, Machine, Prepared, Selection, profile::ALL},
};

const REQUESTS: u64 = 10_000_000;
/// Those that collect are modelled at a size at which their tables do not fit the near caches.
const COLLECTING: [&str; 2] = ["emmc-5.1:fill=random,gib=8", "ufs-3.1:fill=random,gib=8"];
const SPAN_PAGES: u64 = 1 << 21;

pub(crate) fn report(report: &mut Report, rounds: usize) -> anyhow::Result<()> {
    report.line(&format!(
        "M requests/s of one page, one core, {REQUESTS} requests in the first 8 GiB. Held against: 5 (FlashSim's hybrid FTLs 0.001 to \
         0.4, MQSim 0.04). Mixed: scattered, every third a read. A device filled at random collects garbage at every turn: its \
         programs for each write stand beside.\n\n\
         | device | written in order | scattered writes | scattered reads | mixed | programs a scattered write |\n\
         |---|---:|---:|---:|---:|---:|"
    ));
    let listed = ALL.iter().map(|spec| spec.name);
    for name in listed.chain(COLLECTING) {
        let prepared = Prepared::new(&Selection::parse(name)?.profile())?;
        let mut row = format!("| {name} |");
        let mut amplification = 0.0;
        for (kind, which) in ["order", "writes", "reads", "mixed"].into_iter().enumerate() {
            let mut times = Vec::new();
            for _ in 0..rounds {
                let mut device = prepared.machine();
                let before = thread_cpu_s();
                serve(&mut device, which);
                times.push(thread_cpu_s() - before);
                if kind == 1 {
                    amplification = device.wear().write_amplification().context("it was written to")?;
                }
            }
            row.push_str(&format!(" {:.1} |", REQUESTS as f64 / 1e6 / median(&mut times)));
        }
        report.line(&format!("{row} {amplification:.2} |"));
    }
    report.line("");
    Ok(())
}

/// Sends the requests, each when the one before it is done.
fn serve(device: &mut Machine, which: &str) {
    let mut now_ns = 0;
    for n in 0..REQUESTS {
        let scattered = mixed_up(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) % SPAN_PAGES;
        let (lba, op) = match which {
            "order" => (n % SPAN_PAGES, IoOp::Write),
            "reads" => (scattered, IoOp::Read),
            "mixed" if n % 3 == 0 => (scattered, IoOp::Read),
            _ => (scattered, IoOp::Write),
        };
        now_ns = device.serve(&Io { at_us: 0, op, lba, pages: 1, sync: false, awaited: false }, now_ns);
    }
    std::hint::black_box(now_ns);
}

/// SplitMix64's output function: as good as random, and hardly any time.
fn mixed_up(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}
