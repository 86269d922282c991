//! Runs of caller frames that caused nothing: most of a call. Each frame keeps its exact time, length and evidence; what
//! repeats is written once with a count.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use vocab::{CallTime, Samples, VoiceEvidence};

/// Frames in one line: a second of call, since a run is lost when the process dies before the line is written.
pub const MAX_RUN: usize = 50;
/// What a reader takes: a bound against a line that asks for all memory, far above anything written.
const MAX_FRAMES_READ: usize = 10_000;

/// One stretch of caller audio, as the core is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub samples: Samples,
    pub evidence: VoiceEvidence,
}

/// A run as it is written, borrowed from the frames.
pub(crate) struct Folded<'a>(pub &'a [(CallTime, Frame)]);

impl Serialize for Folded<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let frames = self.0;
        let mut line = serializer.serialize_struct("Quiet", 5)?;
        line.serialize_field("frames", &frames.len())?;
        line.serialize_field("gaps_us", &Runs(|| frames.windows(2).map(|two| two[1].0.0.wrapping_sub(two[0].0.0))))?;
        line.serialize_field("samples", &Runs(|| frames.iter().map(|(_, frame)| frame.samples.0)))?;
        line.serialize_field("speech", &Alternating(|| frames.iter().map(|(_, frame)| frame.evidence.speech)))?;
        line.serialize_field("levels", &Runs(|| frames.iter().map(|(_, frame)| frame.evidence.level_dbfs)))?;
        line.end()
    }
}

/// Equal neighbours as `[value, count]`, a value that stands alone as itself.
struct Runs<F>(F);

impl<T: PartialEq + Copy + Serialize, I: Iterator<Item = T>, F: Fn() -> I> Serialize for Runs<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let counted = counted((self.0)()).map(|(value, count)| match count {
            1 => Item::One(value),
            count => Item::Many(value, count),
        });
        serializer.collect_seq(counted)
    }
}

/// Lengths of the stretches, the first of which is `false` (and may be empty).
struct Alternating<F>(F);

impl<I: Iterator<Item = bool>, F: Fn() -> I> Serialize for Alternating<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let begins_true = (self.0)().next() == Some(true);
        let lengths = counted((self.0)()).map(|(_, count)| count);
        serializer.collect_seq(begins_true.then_some(0).into_iter().chain(lengths))
    }
}

fn counted<T: PartialEq + Copy>(values: impl Iterator<Item = T>) -> impl Iterator<Item = (T, u32)> {
    let mut values = values.peekable();
    std::iter::from_fn(move || {
        let value = values.next()?;
        let mut count = 1;
        while values.next_if_eq(&value).is_some() {
            count += 1;
        }
        Some((value, count))
    })
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Item<T> {
    One(T),
    Many(T, u32),
}

#[derive(Deserialize)]
struct Written {
    frames: usize,
    gaps_us: Vec<Item<u64>>,
    samples: Vec<Item<u32>>,
    speech: Vec<u32>,
    levels: Vec<Item<i8>>,
}

/// A run as it is read: the first frame's time is on the line beside it. Gaps are from the frame before; the first is zero.
pub(crate) struct Unfolded(pub Vec<(u64, Frame)>);

impl<'de> Deserialize<'de> for Unfolded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Written::deserialize(deserializer)?;
        let count = written.frames;
        if count == 0 || count > MAX_FRAMES_READ {
            return Err(D::Error::custom(format!("a run of {count} frames, 1 to {MAX_FRAMES_READ} are taken")));
        }
        let wrong = |what: &str, expected: usize| D::Error::custom(format!("{what} must be of {expected} frames"));
        let gaps = spread(written.gaps_us, count - 1).ok_or_else(|| wrong("gaps_us", count - 1))?;
        let samples = spread(written.samples, count).ok_or_else(|| wrong("samples", count))?;
        let levels = spread(written.levels, count).ok_or_else(|| wrong("levels", count))?;
        let stretches = written.speech.into_iter().enumerate();
        let speech = spread(stretches.map(|(place, length)| Item::Many(place % 2 == 1, length)).collect(), count)
            .ok_or_else(|| wrong("speech", count))?;
        let frames = (0..count).map(|place| {
            let gap = if place == 0 { 0 } else { gaps[place - 1] };
            let evidence = VoiceEvidence { speech: speech[place], level_dbfs: levels[place] };
            (gap, Frame { samples: Samples(samples[place]), evidence })
        });
        Ok(Self(frames.collect()))
    }
}

/// Every value as often as it stands for; `None` unless that makes `count`.
fn spread<T: Copy>(items: Vec<Item<T>>, count: usize) -> Option<Vec<T>> {
    let mut values = Vec::with_capacity(count);
    for item in items {
        let (value, times) = match item {
            Item::One(value) => (value, 1),
            Item::Many(value, times) => (value, times as usize),
        };
        if times > count - values.len() {
            return None;
        }
        values.extend(std::iter::repeat_n(value, times));
    }
    (values.len() == count).then_some(values)
}
