//! Rust source as tokens, without comments, literals and tests.

/// A token: a name, `::`, or one character of punctuation.
pub type Token = String;

/// Returns the tokens of a file. Text in literals and comments is none.
pub fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let c = chars[at];
        let next = chars.get(at + 1).copied();
        if c.is_whitespace() {
            at += 1;
        } else if c == '/' && next == Some('/') {
            at = end_of_line(&chars, at);
        } else if c == '/' && next == Some('*') {
            at = end_of_comment(&chars, at);
        } else if c == '"' {
            at = end_of_string(&chars, at);
        } else if let Some(end) = end_of_raw_string(&chars, at) {
            at = end;
        } else if c == '\'' {
            at = end_of_quote(&chars, at);
        } else if is_name(c) {
            let end = (at..chars.len()).find(|&i| !is_name(chars[i])).unwrap_or(chars.len());
            found.push(chars[at..end].iter().collect());
            at = end;
        } else if c == ':' && next == Some(':') {
            found.push("::".to_owned());
            at += 2;
        } else {
            found.push(c.to_string());
            at += 1;
        }
    }
    found
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn end_of_line(chars: &[char], at: usize) -> usize {
    (at..chars.len()).find(|&i| chars[i] == '\n').unwrap_or(chars.len())
}

fn end_of_comment(chars: &[char], mut at: usize) -> usize {
    let mut depth = 0;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn end_of_string(chars: &[char], at: usize) -> usize {
    let mut i = at + 1;
    while i < chars.len() && chars[i] != '"' {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    i + 1
}

/// `r"..."`, `r#"..."#`, and those of bytes and of C, whose prefix starts a name.
fn end_of_raw_string(chars: &[char], at: usize) -> Option<usize> {
    if at > 0 && is_name(chars[at - 1]) {
        return None;
    }
    let mut i = at;
    if matches!(chars[i], 'b' | 'c') {
        i += 1;
    }
    if chars.get(i) != Some(&'r') {
        return None;
    }
    let hashes = chars[i + 1..].iter().take_while(|c| **c == '#').count();
    i += 1 + hashes;
    if chars.get(i) != Some(&'"') {
        return None;
    }
    let is_end = |i: &usize| {
        chars[*i] == '"' && chars[i + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes
    };
    Some((i + 1..chars.len()).find(is_end).map_or(chars.len(), |end| end + 1 + hashes))
}

/// A character, or the name of a lifetime or label.
fn end_of_quote(chars: &[char], at: usize) -> usize {
    match (chars.get(at + 1), chars.get(at + 2)) {
        (Some('\\'), _) => {
            (at + 3..chars.len()).find(|&i| chars[i] == '\'').map_or(chars.len(), |end| end + 1)
        }
        (Some(_), Some('\'')) => at + 3,
        _ => at + 1,
    }
}

/// Removes what is compiled for tests only, and what a macro's pattern matches. Returns the rest,
/// and the names of modules that are for tests only.
pub fn without_tests(tokens: &[Token]) -> (Vec<Token>, Vec<String>) {
    let (mut rest, mut modules, mut at) = (Vec::new(), Vec::new(), 0);
    while at < tokens.len() {
        if tokens[at] == "#" && tokens.get(at + 1).is_some_and(|next| next == "[") {
            let end = end_of_group(tokens, at + 1);
            let attribute = &tokens[at + 2..end - 1];
            if is_for_tests(attribute) {
                let (end, module) = end_of_item(tokens, end);
                modules.extend(module);
                at = end;
            } else {
                // `derive(crate::X)` does not occur; `cfg_attr(.., path = "..")` would need more.
                at = end;
            }
        } else {
            rest.push(tokens[at].clone());
            at += 1;
        }
    }
    (rest, modules)
}

/// Returns whether an attribute leaves an item out of everything but tests.
fn is_for_tests(attribute: &[Token]) -> bool {
    match attribute {
        [cfg, _, test, _] => cfg == "cfg" && test == "test",
        [cfg, _, all, _, test, ..] => cfg == "cfg" && all == "all" && test == "test",
        [test] => test == "test",
        _ => false,
    }
}

/// Returns the place after the bracket that closes the one at `at`.
fn end_of_group(tokens: &[Token], at: usize) -> usize {
    let mut depth = 0_usize;
    for (i, token) in tokens.iter().enumerate().skip(at) {
        match token.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return i + 1;
        }
    }
    tokens.len()
}

/// Returns the place after the item that begins at `at`, and its name if it is a module in a file
/// of its own.
fn end_of_item(tokens: &[Token], mut at: usize) -> (usize, Option<String>) {
    let start = at;
    while at < tokens.len() {
        match tokens[at].as_str() {
            ";" => break,
            "{" if !tokens[start..at].iter().any(|token| token == "use") => {
                return (end_of_group(tokens, at), None);
            }
            "(" | "[" | "{" => at = end_of_group(tokens, at),
            _ => at += 1,
        }
    }
    let item = &tokens[start..at.min(tokens.len())];
    let module = item.iter().position(|token| token == "mod").and_then(|i| item.get(i + 1)).cloned();
    (at + 1, module)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(text: &str) -> String {
        without_tests(&tokens(text)).0.join(" ")
    }

    #[test]
    fn text_in_literals_and_comments_is_no_source() {
        assert_eq!(rest("a // crate::b\n/* /* c */ d */ e"), "a e");
        assert_eq!(
            rest(r##"a("crate::b\"", r#"c"d"#, 'e', '\'', b"f", br"g") + 'h: loop"##),
            "a ( , , , , b , ) + h : loop"
        );
    }

    #[test]
    fn what_is_for_tests_is_left_out() {
        assert_eq!(rest("#[cfg(test)] mod tests { use a; } b"), "b");
        assert_eq!(rest("#[cfg(test)] use a::{b, c}; #[inline] fn d() {}"), "fn d ( ) { }");
        assert_eq!(without_tests(&tokens("#[cfg(test)] mod tests; c")).1, ["tests"]);
        assert_eq!(rest("#[cfg(all(test, unix))] fn a() { b } #[cfg(not(test))] fn c() {}"), "fn c ( ) { }");
    }
}
