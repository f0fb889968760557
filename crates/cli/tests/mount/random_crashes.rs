//! Several applications work at once, files are written back meanwhile, and the daemon is killed at
//! any moment, with or without a power cut. `FLASHSIFT_CRASHES` sets the number of crashes; a
//! failure prints its seed, and `FLASHSIFT_SEED` begins with that seed.

use super::{
    Mounted, Random,
    crash::{Step, empty, kill_and_lose_power, restarts},
    model::{Entry, Model},
    tree,
};
use rustix::process::{Signal, kill_process};
use std::{
    env,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

const APPLICATIONS: u64 = 3;
const FILES: usize = 6;

fn number(variable: &str, otherwise: u64) -> u64 {
    env::var(variable).map_or(otherwise, |value| value.parse().unwrap())
}

fn crashes(power: bool) {
    let Some(mut mounted) = Mounted::new(&["--settle-after", "0.02s"]) else { return };
    mounted.kill();
    let seed = number("FLASHSIFT_SEED", 1);
    for seed in seed..seed + number("FLASHSIFT_CRASHES", 12) {
        empty(&mounted.ext4.backing());
        mounted.start();
        let over = AtomicBool::new(false);
        let models: Vec<_> = thread::scope(|scope| {
            let (mounted, over) = (&mounted, &over);
            let apps = (0..APPLICATIONS)
                .map(|app| scope.spawn(move || application(mounted, over, app, seed, power)));
            let apps: Vec<_> = apps.collect();
            apps.into_iter().map(|app| app.join().unwrap()).collect()
        });
        if power {
            kill_and_lose_power(&mut mounted);
        } else {
            mounted.bury();
        }
        let found = tree(&mounted.ext4.backing());
        for (app, model) in models.iter().enumerate() {
            let its = found.iter().filter(|(name, _)| name.starts_with(&format!("{app}")));
            let its = its.map(|(name, node)| (name.clone(), node.clone())).collect();
            if let Err(broken) = model.check(&its) {
                panic!("seed {seed}: {broken}\nfound: {its:#?}");
            }
        }
        restarts(&mut mounted, &found, &format!("seed {seed}"));
    }
}

/// Works in a folder of its own until the daemon is gone; the first one kills it.
fn application(mounted: &Mounted, over: &AtomicBool, app: u64, seed: u64, power: bool) -> Model {
    let mut random = Random(seed * APPLICATIONS + app + 1);
    let mut model = Model::new(power, true);
    let top = mounted.ext4.mountpoint();
    let folder = app.to_string();
    let names: Vec<_> = (0..FILES).map(|file| format!("{app}/{file}")).collect();
    let life = random.below(300);
    for number in 0.. {
        if app == 0 && number == life {
            over.store(true, Ordering::Release);
            kill_process(mounted.pid(), Signal::KILL).unwrap();
        }
        let step = if number == 0 {
            Step::Directory(&folder)
        } else {
            step(&mut random, &model, &folder, &names)
        };
        if let Err(error) = step.take(number, &top, &mut model) {
            assert!(over.load(Ordering::Acquire), "seed {seed}: {step:?}: {error}");
            break;
        }
    }
    model
}

fn step<'a>(random: &mut Random, model: &Model, folder: &'a str, names: &'a [String]) -> Step<'a> {
    let name = names[random.below(FILES)].as_str();
    let other = names[random.below(FILES)].as_str();
    let same = model.now(name) == model.now(other);
    if model.now(name) == Entry::Nothing {
        return Step::Create(name, random.below(100_000));
    }
    match random.below(12) {
        0 => Step::Rewrite(name, random.below(20_000)),
        1 | 2 => Step::Append(name, random.below(9000)),
        3 => Step::Cut(name, random.below(9000)),
        4 => Step::Mode(name, [0o600, 0o640, 0o644][random.below(3)]),
        // Two names of one file: a rename does nothing.
        5 | 6 if !same => Step::Rename(name, other),
        7 if !same && model.now(other) != Entry::Nothing => Step::Exchange(name, other),
        8 if model.now(other) == Entry::Nothing => Step::Link(name, other),
        9 => Step::Unlink(name),
        10 => Step::SyncDirectory(folder),
        _ => Step::Sync(name),
    }
}

// Promises: Mount 6.
#[test]
fn promises_hold_after_a_kill_at_any_moment() {
    crashes(false);
}

// Promises: Mount 7.
#[test]
fn promises_hold_after_a_power_cut_at_any_moment() {
    crashes(true);
}
