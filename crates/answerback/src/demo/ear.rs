//! What the caller really heard: the recorded lines are looked for, byte for byte, in what came out of the simulated
//! carrier's playout. It asks nobody for an opinion, the server least of all.

use serde::Serialize;
use sim::phone::CallResult;

/// Something that the agent can say.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub voice: String,
    pub text: String,
    /// 8 kHz μ-law.
    pub mulaw: Vec<u8>,
}

/// One hearing of a line, whole or in part.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Heard {
    pub voice: String,
    pub text: String,
    /// Of the call's own time axis.
    pub from_us: u64,
    pub to_us: u64,
    pub heard_ms: u64,
    pub total_ms: u64,
}

impl Heard {
    /// A last part frame may be missing: nobody hears 20 ms.
    pub fn is_whole(&self) -> bool {
        self.heard_ms + 20 >= self.total_ms
    }

    /// The words that were heard and those that were not, cut in proportion at a word's border.
    pub fn words(&self) -> (&str, &str) {
        if self.is_whole() {
            return (&self.text, "");
        }
        let upto = self.text.len() as u64 * self.heard_ms / self.total_ms.max(1);
        let border =
            self.text.char_indices().filter(|(at, c)| *c == ' ' && *at as u64 <= upto).map(|(at, _)| at).last();
        self.text.split_at(border.unwrap_or(0))
    }
}

/// So much must agree before it is taken for a line: longer than any accident.
const SURE_BYTES: usize = 800;

/// Every hearing of every line, in order. Sound that is none of them is counted in `unknown_ms`.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Hearing {
    pub heard: Vec<Heard>,
    pub unknown_ms: u64,
}

pub(crate) fn listen(result: &CallResult, lines: &[Line]) -> Hearing {
    // Where each byte sounded. Holes split a sound into spans without a byte lost.
    let mut sound: Vec<u8> = Vec::new();
    let mut spans: Vec<(usize, u64)> = Vec::new();
    for span in &result.heard {
        spans.push((sound.len(), span.at_us));
        sound.extend_from_slice(&span.mulaw);
    }
    let at_us = |byte: usize| {
        let (start, at_us) = spans.iter().rev().find(|(start, _)| *start <= byte).copied().unwrap_or_default();
        at_us + (byte - start) as u64 * 125
    };
    let mut hearing = Hearing::default();
    let (mut place, mut unknown) = (0, 0);
    while place < sound.len() {
        let best = lines
            .iter()
            .map(|line| (line, agreeing(&line.mulaw, &sound[place..])))
            .filter(|(line, bytes)| *bytes >= SURE_BYTES.min(line.mulaw.len()))
            .max_by_key(|(_, bytes)| *bytes);
        match best {
            Some((line, bytes)) if bytes > 0 => {
                hearing.heard.push(Heard {
                    voice: line.voice.clone(),
                    text: line.text.clone(),
                    from_us: at_us(place),
                    to_us: at_us(place + bytes - 1) + 125,
                    heard_ms: bytes as u64 / 8,
                    total_ms: line.mulaw.len() as u64 / 8,
                });
                place += bytes;
            }
            Some(_) | None => {
                // Padding of a last frame is silence, which is no sound.
                unknown += usize::from(sound[place] != 0xff);
                place += 1;
            }
        }
    }
    hearing.unknown_ms = unknown as u64 / 8;
    hearing
}

fn agreeing(line: &[u8], sound: &[u8]) -> usize {
    line.iter().zip(sound).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim::phone::{CallEnd, HeardSpan};

    fn line(voice: &str, seed: u32, ms: usize) -> Line {
        let mut state = seed;
        let mulaw = (0..ms * 8).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        });
        Line { voice: voice.into(), text: "one two three four".into(), mulaw: mulaw.collect() }
    }

    fn call(heard: Vec<(u64, Vec<u8>)>) -> CallResult {
        CallResult {
            call_sid: "CA1".into(),
            end: CallEnd::CallerHungUp,
            ended_us: 0,
            streams: Vec::new(),
            heard: heard.into_iter().map(|(at_us, mulaw)| HeardSpan { at_us, mulaw }).collect(),
            marks: Vec::new(),
            clears: Vec::new(),
            underruns: Vec::new(),
            violations: Vec::new(),
            timeline: Vec::new(),
            timed_out_steps: Vec::new(),
            received_bytes: 0,
            sent_frames: 0,
            said: Vec::new(),
        }
    }

    #[test]
    fn whole_cut_and_split_hearings_are_told_apart() {
        let (a, b) = (line("a", 1, 1_000), line("b", 2, 600));
        let mut first = a.mulaw[..4_000].to_vec();
        let second = a.mulaw[4_000..].to_vec();
        first.splice(0..0, b.mulaw[..2_400].iter().copied());
        let noise = vec![0x01; 160];
        let hearing = listen(&call(vec![(1_000_000, first), (9_000_000, second), (12_000_000, noise)]), &[a, b]);
        let told: Vec<_> = hearing.heard.iter().map(|h| (h.voice.as_str(), h.heard_ms, h.is_whole())).collect();
        assert_eq!(told, [("b", 300, false), ("a", 1_000, true)]);
        assert_eq!(hearing.heard[0].from_us, 1_000_000);
        assert_eq!(hearing.heard[1].to_us, 9_500_000);
        assert_eq!(hearing.unknown_ms, 20);
        assert_eq!(hearing.heard[0].words(), ("one two", " three four"));
    }
}
