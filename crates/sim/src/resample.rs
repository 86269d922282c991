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

/// The same for the two rates of the wire, whose ratio is whole: cheap enough to be done while a call runs.
pub(crate) fn line_to_24k(mono: &[f32]) -> Result<Vec<f32>, ResampleProblem> {
    let mut resampler = Fft::<f32>::new(8_000, 24_000, LINE_BLOCK, 1, FixedSync::Both)?;
    run_whole(&mut resampler, mono)
}

fn run_whole(resampler: &mut impl Resampler<f32>, mono: &[f32]) -> Result<Vec<f32>, ResampleProblem> {
    let input = rubato::audioadapter_buffers::direct::InterleavedSlice::new(mono, 1, mono.len())?;
    Ok(resampler.process_all(&input, mono.len(), None)?.take_data())
}

/// 20 ms at 8 kHz and at 24 kHz.
const LINE_BLOCK: usize = 160;
const WIDE_BLOCK: usize = 480;

/// 24 kHz as it comes in, block by block, to 8 kHz: half a block (10 ms) later, which turn detection does not notice.
pub(crate) struct WideToLine {
    /// `None`: no filter could be made, and every third sample has to do.
    fft: Option<Fft<f32>>,
    waiting: Vec<f32>,
}

impl WideToLine {
    pub(crate) fn new() -> Self {
        let fft = Fft::new(24_000, 8_000, WIDE_BLOCK, 1, FixedSync::Both);
        if let Err(problem) = &fft {
            tracing::warn!(%problem, "no filter for 24 kHz");
        }
        Self { fft: fft.ok(), waiting: Vec::with_capacity(WIDE_BLOCK) }
    }

    /// What 24 kHz little-endian PCM is at 8 kHz, in whole blocks; the rest waits for more.
    pub(crate) fn push(&mut self, pcm: &[u8]) -> Vec<i16> {
        let mut line = Vec::with_capacity(pcm.len() / 6 + LINE_BLOCK);
        for bytes in pcm.chunks_exact(2) {
            self.waiting.push(f32::from(i16::from_le_bytes([bytes[0], bytes[1]])));
            if self.waiting.len() == WIDE_BLOCK {
                self.block(&mut line);
            }
        }
        line
    }

    fn block(&mut self, line: &mut Vec<i16>) {
        let filtered = self.fft.as_mut().and_then(|fft| {
            let input = rubato::audioadapter_buffers::direct::InterleavedSlice::new(&self.waiting[..], 1, WIDE_BLOCK);
            fft.process(&input.ok()?, None).ok()
        });
        match filtered {
            Some(filtered) => line.extend(filtered.take_data().into_iter().map(to_i16)),
            None => line.extend(self.waiting.iter().step_by(3).map(|&sample| to_i16(sample))),
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
        let wide = line_to_24k(&line).unwrap();
        assert_eq!(wide.len(), 3_000);
        let wanted = tone(440.0, 24_000.0, 3_000);
        let off = wide[600..2_400].iter().zip(&wanted[600..2_400]).map(|(is, wanted)| is - wanted);
        assert!(rms(off) < 100.0, "a shift by one sample would be 800");
    }

    #[test]
    fn what_the_line_cannot_carry_does_not_fold_into_it() {
        let pcm =
            |hz| -> Vec<u8> { tone(hz, 24_000.0, 24_000).into_iter().flat_map(|s| (s as i16).to_le_bytes()).collect() };
        let heard = |hz| rms(WideToLine::new().push(&pcm(hz)).into_iter().skip(800).map(f32::from));
        assert!(heard(1_000.0) > 6_500.0);
        // Taken by every third sample, 7 kHz would sound as 1 kHz at full level.
        assert!(heard(7_000.0) < 100.0);
    }

    #[test]
    fn pieces_of_any_length_come_out_as_the_whole_does() {
        let pcm: Vec<u8> = tone(500.0, 24_000.0, 4_800).into_iter().flat_map(|s| (s as i16).to_le_bytes()).collect();
        let whole = WideToLine::new().push(&pcm);
        assert_eq!(whole.len(), 1_600);
        let mut in_pieces = WideToLine::new();
        let pieces: Vec<i16> = pcm.chunks(2 * 331).flat_map(|piece| in_pieces.push(piece)).collect();
        assert_eq!(pieces, whole);
    }
}
