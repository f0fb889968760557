//! `flashsift._native`: events, features, scores of models, and policies written in Python.
//!
//! Training gets its numbers from the extractor that simulation and mounts use, and its tests score
//! rows with the code that they use. Policies run in the cache that all others run in. The module
//! decides nothing.

use error::FlashsiftError;
use flashsift_events::event::{About, Event};
use flashsift_files::sift::{
    features::{
        self, FeatureConfig, Phase, Windows,
        examples::{Example, ExampleCollector},
    },
    model::FileModel,
};
use flashsift_traces::{
    Error,
    annotations::{self, Purpose},
    events::Sink,
};
use numpy::{
    IntoPyArray, PyArray1, PyArrayMethods, PyReadonlyArray2, PyUntypedArrayMethods, ndarray::Array2,
};
use pyo3::{prelude::*, types::PyDict};
use std::path::PathBuf;

mod events;
mod policy;
mod reading;

#[allow(missing_docs, unreachable_pub, reason = "the macro takes no documentation")]
mod error {
    pyo3::create_exception!(flashsift, FlashsiftError, pyo3::exceptions::PyException);
}

/// Gives the events of a trace to the collector.
struct Reader {
    windows: Windows,
    ram_bytes: u64,
    collector: Option<ExampleCollector>,
}

impl Sink for Reader {
    fn about(&mut self, about: About) -> Result<(), Error> {
        if !about.knows.times {
            return Err(Error::Sink("the trace has no times, so files have no age".to_owned()));
        }
        self.collector = Some(ExampleCollector::new(self.windows, self.ram_bytes, about.knows));
        Ok(())
    }

    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        if let Some(collector) = &mut self.collector {
            events.iter().for_each(|event| collector.handle(event));
        }
        Ok(())
    }
}

/// Returns one row for each file that the trace creates, as a dict of arrays. A trace that is held
/// apart for tests is refused, unless `force`d.
#[pyfunction]
#[pyo3(signature = (
    path, units_first=20, units_second=60, unit_us=1_000_000, ram_bytes=20_000_000, force=false
))]
fn examples(
    py: Python<'_>,
    path: PathBuf,
    units_first: u8,
    units_second: u8,
    unit_us: u32,
    ram_bytes: u64,
    force: bool,
) -> PyResult<Bound<'_, PyDict>> {
    let config = |units| FeatureConfig { units, unit_us };
    let windows = Windows::new(config(units_first), config(units_second)).ok_or_else(|| {
        FlashsiftError::new_err(format!(
            "windows of {units_first} and {units_second} units of {unit_us} µs do not fit: the \
             second is not shorter, and has at most {} units",
            features::MAX_UNITS
        ))
    })?;
    let mut reader = Reader { windows, ram_bytes, collector: None };
    let outcome = reading::read(py, &path, None, &mut reader)?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    annotations::require_split(&name, outcome.split(), Purpose::Train, force)
        .map_err(reading::failed)?;
    let rows: Vec<Example> =
        py.detach(|| reader.collector.map(ExampleCollector::finish).unwrap_or_default());
    let table = PyDict::new(py);
    for (key, phase) in [("first", Phase::First), ("second", Phase::Second)] {
        let width = windows.config(phase).values();
        let mut values = vec![0.0; rows.len() * width];
        for (row, values) in rows.iter().zip(values.chunks_mut(width)) {
            row.window.values(phase, values);
        }
        let values = Array2::from_shape_vec((rows.len(), width), values)
            .map_err(|error| FlashsiftError::new_err(error.to_string()))?;
        table.set_item(key, values.into_pyarray(py))?;
    }
    macro_rules! column {
        ($key:literal, |$row:ident| $value:expr) => {
            let column: Vec<_> = rows.iter().map(|$row| $value).collect();
            table.set_item($key, column.into_pyarray(py))?;
        };
    }
    column!("category", |row| row.category as u8);
    column!("reused", |row| row.reused.map_or(-1_i8, i8::from));
    column!("born_us", |row| row.window.born_us());
    column!("lived_us", |row| row.lived_us);
    column!("active_us", |row| row.active_us);
    column!("max_size_bytes", |row| row.max_size_bytes);
    column!("uid", |row| row.uid.map_or(-1, i64::from));
    column!("in_cache", |row| row.in_cache);
    column!("deleted", |row| row.deleted);
    column!("outlived_first", |row| row.outlived(Phase::First));
    column!("outlived_second", |row| row.outlived(Phase::Second));
    let names: Vec<&str> = rows.iter().map(|row| &*row.name).collect();
    table.set_item("names", names)?;
    Ok(table)
}

/// Returns the names of the features of a window of this many units.
#[pyfunction]
fn feature_names(units: u8) -> Vec<String> {
    FeatureConfig { units, unit_us: 1 }.names()
}

/// A model file, as the sifter reads it.
#[pyclass(frozen, name = "FileModel", module = "flashsift")]
struct PyFileModel(FileModel);

#[pymethods]
impl PyFileModel {
    #[new]
    fn new(bytes: &[u8]) -> PyResult<Self> {
        FileModel::from_bytes(bytes)
            .map(Self)
            .map_err(|error| FlashsiftError::new_err(error.to_string()))
    }

    /// Returns the probability of the positive class for each row.
    fn score<'py>(
        &self,
        py: Python<'py>,
        rows: PyReadonlyArray2<'py, f32>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let width = self.0.features().values();
        if rows.shape()[1] != width {
            return Err(FlashsiftError::new_err(format!(
                "rows of {} values; the model takes {width}",
                rows.shape()[1]
            )));
        }
        let rows = rows.to_vec()?;
        let scores = py.detach(|| {
            let mut scores = vec![0.0; rows.len() / width];
            self.0.score_rows(&rows, &mut scores);
            scores
        });
        Ok(scores.into_pyarray(py))
    }

    #[getter]
    fn threshold(&self) -> f32 {
        self.0.threshold()
    }

    #[getter]
    fn phase(&self) -> u8 {
        self.0.phase() as u8 + 1
    }

    #[getter]
    fn units(&self) -> u8 {
        self.0.features().units
    }

    #[getter]
    fn unit_us(&self) -> u32 {
        self.0.features().unit_us
    }

    #[getter]
    fn kind(&self) -> &'static str {
        self.0.kind()
    }
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("SCHEMA", features::SCHEMA)?;
    module.add("FlashsiftError", module.py().get_type::<FlashsiftError>())?;
    module.add_function(wrap_pyfunction!(examples, module)?)?;
    module.add_function(wrap_pyfunction!(feature_names, module)?)?;
    module.add_function(wrap_pyfunction!(events::event_stream, module)?)?;
    module.add_function(wrap_pyfunction!(reading::inspect, module)?)?;
    module.add("HISTORIES", policy::HISTORIES)?;
    module.add_function(wrap_pyfunction!(policy::check_policy, module)?)?;
    module.add_function(wrap_pyfunction!(policy::run_policies, module)?)?;
    module.add_class::<PyFileModel>()
}
