//! What a detector costs.

use audio::Detector;
use std::time::Instant;
use vocab::audio::FRAME_BYTES;

const RUNS: usize = 15;
/// Shorter than a time slice, so that other work on the machine reaches only some of the runs.
const PIECE: usize = 100;

/// Mean over the sound of each piece's fastest run: what differs between frames stays in the mean, what other work costs
/// does not.
pub fn us_a_frame(detector: Detector, samples: &[i16]) -> f32 {
    let pieces: Vec<&[i16]> = samples.chunks_exact(PIECE * FRAME_BYTES).collect();
    let mut fastest = vec![f64::MAX; pieces.len()];
    let mut ear = detector.open();
    for _ in 0..RUNS {
        ear.reset();
        for (piece, fastest) in pieces.iter().zip(&mut fastest) {
            let began = Instant::now();
            for frame in piece.chunks_exact(FRAME_BYTES) {
                std::hint::black_box(ear.hear(std::hint::black_box(frame)));
            }
            *fastest = fastest.min(began.elapsed().as_secs_f64());
        }
    }
    (fastest.iter().sum::<f64>() * 1e6 / (pieces.len() * PIECE) as f64) as f32
}
