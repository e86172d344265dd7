//! The methods of requests.

use gpunet_serve::{Bytes, Short};

/// A method that services are given. Others are answered with 501.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are those of RFC 9110 and RFC 5789")]
pub enum Method {
    #[default]
    Get,
    Head,
    Post,
    Put,
    Delete,
    Patch,
    Options,
}

const ALL: [(Method, Short); 7] = [
    (Method::Get, Short::of(b"GET")),
    (Method::Head, Short::of(b"HEAD")),
    (Method::Post, Short::of(b"POST")),
    (Method::Put, Short::of(b"PUT")),
    (Method::Delete, Short::of(b"DELETE")),
    (Method::Patch, Short::of(b"PATCH")),
    (Method::Options, Short::of(b"OPTIONS")),
];

impl Method {
    pub(crate) fn of(name: Bytes<'_>) -> Option<Self> {
        let word = name.word(0);
        if name.len() < 8 {
            for (method, text) in ALL {
                if text.word() == word && text.len() == name.len() {
                    return Some(method);
                }
            }
        }
        None
    }
}

/// A set of methods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Methods(u8);

impl Methods {
    /// Returns whether there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The same with one more.
    #[must_use]
    pub const fn with(self, method: Method) -> Self {
        Self(self.0 | 1 << method as u8)
    }

    /// Returns whether it is one of them.
    #[must_use]
    pub const fn contains(self, method: Method) -> bool {
        self.0 & 1 << method as u8 != 0
    }

    /// The names of those that are in it, each with what separates it from the next one.
    pub(crate) fn names(self) -> [Bytes<'static>; 7] {
        const NAMES: [&[u8]; 7] =
            [b"GET, ", b"HEAD, ", b"POST, ", b"PUT, ", b"DELETE, ", b"PATCH, ", b"OPTIONS"];
        let (mut names, mut at) = ([Bytes::EMPTY; 7], 0);
        while at < 7 {
            if self.0 & 1 << at != 0 {
                names[at] = Bytes::from(NAMES[at]);
            }
            at += 1;
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_found_by_their_names() {
        for (method, text) in ALL {
            let name: std::vec::Vec<u8> = (0..text.len()).map(|at| text.get(at)).collect();
            assert_eq!(Method::of(Bytes::from(&name[..])), Some(method));
        }
        for name in ["", "get", "GETS", "GE", "OPTIONSX", "OPTIONS\0", "GET\0"] {
            assert_eq!(Method::of(Bytes::from(name.as_bytes())), None, "{name}");
        }
    }
}
