//! Files are written by `hound` where it can write them, so that reader and writer share no mistake.

use super::*;
use std::f32::consts::TAU;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("answerback-sim-{}-{name}", std::process::id())))
    }
    fn holding(name: &str, bytes: &[u8]) -> Self {
        let scratch = Self::new(name);
        std::fs::write(&scratch.0, bytes).unwrap();
        scratch
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// One second of a sine at half of full scale.
fn tone(hz: f32, rate: u32) -> Vec<f32> {
    (0..rate).map(|n| 0.5 * (TAU * hz * n as f32 / rate as f32).sin()).collect()
}

fn written(name: &str, spec: hound::WavSpec, samples: &[f32]) -> Scratch {
    let scratch = Scratch::new(name);
    let mut writer = hound::WavWriter::create(&scratch.0, spec).unwrap();
    for &sample in samples {
        for _ in 0..spec.channels {
            match spec.sample_format {
                hound::SampleFormat::Float => writer.write_sample(sample).unwrap(),
                hound::SampleFormat::Int => {
                    let full = (1i64 << (spec.bits_per_sample - 1)) as f32;
                    writer.write_sample((sample * full) as i32).unwrap();
                }
            }
        }
    }
    writer.finalize().unwrap();
    scratch
}

fn int(bits: u16, rate: u32, channels: u16) -> hound::WavSpec {
    hound::WavSpec { channels, sample_rate: rate, bits_per_sample: bits, sample_format: hound::SampleFormat::Int }
}

/// Root mean square of what a listener hears, leaving out the edges where a filter rings.
fn rms(mulaw: &[u8]) -> f32 {
    let inner = &mulaw[400..mulaw.len() - 400];
    let sum: f32 = inner.iter().map(|&b| (f32::from(g711::mulaw_to_linear(b)) / 32_768.0).powi(2)).sum();
    (sum / inner.len() as f32).sqrt()
}

/// How much of the sound is this tone: 1.0 for the pure tone (Goertzel by definition).
fn share_of(mulaw: &[u8], hz: f32) -> f32 {
    let inner = &mulaw[400..mulaw.len() - 400];
    let (mut re, mut im) = (0.0f32, 0.0f32);
    for (n, &byte) in inner.iter().enumerate() {
        let (sin, cos) = (TAU * hz * n as f32 / 8_000.0).sin_cos();
        let level = f32::from(g711::mulaw_to_linear(byte)) / 32_768.0;
        re += level * cos;
        im += level * sin;
    }
    let amplitude = 2.0 * (re * re + im * im).sqrt() / inner.len() as f32;
    amplitude / (rms(mulaw) * 2.0f32.sqrt())
}

#[test]
fn pcm_of_every_width_and_float_keeps_level_and_pitch() {
    for bits in [8, 16, 24, 32] {
        let file = written(&format!("pcm{bits}.wav"), int(bits, 8_000, 1), &tone(440.0, 8_000));
        let mulaw = read(&file.0).unwrap();
        assert_eq!(mulaw.len(), 8_000, "{bits}");
        assert!((rms(&mulaw) - 0.3535).abs() < 0.01, "{bits}: {}", rms(&mulaw));
        assert!(share_of(&mulaw, 440.0) > 0.99, "{bits}");
    }
    let spec = hound::WavSpec { sample_format: hound::SampleFormat::Float, ..int(32, 8_000, 1) };
    let mulaw = read(&written("float.wav", spec, &tone(440.0, 8_000)).0).unwrap();
    assert!(share_of(&mulaw, 440.0) > 0.99 && (rms(&mulaw) - 0.3535).abs() < 0.01);
}

#[test]
fn every_common_rate_in_mono_and_stereo_lasts_a_second_and_keeps_its_pitch() {
    for rate in [11_025, 16_000, 24_000, 44_100, 48_000] {
        for channels in [1, 2] {
            let file = written(&format!("rate{rate}x{channels}.wav"), int(16, rate, channels), &tone(1_000.0, rate));
            let mulaw = read(&file.0).unwrap();
            assert!(mulaw.len().abs_diff(8_000) <= 2, "{rate}: {}", mulaw.len());
            assert!((rms(&mulaw) - 0.3535).abs() < 0.01, "{rate}: {}", rms(&mulaw));
            assert!(share_of(&mulaw, 1_000.0) > 0.99, "{rate}");
        }
    }
}

#[test]
fn a_tone_above_the_line_rate_does_not_fold_back() {
    // 6 kHz read by dropping samples would appear at 2 kHz, as loud as before.
    let file = written("fold.wav", int(16, 48_000, 1), &tone(6_000.0, 48_000));
    let heard = rms(&read(&file.0).unwrap());
    assert!(heard < 0.3535 / 1_000.0, "{heard}: less than 60 dB down");
}

/// A canonical header by hand: hound writes neither of the G.711 laws.
fn g711_wav(tag: u16, rate: u32, body: &[u8]) -> Vec<u8> {
    let mut wav = b"RIFF\0\0\0\0WAVEfmt ".to_vec();
    wav.extend(18u32.to_le_bytes());
    wav.extend(tag.to_le_bytes());
    wav.extend(1u16.to_le_bytes());
    wav.extend(rate.to_le_bytes());
    wav.extend(rate.to_le_bytes());
    wav.extend(1u16.to_le_bytes());
    wav.extend(8u16.to_le_bytes());
    wav.extend(0u16.to_le_bytes());
    // An odd chunk in between, as some recorders leave one.
    wav.extend(b"LIST\x03\0\0\0abc\0");
    wav.extend(b"data");
    wav.extend((body.len() as u32).to_le_bytes());
    wav.extend(body);
    wav
}

#[test]
fn mulaw_in_a_wav_or_raw_passes_byte_for_byte() {
    let body: Vec<u8> = (0..=255).cycle().take(1_600).collect();
    assert_eq!(read(&Scratch::holding("m.wav", &g711_wav(7, 8_000, &body)).0).unwrap(), body);
    assert_eq!(read(&Scratch::holding("m.ulaw", &body).0).unwrap(), body);
}

#[test]
fn alaw_becomes_mulaw_of_the_same_sound() {
    let body: Vec<u8> =
        tone(440.0, 8_000).iter().map(|s| audio_codec_algorithms::encode_alaw((s * 32_767.0) as i16)).collect();
    let mulaw = read(&Scratch::holding("a.wav", &g711_wav(6, 8_000, &body)).0).unwrap();
    assert!((rms(&mulaw) - 0.3535).abs() < 0.01 && share_of(&mulaw, 440.0) > 0.99);
}

#[test]
fn a_wav_under_a_raw_name_is_read_as_the_wav_it_is() {
    let body = vec![0x55u8; 800];
    assert_eq!(read(&Scratch::holding("lying.ulaw", &g711_wav(7, 8_000, &body)).0).unwrap(), body);
}

#[test]
fn what_is_not_taken_is_refused_with_the_name_and_what_was_found() {
    let adpcm = g711_wav(0x11, 8_000, &[0; 100]);
    let mut cut = g711_wav(7, 8_000, &[0; 100]);
    cut.truncate(30);
    for (name, bytes, found) in [
        ("song.mp3", b"ID3\x04rest".to_vec(), "an MP3"),
        ("mpeg1.wav", vec![0xff, 0xfb, 0x90, 0x64], "an MP3"),
        ("with_crc.wav", vec![0xff, 0xfa, 0x90, 0x64], "an MP3"),
        ("mpeg2.wav", vec![0xff, 0xf3, 0x90, 0x64], "an MP3"),
        // What encoders make of telephone sound: 8, 11 and 12 kHz.
        ("mpeg25.wav", vec![0xff, 0xe3, 0x18, 0xc4], "an MP3"),
        ("mpeg25_with_crc.wav", vec![0xff, 0xe2, 0x18, 0xc4], "an MP3"),
        ("adts.wav", vec![0xff, 0xf1, 0x50, 0x80], "an AAC file"),
        ("noise.wav", vec![0xff, 0xff, 0xff, 0xff], "not a WAV"),
        ("song.wav", b"OggSrest".to_vec(), "an Ogg file"),
        ("page.wav", b"<html></html>".to_vec(), "not a WAV"),
        ("empty.wav", Vec::new(), "an empty file"),
        ("empty.ulaw", Vec::new(), "no sound in it: it is an empty file"),
        ("adpcm.wav", adpcm, "format tag 0x0011"),
        ("hollow.wav", g711_wav(7, 8_000, &[]), "without a sample"),
        ("slow.wav", g711_wav(7, 100, &[0; 100]), "100 Hz"),
        ("cut.wav", cut, "cut short"),
    ] {
        let scratch = Scratch::holding(name, &bytes);
        let message = read(&scratch.0).unwrap_err().to_string();
        assert!(message.contains(name) && message.contains(found), "{name}: {message}");
    }
    for (name, bytes, convertible) in [
        ("song.mp3", b"ID3\x04rest".to_vec(), true),
        ("empty.wav", Vec::new(), false),
        ("hollow.wav", g711_wav(7, 8_000, &[]), false),
        ("long.wav", g711_wav(7, 8_000, &vec![0x55; 601 * 8_000]), false),
    ] {
        let error = read(&Scratch::holding(name, &bytes).0).unwrap_err();
        assert_eq!(error.can_be_converted(), convertible, "{error}");
    }
    let six = written("six.wav", int(16, 8_000, 6), &tone(440.0, 800));
    assert!(read(&six.0).unwrap_err().to_string().contains("6 channels"));
    assert!(read(Path::new("/nowhere/at all.wav")).unwrap_err().to_string().contains("cannot be read"));
}

#[test]
fn a_wav_that_ends_early_is_read_as_far_as_it_goes_and_says_so() {
    let mut cut = g711_wav(7, 8_000, &[0x55; 8_000]);
    cut.truncate(cut.len() - 6_000);
    let sound = inspect(&Scratch::holding("early.wav", &cut).0).unwrap();
    assert_eq!(sound, Sound { mulaw: vec![0x55; 2_000], truncated: Some(Truncated { promised: 8_000, there: 2_000 }) });
    assert_eq!(inspect(&Scratch::holding("whole.wav", &g711_wav(7, 8_000, &[0x55; 80])).0).unwrap().truncated, None);
    // A recorder that streams does not know the length.
    let mut streamed = g711_wav(7, 8_000, &[0x55; 80]);
    let length_at = streamed.len() - 84;
    streamed[length_at..length_at + 4].copy_from_slice(&[0xff; 4]);
    assert_eq!(inspect(&Scratch::holding("streamed.wav", &streamed).0).unwrap().truncated, None);
}
