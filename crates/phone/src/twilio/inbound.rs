//! Caller audio on its way in: what is a gap, what is only late, what came twice. Pure; arrival times come from the driver.
//!
//! A late burst and a real gap look the same by arrival time. Only the carrier's media timestamp tells them apart, so
//! gaps are judged by it alone, and the clock is asked for one thing: whether the line has stalled.

use super::wire::MediaFrame;
use vocab::{CallTime, Samples};

/// Steps of the timestamp are 20 ms within this much (19.97 on average in a capture): not a gap.
pub const TIMESTAMP_SLACK: Samples = Samples::from_ms(2);
/// Longest silence put in place of one gap.
pub const PAD_LIMIT: Samples = Samples::from_ms(10_000);
/// Nothing arriving for this long while the caller speaks is a stall. Deliveries up to 233 ms late were measured as normal.
pub const STALL_AFTER_MS: u64 = 750;
/// The silence that lets an end of turn be heard in spite of a stall.
pub const STALL_SILENCE: Samples = Samples::from_ms(1_000);
/// A chunk that is at most this many behind the newest is late or repeated (a second of frames); more is a restarted count.
const LATE_CHUNKS: u32 = 50;

/// What to do with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Hear `silence` (μ-law 0xff) and then the frame. Zero almost always.
    Heard { silence: Samples },
    /// The frame came before, or its place was filled already: drop it.
    Repeated,
}

/// Counted over the stream, for metrics and the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct InboundCounts {
    pub frames: u64,
    pub gaps: u64,
    pub padded: u64,
    pub repeated: u64,
    /// Chunk numbers that never came in their place.
    pub missing_chunks: u64,
    /// Times that the timestamp went backwards.
    pub resyncs: u64,
    pub stalls: u64,
}

/// The caller's side of one stream.
#[derive(Clone, Debug, Default)]
pub struct InboundAudio {
    /// Where the next frame should start, in samples of the carrier's media clock.
    expected: Option<u64>,
    newest_chunk: Option<u32>,
    /// Repeats in a row: a clone that never counts must not make us deaf.
    repeats: u32,
    distrust_chunks: bool,
    last_arrival: Option<CallTime>,
    /// Silence was injected and no frame came since: the gap is filled.
    stalled: bool,
    counts: InboundCounts,
}

impl InboundAudio {
    pub fn new() -> Self {
        Self::default()
    }

    pub const fn counts(&self) -> InboundCounts {
        self.counts
    }

    /// Places a frame of `length` samples that arrived at `at`.
    pub fn place(&mut self, at: CallTime, frame: &MediaFrame, length: Samples) -> Placement {
        self.last_arrival = Some(at);
        let start = frame.timestamp.map(|timestamp| u64::from(timestamp.0) * u64::from(vocab::audio::SAMPLES_PER_MS));
        if self.is_repeated(frame.chunk, start) {
            self.counts.repeated += 1;
            self.repeats += 1;
            self.distrust_chunks = self.repeats >= LATE_CHUNKS;
            return Placement::Repeated;
        }
        self.repeats = 0;
        self.counts.frames += 1;
        if let (Some(newest), Some(chunk)) = (self.newest_chunk, frame.chunk) {
            self.counts.missing_chunks += u64::from(chunk.saturating_sub(newest.saturating_add(1)));
        }
        self.newest_chunk = frame.chunk.or(self.newest_chunk);
        let silence = self.gap_before(start);
        let start = start.or(self.expected);
        self.expected = start.map(|start| start + u64::from(length.0));
        self.stalled = false;
        Placement::Heard { silence }
    }

    /// When to call [`inject_silence`] if no frame comes before; `None` while there is nothing to wait for.
    ///
    /// [`inject_silence`]: Self::inject_silence
    pub fn stall_due(&self, caller_speaking: bool) -> Option<CallTime> {
        if caller_speaking && !self.stalled { Some(self.last_arrival?.plus_ms(STALL_AFTER_MS)) } else { None }
    }

    /// If the line has stalled while the caller was speaking, the silence to hear now: once a stall, and its gap is not
    /// padded again when frames resume.
    pub fn inject_silence(&mut self, at: CallTime, caller_speaking: bool) -> Option<Samples> {
        if self.stall_due(caller_speaking)? > at {
            return None;
        }
        self.stalled = true;
        self.counts.stalls += 1;
        self.counts.padded += u64::from(STALL_SILENCE.0);
        Some(STALL_SILENCE)
    }

