//! Just enough of Rust's grammar to tell code from comments, strings and tests. Everything that is taken out becomes
//! spaces, so lines keep their numbers.

/// A source text, taken apart. Both parts have the lines of the whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Without comments and without what stands inside string and character literals.
    pub code: String,
    /// Comments only.
    pub comments: String,
}

/// Takes a source text apart.
pub fn split(source: &str) -> Parts {
    let chars: Vec<char> = source.chars().collect();
    let mut parts = Parts { code: String::with_capacity(source.len()), comments: String::new() };
    let mut at = 0;
    while at < chars.len() {
        if let Some(end) = end_of_comment(&chars, at) {
            copy(&chars[at..end], &mut parts.comments);
            blank(&chars[at..end], &mut parts.code);
            at = end;
        } else if let Some(end) = end_of_literal(&chars, at) {
            blank(&chars[at..end], &mut parts.code);
            blank(&chars[at..end], &mut parts.comments);
            at = end;
        } else {
            parts.code.push(chars[at]);
            blank(&chars[at..=at], &mut parts.comments);
            at += 1;
        }
    }
    parts
}

fn copy(chars: &[char], into: &mut String) {
    into.extend(chars);
}

fn blank(chars: &[char], into: &mut String) {
    into.extend(chars.iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
}

fn starts_with(chars: &[char], at: usize, text: &str) -> bool {
    text.chars().enumerate().all(|(n, c)| chars.get(at + n) == Some(&c))
}

fn end_of_comment(chars: &[char], at: usize) -> Option<usize> {
    if starts_with(chars, at, "//") {
        return Some((at..chars.len()).find(|n| chars[*n] == '\n').unwrap_or(chars.len()));
    }
    if !starts_with(chars, at, "/*") {
        return None;
    }
    let mut depth = 0;
    let mut n = at;
    while n < chars.len() {
        if starts_with(chars, n, "/*") {
            depth += 1;
            n += 2;
        } else if starts_with(chars, n, "*/") {
            depth -= 1;
            n += 2;
            if depth == 0 {
                return Some(n);
            }
        } else {
            n += 1;
        }
    }
    Some(chars.len())
}

/// The end of the string or character literal that begins here.
fn end_of_literal(chars: &[char], at: usize) -> Option<usize> {
    match chars[at] {
        '"' => Some(end_of_quoted(chars, at + 1, '"')),
        '\'' => {
            // `'a'` and `'\n'` are characters, `'a` is a lifetime.
            let is_char = chars.get(at + 1) == Some(&'\\') || chars.get(at + 2) == Some(&'\'');
            is_char.then(|| end_of_quoted(chars, at + 1, '\''))
        }
        'r' => {
            let before = at.checked_sub(1).map(|n| chars[n]);
            let prefixed = matches!(before, Some('b' | 'c')) && !is_word(at.checked_sub(2).map(|n| chars[n]));
            if is_word(before) && !prefixed {
                return None;
            }
            let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
            if chars.get(at + 1 + hashes) != Some(&'"') {
                return None;
            }
            let close: String = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
            let begin = at + 2 + hashes;
            let end = (begin..chars.len()).find(|n| starts_with(chars, *n, &close));
            Some(end.map_or(chars.len(), |n| n + 1 + hashes))
        }
        _ => None,
    }
}

fn end_of_quoted(chars: &[char], mut at: usize, quote: char) -> usize {
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            c if c == quote => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

fn is_word(c: Option<char>) -> bool {
    c.is_some_and(|c| c.is_alphanumeric() || c == '_')
}

/// What only tests compile, taken out of `code` (from [`split`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Product {
    /// Without items under `#[cfg(test)]`; empty for a file under `#![cfg(test)]`.
    pub code: String,
    /// Names of modules declared as `#[cfg(test)] mod name;`, whose files are tests.
    pub test_modules: Vec<String>,
}

/// Takes the tests out.
pub fn without_tests(code: &str) -> Product {
    let mut chars: Vec<char> = code.chars().collect();
    let mut test_modules = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        if starts_with(&chars, at, "#![cfg(test)]") {
            chars.iter_mut().filter(|c| **c != '\n').for_each(|c| *c = ' ');
            break;
        }
        if starts_with(&chars, at, "#[cfg(test)]") || starts_with(&chars, at, "#[cfg(all(test") {
            let end = end_of_item(&chars, at);
            let item: String = chars[at..end].iter().collect();
            if let Some((_, rest)) = item.split_once("mod ")
                && let Some(name) = rest.strip_suffix(';')
            {
                test_modules.push(name.trim().to_string());
            }
            chars[at..end].iter_mut().filter(|c| **c != '\n').for_each(|c| *c = ' ');
            at = end;
        } else {
            at += 1;
        }
    }
    Product { code: chars.into_iter().collect(), test_modules }
}

