//! Finds what a request asks for.

use crate::method::{Method, Methods};
use crate::request::Request;
use gpunet_serve::Bytes;

/// Compares a request with routes, one after another, and keeps which methods its path has.
///
/// # Examples
///
/// ```
/// # use gpunet_http::{Method, Request, Router};
/// # fn example(request: &Request<'_>) {
/// let mut route = Router::new(request);
/// if route.is(Method::Get, b"/") {
///     // It is GET, or HEAD.
/// } else if let Some(id) = route.with(Method::Get, b"/items/{}") {
///     // `id` is not empty, and has no slash.
/// } else {
///     // Http::answer_other: 204 for OPTIONS, 405 if the path has another method, else 404.
/// }
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Router<'r> {
    method: Method,
    path: Bytes<'r>,
    methods: Methods,
}

impl<'r> Router<'r> {
    /// A router of this request.
    #[must_use]
    pub fn new(request: &'r Request<'_>) -> Self {
        Self { method: request.method(), path: request.path(), methods: Methods::default() }
    }

    /// Returns whether the request has this method and this path.
    #[must_use]
    pub fn is(&mut self, method: Method, path: &[u8]) -> bool {
        self.path == path && self.has(method)
    }

    /// If the request has this method and its path is like this one: the part of it that stands in
    /// the place of `{}`. That has a byte at least, and no slash.
    #[must_use]
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub fn with(&mut self, method: Method, pattern: &[u8]) -> Option<Bytes<'r>> {
        let pattern = Bytes::from(pattern);
        let open = pattern.find(b'{', 0)?;
        let (before, after) = (pattern.first(open), pattern.skip(open + 2));
        let len = self.path.len().checked_sub(before.len() + after.len())?;
        let found = self.path.slice(open, len);
        let is_like = self.path.first(open) == before
            && self.path.skip(open + len) == after
            && !found.is_empty()
            && found.find(b'/', 0).is_none();
        if is_like && self.has(method) { Some(found) } else { None }
    }

    /// The methods that the request's path has, of the routes so far.
    #[must_use]
    pub const fn methods(&self) -> Methods {
        self.methods
    }

    /// The request's method.
    pub(crate) const fn method(&self) -> Method {
        self.method
    }

    /// Whether it is `OPTIONS *`.
    pub(crate) fn is_for_all(&self) -> bool {
        self.path == b"*"
    }

    /// What GET answers, HEAD does, too.
    fn has(&mut self, method: Method) -> bool {
        self.methods = self.methods.with(method);
        if let Method::Get = method {
            self.methods = self.methods.with(Method::Head);
        }
        self.method == method || (self.method == Method::Head && method == Method::Get)
    }
}
