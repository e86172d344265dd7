//! Reports as plain Python values, and settings as the proxy reads them.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use serde_json::Value;
use std::fmt::Write;

/// The value as dicts, lists, texts and numbers.
pub(crate) fn python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(value) => PyBool::new(py, *value).to_owned().into_any(),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(whole), _) => whole.into_pyobject(py)?.into_any(),
            (None, Some(whole)) => whole.into_pyobject(py)?.into_any(),
            (None, None) => number.as_f64().into_pyobject(py)?.into_any(),
        },
        Value::String(text) => PyString::new(py, text).into_any(),
        Value::Array(values) => {
            let list = PyList::empty(py);
            for value in values {
                list.append(python(py, value)?)?;
            }
            list.into_any()
        }
        Value::Object(fields) => {
            let dict = PyDict::new(py);
            for (name, value) in fields {
                dict.set_item(name, python(py, value)?)?;
            }
            dict.into_any()
        }
    })
}

/// Settings as TOML: one line for each keyword argument.
pub(crate) fn toml(settings: Option<&Bound<'_, PyDict>>) -> PyResult<String> {
    let mut text = String::new();
    for (name, value) in settings.into_iter().flatten() {
        let name = name.extract::<String>()?;
        // Writing to a string does not fail.
        let _ = writeln!(text, "{name} = {}", toml_value(&name, &value)?);
    }
    Ok(text)
}

fn toml_value(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    if value.is_instance_of::<PyBool>()
        || value.is_instance_of::<PyFloat>()
        || value.is_instance_of::<PyInt>()
    {
        return Ok(value.str()?.to_cow()?.to_lowercase());
    }
    if let Ok(text) = value.cast::<PyString>() {
        let text = text.to_cow()?;
        // JSON's escapes are TOML's, too.
        return serde_json::to_string(&*text).map_err(|error| PyValueError::new_err(error.to_string()));
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let values =
            value.try_iter()?.map(|value| toml_value(name, &value?)).collect::<PyResult<Vec<_>>>()?;
        return Ok(format!("[{}]", values.join(", ")));
    }
    let kind = value.get_type().name()?;
    Err(PyTypeError::new_err(format!(
        "the setting {name} is a number, a text or a list of texts, not {kind}"
    )))
}
