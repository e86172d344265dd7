//! What kernels record and print.

use crate::attachment::AttachmentCore;
use crate::calls::value_bytes;
use crate::detach::detach;
use crate::error::Failure;
use crate::fork::Owned;
use crate::wait::lock;
use gpunet_device::Timeout;
use gpunet_records_host::{Formats, Level, Reader, Record as Raw, Rings, Settings, WhenFull};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A record, or a printed line.
#[pyclass(frozen, get_all, module = "gpunet", name = "Record")]
pub(crate) struct Record {
    time_ns: u64,
    number: u64,
    kind: u16,
    ring: u32,
    block: u32,
    warp: Option<u8>,
    lane: Option<u8>,
    sm: Option<u16>,
    text: Option<String>,
    level: Option<&'static str>,
    left_out: u32,
    payload: Py<PyBytes>,
}

#[pymethods]
impl Record {
    fn __repr__(&self) -> String {
        let Self { block, kind, .. } = self;
        match &self.text {
            Some(text) => format!("<gpunet.Record of block {block}: {text:?}>"),
            None => format!("<gpunet.Record of block {block}: kind {kind}>"),
        }
    }
}

/// A record without Python's objects: those need the GIL.
struct Found {
    time_ns: u64,
    number: u64,
    kind: u16,
    ring: u32,
    block: u32,
    warp: u8,
    lane: u8,
    sm: u16,
    text: Option<String>,
    level: Option<&'static str>,
    left_out: u32,
    payload: Vec<u8>,
}

const fn name_of(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug => "debug",
        Level::Trace => "trace",
    }
}

fn level_of(name: &str) -> PyResult<Level> {
    let all = [Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace];
    all.into_iter().find(|&level| name_of(level) == name).ok_or_else(|| {
        PyValueError::new_err(format!("a level is error, warn, info, debug or trace, not {name:?}"))
    })
}

fn found(record: &Raw<'_>, formats: &mut Formats) -> Found {
    let head = &record.head;
    let (text, level, left_out) = match head.kind.format() {
        None if record.mark().is_some() => (formats.name(record).ok().map(str::to_owned), None, 0),
        None => (None, None, 0),
        Some(_) => match formats.line(record) {
            Ok(line) => (Some(line.text), Some(name_of(line.level)), line.left_out),
            // Why the line cannot be put together.
            Err(error) => (Some(error.to_string()), None, 0),
        },
    };
    Found {
        time_ns: head.time_ns,
        number: record.number,
        kind: head.kind.raw(),
        ring: record.ring,
        block: head.block,
        warp: head.warp,
        lane: head.lane,
        sm: head.sm,
        text,
        level,
        left_out,
        payload: record.payload.to_vec(),
    }
}

impl Found {
    fn python(self, py: Python<'_>) -> Record {
        let Self { time_ns, number, kind, ring, block, warp, lane, sm, text, level, left_out, payload } =
            self;
        Record {
            time_ns,
            number,
            kind,
            ring,
            block,
            warp: (warp != u8::MAX).then_some(warp),
            lane: (lane != u8::MAX).then_some(lane),
            sm: (sm != u16::MAX).then_some(sm),
            text,
            level,
            left_out,
            payload: PyBytes::new(py, &payload).unbind(),
        }
    }
}

struct Reading {
    rings: Rings,
    reader: Reader,
    formats: Formats,
}

/// Rings in which kernels record and print, until it is closed. Their memory stays until the object
/// is gone: kernels that still run write there.
#[pyclass(frozen, weakref, module = "gpunet", name = "Watch")]
pub(crate) struct Watch {
    reading: Owned<Mutex<Reading>>,
    is_closed: AtomicBool,
    _attachment: Arc<AttachmentCore>,
}

