//! `--delayed`: power cuts of the model of epochs.

use crate::Report;
use anyhow::ensure;
use flashsift_core::delayed::power_cuts::{Fault, history};
use std::thread;

const CUTS: u64 = 1_000_000;
/// Cuts of each history.
const EACH: u64 = 20;
/// Histories within which a planted fault has to be found.
const TRIES: u64 = 3000;

pub(crate) fn report(report: &mut Report) -> anyhow::Result<()> {
    let threads = thread::available_parallelism().map_or(1, usize::from) as u64;
    let histories = CUTS / EACH;
    let failed: Vec<String> = thread::scope(|scope| {
        let part = |thread: u64| {
            let seeds = (thread..histories).step_by(threads as usize);
            seeds.filter_map(|seed| history(seed, EACH, None).err()).collect::<Vec<_>>()
        };
        let running: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || part(thread))).collect();
        let joined = running.into_iter().map(|thread| thread.join());
        joined.flat_map(|part| part.unwrap_or_else(|_| vec!["a history panicked".into()])).collect()
    });
    report.line(&format!(
        "Power cuts at random moments of {histories} random histories of a group, on a modelled \
         file system; each recovery at the end of an epoch.\n\n| cuts | of no epoch | required |\n\
         |---:|---:|---:|\n| {CUTS} | {} | 0 |\n",
        failed.len()
    ));
    report.line("| planted fault | found in history |\n|---|---:|");
    let mut unfound = Vec::new();
    for fault in Fault::ALL {
        let found = (0..TRIES).find(|seed| history(*seed, EACH, Some(fault)).is_err());
        match found {
            Some(seed) => report.line(&format!("| {fault:?} | {} |", seed + 1)),
            None => unfound.push(fault),
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    ensure!(unfound.is_empty(), "not found: {unfound:?}");
    Ok(())
}
