//! Replacement policies that are written in Python.

use crate::{
    error::FlashsiftError,
    reading::{Densify, failed},
};
use flashsift_caches::policy::external::{self, ExternalPolicy, MakePolicy, checks};
use flashsift_events::page::{Op, Page};
use flashsift_pages::{
    device::{LabelledProfile, ProfileSelection},
    writeback::Modes,
};
use flashsift_study::{Policies, PreparedDevice, Request, Study, record::RecordShape};
use pyo3::prelude::*;
use std::{
    cell::Cell,
    panic::{self, AssertUnwindSafe},
    path::PathBuf,
    rc::Rc,
    str::FromStr,
};

/// Calls between two looks for signals.
const LOOK_CALLS: u32 = 1 << 16;

/// An object of a subclass of `flashsift.Policy`, with its bound methods.
struct PythonPolicy {
    insert: Py<PyAny>,
    hit: Py<PyAny>,
    evict: Py<PyAny>,
    remove: Py<PyAny>,
    /// `None`: not overridden.
    forget: Option<Py<PyAny>>,
    cleaned: Option<Py<PyAny>>,
    check: Option<Py<PyAny>>,
    calls: Cell<u32>,
}

/// Unwinds with an exception, past the simulator, to [`caught`].
fn raise(error: PyErr) -> ! {
    panic::resume_unwind(Box::new(error))
}

/// Returns the exception with which `run` unwinds.
fn caught<R>(run: impl FnOnce() -> R) -> PyResult<R> {
    panic::catch_unwind(AssertUnwindSafe(run)).map_err(|payload| {
        match payload.downcast::<PyErr>() {
            Ok(error) => *error,
            Err(payload) => panic::resume_unwind(payload),
        }
    })
}

impl PythonPolicy {
    fn new(py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let base = py.import("flashsift")?.getattr("Policy")?;
        let class = object.get_type();
        let optional = |name: &str| -> PyResult<Option<Py<PyAny>>> {
            let is_own = !class.getattr(name)?.is(base.getattr(name)?);
            is_own.then(|| Ok(object.getattr(name)?.unbind())).transpose()
        };
        let method = |name: &str| PyResult::Ok(object.getattr(name)?.unbind());
        Ok(Self {
            insert: method("insert")?,
            hit: method("hit")?,
            evict: method("evict")?,
            remove: method("remove")?,
            forget: optional("forget")?,
            cleaned: optional("cleaned")?,
            check: optional("check")?,
            calls: Cell::new(0),
        })
    }

    #[inline]
    fn look(&self, py: Python<'_>) -> PyResult<()> {
        self.calls.set(self.calls.get().wrapping_add(1));
        if self.calls.get().is_multiple_of(LOOK_CALLS) { py.check_signals() } else { Ok(()) }
    }

    #[inline]
    fn accessed(&self, method: &Py<PyAny>, page: Page, op: Op) {
        Python::attach(|py| {
            self.look(py).and_then(|()| method.call1(py, (page.0, op == Op::Write)).map(drop))
        })
        .unwrap_or_else(|error| raise(error));
    }

    fn notified(&self, method: &Py<PyAny>, page: Page) {
        Python::attach(|py| method.call1(py, (page.0,)).map(drop))
            .unwrap_or_else(|error| raise(error));
    }
}

impl ExternalPolicy for PythonPolicy {
    fn insert(&mut self, page: Page, op: Op) {
        self.accessed(&self.insert, page, op);
    }

    fn hit(&mut self, page: Page, op: Op) {
        self.accessed(&self.hit, page, op);
    }

