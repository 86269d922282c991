//! Runs of steps in which nothing was decided: caller frames that caused nothing, and pieces of the model's voice that were
//! sent on as they came. They are most of a call. Each keeps its exact time, length and evidence; what repeats is written
//! once with a count.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use vocab::{CallTime, ModelItemId, ModelResponseId, PlaybackId, Samples, VoiceEvidence};

/// Steps in one line: at most a second of call, since a run is lost when the process dies before the line is written.
pub const MAX_RUN: usize = 50;
/// What a reader takes: a bound against a line that asks for all memory, far above anything written.
const MAX_STEPS_READ: usize = 10_000;

/// One stretch of caller audio, as the core is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub samples: Samples,
    pub evidence: VoiceEvidence,
}

/// A piece of the model's voice that was kept and sent to the carrier in the same step, whole and alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub voice: Voice,
    /// Where it begins in the playback.
    pub from: Samples,
    pub samples: Samples,
}

/// Whose voice it is, and where it plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Voice {
    pub response: ModelResponseId,
    pub item: ModelItemId,
    pub playback: PlaybackId,
}

/// One step of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quiet {
    Frame(Frame),
    /// A piece that follows the one before it.
    Piece(Samples),
}

/// A run as it is written, borrowed from the steps. `spoken`: whose pieces they are and where the first begins, if any are.
pub(crate) struct Folded<'a> {
    pub steps: &'a [(CallTime, Quiet)],
    pub spoken: Option<(Voice, Samples)>,
}

impl Folded<'_> {
    fn frames(&self) -> impl Iterator<Item = Frame> {
        self.steps.iter().filter_map(|(_, step)| match step {
            Quiet::Frame(frame) => Some(*frame),
            Quiet::Piece(_) => None,
        })
    }

    fn pieces(&self) -> impl Iterator<Item = Samples> {
        self.steps.iter().filter_map(|(_, step)| match step {
            Quiet::Frame(_) => None,
            Quiet::Piece(samples) => Some(*samples),
        })
    }
}

impl Serialize for Folded<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let steps = self.steps;
        let mut line = serializer.serialize_struct("Quiet", 6)?;
        line.serialize_field("frames", &self.frames().count())?;
        line.serialize_field("gaps_us", &Runs(|| steps.windows(2).map(|two| two[1].0.0.wrapping_sub(two[0].0.0))))?;
        line.serialize_field("samples", &Runs(|| self.frames().map(|frame| frame.samples.0)))?;
        line.serialize_field("speech", &Alternating(|| self.frames().map(|frame| frame.evidence.speech)))?;
        line.serialize_field("levels", &Runs(|| self.frames().map(|frame| frame.evidence.level_dbfs)))?;
        if let Some((voice, from)) = self.spoken {
            line.serialize_field("spoken", &Spoken { run: self, voice, from })?;
        }
        line.end()
    }
}

struct Spoken<'a> {
    run: &'a Folded<'a>,
    voice: Voice,
    from: Samples,
}

impl Serialize for Spoken<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let steps = self.run.steps;
        let mut spoken = serializer.serialize_struct("Spoken", 4)?;
        spoken.serialize_field("voice", &self.voice)?;
        spoken.serialize_field("from", &self.from)?;
        spoken.serialize_field("samples", &Runs(|| self.run.pieces().map(|samples| samples.0)))?;
        spoken
            .serialize_field("order", &Alternating(|| steps.iter().map(|(_, step)| matches!(step, Quiet::Piece(_)))))?;
        spoken.end()
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
    /// Since format 2.
    spoken: Option<WrittenSpoken>,
}

#[derive(Deserialize)]
struct WrittenSpoken {
    voice: Voice,
    from: Samples,
    samples: Vec<Item<u32>>,
    /// Lengths of the stretches of frames and of pieces in turn, frames first.
    order: Vec<u32>,
}

/// A run as it is read: the first step's time is on the line beside it. Gaps are from the step before; the first is zero.
pub(crate) struct Unfolded {
    pub steps: Vec<(u64, Quiet)>,
    pub spoken: Option<(Voice, Samples)>,
}

impl<'de> Deserialize<'de> for Unfolded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Written { frames, gaps_us, samples, speech, levels, spoken } = Written::deserialize(deserializer)?;
        let order =
            spoken.as_ref().map_or_else(|| vec![u32::try_from(frames).unwrap_or(u32::MAX)], |it| it.order.clone());
        let count = order.iter().fold(0usize, |sum, length| sum.saturating_add(*length as usize));
        if count == 0 || count > MAX_STEPS_READ {
            return Err(D::Error::custom(format!("a run of {count} steps, 1 to {MAX_STEPS_READ} are taken")));
        }
        if frames > count {
            return Err(D::Error::custom(format!("{frames} frames in a run of {count} steps")));
        }
        let wrong = |what: &str, expected: usize| D::Error::custom(format!("{what} must be of {expected} steps"));
        let gaps = spread(gaps_us, count - 1).ok_or_else(|| wrong("gaps_us", count - 1))?;
        let samples = spread(samples, frames).ok_or_else(|| wrong("samples", frames))?;
        let levels = spread(levels, frames).ok_or_else(|| wrong("levels", frames))?;
        let speech = spread(stretches(speech), frames).ok_or_else(|| wrong("speech", frames))?;
        let is_piece = spread(stretches(order), count).ok_or_else(|| wrong("order", count))?;
        let pieces = count - frames;
        let (spoken, sent) = match spoken {
            Some(it) => (Some((it.voice, it.from)), it.samples),
            None => (None, Vec::new()),
        };
        let mut sent = spread(sent, pieces).ok_or_else(|| wrong("spoken.samples", pieces))?.into_iter();
        let mut heard = (0..frames).map(|place| Frame {
            samples: Samples(samples[place]),
            evidence: VoiceEvidence { speech: speech[place], level_dbfs: levels[place] },
        });
        let mut steps = Vec::with_capacity(count);
        for (place, is_piece) in is_piece.into_iter().enumerate() {
            let gap = if place == 0 { 0 } else { gaps[place - 1] };
            let step = if is_piece {
                sent.next().map(|samples| Quiet::Piece(Samples(samples)))
            } else {
                heard.next().map(Quiet::Frame)
            };
            steps.push((gap, step.ok_or_else(|| wrong("order", count))?));
        }
        Ok(Self { steps, spoken })
    }
}

/// Stretches of `false` and `true` in turn, as [`Alternating`] writes them.
fn stretches(lengths: Vec<u32>) -> Vec<Item<bool>> {
    lengths.into_iter().enumerate().map(|(place, length)| Item::Many(place % 2 == 1, length)).collect()
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
