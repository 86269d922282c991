//! Change of sample rate with a low-pass, so that nothing folds over: files of other rates, and clients of 24 kHz.

use rubato::{
    Async, Fft, FixedAsync, FixedSync, ResampleError, Resampler, ResamplerConstructionError,
    SincInterpolationParameters, WindowFunction,
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum ResampleProblem {
    #[error(transparent)]
    Filter(#[from] ResamplerConstructionError),
    #[error(transparent)]
    Samples(#[from] ResampleError),
    #[error(transparent)]
    Buffer(#[from] rubato::audioadapter_buffers::SizeError),
}

/// A whole sound at another rate, without the filter's delay: it begins and ends where the original does.
pub(crate) fn whole(mono: &[f32], from_hz: u32, to_hz: u32) -> Result<Vec<f32>, ResampleProblem> {
    // 256 taps put the images below the noise of μ-law; the length costs nothing that a script would notice.
    let filter = SincInterpolationParameters::new(256, WindowFunction::BlackmanHarris2);
    let ratio = f64::from(to_hz) / f64::from(from_hz);
    let mut resampler = Async::<f32>::new_sinc(ratio, 1.0, &filter, 1_024, 1, FixedAsync::Input)?;
    run_whole(&mut resampler, mono)
}

/// The same from the line's 8 kHz to a multiple of it: cheap enough to be done while a call runs.
pub(crate) fn line_times(mono: &[f32], times: usize) -> Result<Vec<f32>, ResampleProblem> {
    let mut resampler = Fft::<f32>::new(8_000, 8_000 * times, 160, 1, FixedSync::Both)?;
    run_whole(&mut resampler, mono)
}

fn run_whole(resampler: &mut impl Resampler<f32>, mono: &[f32]) -> Result<Vec<f32>, ResampleProblem> {
    let input = rubato::audioadapter_buffers::direct::InterleavedSlice::new(mono, 1, mono.len())?;
    Ok(resampler.process_all(&input, mono.len(), None)?.take_data())
}

/// A sound as it comes, block by block of 20 ms, at another rate: half a block (10 ms) later.
pub(crate) struct Stream {
    /// `None`: no filter could be made, and the nearest sample has to do.
    fft: Option<Fft<f32>>,
    waiting: Vec<f32>,
    from_block: usize,
    to_block: usize,
}

impl Stream {
    /// Rates in Hz, of which 20 ms are whole samples.
    pub(crate) fn new(from_hz: usize, to_hz: usize) -> Self {
        let (from_block, to_block) = (from_hz / 50, to_hz / 50);
        let fft = Fft::new(from_hz, to_hz, from_block, 1, FixedSync::Both);
        if let Err(problem) = &fft {
            tracing::warn!(%problem, from_hz, to_hz, "no filter");
        }
        Self { fft: fft.ok(), waiting: Vec::with_capacity(from_block), from_block, to_block }
    }

    /// Every whole block that these samples complete; the rest waits for more.
    pub(crate) fn push(&mut self, samples: impl Iterator<Item = i16>) -> Vec<i16> {
        let mut output = Vec::new();
        for sample in samples {
            self.waiting.push(f32::from(sample));
            if self.waiting.len() == self.from_block {
                self.block(&mut output);
            }
        }
        output
    }

    fn block(&mut self, output: &mut Vec<i16>) {
        let filtered = self.fft.as_mut().and_then(|fft| {
            let frames = self.waiting.len();
            let input = rubato::audioadapter_buffers::direct::InterleavedSlice::new(&self.waiting[..], 1, frames);
            fft.process(&input.ok()?, None).ok()
        });
        match filtered {
            Some(filtered) => output.extend(filtered.take_data().into_iter().map(to_i16)),
            None => {
                let nearest = |n: usize| to_i16(self.waiting[n * self.from_block / self.to_block]);
                output.extend((0..self.to_block).map(nearest));
            }
        }
        self.waiting.clear();
    }
}

/// Rounded, and held inside the range that a filter may overshoot.
pub(crate) fn to_i16(sample: f32) -> i16 {
    sample.round() as i16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tone(hz: f32, rate: f32, samples: usize) -> Vec<f32> {
        (0..samples).map(|n| (n as f32 * hz / rate * std::f32::consts::TAU).sin() * 10_000.0).collect()
    }

    fn rms(samples: impl IntoIterator<Item = f32>) -> f32 {
        let (sum, count) = samples.into_iter().fold((0.0, 0), |(sum, n), s| (sum + s * s, n + 1));
        (sum / count as f32).sqrt()
    }

    #[test]
    fn a_line_at_24_khz_has_three_samples_for_each_and_the_same_place_in_time() {
        let line = tone(440.0, 8_000.0, 1_000);
        let wide = line_times(&line, 3).unwrap();
        assert_eq!(wide.len(), 3_000);
        let wanted = tone(440.0, 24_000.0, 3_000);
        let off = wide[600..2_400].iter().zip(&wanted[600..2_400]).map(|(is, wanted)| is - wanted);
        assert!(rms(off) < 100.0, "a shift by one sample would be 800");
        assert_eq!(line_times(&line, 2).unwrap().len(), 2_000);
    }

    #[test]
    fn what_the_line_cannot_carry_does_not_fold_into_it() {
        let heard = |hz| {
            let line = Stream::new(24_000, 8_000).push(tone(hz, 24_000.0, 24_000).into_iter().map(to_i16));
            rms(line.into_iter().skip(800).map(f32::from))
        };
        assert!(heard(1_000.0) > 6_500.0);
        // Taken by every third sample, 7 kHz would sound as 1 kHz at full level.
        assert!(heard(7_000.0) < 100.0);
    }

    #[test]
    fn pieces_of_any_length_come_out_as_the_whole_does() {
        for (from_hz, to_hz) in [(24_000, 8_000), (16_000, 8_000), (8_000, 16_000), (8_000, 24_000)] {
            let sound: Vec<i16> = tone(500.0, from_hz as f32, from_hz / 5).into_iter().map(to_i16).collect();
            let whole = Stream::new(from_hz, to_hz).push(sound.iter().copied());
            assert_eq!(whole.len(), to_hz / 5);
            let mut in_pieces = Stream::new(from_hz, to_hz);
            let pieces: Vec<i16> = sound.chunks(331).flat_map(|piece| in_pieces.push(piece.iter().copied())).collect();
            assert_eq!(pieces, whole);
        }
    }
}