    /// A chunk at or behind the newest one, by a little, whose place in time has passed too. The second condition lets a
    /// sender with a broken count be heard as long as its clock runs.
    fn is_repeated(&self, chunk: Option<u32>, start: Option<u64>) -> bool {
        let (Some(newest), Some(chunk)) = (self.newest_chunk, chunk) else { return false };
        let passed = match (self.expected, start) {
            (Some(expected), Some(start)) => start + u64::from(TIMESTAMP_SLACK.0) < expected,
            (None, _) | (_, None) => true,
        };
        !self.distrust_chunks && passed && chunk <= newest && newest - chunk < LATE_CHUNKS
    }

    fn gap_before(&mut self, start: Option<u64>) -> Samples {
        let (Some(expected), Some(start)) = (self.expected, start) else { return Samples::ZERO };
        let slack = u64::from(TIMESTAMP_SLACK.0);
        if start + slack < expected {
            self.counts.resyncs += 1;
            return Samples::ZERO;
        }
        let gap = start.saturating_sub(expected);
        if gap <= slack {
            return Samples::ZERO;
        }
        self.counts.gaps += 1;
        if self.stalled {
            return Samples::ZERO;
        }
        let silence = Samples(gap.min(u64::from(PAD_LIMIT.0)) as u32);
        self.counts.padded += u64::from(silence.0);
        silence
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vocab::AudioMs;

    const FRAME: Samples = Samples::from_ms(20);

    fn frame(chunk: u32, timestamp: u32) -> MediaFrame {
        MediaFrame { chunk: Some(chunk), timestamp: Some(AudioMs(timestamp)), sequence: None }
    }
    fn heard(ms: u32) -> Placement {
        Placement::Heard { silence: Samples::from_ms(ms) }
    }
    fn place(line: &mut InboundAudio, at_ms: u64, chunk: u32, timestamp: u32) -> Placement {
        line.place(CallTime::from_ms(at_ms), &frame(chunk, timestamp), FRAME)
    }

    #[test]
    fn the_first_frame_is_heard_as_it_is_though_its_clock_is_not_zero() {
        let mut line = InboundAudio::new();
        assert_eq!(place(&mut line, 0, 1, 155), heard(0));
    }

    #[test]
    fn steps_within_two_milliseconds_are_no_gap_and_do_not_add_up() {
        let mut line = InboundAudio::new();
        let mut timestamp = 155;
        for chunk in 1..500 {
            assert_eq!(place(&mut line, 0, chunk, timestamp), heard(0), "chunk {chunk}");
            timestamp += [20, 22, 18, 20, 21][chunk as usize % 5];
        }
        assert_eq!(line.counts(), InboundCounts { frames: 499, ..Default::default() });
    }

    #[test]
    fn a_jump_of_the_clock_is_filled_with_that_much_silence() {
        let mut line = InboundAudio::new();
        place(&mut line, 0, 1, 100);
        assert_eq!(place(&mut line, 20, 2, 123), heard(3));
        assert_eq!(place(&mut line, 1_000, 3, 1_143), heard(1_000));
        assert_eq!(place(&mut line, 1_020, 4, 1_163), heard(0));
        assert_eq!(line.counts().padded, 8 * 1_003);
    }

    #[test]
    fn no_gap_is_filled_beyond_ten_seconds() {
        let mut line = InboundAudio::new();
        place(&mut line, 0, 1, 100);
        assert_eq!(place(&mut line, 20, 2, 3_600_000), heard(10_000));
        assert_eq!(place(&mut line, 40, 3, 3_600_020), heard(0));
        assert_eq!(place(&mut line, 60, 4, u32::MAX), heard(10_000));
    }

    #[test]
    fn a_late_burst_is_no_gap() {
        let mut line = InboundAudio::new();
        place(&mut line, 0, 1, 100);
        for chunk in 2..20 {
            assert_eq!(place(&mut line, 2_000, chunk, 80 + 20 * chunk), heard(0));
        }
    }

    #[test]
    fn a_clock_that_goes_back_is_followed_without_silence() {
        let mut line = InboundAudio::new();
        place(&mut line, 0, 1, 5_000);
        assert_eq!(place(&mut line, 20, 2, 60), heard(0));
        assert_eq!(place(&mut line, 40, 3, 80), heard(0));
        assert_eq!(line.counts().resyncs, 1);
    }

    #[test]
    fn frames_of_any_length_are_expected_to_last_as_long_as_they_are() {
        let mut line = InboundAudio::new();
        line.place(CallTime(0), &frame(1, 100), Samples(240));
        assert_eq!(line.place(CallTime(0), &frame(2, 130), Samples(800)), heard(0));
        assert_eq!(line.place(CallTime(0), &frame(3, 230), Samples(0)), heard(0));
        assert_eq!(line.place(CallTime(0), &frame(4, 230), Samples(160)), heard(0));
    }

    #[test]
    fn a_frame_that_came_before_or_comes_after_its_place_was_filled_is_dropped() {
        let mut line = InboundAudio::new();
        place(&mut line, 0, 1, 100);
        place(&mut line, 20, 2, 120);
        assert_eq!(place(&mut line, 21, 2, 120), Placement::Repeated);
        assert_eq!(place(&mut line, 40, 4, 160), heard(20));
        assert_eq!(place(&mut line, 41, 3, 140), Placement::Repeated);
        assert_eq!(place(&mut line, 60, 5, 180), heard(0));
        assert_eq!((line.counts().repeated, line.counts().missing_chunks), (2, 1));
    }

    #[test]
    fn a_count_that_starts_again_is_followed() {
        let mut line = InboundAudio::new();
        for chunk in 1..200 {
            place(&mut line, 0, chunk, 80 + 20 * chunk);
        }
        assert_eq!(place(&mut line, 0, 1, 90), heard(0));
        assert_eq!(place(&mut line, 0, 2, 110), heard(0));
    }

    #[test]
    fn a_sender_that_never_counts_is_deaf_to_us_for_a_second_at_most() {
        let mut line = InboundAudio::new();
        let placements: Vec<_> = (0..200).map(|_| place(&mut line, 0, 1, 0)).collect();
        assert_eq!(placements.iter().filter(|&&p| p == Placement::Repeated).count(), LATE_CHUNKS as usize);
        assert_eq!(placements.last(), Some(&heard(0)));
        // One whose clock runs is heard from the start.
        let mut line = InboundAudio::new();
        assert!((0..100).all(|n| place(&mut line, 0, 1, 20 * n) == heard(0)));
    }

    #[test]
    fn frames_without_labels_are_simply_heard() {
        let mut line = InboundAudio::new();
        let bare = MediaFrame { chunk: None, timestamp: None, sequence: None };
        assert_eq!(line.place(CallTime(0), &bare, FRAME), heard(0));
        place(&mut line, 0, 7, 100);
        assert_eq!(line.place(CallTime(0), &bare, FRAME), heard(0));
        assert_eq!(place(&mut line, 0, 9, 140), heard(0));
    }

    #[test]
    fn a_stall_in_speech_is_filled_once_and_its_gap_not_again() {
        let mut line = InboundAudio::new();
        assert_eq!(line.stall_due(true), None, "nothing has come yet");
        place(&mut line, 1_000, 1, 100);
        assert_eq!(line.stall_due(true), Some(CallTime::from_ms(1_750)));
        assert_eq!(line.inject_silence(CallTime::from_ms(1_749), true), None);
        assert_eq!(line.inject_silence(CallTime::from_ms(1_750), true), Some(Samples::from_ms(1_000)));
        assert_eq!(line.stall_due(true), None);
        assert_eq!(line.inject_silence(CallTime::from_ms(9_000), true), None);
        assert_eq!(place(&mut line, 5_000, 2, 4_120), heard(0), "filled already");
        assert_eq!(place(&mut line, 5_020, 3, 4_200), heard(60), "a new gap");
        assert_eq!(line.stall_due(true), Some(CallTime::from_ms(5_770)), "a new stall");
    }

    #[test]
    fn a_stall_in_quiet_is_left_alone() {
        let mut line = InboundAudio::new();
        place(&mut line, 1_000, 1, 100);
        assert_eq!(line.inject_silence(CallTime::from_ms(60_000), false), None);
        assert_eq!(place(&mut line, 60_000, 2, 2_120), heard(2_000));
    }
}