    fn evict(&mut self, incoming: Option<Page>, victims: &mut Vec<Page>) {
        let evict = |py: Python<'_>| -> PyResult<()> {
            let chosen = self.evict.bind(py).call1((incoming.map(|page| page.0),))?;
            if let Ok(page) = chosen.extract::<u32>() {
                victims.push(Page(page));
                return Ok(());
            }
            for page in chosen.try_iter()? {
                victims.push(Page(page?.extract()?));
            }
            Ok(())
        };
        Python::attach(evict).unwrap_or_else(|error| raise(error));
    }

    fn remove(&mut self, page: Page) {
        self.notified(&self.remove, page);
    }

    fn forget(&mut self, page: Page) {
        if let Some(forget) = &self.forget {
            self.notified(forget, page);
        }
    }

    fn cleaned(&mut self, page: Page) {
        if let Some(cleaned) = &self.cleaned {
            self.notified(cleaned, page);
        }
    }

    fn wrong_victim(&self, victim: Option<Page>) -> ! {
        raise(failed(match victim {
            Some(page) => format!("evict() returned page {}, which is not in the cache", page.0),
            None => "evict() returned no page".to_owned(),
        }))
    }

    fn check(&self) {
        if let Some(check) = &self.check {
            Python::attach(|py| check.call0(py).map(drop)).unwrap_or_else(|error| raise(error));
        }
    }
}

/// Returns a maker of objects of a class, which takes frames and pages.
fn maker(class: Py<PyAny>) -> MakePolicy {
    Rc::new(move |frames, pages| {
        let made = Python::attach(|py| {
            let object = class.bind(py).call1((frames, pages))?;
            PythonPolicy::new(py, &object)
        });
        Box::new(made.unwrap_or_else(|error| raise(error)))
    })
}

/// Runs one history of the tests of every policy.
#[pyfunction]
pub(crate) fn check_policy(class: Py<PyAny>, model: Py<PyAny>, seed: u64) -> PyResult<()> {
    caught(|| checks::history(&maker(class), &maker(model), seed))?.map_err(failed)
}

/// Number of histories for [`check_policy`].
pub(crate) const HISTORIES: u64 = checks::HISTORIES;

/// Runs policies over a trace. Returns the records of `flashsift compare --json`, one a line.
#[pyfunction]
#[pyo3(signature = (path, name, policies, frames, writeback, devices, drain, limit_bytes, format=None))]
#[expect(clippy::too_many_arguments, reason = "flashsift.compare passes them by name")]
pub(crate) fn run_policies(
    py: Python<'_>,
    path: PathBuf,
    name: &str,
    policies: Vec<(String, Py<PyAny>)>,
    frames: Vec<u32>,
    writeback: Vec<String>,
    devices: Vec<String>,
    drain: bool,
    limit_bytes: u64,
    format: Option<String>,
) -> PyResult<Vec<String>> {
    let prepared = |device: &String| {
        let selection = ProfileSelection::parse(device).map_err(failed)?;
        PreparedDevice::new(LabelledProfile::from(&selection)).map_err(failed)
    };
    let devices = devices.iter().map(prepared).collect::<PyResult<Vec<_>>>()?;
    let modes = writeback.iter().map(|text| Modes::from_str(text).map_err(failed));
    let mut modes = modes.collect::<PyResult<Vec<_>>>()?;
    let trace = Densify::trace(py, &path, format.as_deref(), limit_bytes)?;
    if modes.is_empty() {
        modes.push(Modes::default_for(&trace).modes);
    }
    let mut records = Vec::new();
    for modes in modes {
        let modes = modes.on(trace.about().knows.file_system);
        for (label, class) in &policies {
            let mut chosen = Policies::default();
            chosen.add(external::select(label));
            let request = Request {
                policies: chosen,
                frames: frames.clone(),
                writeback: modes,
                devices: devices.clone(),
                drain,
                memory_limit_bytes: limit_bytes,
                ..Request::default()
            };
            let study = Study::new(&trace, request).map_err(failed)?;
            let plan = study.plan().map_err(failed)?;
            let make = maker(class.clone_ref(py));
            let cells = 0..plan.cells().len();
            let run = |cell| external::with(make.clone(), || plan.run(cell, &cpu_ns, None));
            let cells = caught(|| cells.map(run).collect::<Vec<_>>())?;
            let results = plan.results(cells);
            let shape = RecordShape::new(name, &results);
            for record in results.rows().flat_map(|row| shape.records(row)) {
                let json = serde_json::to_string(&record);
                records.push(json.map_err(|error| FlashsiftError::new_err(error.to_string()))?);
            }
        }
    }
    Ok(records)
}

/// Returns the CPU time of this thread.
fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
