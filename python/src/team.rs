//! Teams: devices that store into each other's memory.

use crate::array::bytes_of;
use crate::attachment::{Attachment, AttachmentCore};
use crate::detach::detach;
use crate::dlpack::Asked;
use crate::error::{self, Failure};
use crate::export::{self, Dtype, Exporter};
use crate::fork::Owned;
use crate::wait::lock;
use crate::{address, job};
use gpunet_device::{Net, Rank, SymmetricPtr, TeamHandle};
use gpunet_proxy::team::{
    self, Launched, PutSource, SymmetricSlice, TeamError, TeamId, TeamListener as Listener, TeamOptions,
};
use gpunet_proxy::{AllocError, DeviceBuffer};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyTuple};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockWriteGuard, Weak};
use std::time::Duration;

/// A member's place in a team, until it leaves.
#[derive(Debug)]
pub(crate) struct TeamCore {
    /// `None` once it was left. Calls hold it for reading.
    team: RwLock<Option<team::Team>>,
    /// What borrows the team.
    memories: Mutex<Vec<Weak<SymmetricCore>>>,
    rank: u32,
    size: u32,
    signals: u32,
    /// By which kernels use it.
    number: u64,
    is_left: AtomicBool,
    attachment: Arc<AttachmentCore>,
}

/// The teams that were not left: the end of the interpreter leaves them. It is locked with the GIL
/// held, as `os.fork` holds it.
static OPEN: Mutex<Vec<Owned<Weak<TeamCore>>>> = Mutex::new(Vec::new());

impl TeamCore {
    /// Uses the team, which is not left meanwhile.
    ///
    /// # Errors
    /// EBADF, when it was left.
    pub(crate) fn with<R>(&self, body: impl FnOnce(&team::Team) -> R) -> Result<R, Failure> {
        let team = self.team.read().unwrap_or_else(PoisonError::into_inner);
        team.as_ref().map(body).ok_or_else(Self::left)
    }

    fn is_left(&self) -> bool {
        // Ordering: Relaxed; a call that is made because of it finds out under the lock.
        self.is_left.load(Ordering::Relaxed)
    }

    /// Makes a call of a kernel on the CPU as this member, which does not leave meanwhile. It is a
    /// team that [`find`] has found.
    pub(crate) fn call<R>(&self, net: Net, body: impl FnOnce(TeamHandle) -> R) -> Result<R, Failure> {
        // SAFETY: both are of the CPU device, whose launches have one address space; the team is
        // there during the call.
        self.with(|team| body(unsafe { team.handle(net) }))
    }

    /// Uses the memory that kernels use by that number, which stays mapped meanwhile; nothing, if
    /// it is not this team's.
    pub(crate) fn call_with<R>(&self, number: u64, body: impl FnOnce(SymmetricPtr<u8>) -> R) -> Option<R> {
        let is_it = |memory: &Arc<SymmetricCore>| memory.number() == Some(number);
        let memory = lock(&self.memories).iter().filter_map(Weak::upgrade).find(is_it)?;
        let borrowed = memory.borrowed.read().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: it is borrowed during the call.
        borrowed.as_ref().map(|memory| body(unsafe { memory.ptr() }))
    }

    fn left() -> Failure {
        Failure::new(libc::EBADF, "the team was left; join another one")
    }

