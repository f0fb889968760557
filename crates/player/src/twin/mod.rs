//! The twin: a recorded trace, replayed at its own pace on several file systems on loop devices in
//! memory at the same time. The kernel's own counts of the devices tell how much each setting
//! writes.
//!
//! [`script`] turns events into operations on files, [`tree`] performs them below a directory.
//! [`run`] makes an arm for each [`Setting`], and one more like the first, whose difference from
//! the first is the noise. Settings of the whole machine need a pass of their own. A killed process
//! leaves nothing: loop devices and mounts have no names beside the descriptors that hold them.

mod arm;
pub mod content;
pub mod estimate;
mod loop_device;
mod machine;
pub mod script;
pub mod setting;
mod store;
#[cfg(test)]
mod tests;
pub mod tree;

pub use loop_device::Counters;
pub use setting::Setting;

use crate::Error;
use arm::Mounted;
use content::Content;
use estimate::{Ratio, ratio};
use flashsift_host::flusher::Flusher;
use loop_device::LoopDevice;
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
    process::{Resource, getrlimit, setrlimit},
};
use script::Script;
use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};
use tree::{Names, Tree};

/// Settings to compare, and the way to replay.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The first one is the base of all ratios.
    pub settings: Vec<Setting>,
    /// Length of the windows in which requests are counted.
    pub window: Duration,
    /// Factor by which the replay is faster than the recording. The kernel's timers are not.
    pub speed: f64,
    /// Share of the content that is zero, 0 to 1.
    pub zero_share: f64,
    /// Size of each device; as the trace needs it if `None`.
    pub device_bytes: Option<u64>,
}

impl Plan {
    /// The defaults of a proof: windows of 30 s, at the trace's own pace, incompressible content.
    pub fn new(settings: Vec<Setting>) -> Self {
        let window = Duration::from_secs(30);
        Self { settings, window, speed: 1.0, zero_share: 0.0, device_bytes: None }
    }
}

/// Result of one arm.
#[derive(Clone, Debug)]
pub struct ArmResult {
    /// The setting as it was given.
    pub label: String,
    /// Number of its pass, from 0.
    pub pass: usize,
    /// It repeats the first arm.
    pub again: bool,
    /// Requests from the mounting to the unmounting.
    pub total: Counters,
    /// The same by window. The last one includes all that was left for the unmounting.
    pub windows: Vec<Counters>,
    /// Operations that the file system refused, by error.
    pub refused: BTreeMap<String, u64>,
    /// Longest delay of an operation behind its time, microseconds.
    pub late_us: u64,
    /// So many pages of the machine were dirty that the kernel began to write early.
    pub early: bool,
    /// Bytes written, relative to the first arm.
    pub ratio: Option<Ratio>,
}

/// Smallest device: ext4 gives it a journal of 64 MiB, XFS four groups.
const DEVICE_BYTES: u64 = 4 << 30;
/// Journals, tables and trees of a file system that take memory, at most.
const OVERHEAD_BYTES: u64 = 256 << 20;

/// Returns the size of a device that holds the trace's files twice.
pub fn device_bytes(script: &Script) -> u64 {
    (script.peak_bytes.saturating_mul(2)).next_power_of_two().clamp(DEVICE_BYTES, 1 << 44)
}

/// Memory that one arm takes at most: each byte of content and of what is written, but not more
/// than twice the files' sizes, as freed blocks are used again.
pub fn memory_bytes(script: &Script) -> u64 {
    let written = script.initial_content_bytes().saturating_add(script.written_bytes);
    written.min(script.peak_bytes.saturating_mul(2)).saturating_add(OVERHEAD_BYTES)
}

/// Observes the replay.
pub trait TwinWatch {
    /// Called several times a second with the seconds of the trace that were replayed, of those to
    /// replay; `true` stops.
    fn stop(&mut self, done_s: f64, all_s: f64) -> bool;
}

