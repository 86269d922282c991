//! Loudness of a stretch of samples, cheap enough for every frame.

/// Level of digital silence and of an empty stretch, in dBFS: the noise floor of 16 bits.
pub const SILENT_DBFS: i8 = -96;

/// RMS level of `samples` in whole dB below full scale (a square wave at full scale is 0), from -96 to 0. One integer
/// multiplication a sample and one logarithm a call.
pub fn level_dbfs(samples: &[i16]) -> i8 {
    let energy: u64 = samples.iter().map(|&s| u64::from(s.unsigned_abs()).pow(2)).sum();
    if energy == 0 {
        return SILENT_DBFS;
    }
    let mean = energy as f32 / samples.len() as f32;
    // 20·log10(rms / 32768) without the square root.
    let level = 10.0 * (mean / (32_768.0 * 32_768.0)).log10();
    level.round().clamp(f32::from(SILENT_DBFS), 0.0) as i8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_and_nothing_are_the_floor() {
        assert_eq!(level_dbfs(&[]), -96);
        assert_eq!(level_dbfs(&[0; 160]), -96);
    }

    #[test]
    fn full_scale_is_zero_and_each_halving_costs_six() {
        assert_eq!(level_dbfs(&[i16::MIN; 160]), 0);
        assert_eq!(level_dbfs(&[16_384; 160]), -6);
        assert_eq!(level_dbfs(&[8_192, -8_192]), -12);
        assert_eq!(level_dbfs(&[1; 160]), -90);
    }

    #[test]
    fn a_sine_lies_three_decibels_under_its_peak() {
        let sine: Vec<i16> =
            (0..800).map(|n| (32_767.0 * (n as f32 * std::f32::consts::TAU / 80.0).sin()) as i16).collect();
        assert_eq!(level_dbfs(&sine), -3);
    }
}