    /// Takes the team out, when no call uses it. Its memory stays mapped as long as arrays use it.
    fn take(&self) -> Option<team::Team> {
        self.take_from(self.team.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn take_from(&self, mut team: RwLockWriteGuard<'_, Option<team::Team>>) -> Option<team::Team> {
        self.is_left.store(true, Ordering::Relaxed);
        // Before the team moves: they borrow it.
        for memory in lock(&self.memories).drain(..).filter_map(|memory| memory.upgrade()) {
            drop(memory.borrowed.write().unwrap_or_else(PoisonError::into_inner).take());
        }
        team.take()
    }

    /// Allocates together with the other members.
    fn alloc(self: &Arc<Self>, len: usize) -> Result<Result<Arc<SymmetricCore>, TeamError>, Failure> {
        self.with(|team| {
            // SAFETY: the team stays where it is until `take` takes it out, which ends this borrow
            // first. It is not taken out before the borrow is noted, because `with` keeps it for
            // reading.
            let team: &'static team::Team = unsafe { &*std::ptr::from_ref(team) };
            let memory = team.alloc::<u8>(len)?;
            // SAFETY: the memory is kept by whatever uses the addresses: a rule of docs/python.md
            // for kernels, and the arrays' own reference.
            let address = |rank| unsafe { memory.address(Rank(rank)) }.unwrap_or(0);
            let addresses = (0..self.size).map(address).collect();
            let keep = PutSource::from(&memory);
            let (borrowed, record) = (RwLock::new(Some(memory)), OnceLock::new());
            let core =
                Arc::new(SymmetricCore { borrowed, _keep: keep, addresses, record, team: self.clone() });
            let mut memories = lock(&self.memories);
            memories.retain(|memory| memory.strong_count() > 0);
            memories.push(Arc::downgrade(&core));
            Ok(core)
        })
    }
}

impl Drop for TeamCore {
    fn drop(&mut self) {
        if let Some(team) = self.team.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            let attachment = self.attachment.clone();
            job::begin(move || {
                drop(team);
                drop(attachment);
            });
        }
    }
}

/// The end of the interpreter: leaves the teams, so that the others learn of it as of a departure.
/// Where a call still waits for them, they learn of a death.
pub(crate) fn leave_all() {
    let open = std::mem::take(&mut *lock(&OPEN));
    for core in open.iter().filter_map(|open| open.get().ok()?.upgrade()) {
        job::begin(move || {
            if let Ok(team) = core.team.try_write() {
                drop(core.take_from(team));
            }
        });
    }
}

/// Memory of a team.
pub(crate) struct SymmetricCore {
    /// `None` once the team was left.
    borrowed: RwLock<Option<team::Symmetric<'static, u8>>>,
    /// Keeps the memory mapped: arrays may be made of it that outlive the team.
    _keep: PutSource<u8>,
    /// Of each member's part.
    addresses: Vec<u64>,
    /// What kernels find by its number.
    record: OnceLock<DeviceBuffer>,
    team: Arc<TeamCore>,
}

impl std::fmt::Debug for SymmetricCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SymmetricCore").finish_non_exhaustive()
    }
}

impl SymmetricCore {
    /// Makes what kernels find, in the device's memory, and returns its address.
    fn make_record(&self) -> Result<Result<u64, AllocError>, Failure> {
        let memory = self.borrowed.read().unwrap_or_else(PoisonError::into_inner);
        let memory = memory.as_ref().ok_or_else(TeamCore::left)?;
        if let Some(number) = self.number() {
            return Ok(Ok(number));
        }
        // SAFETY: the kernels end before the memory is gone: a rule of docs/python.md.
        let pointer: SymmetricPtr<u8> = unsafe { memory.ptr() };
        // SAFETY: four numbers, without gaps.
        let bytes =
            unsafe { std::slice::from_raw_parts((&raw const pointer).cast::<u8>(), size_of_val(&pointer)) };
        let mut made = match self.team.attachment.with(|attachment| attachment.alloc(bytes.len()))? {
            Ok(made) => made,
            Err(error) => return Ok(Err(error)),
        };
        made.write(0, bytes).map_err(|error| Failure::new(libc::EIO, error.to_string()))?;
        // SAFETY: as above.
        Ok(Ok(unsafe { self.record.get_or_init(|| made).buffer() }.as_ptr() as u64))
    }

    /// By which kernels use it, if they may.
    fn number(&self) -> Option<u64> {
        // SAFETY: as in `make_record`.
        self.record.get().map(|record| unsafe { record.buffer() }.as_ptr() as u64)
    }
}

/// The team that kernels on the CPU use by that number. With the GIL.
pub(crate) fn find(number: u64) -> Option<Arc<TeamCore>> {
    let is_it = |core: &Arc<TeamCore>| {
        core.number == number && !core.is_left() && core.attachment.context().is_none()
    };
    lock(&OPEN).iter().find_map(|open| open.get().ok()?.upgrade().filter(is_it))
}

fn options(signals: u32, timeout: f64) -> PyResult<TeamOptions> {
    let timeout = Duration::try_from_secs_f64(timeout)
        .map_err(|_| PyValueError::new_err("a timeout is a number of seconds, not below 0"))?;
    let mut options = TeamOptions::default();
    (options.signals, options.timeout) = (signals, timeout);
    Ok(options)
}