/// Replays a script on all settings, those with the same settings of the machine at once.
///
/// # Errors
///
/// Root is missing, memory is short, a setting is refused, a device is full, or the watch stopped
/// it.
pub fn run(
    script: &Script,
    plan: &Plan,
    watch: &mut dyn TwinWatch,
) -> Result<Vec<ArmResult>, Error> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::Refused(
            "a twin needs root, for its loop devices and mounts; it changes no file system of this \
             machine"
                .into(),
        ));
    }
    let Some(first) = plan.settings.first() else {
        return Err(Error::Refused("a twin needs a setting".into()));
    };
    let mut passes: Vec<Pass<'_>> = vec![(&first.machine, vec![(first, false), (first, true)])];
    for setting in &plan.settings[1..] {
        match passes.iter_mut().find(|(machine, _)| *machine == setting.machine) {
            Some((_, arms)) => arms.push((setting, false)),
            None => passes.push((&setting.machine, vec![(setting, false)])),
        }
    }
    let held = alone(passes.iter().any(|(machine, _)| !machine.is_empty()))?;
    let flusher = flashsift_host::flusher::settings()
        .map_err(|error| Error::system("settings of the kernel's flusher", error))?;
    let mut split: Vec<Pass<'_>> = Vec::new();
    for (machine, arms) in passes {
        let at_once = arms_at_once(script, most_dirty(script, flusher, machine), flusher)?;
        split.extend(arms.chunks(at_once).map(|part| (machine, part.to_vec())));
    }
    let passes = split;
    let _ = raise_open_files();
    let all_s = script.end_us() as f64 / 1e6 * passes.len() as f64;
    let mut all = Vec::new();
    for (pass, (machine, arms)) in passes.into_iter().enumerate() {
        let done_s = script.end_us() as f64 / 1e6 * pass as f64;
        let _restored_at_the_end = machine::Changed::new(machine, &held)?;
        let mut watch = |now_s: f64| watch.stop(done_s + now_s, all_s);
        let percent = share_percent(
            most_dirty(script, flusher, machine),
            flusher.background_bytes,
            arms.len(),
        );
        all.extend(run_pass(script, plan, &arms, pass, (percent, &held), &mut watch)?);
    }
    // The order of the settings.
    let place = |arm: &ArmResult| {
        (plan.settings.iter().position(|setting| setting.label == arm.label), arm.again)
    };
    all.sort_by_key(place);
    // A pass may see its end just before or just after the end of a window.
    let windows = all.iter().map(|arm| arm.windows.len()).min().unwrap_or(0);
    let series = |arm: &ArmResult| -> Vec<u64> {
        let mut bytes: Vec<u64> = arm.windows.iter().map(|window| window.written_bytes).collect();
        let rest: u64 = bytes.drain(windows..).sum();
        if let Some(last) = bytes.last_mut() {
            *last += rest;
        }
        bytes
    };
    let base = series(&all[0]);
    all.iter_mut().skip(1).for_each(|arm| arm.ratio = ratio(&base, &series(arm)));
    Ok(all)
}

/// Settings of the machine, and the arms under them; the flag: it repeats the first arm.
type Pass<'a> = (&'a [(PathBuf, u64)], Vec<(&'a Setting, bool)>);

/// Held during a run: alone if a setting of the machine is changed, which other twins would see.
fn alone(changes_machine: bool) -> Result<File, Error> {
    let path = Path::new("/run/flashsift-twin.lock");
    let mut options = OpenOptions::new();
    let file = options
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
        .map_err(|error| Error::at(path, "opening", error))?;
    let how = match changes_machine {
        true => FlockOperation::NonBlockingLockExclusive,
        false => FlockOperation::NonBlockingLockShared,
    };
    flock(&file, how).map_err(|error| match error {
        Errno::WOULDBLOCK => Error::Refused(
            "another twin runs, and one of the two changes a setting of the machine that both \
             would see: wait until it has ended"
                .into(),
        ),
        error => Error::at(path, "locking", error),
    })?;
    Ok(file)
}

/// Returns the most bytes of an arm that are dirty at one time, under settings of the machine.
fn most_dirty(script: &Script, flusher: Flusher, machine: &[(PathBuf, u64)]) -> u64 {
    let set = |name| machine.iter().find(|(path, _)| path.ends_with(name)).map(|(_, value)| value);
    let us = |name, old| set(name).map_or(old, |value: &u64| value.saturating_mul(10_000));
    let expire_us = us("dirty_expire_centisecs", flusher.expire_us);
    let tick_us = us("dirty_writeback_centisecs", flusher.tick_us);
    // Without a tick nothing is written because of its age.
    let age_us = if tick_us == 0 { u64::MAX } else { expire_us.saturating_add(tick_us) };
    script.most_dirty_bytes(age_us)
}

/// Returns the share of the kernel's limit that is to be kept for each device, percent. By itself
/// the kernel divides the limit by what each device wrote lately, and writes pages of a device at
/// once that has more: in life there is one such device, here other disks and arms would take from
/// it. All arms get the same, and together leave a tenth for other devices.
fn share_percent(dirty_bytes: u64, background_bytes: u64, arms: usize) -> u64 {
    // A quarter more, as the flusher comes late.
    let wanted = dirty_bytes.saturating_mul(125).div_ceil(background_bytes.max(1));
    wanted.min(90 / arms.max(1) as u64).max(1)
}

/// Returns how many arms may run at once: so many that their memory suffices, and that their dirty
/// pages together stay below the limit above which the kernel begins to write early. In life, only
/// one of them would be there.
fn arms_at_once(script: &Script, dirty_bytes: u64, flusher: Flusher) -> Result<usize, Error> {
    let needed = memory_bytes(script);
    let text = std::fs::read_to_string("/proc/meminfo")
        .map_err(|error| Error::system("/proc/meminfo: reading", error))?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.trim().split(' ').next()?.parse::<u64>().ok());
    let available = kib.unwrap_or(0) << 10;
    // Dirty pages and the rest of the machine need the other quarter.
    let fit = available / 4 * 3 / needed;
    if fit == 0 {
        let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
        return Err(Error::Refused(format!(
            "a file system in memory takes up to {:.1} GiB for this trace, and three quarters of \
             the available memory are {:.1} GiB: replay a shorter part of the trace",
            gib(needed),
            gib(available / 4 * 3)
        )));
    }
    let clean = flusher.background_bytes / dirty_bytes.max(1);
    Ok(fit.min(clean.max(1)).min(usize::MAX as u64) as usize)
}

