//! What a terminal can show.

use std::io::IsTerminal;

fn wants_colours() -> bool {
    // https://no-color.org: present and not empty.
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

pub(crate) fn stderr_takes_colours() -> bool {
    wants_colours() && std::io::stderr().is_terminal()
}

/// How standard output is written to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub colours: bool,
    /// Box-drawing characters; else ASCII.
    pub drawing: bool,
    /// Columns.
    pub width: usize,
}

impl Style {
    pub fn of_stdout(plain: bool) -> Self {
        let width = terminal_size::terminal_size().map_or(100, |(width, _)| usize::from(width.0));
        Self {
            colours: !plain && wants_colours() && std::io::stdout().is_terminal(),
            drawing: !plain,
            width: width.clamp(60, 140),
        }
    }

    /// `text` in an SGR colour such as `"1;32"`.
    pub fn paint(self, sgr: &str, text: &str) -> String {
        if self.colours && !sgr.is_empty() { format!("\x1b[{sgr}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// `text` in lines of at most `width` characters, broken between words where they fit.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(16);
    let mut lines = Vec::new();
    let (mut line, mut length) = (String::new(), 0);
    for word in text.split(' ') {
        let mut word = word.to_owned();
        let mut word_length = word.chars().count();
        if length > 0 && length + 1 + word_length > width {
            lines.push(std::mem::take(&mut line));
            length = 0;
        }
        // A word that fits nowhere is cut.
        while word_length > width {
            let border = word.char_indices().nth(width).map_or(word.len(), |(at, _)| at);
            let rest = word.split_off(border);
            lines.push(std::mem::replace(&mut word, rest));
            word_length -= width;
        }
        if length > 0 {
            line.push(' ');
            length += 1;
        }
        line.push_str(&word);
        length += word_length;
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn text_is_broken_between_words() {
        assert_eq!(wrapped("a table for two at nine tonight", 16), ["a table for two", "at nine tonight"]);
        assert_eq!(
            wrapped("x one-very-long-word-that-fits nowhere", 16),
            ["x", "one-very-long-wo", "rd-that-fits", "nowhere"]
        );
        assert_eq!(wrapped("", 16), [""]);
    }
}