/// Joins on a thread: the others may take their time.
fn join(
    py: Python<'_>,
    attachment: &Attachment,
    options: TeamOptions,
    how: impl FnOnce(&gpunet_proxy::Attachment, &TeamOptions) -> Result<team::Team, TeamError> + Send + 'static,
) -> PyResult<Team> {
    let (core, signals) = (attachment.core()?.clone(), options.signals);
    let of = core.clone();
    let joined = job::run_with_others(py, move || core.with_others(|attachment| how(attachment, &options)))??;
    Ok(Team::new(joined.map_err(|error| error::team(&error))?, signals, of))
}

/// A device's place in a team.
#[pyclass(frozen, weakref, module = "gpunet", name = "Team")]
pub(crate) struct Team {
    core: Owned<Arc<TeamCore>>,
}

impl Team {
    fn new(team: team::Team, signals: u32, attachment: Arc<AttachmentCore>) -> Self {
        let (rank, size) = (team.rank().0, team.size());
        // SAFETY: 0 stands for no context, and kernels have that of their launch. They end before
        // the team is left: a rule of docs/python.md.
        let number = unsafe { team.handle(Net::from_raw(0)) }.raw_state();
        let (team, memories, is_left) = (RwLock::new(Some(team)), Mutex::default(), false.into());
        let core = Arc::new(TeamCore { team, memories, rank, size, signals, number, is_left, attachment });
        let mut open = lock(&OPEN);
        open.retain(|open| open.get().is_ok_and(|open| open.strong_count() > 0));
        open.push(Owned::new(Arc::downgrade(&core)));
        Self { core: Owned::new(core) }
    }

    pub(crate) fn core(&self) -> Result<&Arc<TeamCore>, Failure> {
        self.core.get()
    }
}

#[pymethods]
impl Team {
    #[staticmethod]
    #[pyo3(signature = (attachment, id, rank, size, *, signals=256, timeout=30.0))]
    fn join(
        py: Python<'_>,
        attachment: &Attachment,
        id: &str,
        rank: u32,
        size: u32,
        signals: u32,
        timeout: f64,
    ) -> PyResult<Self> {
        let id: TeamId = id.parse().map_err(|error| PyValueError::new_err(format!("{error}")))?;
        join(py, attachment, options(signals, timeout)?, move |attachment, options| {
            team::Team::join_with(attachment, id, Rank(rank), size, options)
        })
    }

    #[staticmethod]
    #[pyo3(signature = (attachment, *, signals=256, timeout=30.0))]
    fn launched(py: Python<'_>, attachment: &Attachment, signals: u32, timeout: f64) -> PyResult<Self> {
        // os.environ, which the program may have changed.
        let environment = py.import("os")?.getattr("environ")?;
        let variable = |name: &str| environment.call_method1("get", (name,)).ok()?.extract().ok()?;
        let launched =
            Launched::by(&variable).map_err(|error| error::team(&TeamError::Environment(error)))?;
        join(py, attachment, options(signals, timeout)?, move |attachment, options| {
            team::Team::join_with(attachment, launched.id, launched.rank, launched.size, options)
        })
    }

    #[getter]
    fn rank(&self) -> PyResult<u32> {
        Ok(self.core.get()?.rank)
    }

    #[getter]
    fn size(&self) -> PyResult<u32> {
        Ok(self.core.get()?.size)
    }

    #[getter]
    fn signals(&self) -> PyResult<u32> {
        Ok(self.core.get()?.signals)
    }

    /// By which kernels use it.
    fn device_number(&self) -> PyResult<u64> {
        let core = self.core.get()?;
        if core.is_left() { Err(TeamCore::left().into()) } else { Ok(core.number) }
    }

    /// Why the team is broken, if it is.
    #[getter]
    fn broken(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let core = self.core.get()?;
        let why = detach(py, || core.with(team::Team::broken))?;
        Ok(why.map(|why| why.to_string()))
    }

    #[pyo3(signature = (shape, dtype=None))]
    fn alloc(
        &self,
        py: Python<'_>,
        shape: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Symmetric> {
        let shape: Vec<usize> = match shape.is_instance_of::<PyInt>() {
            true => vec![shape.extract()?],
            false => shape.extract()?,
        };
        let dtype = dtype.map_or(Ok(Dtype::BYTE), Dtype::parse)?;
        let len = bytes_of(&shape, dtype.size())
            .ok_or_else(|| PyValueError::new_err(format!("{shape:?} elements are more than there can be")))?;
        let core = self.core.get()?.clone();
        let ordinal = core.attachment.ordinal()?;
        let memory =
            job::run_with_others(py, move || core.alloc(len))??.map_err(|error| error::team(&error))?;
        Ok(Symmetric { inner: Owned::new(Array { memory, shape, dtype, ordinal, len }) })
    }

    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        let core = self.core.get()?.clone();
        let met = job::run_with_others(py, move || core.with(team::Team::barrier))??;
        met.map_err(|error| error::team(&error))
    }

