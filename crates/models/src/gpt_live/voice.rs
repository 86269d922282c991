//! Where the model's voice begins and ends in a stream that never stops: the service sends silence as well, and no event
//! says that a turn is done (realtime-models.md, B5).
//!
//! What is kept from the caller is the silence between stretches, so that a delay once banked is given back. Within a stretch
//! a short pause passes as it is. A longer one is let go after [`TAIL_MS`]: it is in the stream's own time already, and a
//! caller who answers during it has heard everything.

use audio::g711::MULAW;
use audio::level_dbfs;
use vocab::audio::{FRAME_BYTES, FRAME_MS};

/// A frame above this level is voice. The service's silence is digital (-96) but for a tick at -66 when a session opens, and
/// its speech starts near -44: half-way.
pub const VOICE_DBFS: i8 = -54;
/// Voice in a row that makes an onset: a click is shorter.
const ONSET_FRAMES: u32 = 2;
/// Sound from before an onset that belongs to it, the onset's own frames included: consonants are softer than the gate. It is
/// also the lead that the playback gets over a network that jitters.
pub const PREROLL_MS: u32 = 100;
/// Silence after the last voice that still belongs to a stretch: words end softly.
pub const TAIL_MS: u32 = 200;
/// A gap this long ends a stretch. Public bridges to this service use the same.
pub const GAP_MS: u32 = 800;
/// A pause this long ends a breath that is thrown away: below any turn gap, above the pauses within words.
pub const BREATH_GAP_MS: u32 = 300;
/// A model that does not yield is let through again after this: it has not taken the interruption for one.
pub const BREATH_MS: u32 = 5_000;
/// Longest that a transcript's word alone keeps a stretch open over silence.
const WORDS_HOLD_MS: u64 = 2_000;

const PREROLL_BYTES: usize = (PREROLL_MS / FRAME_MS) as usize * FRAME_BYTES;

/// What a frame is to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Not for the caller.
    Nothing,
    /// A stretch begins: all of [`Voice::held`] is its sound so far.
    Onset,
    /// All of [`Voice::held`] belongs to the stretch that goes on.
    Sound,
    /// The stretch has ended, [`GAP_MS`] ago.
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum State {
    #[default]
    Quiet,
    Speaking,
    /// The rest of a breath, of which this much has gone by.
    Discarding {
        for_ms: u32,
    },
}

#[derive(Debug, Default)]
pub struct Voice {
    state: State,
    /// The frame that is being filled.
    frame: Vec<u8>,
    /// Sound that the caller has not been given: the last moments of silence, or what [`Heard`] says.
    held: Vec<u8>,
    linear: Vec<i16>,
    voiced_frames: u32,
    quiet_ms: u32,
    /// The stretch pauses for longer than its tail; only an onset goes on with it.
    pausing: bool,
    /// End of the last whole frame on the session's timeline.
    position_ms: u64,
    /// The transcript says that the model speaks until here.
    words_until_ms: u64,
}

impl Voice {
    /// How far the stream has come: the audio is continuous, so its length is the time.
    pub const fn position_ms(&self) -> u64 {
        self.position_ms
    }

    pub const fn is_speaking(&self) -> bool {
        matches!(self.state, State::Speaking)
    }

    pub const fn is_discarding(&self) -> bool {
        matches!(self.state, State::Discarding { .. })
    }

    /// Where the voice was last loud.
    pub fn voiced_until_ms(&self) -> u64 {
        self.position_ms.saturating_sub(u64::from(self.quiet_ms))
    }

    /// The service said where its audio is; only ever forwards, since frames may have been dropped and never repeat.
    pub fn is_at(&mut self, start_ms: u64) {
        self.position_ms = self.position_ms.max(start_ms);
    }

    /// A piece of transcript says that there is voice until then. Quiet voices are helped by it, and silence is not made voice.
    pub fn words_until(&mut self, end_ms: u64) {
        self.words_until_ms = self.words_until_ms.max(end_ms);
    }

    /// Fills the current frame from `audio`, and says how much of it was taken and, of a whole frame, what it is.
    pub fn take(&mut self, audio: &[u8]) -> (usize, Option<Heard>) {
        let missing = FRAME_BYTES - self.frame.len();
        let taken = missing.min(audio.len());
        self.frame.extend_from_slice(&audio[..taken]);
        let heard = (self.frame.len() == FRAME_BYTES).then(|| self.judge());
        (taken, heard)
    }

