//! Whether the arrays that a program gives are those that were sent.

use crate::array::{ArrayMut, Description};
use std::collections::HashMap;

/// Puts the receiver's arrays into the order of the sender's.
pub(super) fn in_order<'a>(
    sent: &[Description],
    arrays: Vec<ArrayMut<'a>>,
) -> Result<Vec<ArrayMut<'a>>, String> {
    if sent.len() != arrays.len() {
        return Err(format!("{} arrays were sent, and {} are asked for", sent.len(), arrays.len()));
    }
    let has_names = arrays.iter().any(|array| !array.about.name.is_empty());
    let mut places: Vec<Option<ArrayMut<'a>>> = arrays.into_iter().map(Some).collect();
    let mut by_name: HashMap<String, usize> = HashMap::new();
    if has_names {
        for (at, place) in places.iter().enumerate() {
            let name = place.as_ref().map(|array| array.about.name.clone()).unwrap_or_default();
            if by_name.insert(name.clone(), at).is_some() {
                return Err(format!("two arrays are asked for by the name {name:?}"));
            }
        }
    }
    let mut ordered = Vec::with_capacity(sent.len());
    for (at, Description { name, dtype, shape, .. }) in sent.iter().enumerate() {
        let at = if has_names { by_name.get(name).copied() } else { Some(at) };
        let place = at.and_then(|at| places.get_mut(at)).and_then(Option::take);
        let array = place.ok_or_else(|| format!("the array {name:?} was sent, and is not asked for"))?;
        if (array.about.dtype, &array.about.shape) != (*dtype, shape) {
            return Err(format!(
                "{dtype} of shape {shape:?} was sent, and {} of shape {:?} is asked for",
                array.about.dtype, array.about.shape
            ));
        }
        ordered.push(array);
    }
    Ok(ordered)
}
