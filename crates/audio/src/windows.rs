//! Cuts what comes in any length into the windows that a detector judges at once.

use vocab::audio::FRAME_BYTES;

/// 20 ms at 8 kHz, the carrier's frame.
pub(crate) const WINDOW: usize = FRAME_BYTES;

pub(crate) struct Windows {
    /// The start of a window whose end has not come yet.
    held: [i16; WINDOW],
    held_samples: usize,
}

impl Windows {
    pub(crate) const fn new() -> Self {
        Self { held: [0; WINDOW], held_samples: 0 }
    }

    /// Shows `judge` every window that ends inside `samples`. True when it called any of them speech, `None` when none
    /// ended.
    pub(crate) fn hear(&mut self, samples: &[i16], mut judge: impl FnMut(&[i16]) -> bool) -> Option<bool> {
        let mut rest = samples;
        let mut heard: Option<bool> = None;
        let mut note = |word: bool| heard = Some(heard.unwrap_or(false) || word);
        if self.held_samples > 0 {
            let (now, later) = rest.split_at(rest.len().min(WINDOW - self.held_samples));
            self.held[self.held_samples..self.held_samples + now.len()].copy_from_slice(now);
            self.held_samples += now.len();
            rest = later;
            if self.held_samples == WINDOW {
                self.held_samples = 0;
                note(judge(&self.held));
            }
        }
        // Whole windows are judged where they lie: the carrier's frame is never copied.
        let mut windows = rest.chunks_exact(WINDOW);
        for window in &mut windows {
            note(judge(window));
        }
        let tail = windows.remainder();
        if !tail.is_empty() {
            self.held[..tail.len()].copy_from_slice(tail);
            self.held_samples = tail.len();
        }
        heard
    }

    pub(crate) fn clear(&mut self) {
        self.held_samples = 0;
    }
}
