//! `--record`: writes the requests to the mount as a trace.

use crate::size;
use anyhow::Context;
use flashsift_events::event::{
    About, Action, Create, Event, Knows, MaybeOwned, Renamed, Side, Space,
};
use flashsift_host::{memory, own_files};
use flashsift_mount::{
    daemon,
    daemon::{Began, RecordingError},
};
use flashsift_traces::{
    events::{Events, Summary},
    store,
};
use rustix::fs::FileType;
use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{self, Receiver, SyncSender},
    },
    thread::JoinHandle,
};

/// Queue capacity in events, a few megabytes; producers block when it is full.
const WAITING_MAX: usize = 1 << 16;

/// Description of a recording's trace, except for its start time.
const ABOUT: About = About {
    epoch_us: None,
    boot_us: None,
    side: Side::Before,
    space: Space::Files,
    knows: Knows::OF_MOUNT,
};

/// A trace that is being written.
pub(super) struct Recording {
    path: PathBuf,
    /// Prefix of all names: the mount reports them relative to itself.
    mountpoint: Arc<str>,
    /// An event; `None` ends the trace.
    events: SyncSender<Option<Event<'static>>>,
    thread: JoinHandle<anyhow::Result<(Summary, u64)>>,
}

impl Recording {
    /// Starts a recording in a temporary file, which is later renamed to `path`. `path` must lie
    /// outside the mount.
    pub(super) fn begin(path: &Path, mountpoint: &Path, began: Began) -> anyhow::Result<Self> {
        let path = std::path::absolute(path)?;
        let at = || path.display().to_string();
        let folder = path.parent().context("a file name is needed").with_context(at)?;
        let folder = folder.canonicalize().with_context(|| folder.display().to_string())?;
        if folder.starts_with(mountpoint) {
            anyhow::bail!("{}: a recording cannot lie on what it records", path.display());
        }
        // A trace that replaces another one gets its permissions.
        match own_files::tighten(&path, FileType::RegularFile) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => {}
            done => done?,
        }
        let writer = store::Writer::create(&path, &format!("a mount on {}", mountpoint.display()))?;
        let (events, arriving) = mpsc::sync_channel(WAITING_MAX);
        let thread = std::thread::Builder::new()
            .name("record".into())
            .spawn(move || write(writer, began, &arriving))?;
        let mountpoint = mountpoint.to_string_lossy().into();
        Ok(Self { path, mountpoint, events, thread })
    }

    /// Gives the finished trace its name. Returns a description of its content.
    fn end(self) -> anyhow::Result<String> {
        let _ = self.events.send(None);
        let done =
            self.thread.join().map_err(|_| anyhow::anyhow!("the thread that records panicked"))?;
        let (summary, bytes) = done?;
        Ok(format!(
            "{}: {}, {} of them reads and writes; {}",
            self.path.display(),
            size::counted(summary.events, "event"),
            size::count(summary.accesses),
            size::bytes(bytes)
        ))
    }
}

impl daemon::Recording for Recording {
    /// A sink that queues events; it blocks while the queue is full.
    fn sink(&self) -> Box<dyn FnMut(&Event<'_>) + Send> {
        let (events, mountpoint) = (self.events.clone(), self.mountpoint.clone());
        Box::new(move |event| {
            let mut event = event.clone().into_owned();
            name_absolutely(&mut event.action, &mountpoint);
            // The writer thread has ended with an error, which `finish` returns.
            let _ = events.send(Some(event));
        })
    }

    fn finish(self: Box<Self>) -> Result<String, RecordingError> {
        self.end().map_err(Into::into)
    }
}

/// Prefixes the names of an event with the mountpoint: `/a` becomes `/mnt/cache/a`.
fn name_absolutely(action: &mut Action<'_>, mountpoint: &str) {
    let absolute = |name: &str| MaybeOwned::from([mountpoint, name].concat());
    let moved =
        |names: &Renamed<'_>| Renamed { from: absolute(&names.from), to: absolute(&names.to) };
    match action {
        Action::Bind { name, .. } | Action::Link { name, .. } | Action::Unbind { name, .. } => {
            *name = absolute(name);
        }
        Action::Create(create) => {
            let named = Create { name: absolute(&create.name), ..create.to_static() };
            *create = MaybeOwned::owned(named);
        }
        Action::Rename { names, .. } | Action::RenameDirectory { names } => {
            *names = MaybeOwned::owned(moved(names));
        }
        _ => {}
    }
}

