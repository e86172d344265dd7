//! The server's password. The device has a tag of it, and not the text.

use gpunet_serve::Bytes;

/// What a password is compared with: a tag of it under a secret of the launch. Whoever does not
/// know the secret finds no other text with that tag, and the time that a comparison takes tells
/// nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Password {
    secret: [u64; 2],
    tag: [u64; 2],
    /// 0: there is none, and every client is let in.
    is_set: u64,
}

impl Password {
    /// No password.
    pub const NONE: Self = Self { secret: [0; 2], tag: [0; 2], is_set: 0 };

    /// This password, under a secret that nobody can guess.
    #[must_use]
    pub fn new(password: &[u8], secret: [u64; 2]) -> Self {
        Self { secret, tag: tag(password.into(), secret), is_set: 1 }
    }

    pub(crate) const fn is_set(&self) -> bool {
        self.is_set != 0
    }

    /// Returns whether a text is the password. Without one, each is.
    #[cfg_attr(target_arch = "nvptx64", inline(never))]
    pub(crate) fn is(&self, text: Bytes<'_>) -> bool {
        let [a, b] = tag(text, self.secret);
        !self.is_set() || (a ^ self.tag[0]) | (b ^ self.tag[1]) == 0
    }
}

fn tag(text: Bytes<'_>, [a, b]: [u64; 2]) -> [u64; 2] {
    [text.hash([a, b]), text.hash([b, !a])]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_password_is_the_password() {
        let password = Password::new(b"secret", [3, 4]);
        assert!(password.is(b"secret".into()));
        for text in [&b""[..], b"secre", b"secret ", b"Secret"] {
            assert!(!password.is(text.into()));
        }
        assert!(Password::NONE.is(b"any".into()) && !Password::NONE.is_set());
    }
}