/// Each arm keeps some hundred files open.
fn raise_open_files() -> rustix::io::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit)
}

/// An arm that is ready to begin.
struct Arm<'a> {
    setting: &'a Setting,
    device: LoopDevice,
    tree: Tree,
    mounted: Mounted,
    before: Counters,
}

impl<'a> Arm<'a> {
    fn new(script: &Script, plan: &Plan, setting: &'a Setting, seed: u64) -> Result<Self, Error> {
        let bytes = plan.device_bytes.unwrap_or_else(|| device_bytes(script));
        let device = LoopDevice::new(bytes)?;
        arm::make(setting, &device)?;
        let (mounted, root) = arm::mount(setting, &device.path)?;
        let content = Content::new(seed, plan.zero_share);
        let mut tree = Tree::new(root, content, Names::default());
        tree.make_initial(script).map_err(|error| {
            Error::system(format!("{}: files that are there before", setting.label), error)
        })?;
        let (content, names) = tree.into_parts();
        drop(mounted);
        device.wait_unmounted()?;
        // A fresh mount: nothing is cached, the journal is empty.
        let (mounted, root) = arm::mount(setting, &device.path)?;
        rustix::fs::syncfs(&root)
            .map_err(|error| Error::system(format!("{}: syncing", setting.label), error))?;
        let before = device.counters()?;
        Ok(Self { setting, device, tree: Tree::new(root, content, names), mounted, before })
    }
}

/// State that the threads of a pass share.
struct Shared {
    begin: Barrier,
    stop: AtomicBool,
    running: AtomicU64,
}

