//! The last report, which gives remedies their numbers, and the proofs of remedies.

use anyhow::Context;
use flashsift_host::own_files;
use flashsift_study::doctor::{RemedyStep, Saving};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};
use tracing::warn;

/// Path of the last report.
pub(super) const PATH: &str = "/var/lib/flashsift/doctor-report.json";

/// A report as `doctor --json` printed it, as far as it is read again.
#[derive(Deserialize)]
pub(super) struct Report {
    duration_us: u64,
    judged_until_us: Option<u64>,
    written: Written,
    pub(super) disks: Vec<Disk>,
    pub(super) writers: Vec<Writer>,
    pub(super) remedies: Vec<Remedy>,
}

#[derive(Deserialize)]
struct Written {
    data_bytes: u64,
    journal_bytes: u64,
    metadata_bytes: u64,
}

#[derive(Deserialize)]
pub(super) struct Disk {
    pub(super) name: String,
    written_bytes: u64,
}

#[derive(Deserialize)]
pub(super) struct Writer {
    pub(super) name: String,
    pub(super) bytes_per_hour: f64,
    pub(super) remedies: Vec<usize>,
}

#[derive(Deserialize)]
pub(super) struct Remedy {
    pub(super) number: usize,
    pub(super) name: String,
    pub(super) title: String,
    pub(super) price: String,
    pub(super) saving: Option<Saving>,
    pub(super) commands: Vec<String>,
    pub(super) lasting: Vec<String>,
    pub(super) undo: Vec<String>,
    pub(super) steps: Vec<RemedyStep>,
}

const DAY_US: f64 = 86_400e6;

impl Report {
    /// Reads the report at `path`. Its commands run as root, so no other user may have written it.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let text = read_ours(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => anyhow::anyhow!(
                "there is no report at {shown}: run `sudo flashsift doctor` first, or name one of \
                 --json by --last-report"
            ),
            io::ErrorKind::PermissionDenied if !rustix::process::geteuid().is_root() => {
                anyhow::anyhow!("reading the report at {shown} needs root: run it with sudo")
            }
            _ => anyhow::anyhow!("{shown}: {error}"),
        })?;
        serde_json::from_str(&text)
            .with_context(|| format!("{shown} is no report of this version: run doctor again"))
    }

    /// Finds a remedy by its number or name.
    pub(super) fn remedy(&self, wanted: &str) -> anyhow::Result<&Remedy> {
        let is = |remedy: &&Remedy| remedy.number.to_string() == wanted || remedy.name == wanted;
        self.remedies.iter().find(is).with_context(|| {
            let all: Vec<_> =
                self.remedies.iter().map(|one| format!("{} ({})", one.number, one.name)).collect();
            match all.is_empty() {
                true => "the last report has no remedies".to_owned(),
                false => format!("the last report has no remedy {wanted}: {}", all.join(", ")),
            }
        })
    }

    /// All bytes that reach flash in a day, by the models.
    pub(super) fn bytes_a_day(&self) -> f64 {
        let Written { data_bytes, journal_bytes, metadata_bytes } = self.written;
        let judged_us = self.judged_until_us.unwrap_or(self.duration_us).max(1);
        (data_bytes + journal_bytes + metadata_bytes) as f64 * DAY_US / judged_us as f64
    }

    /// The same by the disks' counters.
    pub(super) fn counted_a_day(&self) -> f64 {
        let all: u64 = self.disks.iter().map(|disk| disk.written_bytes).sum();
        all as f64 * DAY_US / self.duration_us.max(1) as f64
    }

    pub(super) fn duration_us(&self) -> u64 {
        self.duration_us
    }
}

fn read_ours(path: &Path) -> io::Result<String> {
    let meta = fs::metadata(path)?;
    let is_ours = meta.uid() == rustix::process::geteuid().as_raw() || meta.uid() == 0;
    if !is_ours || meta.mode() & 0o022 != 0 || !meta.is_file() {
        return Err(io::Error::other(
            "it belongs to another user, or others may write to it, and its commands run as root",
        ));
    }
    own_files::refuse_shared(folder(path))?;
    fs::read_to_string(path)
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn make_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o755).create(folder(path))?;
    own_files::refuse_shared(folder(path))
}

