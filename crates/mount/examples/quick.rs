//! Mounts BACKING on MOUNTPOINT.
use std::sync::Arc;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let after: u64 = a.get(3).map_or(60_000_000, |s| s.parse().unwrap());
    let budget: u64 = a.get(4).map_or(256 << 20, |s| s.parse().unwrap());
    let pass = a.get(5).is_none_or(|s| s == "1");
    let dir = std::fs::File::open(&a[1]).unwrap();
    let fs = Arc::new(
        flashsift_mount::Fs::new(
            dir.into(),
            flashsift_mount::Store::detached_tmpfs(budget).unwrap(),
            flashsift_mount::Config { settle_after_us: after, settled: vec![] },
        )
        .unwrap(),
    );
    let run = flashsift_mount::fuse::start(
        fs.clone(),
        &flashsift_mount::fuse::Options {
            mountpoint: a[2].clone().into(),
            name: a[1].clone(),
            passthrough: pass,
            allow_other: true,
            threads: 4,
            kernel: vec!["dev".into(), "suid".into()],
        },
    )
    .unwrap();
    let f2 = fs.clone();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(std::time::Duration::from_micros((after / 2).clamp(20_000, 1_000_000)));
            let (n, r) = f2.settle_due(f2.now_us());
            if let Err(e) = r {
                eprintln!("settle: {n} {e}");
            }
        }
    });
    eprintln!("mounted");
    run.wait().unwrap();
    fs.settle_all().unwrap();
    fs.check();
    fs.tidy().unwrap();
    println!("{}", serde_json::to_string(&fs.status()).unwrap());
}