    #[pyo3(signature = (colour, key=0))]
    fn split(&self, py: Python<'_>, colour: u32, key: i64) -> PyResult<Self> {
        let core = self.core.get()?.clone();
        let (signals, attachment) = (core.signals, core.attachment.clone());
        let part = job::run_with_others(py, move || core.with(|team| team.split(colour, key)))??;
        Ok(Self::new(part.map_err(|error| error::team(&error))?, signals, attachment))
    }

    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        let core = self.core.get()?.clone();
        let left = job::run_with_others(py, move || core.take().map_or(Ok(()), team::Team::leave))?;
        left.map_err(|error| error::team(&error))
    }

    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(self.core.get()?.is_left())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// An exception in the block does not wait for the others.
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if kind.is_none() {
            return self.leave(py);
        }
        let core = self.core.get()?.clone();
        job::run_with_others(py, move || drop(core.take()))
    }

    fn __repr__(&self) -> String {
        match self.core.get() {
            Ok(core) if !core.is_left() => {
                format!("<gpunet.Team member {} of {}>", core.rank, core.size)
            }
            _ => "<gpunet.Team [left]>".to_owned(),
        }
    }
}

/// Where the members of a team meet, before there is a team.
#[pyclass(frozen, weakref, module = "gpunet", name = "TeamListener")]
pub(crate) struct TeamListener {
    /// `None` once a team is led with it, or it is closed.
    listener: Owned<Mutex<Option<Listener>>>,
    id: String,
}

#[pymethods]
impl TeamListener {
    #[new]
    #[pyo3(signature = (address=None))]
    fn new(address: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let address = address.map_or_else(|| Ok(([127, 0, 0, 1], 0).into()), address::parse)?;
        let listener = Listener::bind(address).map_err(|error| error::team(&error))?;
        let id = listener.id().to_string();
        Ok(Self { listener: Owned::new(Mutex::new(Some(listener))), id })
    }

    #[getter]
    fn id(&self) -> &str {
        &self.id
    }

    #[pyo3(signature = (attachment, size, *, signals=256, timeout=30.0))]
    fn lead(
        &self,
        py: Python<'_>,
        attachment: &Attachment,
        size: u32,
        signals: u32,
        timeout: f64,
    ) -> PyResult<Team> {
        let options = options(signals, timeout)?;
        let listener = lock(self.listener.get()?).take().ok_or_else(|| Failure::closed("team listener"))?;
        join(py, attachment, options, move |attachment, options| {
            team::Team::lead_with(attachment, listener, size, options)
        })
    }

    fn close(&self) -> PyResult<()> {
        drop(lock(self.listener.get()?).take());
        Ok(())
    }
}

const _: () = assert!(size_of::<SymmetricPtr<u8>>() == 32, "gpunet/_team_calls.py loads four numbers");

/// An array that each member has.
struct Array {
    memory: Arc<SymmetricCore>,
    shape: Vec<usize>,
    dtype: Dtype,
    ordinal: Option<u32>,
    len: usize,
}

impl Array {
    fn part(&self, member: u32) -> Result<Exporter<'_>, PyErr> {
        let address = self.memory.addresses.get(member as usize);
        let size = self.memory.addresses.len();
        let address = address.ok_or_else(|| {
            PyIndexError::new_err(format!("there is no member {member} in a team of {size}"))
        })?;
        Ok(Exporter { address: *address, shape: &self.shape, dtype: self.dtype, ordinal: self.ordinal })
    }
}

/// An array of the same shape in the memory of every member. It is this member's own part.
#[pyclass(frozen, weakref, module = "gpunet", name = "Symmetric")]
pub(crate) struct Symmetric {
    inner: Owned<Array>,
}

impl Symmetric {
    /// The own part, as what an operation of a queue puts.
    pub(crate) fn source(&self) -> Result<PutSource<u8>, Failure> {
        let inner = self.inner.get()?;
        let memory = inner.memory.borrowed.read().unwrap_or_else(PoisonError::into_inner);
        memory.as_ref().map(|memory| memory.slice(0, inner.len).into()).ok_or_else(TeamCore::left)
    }