    /// Sound of the stretch, after [`Heard::Onset`] and [`Heard::Sound`]; taken by reading it.
    pub fn take_held(&mut self, into: &mut Vec<u8>) -> usize {
        let bytes = self.held.len();
        into.extend_from_slice(&self.held);
        self.held.clear();
        bytes
    }

    /// The caller is not to hear the rest of this breath. A voice that has paused already has no rest.
    pub fn discard(&mut self) {
        self.state = if self.is_speaking() && self.quiet_ms < BREATH_GAP_MS {
            State::Discarding { for_ms: 0 }
        } else {
            State::Quiet
        };
        self.held.clear();
        self.voiced_frames = 0;
    }

    /// The stream has stopped coming: whatever was being said is over.
    pub fn stop(&mut self) {
        self.state = State::Quiet;
        self.frame.clear();
        self.held.clear();
        self.voiced_frames = 0;
    }

    fn judge(&mut self) -> Heard {
        MULAW.decode(&self.frame, &mut self.linear);
        let voiced = level_dbfs(&self.linear) > VOICE_DBFS;
        self.position_ms += u64::from(FRAME_MS);
        self.voiced_frames = if voiced { self.voiced_frames + 1 } else { 0 };
        self.quiet_ms = if voiced { 0 } else { self.quiet_ms.saturating_add(FRAME_MS) };
        let heard = match self.state {
            State::Quiet => self.while_quiet(),
            State::Speaking => self.while_speaking(),
            State::Discarding { for_ms } => self.while_discarding(for_ms + FRAME_MS),
        };
        self.frame.clear();
        heard
    }

    fn while_quiet(&mut self) -> Heard {
        self.hold();
        // Where words are expected, the first loud frame is their beginning.
        let enough = if self.words_until_ms >= self.position_ms { 1 } else { ONSET_FRAMES };
        if self.voiced_frames < enough {
            return Heard::Nothing;
        }
        self.state = State::Speaking;
        self.pausing = false;
        Heard::Onset
    }

    fn while_speaking(&mut self) -> Heard {
        let by_words = self.words_until_ms.min(self.voiced_until_ms() + WORDS_HOLD_MS);
        let words_are_over = by_words + u64::from(GAP_MS) <= self.position_ms;
        if self.quiet_ms >= GAP_MS && words_are_over {
            self.hold();
            self.state = State::Quiet;
            return Heard::Ended;
        }
        if self.quiet_ms > TAIL_MS {
            self.pausing = true;
        } else if self.voiced_frames >= ONSET_FRAMES {
            self.pausing = false;
        }
        self.hold();
        // A pause, or the first sound after one, is kept back until it is known what it is.
        if self.pausing { Heard::Nothing } else { Heard::Sound }
    }

    fn while_discarding(&mut self, for_ms: u32) -> Heard {
        self.hold();
        if self.quiet_ms >= BREATH_GAP_MS {
            self.state = State::Quiet;
        } else if for_ms >= BREATH_MS {
            // What comes now is new voice, and begins as such.
            self.state = State::Quiet;
            self.held.clear();
            self.voiced_frames = 0;
        } else {
            self.state = State::Discarding { for_ms };
        }
        Heard::Nothing
    }

