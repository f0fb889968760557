//! Events as a stream of Arrow batches. A thread reads the trace; a consumer takes over the buffers
//! as they are.

use crate::reading::failed;
use arrow_array::{
    ArrayRef, DictionaryArray, Int8Array, Int64Array, RecordBatch, RecordBatchReader, StringArray,
    UInt32Array, UInt64Array,
    builder::{
        BooleanBuilder, Int8Builder, Int64Builder, StringBuilder, UInt32Builder, UInt64Builder,
    },
    ffi_stream::FFI_ArrowArrayStream,
    types::Int8Type,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use flashsift_events::event::{About, Event};
use flashsift_traces::{Error, events::Sink, open, store::Row};
use pyo3::{prelude::*, types::PyCapsule};
use std::{
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

/// Events of a batch.
const ROWS: usize = 1 << 14;

/// Batches that wait for the consumer; the reader then waits, too.
const WAITING: usize = 2;

type Batch = Result<RecordBatch, ArrowError>;

fn schema() -> SchemaRef {
    let action = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    Arc::new(Schema::new(vec![
        Field::new("at_us", DataType::Int64, false),
        Field::new("action", action, false),
        Field::new("file", DataType::UInt64, false),
        Field::new("offset", DataType::Int64, false),
        Field::new("len", DataType::Int64, false),
        Field::new("pid", DataType::UInt32, false),
        Field::new("tid", DataType::UInt32, false),
        Field::new("flag", DataType::Boolean, false),
        Field::new("name", DataType::Utf8, true),
        Field::new("name2", DataType::Utf8, true),
        Field::new("open", DataType::UInt32, false),
        Field::new("uid", DataType::UInt32, true),
        Field::new("gid", DataType::UInt32, true),
        Field::new("mode", DataType::UInt32, true),
        Field::new("place", DataType::UInt64, true),
    ]))
}

/// The columns of the batch that is being filled.
#[derive(Default)]
struct Columns {
    rows: usize,
    at_us: Int64Builder,
    action: Int8Builder,
    file: UInt64Builder,
    offset: Int64Builder,
    len: Int64Builder,
    pid: UInt32Builder,
    tid: UInt32Builder,
    flag: BooleanBuilder,
    names: [StringBuilder; 2],
    open: UInt32Builder,
    uid: UInt32Builder,
    gid: UInt32Builder,
    mode: UInt32Builder,
    place: UInt64Builder,
}

impl Columns {
    fn push(&mut self, event: &Event<'_>) {
        let row = Row::new(&event.action);
        self.rows += 1;
        self.at_us.append_value(event.at_us.cast_signed());
        self.action.append_value(row.action_number() as i8);
        self.file.append_value(row.file);
        self.offset.append_value(row.offset.cast_signed());
        self.len.append_value(row.len.cast_signed());
        self.pid.append_value(event.pid);
        self.tid.append_value(event.tid);
        self.flag.append_value(row.flag);
        for (column, name) in self.names.iter_mut().zip(row.names) {
            column.append_option(name);
        }
        self.open.append_value(row.open);
        self.uid.append_option(row.owner.map(|owner| owner.uid));
        self.gid.append_option(row.owner.map(|owner| owner.gid));
        self.mode.append_option(row.mode);
        self.place.append_option(row.place);
    }

    fn finish(mut self, schema: &SchemaRef, actions: &ArrayRef) -> Batch {
        let [mut name, mut name2] = self.names;
        let action: Int8Array = self.action.finish();
        let action = DictionaryArray::<Int8Type>::try_new(action, actions.clone())?;
        let at_us: Int64Array = self.at_us.finish();
        let (file, pid): (UInt64Array, UInt32Array) = (self.file.finish(), self.pid.finish());
        let columns: Vec<ArrayRef> = vec![
            Arc::new(at_us),
            Arc::new(action),
            Arc::new(file),
            Arc::new(self.offset.finish()),
            Arc::new(self.len.finish()),
            Arc::new(pid),
            Arc::new(self.tid.finish()),
            Arc::new(self.flag.finish()),
            Arc::new(name.finish()),
            Arc::new(name2.finish()),
            Arc::new(self.open.finish()),
            Arc::new(self.uid.finish()),
            Arc::new(self.gid.finish()),
            Arc::new(self.mode.finish()),
            Arc::new(self.place.finish()),
        ];
        RecordBatch::try_new(schema.clone(), columns)
    }
}

/// Sends batches of events to the consumer.
struct Batches {
    schema: SchemaRef,
    /// The names of actions, shared by all batches.
    actions: ArrayRef,
    columns: Columns,
    consumer: SyncSender<Batch>,
}

impl Batches {
    fn send(&mut self) -> Result<(), Error> {
        let columns = std::mem::take(&mut self.columns);
        let batch = columns.finish(&self.schema, &self.actions);
        let gone = |_| Error::Sink("the consumer has gone".to_owned());
        self.consumer.send(batch).map_err(gone)
    }
}

impl Sink for Batches {
    fn about(&mut self, _: About) -> Result<(), Error> {
        Ok(())
    }

    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        for event in events {
            self.columns.push(event);
            if self.columns.rows == ROWS {
                self.send()?;
            }
        }
        Ok(())
    }
}

/// The consumer's end.
struct Reader {
    schema: SchemaRef,
    /// Read before the stream was handed over, so that a bad trace is an exception of ours.
    first: Option<RecordBatch>,
    batches: Receiver<Batch>,
    /// The thread that asked for the stream.
    owner: thread::ThreadId,
    is_interrupted: bool,
}

/// Time between two looks for signals.
const LOOK: Duration = Duration::from_millis(50);

impl Reader {
    /// Returns whether Ctrl-C was pressed. It stays pressed for the interpreter.
    fn interrupted(&self) -> bool {
        if thread::current().id() != self.owner {
            return false;
        }
        Python::attach(|py| {
            let interrupted = py.check_signals().is_err();
            if interrupted {
                set_interrupt();
            }
            interrupted
        })
    }
}

/// Lets the interpreter raise `KeyboardInterrupt` when the consumer returns to it.
#[allow(unsafe_code)]
fn set_interrupt() {
    // SAFETY: the function takes nothing and may be called at any time.
    unsafe { pyo3::ffi::PyErr_SetInterrupt() }
}

impl Iterator for Reader {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        while !self.is_interrupted {
            match self.batches.recv_timeout(LOOK) {
                Ok(batch) => {
                    self.is_interrupted = self.interrupted();
                    return Some(batch);
                }
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => self.is_interrupted = self.interrupted(),
            }
        }
        Some(Err(ArrowError::ExternalError("interrupted".into())))
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// Returns a capsule with the events of a trace as an Arrow stream.
#[pyfunction]
#[pyo3(signature = (path, format=None))]
pub(crate) fn event_stream(
    py: Python<'_>,
    path: PathBuf,
    format: Option<String>,
) -> PyResult<Bound<'_, PyCapsule>> {
    let schema = schema();
    let (consumer, mut batches) = sync_channel(WAITING);
    let actions: ArrayRef = Arc::new(StringArray::from_iter_values(Row::actions()));
    let mut sink =
        Batches { schema: schema.clone(), actions, columns: Columns::default(), consumer };
    thread::spawn(move || {
        let read = open::read(&path, format.as_deref(), &mut sink, &open::Limits::default());
        // A consumer that has gone gets neither.
        let _ = match read {
            Ok(_) if sink.columns.rows > 0 => sink.send().map_err(|_| ()),
            Ok(_) => Ok(()),
            Err(error) => {
                let error = ArrowError::ExternalError(error.to_string().into());
                sink.consumer.send(Err(error)).map_err(|_| ())
            }
        };
    });
    let first = loop {
        let received;
        (received, batches) = py.detach(move || (batches.recv_timeout(LOOK), batches));
        match received {
            Ok(Ok(batch)) => break Some(batch),
            Ok(Err(ArrowError::ExternalError(error))) => return Err(failed(error)),
            Ok(Err(error)) => return Err(failed(error)),
            Err(RecvTimeoutError::Disconnected) => break None,
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
        }
    };
    let owner = thread::current().id();
    let reader = Reader { schema, first, batches, owner, is_interrupted: false };
    let stream = FFI_ArrowArrayStream::new(Box::new(reader));
    PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
}