/// The end of the item whose attributes begin here: its closing brace, or its semicolon outside all brackets.
fn end_of_item(chars: &[char], at: usize) -> usize {
    let mut braces = 0_u32;
    let mut others = 0_u32;
    for (n, c) in chars.iter().enumerate().skip(at) {
        match c {
            '(' | '[' => others += 1,
            ')' | ']' => others = others.saturating_sub(1),
            '{' => braces += 1,
            '}' => {
                braces = braces.saturating_sub(1);
                if braces == 0 && others == 0 {
                    return n + 1;
                }
            }
            ';' if braces == 0 && others == 0 => return n + 1,
            _ => {}
        }
    }
    chars.len()
}

/// Whether `text` holds `pattern` as whole words: `rand::` is not in `brand::new`.
pub fn has_words(text: &str, pattern: &str) -> bool {
    text.match_indices(pattern).any(|(at, _)| {
        let after = text[at + pattern.len()..].chars().next();
        let open_before = !is_word(text[..at].chars().next_back()) || !is_word(pattern.chars().next());
        let open_after = !is_word(after) || !is_word(pattern.chars().next_back());
        open_before && open_after
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_taken_out_and_lines_stay() {
        let source = "a // one\nb /* two\n/* deep */ still */ c\nd(\"three \\\" more\") e\n";
        let parts = split(source);
        assert_eq!(parts.code.lines().count(), source.lines().count());
        let words: Vec<Vec<&str>> = parts.code.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words, [vec!["a"], vec!["b"], vec!["c"], vec!["d(", ")", "e"]]);
        assert!(parts.comments.contains("one") && parts.comments.contains("still"));
        assert!(!parts.comments.contains("three"));
    }

    #[test]
    fn raw_strings_characters_and_lifetimes_are_told_apart() {
        let code =
            split("let x: &'a str = r#\"in \" side\"#; let c = '\"'; let d = '\\''; var\"s\"; br\"t\"; tail").code;
        assert!(code.contains("&'a str"));
        assert!(code.ends_with("; tail"));
        assert!(!code.contains("side") && !code.contains('"'), "{code}");
    }

    #[test]
    fn items_for_tests_are_taken_out() {
        let code = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { c() }\n}\n#[cfg(test)]\nmod cases;\nfn d(x: [u8; 3]) {}\n";
        let product = without_tests(code);
        assert!(product.code.contains("fn a") && product.code.contains("fn d"));
        assert!(!product.code.contains("fn b"));
        assert_eq!(product.test_modules, ["cases"]);
        assert_eq!(product.code.lines().count(), code.lines().count());
        assert_eq!(without_tests("#![cfg(test)]\nfn a() {}\n").code.trim(), "");
    }

    #[test]
    fn words_are_matched_whole() {
        assert!(has_words("let x = rand::random();", "rand::"));
        assert!(!has_words("brand::new()", "rand::"));
        assert!(has_words("HashMap<u8, u8>", "HashMap"));
        assert!(!has_words("MyHashMap", "HashMap"));
        assert!(!has_words("HashMapper", "HashMap"));
    }
}