    /// Keeps the frame among the last moments.
    fn hold(&mut self) {
        self.held.extend_from_slice(&self.frame);
        let over = self.held.len().saturating_sub(PREROLL_BYTES);
        self.held.drain(..over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOUD: u8 = 0x10;
    const SILENT: u8 = 0xff;

    /// A sound as its bytes with their lengths in milliseconds.
    type Parts = Vec<(u8, u32)>;

    /// What a caller would be given of `parts`, fed in pieces of `piece` bytes: onsets, ends, and the sound.
    fn told(voice: &mut Voice, parts: &[(u8, u32)], piece: usize) -> (u32, u32, Parts) {
        let sound: Vec<u8> = parts.iter().flat_map(|(byte, ms)| std::iter::repeat_n(*byte, *ms as usize * 8)).collect();
        let (mut onsets, mut ends, mut bytes) = (0, 0, Vec::new());
        for mut rest in sound.chunks(piece) {
            while !rest.is_empty() {
                let (taken, heard) = voice.take(rest);
                rest = &rest[taken..];
                match heard {
                    Some(Heard::Onset) => {
                        onsets += 1;
                        voice.take_held(&mut bytes);
                    }
                    Some(Heard::Sound) => {
                        voice.take_held(&mut bytes);
                    }
                    Some(Heard::Ended) => ends += 1,
                    Some(Heard::Nothing) | None => {}
                }
            }
        }
        let parts = bytes.chunk_by(|one, other| one == other).map(|part| (part[0], part.len() as u32 / 8));
        (onsets, ends, parts.collect())
    }

    #[test]
    fn a_stretch_has_its_short_pauses_a_preroll_and_a_tail_in_pieces_of_any_size() {
        for piece in [1, 7, 160, 640, 100_000] {
            let mut voice = Voice::default();
            let speech = [(SILENT, 2_000), (LOUD, 400), (SILENT, 160), (LOUD, 300), (SILENT, 1_000)];
            let (onsets, ends, given) = told(&mut voice, &speech, piece);
            assert_eq!((onsets, ends), (1, 1), "{piece}");
            // 60 ms of what was before the onset's 40 ms.
            assert_eq!(given, [(SILENT, 60), (LOUD, 400), (SILENT, 160), (LOUD, 300), (SILENT, 200)]);
            assert_eq!(voice.position_ms(), 3_860);
        }
    }

    #[test]
    fn a_long_pause_is_let_go_and_what_follows_is_the_same_stretch_with_its_onset() {
        let mut voice = Voice::default();
        let speech = [(LOUD, 400), (SILENT, 700), (LOUD, 200), (SILENT, 1_000)];
        let (onsets, ends, given) = told(&mut voice, &speech, 160);
        assert_eq!((onsets, ends), (1, 1));
        assert_eq!(given, [(LOUD, 400), (SILENT, 260), (LOUD, 200), (SILENT, 200)]);
    }

    #[test]
    fn a_click_and_the_tick_at_the_start_are_no_voice() {
        let mut voice = Voice::default();
        // 0xfc is 24 of 32768: about the level of the tick.
        let noise = [(0xfc, 400), (SILENT, 100), (LOUD, 20), (SILENT, 300)];
        assert_eq!(told(&mut voice, &noise, 160), (0, 0, vec![]));
    }

    #[test]
    fn the_transcript_keeps_a_stretch_open_but_not_for_ever() {
        let mut voice = Voice::default();
        let (_, ends, _) = told(&mut voice, &[(LOUD, 200), (SILENT, 100)], 160);
        assert_eq!(ends, 0);
        voice.words_until(1_500);
        assert_eq!(told(&mut voice, &[(SILENT, 1_980)], 160).1, 0);
        assert_eq!(told(&mut voice, &[(SILENT, 20)], 160).1, 1);
        let mut voice = Voice::default();
        voice.words_until(u64::MAX);
        assert_eq!(told(&mut voice, &[(LOUD, 200), (SILENT, 2_780)], 160).1, 0);
        assert_eq!(told(&mut voice, &[(SILENT, 40)], 160).1, 1);
    }

    #[test]
    fn a_discarded_breath_is_thrown_away_until_a_pause_or_the_bound() {
        let mut voice = Voice::default();
        told(&mut voice, &[(LOUD, 400)], 160);
        voice.discard();
        assert!(!voice.is_speaking());
        assert_eq!(told(&mut voice, &[(LOUD, 1_000), (SILENT, 200), (LOUD, 400)], 160), (0, 0, vec![]));
        let (onsets, _, given) = told(&mut voice, &[(SILENT, 300), (LOUD, 400)], 160);
        assert_eq!((onsets, given), (1, vec![(SILENT, 60), (LOUD, 400)]));
        voice.discard();
        let (onsets, _, given) = told(&mut voice, &[(LOUD, BREATH_MS + 100)], 160);
        assert_eq!((onsets, given), (1, vec![(LOUD, 100)]), "a model that does not yield is heard again");
    }

    #[test]
    fn a_voice_that_has_paused_already_has_no_rest_to_throw_away() {
        let mut voice = Voice::default();
        told(&mut voice, &[(LOUD, 400), (SILENT, 400)], 160);
        voice.discard();
        assert_eq!(told(&mut voice, &[(LOUD, 100)], 160).0, 1);
    }
}
