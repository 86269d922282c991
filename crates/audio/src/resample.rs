//! Change of sample rate, for providers and detectors that do not take 8 kHz. Others get the carrier's bytes untouched.
//!
//! rubato's FFT resampler over blocks of 20 ms. It delays the sound by half a block, 10 ms each way
//! ([`Resampler::output_delay`]); count that in the latency budget, on top of the wait for a block to fill.

use audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Fft, FixedSync, Resampler as _};

/// The rates of telephone lines and speech models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rate {
    Hz8000,
    Hz16000,
    Hz24000,
}

impl Rate {
    pub const fn hz(self) -> usize {
        match self {
            Self::Hz8000 => 8_000,
            Self::Hz16000 => 16_000,
            Self::Hz24000 => 24_000,
        }
    }

    /// Samples in 20 ms.
    pub const fn block_samples(self) -> usize {
        self.hz() / 50
    }
}

/// One direction of one call. Keeps the tail of its filter: never share one between two sounds without [`reset`].
///
/// [`reset`]: Resampler::reset
pub struct Resampler {
    from: Rate,
    to: Rate,
    /// `None` when both rates are equal: samples pass through.
    fft: Option<Fft<f32>>,
    /// One block of input; the first `filled` samples are waiting.
    input: Vec<f32>,
    filled: usize,
    output: Vec<f32>,
}

impl Resampler {
    /// Builds the filter: about 50 µs and a few kilobytes, once a call and direction.
    pub fn new(from: Rate, to: Rate) -> Self {
        let fft = (from != to).then(|| {
            // Cannot fail: both rates are positive and the block is not empty.
            Fft::new(from.hz(), to.hz(), from.block_samples(), 1, FixedSync::Both).expect("fixed, valid rates")
        });
        Self { from, to, fft, input: vec![0.0; from.block_samples()], filled: 0, output: vec![0.0; to.block_samples()] }
    }

    pub const fn from(&self) -> Rate {
        self.from
    }

    pub const fn to(&self) -> Rate {
        self.to
    }

    /// How much later the sound comes out than it went in, in samples at the output rate: half a block, or nothing when
    /// the rates are equal.
    pub fn output_delay(&self) -> usize {
        self.fft.as_ref().map_or(0, |fft| fft.output_delay())
    }

    /// Appends to `output` the resampled form of every whole 20 ms block that `samples` completes. The rest waits.
    pub fn push(&mut self, samples: &[i16], output: &mut Vec<i16>) {
        if self.fft.is_none() {
            output.extend_from_slice(samples);
            return;
        }
        let mut rest = samples;
        while !rest.is_empty() {
            let take = rest.len().min(self.input.len() - self.filled);
            let (now, later) = rest.split_at(take);
            for (slot, &sample) in self.input[self.filled..].iter_mut().zip(now) {
                *slot = f32::from(sample);
            }
            self.filled += take;
            rest = later;
            if self.filled == self.input.len() {
                self.block(output);
            }
        }
    }

    /// Ends the sound: appends what is waiting and what is still in the filter, cut to the length that the input had
    /// at the output rate plus the delay. Afterwards the resampler is as new.
    pub fn flush(&mut self, output: &mut Vec<i16>) {
        if self.fft.is_some() {
            let owed = self.filled * self.to.block_samples() / self.from.block_samples() + self.output_delay();
            let end = output.len() + owed;
            while output.len() < end {
                self.input[self.filled..].fill(0.0);
                self.block(output);
            }
            output.truncate(end);
        }
        self.reset();
    }

    /// Forgets the waiting samples and the filter's tail: the sound was cleared.
    pub fn reset(&mut self) {
        self.filled = 0;
        if let Some(fft) = &mut self.fft {
            fft.reset();
        }
    }

    fn block(&mut self, output: &mut Vec<i16>) {
        self.filled = 0;
        let Some(fft) = &mut self.fft else { return };
        let (in_frames, out_frames) = (self.input.len(), self.output.len());
        let input = InterleavedSlice::new(&self.input, 1, in_frames).expect("one channel of the buffer's own length");
        let mut resampled =
            InterleavedSlice::new_mut(&mut self.output, 1, out_frames).expect("one channel of the buffer's own length");
        fft.process_into_buffer(&input, &mut resampled, None).expect("both buffers are one block long");
        // `as` saturates: an overshoot of the filter clips instead of wrapping.
        output.extend(self.output.iter().map(|&sample| sample.round() as i16));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sine(rate: Rate, hz: f32, samples: usize) -> Vec<i16> {
        (0..samples)
            .map(|n| (10_000.0 * (n as f32 * hz * std::f32::consts::TAU / rate.hz() as f32).sin()) as i16)
            .collect()
    }

    fn resampled(from: Rate, to: Rate, sound: &[i16], piece: usize) -> Vec<i16> {
        let mut resampler = Resampler::new(from, to);
        let mut out = Vec::new();
        for part in sound.chunks(piece) {
            resampler.push(part, &mut out);
        }
        resampler.flush(&mut out);
        out
    }

    const PAIRS: [(Rate, Rate); 4] = [
        (Rate::Hz8000, Rate::Hz16000),
        (Rate::Hz16000, Rate::Hz8000),
        (Rate::Hz8000, Rate::Hz24000),
        (Rate::Hz24000, Rate::Hz8000),
    ];

    #[test]
    fn a_tone_keeps_its_pitch_and_level_after_the_stated_delay() {
        for (from, to) in PAIRS {
            let out = resampled(from, to, &sine(from, 400.0, from.hz() / 2), 160);
            let delay = Resampler::new(from, to).output_delay();
            assert_eq!(delay, to.block_samples() / 2, "10 ms");
            let wanted = sine(to, 400.0, to.hz() / 2);
            // The filter rings in for a block.
            for n in to.block_samples()..wanted.len() - to.block_samples() {
                let (got, want) = (i32::from(out[n + delay]), i32::from(wanted[n]));
                assert!((got - want).abs() < 100, "{from:?} to {to:?}, sample {n}: {got} for {want}");
            }
        }
    }

    #[test]
    fn no_sample_is_lost_and_the_cutting_does_not_matter() {
        for (from, to) in PAIRS {
            let sound = sine(from, 300.0, 1_234);
            let whole = resampled(from, to, &sound, 1_234);
            let delay = Resampler::new(from, to).output_delay();
            assert_eq!(whole.len(), 1_234 * to.hz() / from.hz() + delay, "{from:?} to {to:?}");
            for piece in [1, 33, 160, 481] {
                assert_eq!(resampled(from, to, &sound, piece), whole);
            }
        }
    }

    #[test]
    fn a_tone_above_the_line_does_not_fold_back_into_it() {
        let out = resampled(Rate::Hz24000, Rate::Hz8000, &sine(Rate::Hz24000, 6_000.0, 24_000), 480);
        assert!(crate::level_dbfs(&out[400..7_600]) < -60, "{}", crate::level_dbfs(&out[400..7_600]));
    }

    #[test]
    fn equal_rates_pass_through_and_a_reset_forgets() {
        assert_eq!(resampled(Rate::Hz8000, Rate::Hz8000, &[1, 2, 3], 2), [1, 2, 3]);
        let mut resampler = Resampler::new(Rate::Hz8000, Rate::Hz16000);
        let mut out = Vec::new();
        resampler.push(&[20_000; 250], &mut out);
        resampler.reset();
        out.clear();
        resampler.push(&[0; 160], &mut out);
        assert_eq!(out, [0; 320]);
    }
}
