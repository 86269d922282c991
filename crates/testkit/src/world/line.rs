//! The carrier's end of one stream: plays what arrives in real time, returns marks, obeys clears; and knows what the caller
//! truly heard, which nobody else does.

use super::queue::{MS, Micros};
use vocab::audio::FRAME_BYTES;
use vocab::{MarkName, PlaybackId, Samples};

#[derive(Clone, Copy, Debug)]
struct Segment {
    playback: PlaybackId,
    length: Samples,
    start: Micros,
    /// With the padding of the last frame.
    end: Micros,
}

#[derive(Debug, Default)]
pub struct Line {
    /// From us to the carrier, and back.
    pub up_ms: u64,
    pub down_ms: u64,
    /// What has played, and what will if nobody clears it.
    segments: Vec<Segment>,
    play_end: Micros,
    marks: Vec<(u32, MarkName)>,
    last_mark: u32,
    /// Messages stay in order both ways.
    pub last_up: Micros,
    pub last_down: Micros,
    /// Clears that the carrier has not seen yet: what still sounds is as good as gone.
    pub clears_under_way: u32,
    /// A mark was dropped or came back late: what we believe may be less than what was heard.
    pub disturbed: bool,
}

impl Line {
    pub fn new(up_ms: u64, down_ms: u64) -> Self {
        Self { up_ms, down_ms, ..Self::default() }
    }

    /// Returns whether the line was silent before.
    pub fn audio(&mut self, now: Micros, playback: PlaybackId, length: Samples) -> bool {
        let was_silent = self.play_end <= now;
        let start = self.play_end.max(now);
        let frame = FRAME_BYTES as u32;
        let end = start + micros(Samples(length.0.div_ceil(frame) * frame));
        self.segments.push(Segment { playback, length, start, end });
        self.play_end = end;
        was_silent
    }

    /// When it comes back if nothing is cleared, and its number.
    pub fn mark(&mut self, now: Micros, mark: MarkName) -> (Micros, u32) {
        self.last_mark += 1;
        self.marks.push((self.last_mark, mark));
        (self.play_end.max(now), self.last_mark)
    }

    /// All before it has played.
    pub fn take_mark(&mut self, number: u32) -> Option<MarkName> {
        let place = self.marks.iter().position(|(known, _)| *known == number)?;
        Some(self.marks.remove(place).1)
    }

    /// What had not played is gone. Returns the outstanding marks.
    pub fn clear(&mut self, now: Micros) -> Vec<MarkName> {
        self.clears_under_way = self.clears_under_way.saturating_sub(1);
        self.segments.retain(|segment| segment.start < now);
        for segment in &mut self.segments {
            if segment.end > now {
                segment.end = now;
                segment.length = segment.length.min(samples(now - segment.start));
            }
        }
        self.play_end = self.play_end.min(now);
        std::mem::take(&mut self.marks).into_iter().map(|(_, mark)| mark).collect()
    }

    /// The caller hears us at this moment.
    pub fn sounds(&self, now: Micros) -> bool {
        self.play_end > now
    }

    /// How much of it the caller has truly heard by now.
    pub fn heard_of(&self, now: Micros, playback: PlaybackId) -> Samples {
        self.segments
            .iter()
            .filter(|segment| segment.playback == playback && segment.start < now)
            .fold(Samples::ZERO, |sum, segment| sum + segment.length.min(samples(now - segment.start)))
    }
}

pub fn micros(length: Samples) -> Micros {
    u64::from(length.0) * MS / 8
}

fn samples(time: Micros) -> Samples {
    Samples(u32::try_from(time * 8 / MS).unwrap_or(u32::MAX))
}