fn write(
    mut writer: store::Writer,
    began: Began,
    arriving: &Receiver<Option<Event<'static>>>,
) -> anyhow::Result<(Summary, u64)> {
    let mut into = Events::new(&mut writer);
    let (epoch_us, boot_us) = (Some(began.epoch_us), Some(began.boot_us));
    let pressure = memory::stalled_ppm().is_some();
    let knows = Knows { pressure, ..ABOUT.knows };
    let mut written = into.about(About { epoch_us, boot_us, knows, ..ABOUT });
    while let Ok(Some(event)) = arriving.recv() {
        if written.is_ok() {
            written = into.push(event);
            if let Err(why) = &written {
                tracing::error!("recording ends here: {why}");
            }
        }
    }
    written?;
    let summary = into.finish()?;
    let bytes = writer.finish(&summary.skipped)?;
    Ok((summary, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_events::event::FileId;

    // Promises: Mount 53.
    #[test]
    fn more_events_than_the_channel_holds_arrive_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let recording = Recording::begin(&path, Path::new("/nowhere"), BEGAN).unwrap();
        let mut observe = daemon::Recording::sink(&recording);
        let many = 3 * WAITING_MAX as u64;
        for n in 0..many {
            let action = Action::Write {
                open: None,
                file: FileId(n % 7),
                offset: n * 10,
                len: 10,
                sync: false,
            };
            observe(&Event { at_us: n, pid: 1, tid: 1, action });
        }
        let says = recording.end().unwrap();
        assert!(says.contains(&size::counted(many, "event")), "{says}");
        observe(&Event { at_us: many, pid: 1, tid: 1, action: Action::SyncAll });

        let mut seen = Seen::default();
        let limits = flashsift_traces::open::Limits::default();
        let outcome = flashsift_traces::open::read(&path, None, &mut seen, &limits).unwrap();
        assert_eq!((outcome.events, seen.0), (many, (0..many).map(|n| (n, n * 10)).collect()));
    }

    #[test]
    fn names_are_absolute() {
        let file = FileId(0);
        let names = Box::new(Renamed { from: "/a".into(), to: "/d/b".into() }).into();
        let mut action = Action::Rename { file, names };
        name_absolutely(&mut action, "/mnt");
        let names = Box::new(Renamed { from: "/mnt/a".into(), to: "/mnt/d/b".into() }).into();
        assert_eq!(action, Action::Rename { file, names });
        let mut action = Action::Unbind { file, name: "/a".into() };
        name_absolutely(&mut action, "/mnt");
        assert_eq!(action, Action::Unbind { file, name: "/mnt/a".into() });
    }

    const BEGAN: Began = Began { epoch_us: 1_700_000_000_000_000, boot_us: 7 };

    #[derive(Default)]
    struct Seen(Vec<(u64, u64)>);

    impl flashsift_traces::events::Sink for Seen {
        fn about(&mut self, about: About) -> Result<(), flashsift_traces::Error> {
            let (epoch_us, boot_us) = (Some(BEGAN.epoch_us), Some(BEGAN.boot_us));
            let pressure = Path::new("/proc/pressure/memory").exists();
            let knows = Knows { pressure, ..ABOUT.knows };
            assert_eq!(about, About { epoch_us, boot_us, knows, ..ABOUT });
            Ok(())
        }
        fn events(&mut self, events: &[Event<'static>]) -> Result<(), flashsift_traces::Error> {
            self.0.extend(events.iter().map(|event| match event.action {
                Action::Write { offset, .. } => (event.at_us, offset),
                ref other => panic!("{other:?}"),
            }));
            Ok(())
        }
    }

    // Promises: Mount 48.
    #[test]
    fn a_recording_does_not_record_itself() {
        let folder = tempfile::tempdir().unwrap();
        let mountpoint = folder.path().canonicalize().unwrap();
        let says = Recording::begin(&mountpoint.join("t.parquet"), &mountpoint, BEGAN)
            .err()
            .unwrap()
            .to_string();
        assert!(says.contains("cannot lie on what it records"), "{says}");
    }
}
