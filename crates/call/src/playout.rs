//! The bytes of what the agent says, from the model's burst until the paced core sends them. The core counts samples; one
//! byte of μ-law is one sample.

use std::collections::VecDeque;
use vocab::audio::{FRAME_BYTES, MULAW_SILENCE};
use vocab::{PlaybackId, Samples};

/// Memory kept between playbacks: ten seconds of speech.
const KEPT_BYTES: usize = 80_000;

#[derive(Default)]
struct Kept {
    playback: PlaybackId,
    /// The sample that the front byte is.
    start: Samples,
    bytes: VecDeque<u8>,
}

/// At most a few playbacks live at once: the one playing and those queued behind it.
#[derive(Default)]
pub(crate) struct Playout {
    live: Vec<Kept>,
    /// An emptied buffer for the next playback.
    spare: VecDeque<u8>,
}

impl Playout {
    /// Keeps audio that belongs at `from` of `playback`; the core hands it out in order.
    pub fn keep(&mut self, playback: PlaybackId, from: Samples, audio: &[u8]) {
        let place = match self.live.iter().position(|kept| kept.playback == playback) {
            Some(place) => place,
            None => {
                let bytes = std::mem::take(&mut self.spare);
                self.live.push(Kept { playback, start: from, bytes });
                self.live.len() - 1
            }
        };
        self.live[place].bytes.extend(audio);
    }

    /// Moves the samples `from..to` into `frame`, padded with silence to whole frames.
    pub fn take(&mut self, playback: PlaybackId, from: Samples, to: Samples, frame: &mut Vec<u8>) {
        frame.clear();
        if let Some(kept) = self.live.iter_mut().find(|kept| kept.playback == playback) {
            debug_assert_eq!(kept.start, from, "audio is sent in order");
            let count = ((to - from).0 as usize).min(kept.bytes.len());
            // By slices: the ring's own iterator would go byte by byte.
            let (front, back) = kept.bytes.as_slices();
            let in_front = count.min(front.len());
            frame.extend_from_slice(&front[..in_front]);
            frame.extend_from_slice(&back[..count - in_front]);
            kept.bytes.drain(..count);
            kept.start = to;
        }
        let whole = frame.len().div_ceil(FRAME_BYTES) * FRAME_BYTES;
        frame.resize(whole, MULAW_SILENCE);
    }

    /// No more of it will be sent.
    pub fn release(&mut self, playback: PlaybackId) {
        if let Some(place) = self.live.iter().position(|kept| kept.playback == playback) {
            let mut bytes = self.live.swap_remove(place).bytes;
            bytes.clear();
            bytes.shrink_to(KEPT_BYTES);
            if bytes.capacity() > self.spare.capacity() {
                self.spare = bytes;
            }
        }
    }

    #[cfg(test)]
    fn waiting_bytes(&self) -> usize {
        self.live.iter().map(|kept| kept.bytes.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audio_comes_out_in_order_and_the_end_is_padded_to_whole_frames() {
        let mut playout = Playout::default();
        let mut frame = Vec::new();
        playout.keep(PlaybackId(1), Samples(0), &[1; 200]);
        playout.keep(PlaybackId(1), Samples(200), &[2; 50]);
        playout.keep(PlaybackId(2), Samples(0), &[3; 160]);
        playout.take(PlaybackId(1), Samples(0), Samples(160), &mut frame);
        assert_eq!(frame, [1; 160]);
        playout.take(PlaybackId(1), Samples(160), Samples(250), &mut frame);
        assert_eq!((frame.len(), frame[39], frame[40], frame[89], frame[90]), (160, 1, 2, 2, MULAW_SILENCE));
        playout.release(PlaybackId(1));
        playout.take(PlaybackId(2), Samples(0), Samples(160), &mut frame);
        assert_eq!(frame, [3; 160]);
    }

    #[test]
    fn released_audio_is_gone_and_its_memory_serves_the_next() {
        let mut playout = Playout::default();
        let mut frame = Vec::new();
        playout.keep(PlaybackId(1), Samples(0), &[1; 1_000]);
        playout.release(PlaybackId(1));
        assert_eq!(playout.waiting_bytes(), 0);
        playout.keep(PlaybackId(2), Samples(0), &[2; 320]);
        playout.take(PlaybackId(2), Samples(0), Samples(320), &mut frame);
        assert_eq!(frame, [2; 320]);
        assert!(playout.spare.is_empty() && playout.live[0].bytes.capacity() >= 1_000);
    }
}
