//! Patterns of keys: `*`, `?`, `[a-c]`, `[^a]`, and `\` before a byte that means itself.

use gpunet_serve::Bytes;

/// Returns whether a text matches a pattern.
#[must_use]
#[cfg_attr(target_arch = "nvptx64", inline(never))]
pub fn matches(pattern: Bytes<'_>, text: Bytes<'_>, ignores_case: bool) -> bool {
    let (mut p, mut t) = (0, 0);
    // Behind the last star, and the text that it stands for so far.
    let mut star = None;
    loop {
        if p < pattern.len() && pattern.get(p) == b'*' {
            p += 1;
            star = Some((p, t));
            continue;
        }
        if t == text.len() {
            return p == pattern.len();
        }
        if let Some(next) = one(pattern, p, text.get(t), ignores_case) {
            (p, t) = (next, t + 1);
            continue;
        }
        // The star stands for one byte more.
        let Some((after, from)) = star else { return false };
        star = Some((after, from + 1));
        (p, t) = (after, from + 1);
    }
}

/// Matches one byte with what is at `at` in the pattern; returns where that ends.
fn one(pattern: Bytes<'_>, at: usize, byte: u8, ignores_case: bool) -> Option<usize> {
    let cased = |byte: u8| if ignores_case { byte.to_ascii_lowercase() } else { byte };
    let is = |at: usize| cased(pattern.get(at)) == cased(byte);
    if at >= pattern.len() {
        return None;
    }
    match pattern.get(at) {
        b'?' => Some(at + 1),
        b'\\' if at + 1 < pattern.len() => is(at + 1).then_some(at + 2),
        b'[' => {
            let is_negated = pattern.get(at + 1) == b'^';
            let (mut at, mut found) = (at + 1 + usize::from(is_negated), false);
            while at < pattern.len() && pattern.get(at) != b']' {
                if pattern.get(at) == b'\\' && at + 1 < pattern.len() {
                    at += 1;
                    found |= is(at);
                } else if at + 2 < pattern.len() && pattern.get(at + 1) == b'-' {
                    let (a, b) = (cased(pattern.get(at)), cased(pattern.get(at + 2)));
                    found |= (a.min(b)..=a.max(b)).contains(&cased(byte));
                    at += 2;
                } else {
                    found |= is(at);
                }
                at += 1;
            }
            (found != is_negated).then(|| (at + 1).min(pattern.len()))
        }
        _ => is(at).then_some(at + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h*llo", "hell", false),
            ("*a*b*c", "xxaxxbxxc", true),
            ("*a*b*c", "xxaxxcxxb", false),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("h[a-b]llo", "hcllo", false),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("[a\\]]", "]", true),
            ("[abc", "c", true),
            ("a**", "a", true),
            ("\\", "\\", true),
        ] {
            let found = matches(pattern.as_bytes().into(), text.as_bytes().into(), false);
            assert_eq!(found, expected, "{pattern} {text}");
        }
        assert!(matches(b"MAX*y".into(), b"maxmemory".into(), true));
    }
}
