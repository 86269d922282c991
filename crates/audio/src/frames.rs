//! Re-cuts a stream of μ-law or A-law bytes to whole carrier frames. Model deltas come in any size, and pieces that are
//! no multiple of a frame, sent in separate bursts, are heard as jitter: the remainder waits for the next piece.

use vocab::audio::FRAME_BYTES;

/// Cuts to multiples of 160 bytes (20 ms). Keeps at most 159 bytes between calls and never allocates by itself.
#[derive(Clone, Debug)]
pub struct FrameCutter {
    held: [u8; FRAME_BYTES],
    held_bytes: usize,
}

impl Default for FrameCutter {
    fn default() -> Self {
        Self::new()
    }
}

impl FrameCutter {
    pub const fn new() -> Self {
        Self { held: [0; FRAME_BYTES], held_bytes: 0 }
    }

    /// Appends to `frames` every whole frame that `bytes` completes, in order, and holds the rest back.
    pub fn push(&mut self, bytes: &[u8], frames: &mut Vec<u8>) {
        let whole = (self.held_bytes + bytes.len()) / FRAME_BYTES * FRAME_BYTES;
        if whole == 0 {
            self.hold(bytes);
            return;
        }
        let (now, later) = bytes.split_at(whole - self.held_bytes);
        frames.extend_from_slice(&self.held[..self.held_bytes]);
        frames.extend_from_slice(now);
        self.held_bytes = 0;
        self.hold(later);
    }

    /// Appends what is held, as it is (0 to 159 bytes, no padding: padding would delay the next sound and its marks).
    /// For the end of a response.
    pub fn flush(&mut self, frames: &mut Vec<u8>) {
        frames.extend_from_slice(&self.held[..self.held_bytes]);
        self.held_bytes = 0;
    }

    /// Forgets what is held: the sound it belongs to was cleared. Says how many bytes went.
    pub fn discard(&mut self) -> usize {
        std::mem::take(&mut self.held_bytes)
    }

    /// Bytes held back, 0 to 159.
    pub const fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    fn hold(&mut self, bytes: &[u8]) {
        self.held[self.held_bytes..self.held_bytes + bytes.len()].copy_from_slice(bytes);
        self.held_bytes += bytes.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(length: usize) -> Vec<u8> {
        (0..length).map(|n| (n % 251) as u8).collect()
    }

    #[test]
    fn any_cutting_of_a_stream_comes_out_the_same_and_whole() {
        let sound = ramp(4_000);
        for piece in [1, 7, 159, 160, 161, 320, 479, 3_999, 4_000] {
            let mut cutter = FrameCutter::new();
            let mut all = Vec::new();
            for bytes in sound.chunks(piece) {
                let before = all.len();
                cutter.push(bytes, &mut all);
                assert_eq!((all.len() - before) % FRAME_BYTES, 0, "pieces of {piece}");
                assert!(cutter.held_bytes() < FRAME_BYTES);
            }
            cutter.flush(&mut all);
            assert_eq!(all, sound, "pieces of {piece}");
            assert_eq!(cutter.held_bytes(), 0);
        }
    }

    #[test]
    fn a_remainder_waits_until_it_is_flushed() {
        let mut cutter = FrameCutter::new();
        let mut out = Vec::new();
        cutter.push(&ramp(100), &mut out);
        assert!(out.is_empty());
        cutter.flush(&mut out);
        assert_eq!(out, ramp(100));
        cutter.flush(&mut out);
        assert_eq!(out.len(), 100, "nothing is flushed twice");
    }

    #[test]
    fn a_discarded_remainder_never_sounds() {
        let mut cutter = FrameCutter::new();
        let mut out = Vec::new();
        cutter.push(&[1; 150], &mut out);
        assert_eq!(cutter.discard(), 150);
        cutter.push(&[2; 160], &mut out);
        assert_eq!(out, [2; 160]);
    }
}
