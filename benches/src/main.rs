//! x
use flashsift_core::event::{Action, Space};
use flashsift_core::{layout, policy, synth::*, system::Cell, trace::*};
use std::io::Write;
fn cpu() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}
fn main() -> anyhow::Result<()> {
    let n: u64 = 20_000_000;
    let recipe = Recipe {
        requests: n,
        pages: 1_000_000,
        pattern: Pattern::Zipf { alpha: 1.0 },
        write_share: 0.0,
        rate: 1000.0,
        seed: 1,
        objects: true,
    };
    let mut b = TraceBuilder::new(recipe.about(), Unit::Request, u64::MAX);
    let events: Vec<_> = recipe.events()?.collect();
    if let Some(p) = std::env::args().nth(1) {
        let mut f = std::io::BufWriter::new(std::fs::File::create(p)?);
        for e in &events {
            if let Action::Read { file, .. } = e.action {
                f.write_all(&((e.at_us / 1_000_000) as u32).to_le_bytes())?;
                f.write_all(&file.0.to_le_bytes())?;
                f.write_all(&4096u32.to_le_bytes())?;
                f.write_all(&(-1i64).to_le_bytes())?;
            }
        }
    }
    let t0 = cpu();
    for c in events.chunks(2048) {
        b.extend(c)?;
    }
    let t1 = cpu();
    let trace = b.finish()?;
    println!(
        "extend {:.3} finish {:.3} held {:.1} B/req pages {}",
        t1 - t0,
        cpu() - t1,
        trace.held_bytes() as f64 / n as f64,
        trace.pages()
    );
    let future = trace.future()?;
    let layout = layout::Selection::default_for(Space::Objects);
    for f in [10_000, 30_000, 100_000, 300_000] {
        for p in policy::Selection::all() {
            let cell = Cell { policy: &p, frames: f, layout: &layout, drain: false, write_miss_reads: false };
            let t0 = cpu();
            let o = cell.run(&trace, Some(&future), None);
            let t = cpu() - t0;
            println!("{f} {:14} {:7.1} M/s  miss {:.4}", p.label(), n as f64 / t / 1e6, 1.0 - o.hit_ratio());
        }
    }
    Ok(())
}
