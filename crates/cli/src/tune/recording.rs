//! A recording that a `tune` command makes before it proposes something.

use crate::watch::Until;
use anyhow::Context;
use flashsift_record::Stop as _;
use rustix::process::{Pid, Signal, kill_process};
use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;

/// Name of the trace in its folder.
const TRACE: &str = "live.parquet";
/// Time between looks at the recorder.
const LOOK: Duration = Duration::from_millis(50);

/// A recording, made by a process of its own. It is ended, and its trace removed,
/// when it goes out of scope, or when this process is killed.
pub(super) struct Recording {
    recorder: Child,
    folder: TempDir,
}

impl Recording {
    /// `more`: further options of `record`.
    pub(super) fn begin(point: &Path, time: Duration, more: &[&str]) -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("flashsift-tune-").context("a folder for the trace")?;
        let program = std::env::current_exe().context("the path of this program")?;
        let recorder = Command::new(program)
            .args(["record", "-q"])
            .args(more)
            .arg("--for")
            .arg(format!("{}ms", time.as_millis()))
            .arg("--with-parent")
            .arg(std::process::id().to_string())
            .arg("--path")
            .arg(point)
            .arg("--output")
            .arg(folder.path().join(TRACE))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("recording")?;
        Ok(Self { recorder, folder })
    }

    /// Ends the recording and returns the path of its trace.
    pub(super) fn end(&mut self) -> anyhow::Result<PathBuf> {
        self.interrupt();
        let status = self.recorder.wait().context("waiting for the recording")?;
        anyhow::ensure!(status.success(), "the recording failed: see above");
        Ok(self.folder.path().join(TRACE))
    }

    /// Waits until the recording has ended by itself, or `stop` wants it to. Returns the path of
    /// its trace.
    pub(super) fn wait(&mut self, stop: &mut Until) -> anyhow::Result<PathBuf> {
        stop.begun();
        while self.recorder.try_wait().context("waiting for the recording")?.is_none() {
            if stop.now(0) {
                break;
            }
            std::thread::sleep(LOOK);
        }
        self.end()
    }

    /// Lets the recorder end its trace. One that has ended already does not mind.
    fn interrupt(&mut self) {
        let ended = matches!(self.recorder.try_wait(), Ok(Some(_)));
        let pid = i32::try_from(self.recorder.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| !ended) {
            let _ = kill_process(pid, Signal::INT);
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.interrupt();
        // It fails if the recorder was waited for.
        let _ = self.recorder.wait();
    }
}
