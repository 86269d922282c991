//! Whether a sound is made of a few steady tones (dialling, ringing, engaged), or lies below a voice (a hum, a rumble).
//!
//! A sum of sinusoids is foretold by what it was a while ago, hiss on the line or not; a voice has moved on by then. The
//! measure is the gain of the best linear prediction of the newest sound from a few samples of the past.

/// Samples between those that foretell. Wide enough that 440 and 480 Hz differ over all of them.
const STEP: usize = 4;
/// Two for each sinusoid.
const ORDER: usize = 8;

/// Samples that the measures look at, the newest last.
pub(crate) const MEMORY: usize = 160 + 160 + (ORDER - 1) * STEP;

/// Gain above which a sound is tones. Tones 30 dB over a hiss: 21 dB and more. Voices: under 13 dB in 19 of 20 windows.
pub(crate) const TONE_DB: f32 = 16.0;
/// The same for [`soon_db`].
pub(crate) const TONE_SOON_DB: f32 = 20.0;

/// By how many dB the newest 20 ms are foretold by what lies 20 to 44 ms before them. 0 for noise.
pub(crate) fn tonality_db(sound: &[f32; MEMORY]) -> f32 {
    foretold_db::<160, 160>(sound)
}

/// By how many dB the newest 10 ms are foretold by what lies 10 to 24 ms before them: knows a tone that has only begun, and
/// takes more of a voice for one.
pub(crate) fn soon_db(sound: &[f32; MEMORY]) -> f32 {
    foretold_db::<80, 80>(sound)
}

/// How well the newest `SPAN` samples are foretold by `ORDER` samples that lie `LAG` and more before each.
fn foretold_db<const SPAN: usize, const LAG: usize>(sound: &[f32; MEMORY]) -> f32 {
    let newest = &sound[MEMORY - SPAN..];
    // The k-th sight of the past: SPAN samples that begin here.
    let from = |k: usize| MEMORY - SPAN - LAG - k * STEP;
    let past = |k: usize| &sound[from(k)..from(k) + SPAN];
    let energy = dot(newest, newest);
    let mut matrix = [[0.0_f32; ORDER]; ORDER];
    let mut right = [0.0_f32; ORDER];
    for k in 0..ORDER {
        right[k] = dot(newest, past(k));
        matrix[0][k] = dot(past(0), past(k));
    }
    // One step down the diagonal both sights begin STEP samples earlier: so many come in, and as many go out.
    for row in 1..ORDER {
        for column in row..ORDER {
            let (a, b) = (from(row), from(column));
            let moved: f32 =
                (0..STEP).map(|n| sound[a + n] * sound[b + n] - sound[a + SPAN + n] * sound[b + SPAN + n]).sum();
            matrix[row][column] = matrix[row - 1][column - 1] + moved;
        }
    }
    // A little white noise, so that a single tone leaves the matrix regular; one unit of it, so that silence does.
    let trace: f32 = (0..ORDER).map(|k| matrix[k][k]).sum();
    let noise = trace / ORDER as f32 * 1e-4 + SPAN as f32;
    (0..ORDER).for_each(|k| matrix[k][k] += noise);
    let rest = (energy - explained(&mut matrix, &right)).max(0.0);
    10.0 * ((energy + SPAN as f32) / (rest + SPAN as f32)).log10()
}

/// rᵀ·M⁻¹·r for a symmetric positive matrix of which the upper half is filled (Cholesky).
fn explained(matrix: &mut [[f32; ORDER]; ORDER], right: &[f32; ORDER]) -> f32 {
    let mut sum = 0.0;
    let mut solved = [0.0_f32; ORDER];
    for row in 0..ORDER {
        let mut diagonal = matrix[row][row];
        (0..row).for_each(|k| diagonal -= matrix[k][row] * matrix[k][row]);
        if diagonal <= 0.0 {
            break;
        }
        let scale = diagonal.sqrt().recip();
        for column in row + 1..ORDER {
            let mut value = matrix[row][column];
            (0..row).for_each(|k| value -= matrix[k][row] * matrix[k][column]);
            matrix[row][column] = value * scale;
        }
        let mut value = right[row];
        (0..row).for_each(|k| value -= matrix[k][row] * solved[k]);
        solved[row] = value * scale;
        sum += solved[row] * solved[row];
    }
    sum
}

