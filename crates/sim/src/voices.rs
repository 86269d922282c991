//! The scripted voices that travel inside the binary (`assets/`, see the README there), and how a script names audio.

use crate::audio_file::{self, AudioFileError};
use std::path::Path;

macro_rules! voices {
    ($($name:literal),* $(,)?) => {
        /// Every built-in voice: its name and its raw 8 kHz μ-law.
        pub const VOICES: &[(&str, &[u8])] =
            &[$(($name, include_bytes!(concat!("../assets/", $name, ".ulaw")))),*];
    };
}

voices![
    "agent_acknowledge",
    "agent_back_booked",
    "agent_confirmation",
    "agent_goodbye",
    "agent_greeting",
    "agent_trouble",
    "agent_welcome_back",
    "agent_window",
    "caller_hello_again",
    "caller_request",
    "caller_talk_over",
    "caller_thanks",
];

/// In a script, `builtin:NAME` is a voice of [`VOICES`]; anything else is a path.
pub const BUILTIN: &str = "builtin:";

/// The raw μ-law of a built-in voice.
pub fn builtin(name: &str) -> Option<&'static [u8]> {
    VOICES.iter().find(|(known, _)| *known == name).map(|(_, mulaw)| *mulaw)
}

/// Audio as a script names it, as 8 kHz μ-law. Relative paths start at `base`.
pub fn load(named: &str, base: &Path) -> Result<Vec<u8>, AudioFileError> {
    match named.strip_prefix(BUILTIN) {
        Some(name) => {
            builtin(name).map(<[u8]>::to_vec).ok_or_else(|| AudioFileError::UnknownBuiltin { name: name.to_owned() })
        }
        None => audio_file::read(&base.join(named)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_voice_is_a_second_or_more_of_audible_sound() {
        for (name, mulaw) in VOICES {
            assert!(mulaw.len() > 8_000, "{name}");
            assert!(mulaw.iter().any(|&b| crate::g711::mulaw_to_linear(b).unsigned_abs() > 4_000), "{name}");
        }
    }

    #[test]
    fn an_unknown_voice_is_refused_by_name() {
        let refused = load("builtin:nobody", Path::new(".")).unwrap_err();
        assert!(refused.to_string().contains("nobody"), "{refused}");
    }
}
