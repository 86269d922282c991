//! The only `unsafe` in the house: a WebRTC detector that may move to another thread.

use webrtc_vad::{SampleRate, Vad, VadMode};

/// libfvad's detector, fixed to 8 kHz. Moves between threads; is never shared.
pub(crate) struct SendableVad(Vad);

// SAFETY: `Vad` is not `Send` only because it holds a raw pointer. What it points to is one heap block, made by
// `fvad_new` and freed by `Drop`, that holds nothing but integers: no pointer into itself, no thread-local, no lock
// and no handle of a thread. libfvad keeps no mutable global (its tables are `const`). The pointer is private to `Vad`
// and not copied out, so the value that moves is the block's only owner. Every call into it below takes `&mut self`,
// and `SendableVad` is not `Sync`, so two threads never use the block at once.
#[allow(unsafe_code)]
unsafe impl Send for SendableVad {}

impl SendableVad {
    /// `aggressiveness` from 0 (calls most things speech) to 3. Panics only when memory is exhausted.
    pub(crate) fn new(aggressiveness: VadMode) -> Self {
        Self(Vad::new_with_rate_and_mode(SampleRate::Rate8kHz, aggressiveness))
    }

    /// Forgets the line's noise. The library's reset also forgets rate and mode, so both are set again.
    pub(crate) fn reset(&mut self, aggressiveness: VadMode) {
        self.0.reset();
        self.0.set_sample_rate(SampleRate::Rate8kHz);
        self.0.set_mode(aggressiveness);
    }

    /// Judges one frame of 80, 160 or 240 samples. `None` for any other length; the library itself would panic on an
    /// empty one.
    pub(crate) fn judge(&mut self, frame: &[i16]) -> Option<bool> {
        match frame.len() {
            80 | 160 | 240 => self.0.is_voice_segment(frame).ok(),
            _ => None,
        }
    }
}