/// In eight lanes, which the compiler keeps in vectors; a plain sum has to keep its order.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; 8];
    for (a, b) in a.chunks_exact(8).zip(b.chunks_exact(8)) {
        for lane in 0..8 {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    lanes.iter().sum()
}

/// Samples that [`rumble_db`] looks at: 10 ms for its filter to settle, and 20 ms.
pub(crate) const RUMBLE_SAMPLES: usize = 80 + 160;
/// So much of the sound below 300 Hz is no voice: a telephone that passes less is heard well.
pub(crate) const RUMBLE_DB: f32 = 12.0;

/// By how many dB the sound loses when all below 300 Hz is taken away.
pub(crate) fn rumble_db(sound: &[f32; RUMBLE_SAMPLES]) -> f32 {
    let (mut whole, mut above) = (0.0_f32, 0.0_f32);
    let mut filters = [HighPass::default(); 2];
    for (n, sample) in sound.iter().copied().enumerate() {
        let high = filters.iter_mut().fold(sample, |sample, filter| filter.pass(sample));
        if n >= RUMBLE_SAMPLES - 160 {
            whole += sample * sample;
            above += high * high;
        }
    }
    10.0 * ((whole + 160.0) / (above + 160.0)).log10()
}

/// Second-order Butterworth at 300 Hz for 8 kHz.
#[derive(Clone, Copy, Default)]
struct HighPass {
    z: [f32; 2],
}

impl HighPass {
    fn pass(&mut self, x: f32) -> f32 {
        let y = 0.846_45 * x + self.z[0];
        self.z[0] = -1.692_9 * x + 1.669_2 * y + self.z[1];
        self.z[1] = 0.846_45 * x - 0.716_6 * y;
        y
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f32::consts::TAU;

    /// Hiss of this RMS.
    fn hiss(rms: f32) -> impl FnMut() -> f32 {
        let mut noise = 0x2545_f491_u32;
        move || {
            noise ^= noise << 13;
            noise ^= noise >> 17;
            noise ^= noise << 5;
            (noise as f32 / (1_u64 << 31) as f32 - 1.0) * rms * 3_f32.sqrt()
        }
    }

    fn tones(hz: &[f32], hiss_rms: f32) -> [f32; MEMORY] {
        let mut hiss = hiss(hiss_rms);
        std::array::from_fn(|n| {
            hz.iter().map(|hz| 2_000.0 * (n as f32 * hz * TAU / 8_000.0).sin()).sum::<f32>().round() + hiss()
        })
    }

    #[test]
    fn the_tones_of_a_telephone_are_tones_with_and_without_hiss() {
        let pairs: [&[f32]; 8] = [
            &[425.0],
            &[1_100.0],
            &[350.0, 440.0],
            &[400.0, 450.0],
            &[440.0, 480.0],
            &[480.0, 620.0],
            &[697.0, 1_209.0],
            &[941.0, 1_477.0],
        ];
        for hz in pairs {
            for hiss_rms in [0.0, 60.0] {
                let gain = tonality_db(&tones(hz, hiss_rms));
                assert!(gain > TONE_DB + 4.0, "{hz:?} with hiss {hiss_rms}: {gain}");
            }
        }
    }

    #[test]
    fn noise_is_not_foretold_and_silence_neither() {
        let mut hiss = hiss(1_000.0);
        let sound = std::array::from_fn(|_| hiss());
        assert!(tonality_db(&sound) < 2.0 && soon_db(&sound) < 3.0, "{} {}", tonality_db(&sound), soon_db(&sound));
        assert_eq!(tonality_db(&[0.0; MEMORY]), 0.0);
    }

    #[test]
    fn a_tone_that_has_only_begun_is_known_soon() {
        let mut sound = tones(&[697.0, 1_209.0], 0.0);
        // 28 ms of it.
        sound[..MEMORY - 224].fill(0.0);
        assert!(soon_db(&sound) > TONE_SOON_DB, "{}", soon_db(&sound));
        assert!(tonality_db(&sound) < TONE_DB, "{}: then the other measure is not needed", tonality_db(&sound));
    }

    #[test]
    fn a_pitch_that_glides_as_in_speech_is_no_tone() {
        // Pulses through nothing: all harmonics, 120 to 180 Hz in 0.2 s.
        let mut phase = 0.0_f32;
        let sound: Vec<f32> = (0..1_600)
            .map(|n| {
                phase += (120.0 + 60.0 * n as f32 / 1_600.0) / 8_000.0;
                (1..=10).map(|k| 500.0 * (phase * k as f32 * TAU).sin()).sum()
            })
            .collect();
        for at in (0..1_600 - MEMORY).step_by(160) {
            let gain = tonality_db(sound[at..at + MEMORY].try_into().expect("that many"));
            assert!(gain < TONE_DB, "{gain} at {at}");
        }
    }

    #[test]
    fn hum_is_rumble_and_a_voice_band_is_not() {
        let of = |hz: f32| -> [f32; RUMBLE_SAMPLES] {
            std::array::from_fn(|n| (8_000.0 * (n as f32 * hz * TAU / 8_000.0).sin()).trunc())
        };
        assert!(rumble_db(&of(50.0)) > RUMBLE_DB && rumble_db(&of(120.0)) > RUMBLE_DB);
        assert!(rumble_db(&of(300.0)) < RUMBLE_DB && rumble_db(&of(1_000.0)) < 1.0);
        assert_eq!(rumble_db(&[0.0; RUMBLE_SAMPLES]), 0.0);
    }
}