/// What a program asks for.
pub(crate) struct Asked<'a> {
    pub(crate) rings: u32,
    pub(crate) records: u32,
    pub(crate) payload: usize,
    pub(crate) texts: u32,
    pub(crate) level: &'a str,
    /// Seconds that a record waits for room; `None`: it overwrites the oldest.
    pub(crate) wait: Option<f64>,
}

impl Watch {
    pub(crate) fn new(py: Python<'_>, core: &Arc<AttachmentCore>, asked: &Asked<'_>) -> PyResult<Self> {
        if asked.rings == 0 {
            return Err(PyValueError::new_err("rings is 0: give one for each block that writes at a time"));
        }
        let full = match asked.wait {
            None => WhenFull::Overwrite,
            Some(seconds) if seconds == f64::INFINITY => WhenFull::Wait(Timeout::NEVER),
            Some(seconds) => match Duration::try_from_secs_f64(seconds) {
                Ok(wait) => {
                    WhenFull::Wait(Timeout::ns(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX >> 2)))
                }
                Err(_) => {
                    return Err(PyValueError::new_err(format!("wait is a number of seconds, not {seconds}")));
                }
            },
        };
        let settings = Settings {
            records: asked.records,
            payload: asked.payload,
            texts: asked.texts,
            level: level_of(asked.level)?,
            full,
            ..Settings::new(asked.rings)
        };
        let made = detach(py, || core.with(|attachment| Rings::create(attachment, settings)))?;
        let (rings, reader) = made.map_err(|error| match error {
            gpunet_records_host::Error::Alloc(error) => crate::error::alloc(&error),
            gpunet_records_host::Error::Shape { .. } | gpunet_records_host::Error::Texts { .. } => {
                PyValueError::new_err(error.to_string())
            }
            error => Failure::new(libc::ENOMEM, error.to_string()).into(),
        })?;
        let formats = Formats::new(&reader, &[]);
        let reading = Owned::new(Mutex::new(Reading { rings, reader, formats }));
        Ok(Self { reading, is_closed: AtomicBool::new(false), _attachment: core.clone() })
    }

    fn with<R>(&self, body: impl FnOnce(&mut Reading) -> R) -> Result<R, Failure> {
        let reading = self.reading.get()?;
        // Ordering: Relaxed; nothing is freed by it.
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(Failure::closed("watch"));
        }
        Ok(body(&mut lock(reading)))
    }
}

#[pymethods]
impl Watch {
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        // SAFETY: who passes the value to kernels keeps the object until they have ended: a rule of
        // docs/python.md.
        let value = self.with(|reading| unsafe { reading.rings.records() })?;
        // SAFETY: addresses and numbers, 48 bytes without padding: a test of gpunet-records has
        // their places.
        Ok(unsafe { value_bytes(py, &value) })
    }

    /// What has come since the last call.
    fn read(&self, py: Python<'_>) -> PyResult<Vec<Record>> {
        let all = detach(py, || {
            self.with(|Reading { reader, formats, .. }| {
                let mut all = Vec::new();
                reader.poll(|record| all.push(found(record, formats)));
                all
            })
        })?;
        Ok(all.into_iter().map(|found| found.python(py)).collect())
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let found = detach(py, || self.with(|reading| reading.reader.found()))?;
        let value = json!({
            "records": found.records,
            "overwritten": found.overwritten,
            "refused": found.refused,
            "malformed": found.malformed,
        });
        crate::plain::python(py, &value)
    }

    fn close(&self) -> PyResult<()> {
        self.reading.get()?;
        self.is_closed.store(true, Ordering::Relaxed);
        Ok(())
    }

    #[getter]
    fn closed(&self) -> PyResult<bool> {
        self.reading.get()?;
        Ok(self.is_closed.load(Ordering::Relaxed))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        _kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.close()
    }

    fn __repr__(&self) -> String {
        match self.closed() {
            Ok(false) => "<gpunet.Watch>".to_owned(),
            _ => "<gpunet.Watch [closed]>".to_owned(),
        }
    }
}
