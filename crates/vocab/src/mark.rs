//! Names of carrier marks. The echo of a mark says neither "played" nor "cleared", so the name carries all that is
//! needed to judge it: the epoch, the playback and the offset. (Twilio, "WebSocket messages": mark, clear.)

use crate::{Epoch, PlaybackId, Samples};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum MarkName {
    /// All audio of `playback` up to `offset` was queued before this mark: `e3:p5:9600`.
    Played { epoch: Epoch, playback: PlaybackId, offset: Samples },
    /// Sent right after a `clear`; when it returns nothing of the epochs before it is outstanding: `f4`.
    Fence { epoch: Epoch },
}

impl MarkName {
    pub const fn epoch(self) -> Epoch {
        match self {
            Self::Played { epoch, .. } | Self::Fence { epoch } => epoch,
        }
    }
}

impl fmt::Display for MarkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Played { epoch, playback, offset } => write!(f, "{epoch}:{playback}:{}", offset.0),
            Self::Fence { epoch } => write!(f, "f{}", epoch.0),
        }
    }
}

/// The text is not the name of a mark that we send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotOurMark;

impl FromStr for MarkName {
    type Err = NotOurMark;
    fn from_str(text: &str) -> Result<Self, NotOurMark> {
        fn number(text: Option<&str>, prefix: &str) -> Result<u32, NotOurMark> {
            let digits = text.and_then(|t| t.strip_prefix(prefix)).ok_or(NotOurMark)?;
            // `parse` would take a sign; we never write one.
            if digits.bytes().all(|b| b.is_ascii_digit()) {
                digits.parse().map_err(|_| NotOurMark)
            } else {
                Err(NotOurMark)
            }
        }
        if text.starts_with('f') {
            return Ok(Self::Fence { epoch: Epoch(number(Some(text), "f")?) });
        }
        let mut parts = text.split(':');
        let epoch = Epoch(number(parts.next(), "e")?);
        let playback = PlaybackId(number(parts.next(), "p")?);
        let offset = Samples(number(parts.next(), "")?);
        if parts.next().is_some() {
            return Err(NotOurMark);
        }
        Ok(Self::Played { epoch, playback, offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_back_as_written() {
        for mark in [
            MarkName::Played { epoch: Epoch(3), playback: PlaybackId(5), offset: Samples(9_600) },
            MarkName::Fence { epoch: Epoch(4) },
        ] {
            assert_eq!(mark.to_string().parse(), Ok(mark));
        }
        assert_eq!(MarkName::Fence { epoch: Epoch(4) }.to_string(), "f4");
    }

    #[test]
    fn a_foreign_name_is_refused() {
        for text in [
            "",
            "f",
            "fx",
            "f-1",
            "e1",
            "e1:p2",
            "e1:p2:",
            "e1:p2:3:4",
            "e1:q2:3",
            "e1:p2:+3",
            "e1:p2:4294967296",
            "hello",
        ] {
            assert_eq!(text.parse::<MarkName>(), Err(NotOurMark), "{text}");
        }
    }
}