fn run_pass(
    script: &Script,
    plan: &Plan,
    settings: &[(&Setting, bool)],
    pass: usize,
    (percent, held): (u64, &File),
    watch: &mut dyn FnMut(f64) -> bool,
) -> Result<Vec<ArmResult>, Error> {
    let mut arms = Vec::new();
    for (n, (setting, _)) in settings.iter().enumerate() {
        if watch(0.0) {
            return Err(Error::Stopped);
        }
        arms.push(Arm::new(script, plan, setting, n as u64)?);
    }
    let shares: Vec<_> = arms.iter().map(|arm| (arm.device.share(), percent)).collect();
    let _restored_at_the_end = machine::Changed::new(&shares, held)?;
    let shared = Shared {
        begin: Barrier::new(arms.len() + 1),
        stop: AtomicBool::new(false),
        running: AtomicU64::new(arms.len() as u64),
    };
    let mut windows: Vec<Vec<Counters>> = arms.iter().map(|arm| vec![arm.before]).collect();
    let mut devices = Vec::new();
    let (played, sampled) = thread::scope(|scope| {
        let mut threads = Vec::new();
        for Arm { setting, tree, device, mounted, .. } in arms {
            let shared = &shared;
            let work = move || {
                let played = play(script, plan, setting, tree, shared);
                // The descriptors are closed: the mount ends with this one.
                drop(mounted);
                shared.running.fetch_sub(1, Relaxed);
                played
            };
            devices.push(device);
            threads.push(scope.spawn(work));
        }
        shared.begin.wait();
        let sampled = sample(script, plan, &devices, &mut windows, &shared, watch);
        shared.stop.fetch_or(sampled.is_err(), Relaxed);
        let played: Vec<_> =
            threads.into_iter().map(|arm| arm.join().expect("an arm does not panic")).collect();
        (played, sampled)
    });
    let (played, mut failed): (Vec<_>, Vec<_>) = played.into_iter().partition(Result::is_ok);
    // An arm that fails stops the others.
    failed.sort_by_key(|arm| matches!(arm, Err(Error::Stopped)));
    failed.into_iter().next().map_or(Ok(()), |arm| arm.map(drop))?;
    let early = sampled?;
    let mut all = Vec::new();
    for ((((setting, again), device), mut at), (refused, late_us)) in
        settings.iter().zip(&devices).zip(windows).zip(played.into_iter().flatten())
    {
        device.wait_unmounted()?;
        let end = device.counters()?;
        match at.len() {
            1 => at.push(end),
            n => at[n - 1] = end,
        }
        let windows = at.windows(2).map(|pair| pair[1].since(pair[0])).collect();
        let total = end.since(at[0]);
        let label = setting.label.clone();
        all.push(ArmResult {
            label,
            pass,
            again: *again,
            total,
            windows,
            refused,
            late_us,
            early,
            ratio: None,
        });
    }
    Ok(all)
}

const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Reads the counts of all devices at the end of each window, until the script ends. Returns
/// whether too many pages were dirty.
fn sample(
    script: &Script,
    plan: &Plan,
    devices: &[LoopDevice],
    windows: &mut [Vec<Counters>],
    shared: &Shared,
    watch: &mut dyn FnMut(f64) -> bool,
) -> Result<bool, Error> {
    let mut early = false;
    let begun = Instant::now();
    let end = Duration::from_micros((script.end_us() as f64 / plan.speed) as u64);
    let mut next = plan.window;
    while shared.running.load(Relaxed) > 0 {
        thread::sleep(LOOK_AGAIN);
        let now = begun.elapsed();
        early |= now < end && too_dirty();
        if watch(now.min(end).as_secs_f64() * plan.speed) {
            return Err(Error::Stopped);
        }
        if now >= next && now < end {
            for (device, counted) in devices.iter().zip(&mut *windows) {
                counted.push(device.counters()?);
            }
            next += plan.window;
        }
    }
    Ok(early)
}

/// Whether the kernel writes dirty pages of any age.
fn too_dirty() -> bool {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|number| number.trim().parse::<u64>().ok())
    };
    let limit = value("nr_dirty_background_threshold");
    value("nr_dirty").zip(limit).is_some_and(|(dirty, limit)| dirty > limit)
}

type Played = (BTreeMap<String, u64>, u64);

fn play(
    script: &Script,
    plan: &Plan,
    setting: &Setting,
    mut tree: Tree,
    shared: &Shared,
) -> Result<Played, Error> {
    let mut refused = BTreeMap::new();
    let mut late_us = 0;
    shared.begin.wait();
    let begun = Instant::now();
    for step in &script.steps {
        let due = Duration::from_micros((step.at_us as f64 / plan.speed) as u64);
        loop {
            if shared.stop.load(Relaxed) {
                return Err(Error::Stopped);
            }
            let now = begun.elapsed();
            let Some(wait) = due.checked_sub(now).filter(|wait| !wait.is_zero()) else {
                late_us = late_us.max((now - due).as_micros() as u64);
                break;
            };
            thread::sleep(wait.min(LOOK_AGAIN));
        }
        match tree.perform(&step.op) {
            Ok(()) => {}
            Err(error @ (Errno::NOSPC | Errno::IO | Errno::ROFS | Errno::MFILE | Errno::NOMEM)) => {
                shared.stop.store(true, Relaxed);
                return Err(Error::system(format!("{}: {:?}", setting.label, step.op), error));
            }
            Err(error) => *refused.entry(error.to_string()).or_default() += 1,
        }
    }
    Ok((refused, late_us))
}
