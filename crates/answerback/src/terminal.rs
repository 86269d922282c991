//! What a terminal can show.

use std::fmt;
use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// As `print!`, but a reader that has seen enough (`| head`) ends the show and not the work: nothing panics, and the exit code
/// is that of the work.
macro_rules! out {
    ($($text:tt)*) => { $crate::terminal::write(format_args!($($text)*)) };
}

/// [`out!`] with the end of a line.
macro_rules! outln {
    () => { $crate::terminal::write(format_args!("\n")) };
    ($($text:tt)*) => { $crate::terminal::write(format_args!("{}\n", format_args!($($text)*))) };
}

/// As `eprintln!`; whoever closed standard error does not want to hear.
macro_rules! errln {
    ($($text:tt)*) => { $crate::terminal::complain(format_args!($($text)*)) };
}

static OUTPUT_LOST: AtomicBool = AtomicBool::new(false);

/// To standard output, at once.
pub(crate) fn write(text: fmt::Arguments<'_>) {
    let mut stdout = std::io::stdout().lock();
    if let Err(error) = stdout.write_fmt(text).and_then(|()| stdout.flush())
        && error.kind() != ErrorKind::BrokenPipe
        && !OUTPUT_LOST.swap(true, Ordering::Relaxed)
    {
        errln!("answerback: standard output cannot be written: {error}");
    }
}

pub(crate) fn complain(text: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Something was to be told and could not be, and not because nobody wanted to hear it.
pub(crate) fn output_was_lost() -> bool {
    OUTPUT_LOST.load(Ordering::Relaxed)
}

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

/// `1 call`, `2 calls`.
pub(crate) fn count(n: usize, one: &str) -> String {
    format!("{n} {one}{}", if n == 1 { "" } else { "s" })
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
    use super::{count, wrapped};

    #[test]
    fn one_is_one() {
        assert_eq!([count(0, "call"), count(1, "call"), count(2, "call")], ["0 calls", "1 call", "2 calls"]);
    }

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