    /// Uses the bytes from `offset` on.
    pub(crate) fn with_rest<R>(
        &self,
        offset: usize,
        body: impl FnOnce(SymmetricSlice<'_, u8>) -> R,
    ) -> Result<R, Failure> {
        let inner = self.inner.get()?;
        let memory = inner.memory.borrowed.read().unwrap_or_else(PoisonError::into_inner);
        let memory = memory.as_ref().ok_or_else(TeamCore::left)?;
        let start = offset.min(inner.len);
        Ok(body(memory.slice(start, inner.len - start)))
    }

    fn own(&self) -> PyResult<Exporter<'_>> {
        let inner = self.inner.get()?;
        inner.part(inner.memory.team.rank)
    }
}

#[pymethods]
impl Symmetric {
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.inner.get()?.shape)
    }

    #[getter]
    fn dtype(&self) -> PyResult<&'static str> {
        Ok(self.inner.get()?.dtype.name)
    }

    #[getter]
    fn nbytes(&self) -> PyResult<usize> {
        Ok(self.inner.get()?.len)
    }

    #[getter]
    fn address(&self) -> PyResult<u64> {
        Ok(self.own()?.address)
    }

    /// By which kernels use it.
    fn device_number(&self, py: Python<'_>) -> PyResult<u64> {
        let inner = self.inner.get()?;
        detach(py, || inner.memory.make_record())?.map_err(|error| error::alloc(&error))
    }

    /// Another member's part, as this member's device has it mapped.
    fn part(slf: &Bound<'_, Self>, member: u32) -> PyResult<Part> {
        slf.get().inner.get()?.part(member)?;
        Ok(Part { whole: slf.clone().unbind(), member })
    }

    #[getter(__cuda_array_interface__)]
    fn cuda_array_interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.own()?.cuda_array_interface(py)
    }

    fn __dlpack_device__(&self) -> PyResult<(i32, i32)> {
        Ok(self.own()?.dlpack_device())
    }

    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    #[allow(unused_variables, reason = "who makes tensors of it orders what writes it")]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<Bound<'py, PyAny>>,
        dl_device: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.get().own()?.dlpack(slf, &Asked { max_version, dl_device, copy })
    }

    /// # Safety
    /// The buffer protocol's: `view` is to be filled in.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: as above.
        unsafe { slf.get().own()?.buffer(&slf, view, flags) }
    }

    /// # Safety
    /// The buffer protocol's: `__getbuffer__` has filled the view in.
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: as above.
        unsafe { export::release(view) };
    }

    fn __repr__(&self) -> String {
        match self.inner.get() {
            Ok(inner) => format!("<gpunet.Symmetric of {:?} {}>", inner.shape, inner.dtype.name),
            Err(_) => "<gpunet.Symmetric of another process>".to_owned(),
        }
    }
}

/// A member's part of symmetric memory.
#[pyclass(frozen, weakref, module = "gpunet", name = "SymmetricPart")]
pub(crate) struct Part {
    whole: Py<Symmetric>,
    member: u32,
}

impl Part {
    fn exporter(&self) -> PyResult<Exporter<'_>> {
        self.whole.get().inner.get()?.part(self.member)
    }
}

#[pymethods]
impl Part {
    #[getter]
    const fn member(&self) -> u32 {
        self.member
    }

    #[getter]
    fn address(&self) -> PyResult<u64> {
        Ok(self.exporter()?.address)
    }

    #[getter(__cuda_array_interface__)]
    fn cuda_array_interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.exporter()?.cuda_array_interface(py)
    }

    fn __dlpack_device__(&self) -> PyResult<(i32, i32)> {
        Ok(self.exporter()?.dlpack_device())
    }

    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    #[allow(unused_variables, reason = "who makes tensors of it orders what writes it")]
    fn __dlpack__<'py>(
        slf: &Bound<'py, Self>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<Bound<'py, PyAny>>,
        dl_device: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.get().exporter()?.dlpack(slf, &Asked { max_version, dl_device, copy })
    }

    /// # Safety
    /// The buffer protocol's: `view` is to be filled in.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        // SAFETY: as above.
        unsafe { slf.get().exporter()?.buffer(&slf, view, flags) }
    }

    /// # Safety
    /// The buffer protocol's: `__getbuffer__` has filled the view in.
    unsafe fn __releasebuffer__(&self, view: *mut ffi::Py_buffer) {
        // SAFETY: as above.
        unsafe { export::release(view) };
    }
}
