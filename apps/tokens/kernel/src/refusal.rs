//! Why a request is refused, in the form of OpenAI's errors.

use gpunet_device::Group;
use gpunet_http::json::Text;
use gpunet_http::{Body, Status};
use gpunet_tokens_model::CONTEXT;

/// Why a request is refused.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal<'t> {
    /// The body is no JSON: so many bytes of it are right.
    Syntax(usize),
    /// Its arrays and objects lie too deep in each other.
    Depth,
    /// A field has a value of another kind, or one out of range.
    Value {
        /// The field.
        field: &'static [u8],
        /// What it may be.
        wants: &'static [u8],
    },
    /// A field is missing.
    Missing(&'static [u8]),
    /// A field that the API does not have.
    Unknown(Text<'t>),
    /// A value of a field that this server has not.
    Unsupported {
        /// The field.
        field: &'static [u8],
        /// What it may be.
        wants: &'static [u8],
    },
    /// There is no such model.
    NoModel(Text<'t>),
    /// Prompt and answer are longer than the model's context.
    TooLong {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens that were wanted.
        most: usize,
    },
    /// As many requests wait as may.
    Busy,
    /// The model has refused a step.
    Failed,
    /// There is nothing at this address.
    NoSuchUrl,
}

impl Refusal<'_> {
    pub(crate) const fn status(&self) -> Status {
        match self {
            Self::NoModel(_) | Self::NoSuchUrl => Status::NotFound,
            Self::Busy => Status::ServiceUnavailable,
            Self::Failed => Status::InternalServerError,
            _ => Status::BadRequest,
        }
    }

    /// Writes the error as a JSON document.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn put<G: Group>(&self, g: &G, body: &mut Body<'_, '_>) {
        body.put(g, b"{\"error\":{\"message\":\"");
        self.put_message(g, body);
        body.put(g, b"\",\"type\":\"");
        body.put(g, self.kind());
        body.put(g, b"\",\"param\":");
        match self.field() {
            Some(field) => {
                body.put(g, b"\"");
                body.put(g, field);
                body.put(g, b"\"");
            }
            None => body.put(g, b"null"),
        }
        body.put(g, b",\"code\":");
        body.put(g, self.code());
        body.put(g, b"}}");
    }

    /// The message, as it stands in a JSON string.
    fn put_message<G: Group>(&self, g: &G, body: &mut Body<'_, '_>) {
        match self {
            Self::Syntax(at) => {
                body.put(g, b"We could not parse the JSON body of your request: it is wrong at byte ");
                body.put_number(g, *at as i64);
            }
            Self::Depth => body.put(g, b"The JSON body of your request has more than 64 levels"),
            Self::Value { field, wants } => {
                body.put(g, b"Invalid value for '");
                body.put(g, *field);
                body.put(g, b"': it must be ");
                body.put(g, *wants);
            }
            Self::Missing(field) => {
                body.put(g, b"You must provide the parameter '");
                body.put(g, *field);
                body.put(g, b"'");
            }
            Self::Unknown(name) => {
                body.put(g, b"Unrecognized request argument supplied: ");
                body.put(g, name.raw().first(64));
            }
            Self::Unsupported { field, wants } => {
                body.put(g, b"This server supports '");
                body.put(g, *field);
                body.put(g, b"' only as ");
                body.put(g, *wants);
            }
            Self::NoModel(name) => {
                body.put(g, b"The model '");
                body.put(g, name.raw().first(64));
                body.put(g, b"' does not exist: GET /v1/models lists those that do");
            }
            Self::TooLong { prompt, most } => {
                body.put(g, b"This model's maximum context length is ");
                body.put_number(g, CONTEXT as i64);
                body.put(g, b" tokens. However, you requested ");
                body.put_number(g, (prompt + most) as i64);
                body.put(g, b" tokens (");
                body.put_number(g, *prompt as i64);
                body.put(g, b" in the prompt, ");
                body.put_number(g, *most as i64);
                body.put(g, b" for the completion). Reduce the length of the prompt or of the completion");
            }
            Self::Busy => body.put(g, b"The server is overloaded: too many requests wait. Try again later"),
            Self::Failed => body.put(g, b"The model has refused the step. This is a fault of the server"),
            Self::NoSuchUrl => body.put(g, b"Unknown request URL. The server has /v1/completions, /v1/chat/completions, /v1/models, /healthz and /metrics"),
        }
    }

    const fn kind(&self) -> &'static [u8] {
        match self {
            Self::Busy | Self::Failed => b"server_error",
            _ => b"invalid_request_error",
        }
    }

    const fn field(&self) -> Option<&'static [u8]> {
        match self {
            Self::Value { field, .. } | Self::Missing(field) | Self::Unsupported { field, .. } => Some(field),
            Self::NoModel(_) => Some(b"model"),
            _ => None,
        }
    }

    /// The code, as it stands in JSON.
    const fn code(&self) -> &'static [u8] {
        match self {
            Self::NoModel(_) => b"\"model_not_found\"",
            Self::TooLong { .. } => b"\"context_length_exceeded\"",
            Self::NoSuchUrl => b"\"unknown_url\"",
            Self::Unsupported { .. } => b"\"unsupported_value\"",
            _ => b"null",
        }
    }
}
