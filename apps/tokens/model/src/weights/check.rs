//! The check of a safetensors file, on the host.

use super::{LayerWeights, Weights};
use crate::config::{HIDDEN, LAYERS, VOCABULARY, WIDTH};
use serde_json::Value;

/// A file of weights that this model cannot use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WeightsError {
    /// It is no safetensors file: its header does not fit or is no JSON object.
    Header,
    /// It has no tensor of this name.
    Missing(String),
    /// A tensor has another type than `F16`, another shape, or not as many bytes as its shape
    /// needs.
    Shape {
        /// Its name.
        name: String,
        /// The shape that the model has.
        expected: [usize; 2],
    },
    /// A tensor does not lie inside the file, or not at a multiple of 16 bytes.
    Place(String),
    /// A tensor has an infinite weight, or one that is no number.
    NotFinite(String),
}

impl std::fmt::Display for WeightsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Header => write!(f, "not a safetensors file: its header cannot be read"),
            Self::Missing(name) => write!(f, "the weights lack the tensor {name}"),
            Self::Shape { name, expected: [inputs, outputs] } => {
                write!(f, "the tensor {name} must be F16 of shape [{inputs}, {outputs}]")
            }
            Self::Place(name) => {
                write!(f, "the tensor {name} must lie inside the file, at a multiple of 16 bytes")
            }
            Self::NotFinite(name) => write!(f, "the tensor {name} has a weight that is not finite"),
        }
    }
}

impl std::error::Error for WeightsError {}

/// A safetensors file.
struct File<'a> {
    header: Value,
    bytes: &'a [u8],
    /// Where the tensors begin.
    data: usize,
}

impl<'a> File<'a> {
    fn open(bytes: &'a [u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk::<8>()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let header: Value = serde_json::from_slice(rest.get(..length)?).ok()?;
        header.is_object().then_some(Self { header, bytes, data: 8 + length })
    }

    /// Where a matrix of halves begins in the file.
    fn matrix(&self, name: &str, expected: [usize; 2]) -> Result<u32, WeightsError> {
        let owned = || name.to_owned();
        let tensor = self.header.get(name).ok_or_else(|| WeightsError::Missing(owned()))?;
        let numbers = |key: &str| -> Option<Vec<usize>> {
            let values = tensor.get(key)?.as_array()?.iter();
            values.map(|value| value.as_u64().and_then(|number| usize::try_from(number).ok())).collect()
        };
        let len = expected[0] * expected[1] * 2;
        let [start, end] = numbers("data_offsets")
            .and_then(|offsets| <[usize; 2]>::try_from(offsets).ok())
            .ok_or_else(|| WeightsError::Place(owned()))?;
        if tensor.get("dtype").and_then(Value::as_str) != Some("F16")
            || numbers("shape").is_none_or(|shape| shape != expected)
            || end.checked_sub(start) != Some(len)
        {
            return Err(WeightsError::Shape { name: owned(), expected });
        }
        let place = self.data.checked_add(start).filter(|at| at.is_multiple_of(16));
        let place = place.ok_or_else(|| WeightsError::Place(owned()))?;
        let halves = place.checked_add(len).and_then(|end| self.bytes.get(place..end));
        let halves = halves.ok_or_else(|| WeightsError::Place(owned()))?;
        // The largest exponent is that of infinities and of what is no number.
        if halves.chunks_exact(2).any(|half| half[1] & 0x7c == 0x7c) {
            return Err(WeightsError::NotFinite(owned()));
        }
        u32::try_from(place).map_err(|_| WeightsError::Place(owned()))
    }
}

impl Weights {
    /// Checks the bytes of a safetensors file, and returns where its matrices lie.
    ///
    /// The host calls it before a launch, with the bytes that the kernel gets.
    ///
    /// # Errors
    /// [`WeightsError`], when the file is not one of this model: it names the tensor.
    ///
    /// # Examples
    ///
    /// ```
    /// use gpunet_tokens_model::{WEIGHTS, Weights};
    ///
    /// assert!(Weights::check(WEIGHTS).is_ok());
    /// assert!(Weights::check(&WEIGHTS[..100]).is_err());
    /// ```
    pub fn check(file: &[u8]) -> Result<Self, WeightsError> {
        let file = File::open(file).ok_or(WeightsError::Header)?;
        let mut layers = [LayerWeights::default(); LAYERS];
        for (index, layer) in layers.iter_mut().enumerate() {
            let matrix = |part: &str, shape| file.matrix(&format!("layers.{index}.{part}"), shape);
            *layer = LayerWeights {
                qkv: matrix("qkv", [WIDTH, 3 * WIDTH])?,
                out: matrix("out", [WIDTH, WIDTH])?,
                up: matrix("up", [WIDTH, HIDDEN])?,
                down: matrix("down", [HIDDEN, WIDTH])?,
            };
        }
        Ok(Self {
            embedding: file.matrix("embedding", [VOCABULARY, WIDTH])?,
            unembedding: file.matrix("unembedding", [WIDTH, VOCABULARY])?,
            layers,
        })
    }
}
