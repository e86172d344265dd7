//! The arrays of a transfer. They are kept, and what was put on their streams before is waited for.

use super::{Passed, RawKind};
use crate::array::{Access, Array, Runner};
use crate::cuda::{Context, Event, stream_of};
use crate::error::made;
use crate::wait::lock;
use gpu_usermap::cuda::Device;
use gpunet_channel::{Array as Source, ArrayMut as Target, ChannelError, Dtype};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex};

/// Unsigned integers of 8 bits.
const BYTES: RawKind = (1, 8, 1);

/// The GPUs that a channel's arrays are on: their primary contexts, which are kept.
#[derive(Clone, Default)]
pub(crate) struct Devices(Arc<Mutex<Vec<(u32, Context, Device)>>>);

impl Devices {
    /// The GPU that has an address.
    fn of(&self, py: Python<'_>, address: u64) -> PyResult<(u32, Context, Device)> {
        let Some(ordinal) = Context::of(None)?.device_of(address)? else {
            let text = format!(
                "the array's data is at {address:#x}, which is no memory that CUDA knows: was it freed?"
            );
            return Err(made::<PyValueError>(py, text));
        };
        let mut known = lock(&self.0);
        if let Some(found) = known.iter().find(|(number, ..)| *number == ordinal) {
            return Ok(found.clone());
        }
        let context = Context::primary(ordinal.cast_signed())?;
        let device = context.device()?;
        known.push((ordinal, context.clone(), device.clone()));
        Ok((ordinal, context, device))
    }
}

/// An array of a transfer.
pub(crate) struct Held {
    name: String,
    array: Array,
    dtype: Dtype,
    shape: Vec<u64>,
    /// Of GPU memory.
    device: Option<Device>,
    /// What was on the array's stream when the transfer was asked for.
    before: Option<Arc<Event>>,
}

impl Held {
    /// Takes arrays, all of them or none.
    ///
    /// # Errors
    /// What one of them is, and what to pass instead.
    pub(crate) fn all(devices: &Devices, arrays: Vec<Passed<'_>>, access: Access) -> PyResult<Vec<Self>> {
        let mut events: Vec<(u32, u64, Arc<Event>)> = Vec::new();
        let mut held: Vec<Self> = arrays
            .into_iter()
            .map(|passed| Self::new(devices, &mut events, passed, access))
            .collect::<PyResult<_>>()?;
        // What has no bytes is nowhere: it does not keep the others from one copy.
        let device = held.iter().find_map(|held| held.device.clone());
        held.iter_mut().filter(|held| held.array.len == 0).for_each(|held| held.device.clone_from(&device));
        if access == Access::Write {
            no_overlap(&held)?;
        }
        Ok(held)
    }

    fn new(
        devices: &Devices,
        events: &mut Vec<(u32, u64, Arc<Event>)>,
        (name, object, stream, kind, bytes_as): Passed<'_>,
        access: Access,
    ) -> PyResult<Self> {
        let py = object.py();
        let named = |error: PyErr| {
            if !name.is_empty() {
                // Python 3.11 has notes. Without one the error says what it is nevertheless.
                let _ = error.value(py).call_method1("add_note", (format!("it is the array {name:?}"),));
            }
            error
        };
        let array = Array::new(&object, access, Runner::Anywhere).map_err(named)?;
        let own = array.kind.map(|kind| (kind.code, kind.bits, kind.lanes));
        let shape = || array.shape.iter().map(|&extent| extent as u64).collect();
        let ((code, bits, lanes), shape) = match (kind.or(own), bytes_as) {
            (Some(BYTES), Some(other)) => other,
            (Some(kind), _) => (kind, shape()),
            (None, _) => {
                let kind = object.get_type().name()?;
                let text = format!(
                    "{kind} has elements of a type that has no number in DLPack; pass its bytes: a.view(\"uint8\")"
                );
                return Err(named(made::<PyTypeError>(py, text)));
            }
        };
        let (device, before) = if array.on_gpu && array.len > 0 {
            let (ordinal, context, device) = devices.of(py, array.address).map_err(named)?;
            let stream = stream_of(&stream)?;
            let found = events.iter().find(|(number, other, _)| (*number, *other) == (ordinal, stream));
            let event = match found {
                Some((.., event)) => event.clone(),
                None => {
                    if context.is_capturing(stream)? {
                        let text = "the stream is being captured, and a transfer is no part of a graph";
                        return Err(made::<PyValueError>(py, text.to_owned()));
                    }
                    let event = context.event()?;
                    event.record(stream)?;
                    events.push((ordinal, stream, Arc::new(event)));
                    events[events.len() - 1].2.clone()
                }
            };
            (Some(device), Some(event))
        } else {
            (None, None)
        };
        Ok(Self { name, array, dtype: Dtype { code, bits, lanes }, shape, device, before })
    }

    /// Whether what was on its stream is done.
    ///
    /// # Errors
    /// The fault of a kernel.
    pub(crate) fn is_ready(&self) -> Result<bool, ChannelError> {
        let done = self.before.as_ref().map_or(Ok(true), |event| event.is_done());
        done.map_err(|fault| ChannelError::Cuda(format!("what was on the array's stream failed: {fault}")))
    }

    /// The array, to be sent.
    pub(crate) fn source(&self) -> Result<Source<'_>, ChannelError> {
        let source = match &self.device {
            // SAFETY: memory of the device, which the array keeps; who writes it meanwhile is the
            // program, against docs/tensors.md.
            Some(device) => unsafe { Source::on_gpu(device, self.array.address, self.dtype, &self.shape) }?,
            None => {
                let bytes = match self.array.len {
                    0 => &[][..],
                    // SAFETY: memory that the array keeps, and its protocol says that it is all
                    // there. Another thread of the program may write it, as with `View::bytes`.
                    len => unsafe { std::slice::from_raw_parts(self.array.address as *const u8, len) },
                };
                Source::new(self.dtype, &self.shape, bytes)?
            }
        };
        Ok(source.named(self.name.as_str()))
    }

    /// The array, to be received.
    pub(crate) fn target(&mut self) -> Result<Target<'_>, ChannelError> {
        let target = match &self.device {
            // SAFETY: as in `source`; arrays of a transfer do not overlap.
            Some(device) => unsafe { Target::on_gpu(device, self.array.address, self.dtype, &self.shape) }?,
            None => {
                let bytes = match self.array.len {
                    0 => &mut [][..],
                    // SAFETY: as in `source`; the protocol has said that it may be written, and
                    // arrays of a transfer do not overlap.
                    len => unsafe { std::slice::from_raw_parts_mut(self.array.address as *mut u8, len) },
                };
                Target::new(self.dtype, &self.shape, bytes)?
            }
        };
        Ok(target.named(self.name.as_str()))
    }
}

/// # Errors
/// ValueError: two arrays have bytes in common, and which of them would come last is not known.
fn no_overlap(held: &[Held]) -> PyResult<()> {
    let mut ranges: Vec<_> = held
        .iter()
        .filter(|held| held.array.len > 0)
        .map(|held| (held.array.address, held.array.len as u64, &held.name))
        .collect();
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        let ((address, len, first), (next, _, second)) = (pair[0], pair[1]);
        if address + len > next {
            let text =
                format!("the arrays {first:?} and {second:?} share memory; receive into separate ones");
            return Err(PyValueError::new_err(text));
        }
    }
    Ok(())
}