/// Keeps a report for `--apply`. Without it the numbers of an older one would mean other remedies,
/// so that is removed if it cannot be replaced. Returns whether it is kept.
pub(super) fn keep(path: &Path, json: &[u8]) -> bool {
    let new = path.with_extension("new");
    let written = make_folder(path).and_then(|()| {
        own_files::create(&new)?.write_all(json)?;
        fs::rename(&new, path)
    });
    if let Err(error) = &written {
        let _ = fs::remove_file(path);
        warn!("the report is not kept for --apply: {}: {error}", path.display());
    }
    written.is_ok()
}

/// A saving that was measured.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Proof {
    pub(super) schema: u32,
    /// Name of the remedy.
    pub(super) remedy: String,
    /// `replay` or `watch`.
    pub(super) way: String,
    pub(super) at_us: u64,
    pub(super) promised_share: Option<f64>,
    /// The promise of each half of the report's time.
    pub(super) promised_halves: Option<(f64, f64)>,
    pub(super) measured_share: f64,
    /// Half of the interval of the measured share.
    pub(super) half_width: Option<f64>,
    /// By the disks' counters; a replay has its own disks.
    pub(super) counted_share: Option<f64>,
}

/// The file of proofs beside a report.
fn proofs(report: &Path) -> PathBuf {
    report.with_file_name("doctor-proofs.jsonl")
}

/// Adds a proof, which later reports show beside the promise.
pub(super) fn add_proof(report: &Path, proof: &Proof) -> anyhow::Result<()> {
    let path = proofs(report);
    let shown = || format!("{}", path.display());
    make_folder(&path).with_context(shown)?;
    let mut line = serde_json::to_vec(proof)?;
    line.push(b'\n');
    let mut options = OpenOptions::new();
    let mut file = options.append(true).create(true).mode(0o600).open(&path).with_context(shown)?;
    file.write_all(&line).with_context(shown)
}

/// Returns the last proof of each remedy; none, where they cannot be read.
pub(super) fn last_proofs(report: &Path) -> Vec<Proof> {
    let text = read_ours(&proofs(report)).unwrap_or_default();
    let mut last: Vec<Proof> = Vec::new();
    for proof in text.lines().filter_map(|line| serde_json::from_str::<Proof>(line).ok()) {
        last.retain(|other| other.remedy != proof.remedy);
        last.push(proof);
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Its commands run as root: another user's report is not read.
    #[test]
    fn a_report_that_others_could_have_written_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.json");
        assert!(Report::read(&path).err().unwrap().to_string().contains("there is no report"));
        let json = br#"{"duration_us":1,"written":{"data_bytes":1,"journal_bytes":2,
            "metadata_bytes":3},"disks":[],"writers":[],"remedies":[]}"#;
        assert!(keep(&path, json));
        let report = Report::read(&path).unwrap();
        assert_eq!(report.bytes_a_day(), 6.0 * DAY_US);
        assert!(report.remedy("1").err().unwrap().to_string().contains("no remedies"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(Report::read(&path).err().unwrap().to_string().contains("others may write"));
    }

    #[test]
    fn the_last_proof_of_a_remedy_counts() {
        let folder = tempfile::tempdir().unwrap();
        let report = folder.path().join("report.json");
        assert!(last_proofs(&report).is_empty());
        for measured_share in [0.1, 0.2] {
            let proof = Proof {
                schema: 1,
                remedy: "trim".to_owned(),
                way: "watch".to_owned(),
                at_us: 1,
                promised_share: None,
                promised_halves: None,
                measured_share,
                half_width: None,
                counted_share: None,
            };
            add_proof(&report, &proof).unwrap();
        }
        let last = last_proofs(&report);
        assert_eq!(last.iter().map(|proof| proof.measured_share).collect::<Vec<_>>(), [0.2]);
    }
}
