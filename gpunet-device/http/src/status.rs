//! The statuses of answers.

/// A status of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
#[allow(missing_docs, reason = "the names are those of RFC 9110")]
pub enum Status {
    Ok = 200,
    Created = 201,
    Accepted = 202,
    NoContent = 204,
    NotModified = 304,
    BadRequest = 400,
    Unauthorized = 401,
    Forbidden = 403,
    NotFound = 404,
    MethodNotAllowed = 405,
    RequestTimeout = 408,
    Conflict = 409,
    LengthRequired = 411,
    ContentTooLarge = 413,
    UriTooLong = 414,
    UnsupportedMediaType = 415,
    ExpectationFailed = 417,
    UnprocessableContent = 422,
    TooManyRequests = 429,
    RequestHeaderFieldsTooLarge = 431,
    InternalServerError = 500,
    NotImplemented = 501,
    ServiceUnavailable = 503,
    HttpVersionNotSupported = 505,
}

const ALL: [Status; 24] = [
    Status::Ok,
    Status::Created,
    Status::Accepted,
    Status::NoContent,
    Status::NotModified,
    Status::BadRequest,
    Status::Unauthorized,
    Status::Forbidden,
    Status::NotFound,
    Status::MethodNotAllowed,
    Status::RequestTimeout,
    Status::Conflict,
    Status::LengthRequired,
    Status::ContentTooLarge,
    Status::UriTooLong,
    Status::UnsupportedMediaType,
    Status::ExpectationFailed,
    Status::UnprocessableContent,
    Status::TooManyRequests,
    Status::RequestHeaderFieldsTooLarge,
    Status::InternalServerError,
    Status::NotImplemented,
    Status::ServiceUnavailable,
    Status::HttpVersionNotSupported,
];

/// Where the number stands in an answer's first line.
const NUMBER_AT: usize = 9;

impl Status {
    /// The number.
    #[must_use]
    pub const fn code(self) -> u16 {
        self as u16
    }

    /// The status of a number; `None` if this crate does not have it.
    #[must_use]
    pub const fn of(code: i32) -> Option<Self> {
        let mut at = 0;
        while at < ALL.len() {
            if ALL[at].code() as i32 == code {
                return Some(ALL[at]);
            }
            at += 1;
        }
        None
    }

    /// The number and the name, and a line end: the body of an answer that says no more.
    #[must_use]
    pub fn text(self) -> &'static [u8] {
        self.line().get(NUMBER_AT..).unwrap_or_default()
    }

    /// The first line of an answer.
    pub(crate) const fn line(self) -> &'static [u8] {
        match self {
            Self::Ok => b"HTTP/1.1 200 OK\r\n",
            Self::Created => b"HTTP/1.1 201 Created\r\n",
            Self::Accepted => b"HTTP/1.1 202 Accepted\r\n",
            Self::NoContent => b"HTTP/1.1 204 No Content\r\n",
            Self::NotModified => b"HTTP/1.1 304 Not Modified\r\n",
            Self::BadRequest => b"HTTP/1.1 400 Bad Request\r\n",
            Self::Unauthorized => b"HTTP/1.1 401 Unauthorized\r\n",
            Self::Forbidden => b"HTTP/1.1 403 Forbidden\r\n",
            Self::NotFound => b"HTTP/1.1 404 Not Found\r\n",
            Self::MethodNotAllowed => b"HTTP/1.1 405 Method Not Allowed\r\n",
            Self::RequestTimeout => b"HTTP/1.1 408 Request Timeout\r\n",
            Self::Conflict => b"HTTP/1.1 409 Conflict\r\n",
            Self::LengthRequired => b"HTTP/1.1 411 Length Required\r\n",
            Self::ContentTooLarge => b"HTTP/1.1 413 Content Too Large\r\n",
            Self::UriTooLong => b"HTTP/1.1 414 URI Too Long\r\n",
            Self::UnsupportedMediaType => b"HTTP/1.1 415 Unsupported Media Type\r\n",
            Self::ExpectationFailed => b"HTTP/1.1 417 Expectation Failed\r\n",
            Self::UnprocessableContent => b"HTTP/1.1 422 Unprocessable Content\r\n",
            Self::TooManyRequests => b"HTTP/1.1 429 Too Many Requests\r\n",
            Self::RequestHeaderFieldsTooLarge => b"HTTP/1.1 431 Request Header Fields Too Large\r\n",
            Self::InternalServerError => b"HTTP/1.1 500 Internal Server Error\r\n",
            Self::NotImplemented => b"HTTP/1.1 501 Not Implemented\r\n",
            Self::ServiceUnavailable => b"HTTP/1.1 503 Service Unavailable\r\n",
            Self::HttpVersionNotSupported => b"HTTP/1.1 505 HTTP Version Not Supported\r\n",
        }
    }

    /// Returns whether an answer of this status never has a body.
    pub(crate) const fn is_bodiless(self) -> bool {
        matches!(self, Self::NoContent | Self::NotModified)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_found_by_their_numbers() {
        for status in ALL {
            let code = std::format!("{} ", status.code());
            assert_eq!(Status::of(status.code().into()), Some(status));
            assert!(status.text().starts_with(code.as_bytes()) && status.text().ends_with(b"\r\n"));
        }
        assert_eq!((Status::of(299), Status::of(-200)), (None, None));
    }
}
