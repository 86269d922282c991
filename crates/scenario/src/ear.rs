//! What the caller really heard: the agent's lines are looked for, byte for byte, in what came out of the carrier's
//! playout. It asks nobody for an opinion, the server least of all.

/// Something that the agent can say.
#[derive(Clone, Debug)]
pub struct Line {
    pub text: String,
    /// 8 kHz μ-law.
    pub mulaw: Vec<u8>,
}

impl Line {
    pub fn ms(&self) -> u64 {
        self.mulaw.len() as u64 / 8
    }
}

/// One hearing of a line, whole or in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hearing {
    pub text: String,
    pub from_us: u64,
    pub to_us: u64,
    pub heard_ms: u64,
    pub total_ms: u64,
}

impl Hearing {
    /// A last part frame may be missing: nobody hears 20 ms.
    pub fn is_whole(&self) -> bool {
        self.heard_ms + 20 >= self.total_ms
    }
}

/// So much must agree before it is taken for a line: longer than any accident.
const SURE_BYTES: usize = 400;

/// Every hearing of every line, in order, and the milliseconds of sound that are none of them. `spans`: when the first byte
/// of each sounded, in microseconds.
pub fn listen(spans: &[(u64, Vec<u8>)], lines: &[Line]) -> (Vec<Hearing>, u64) {
    let mut sound: Vec<u8> = Vec::new();
    let mut starts: Vec<(usize, u64)> = Vec::new();
    for (at_us, mulaw) in spans {
        starts.push((sound.len(), *at_us));
        sound.extend_from_slice(mulaw);
    }
    let at_us = |byte: usize| {
        let (start, at_us) = starts.iter().rev().find(|(start, _)| *start <= byte).copied().unwrap_or_default();
        at_us + (byte - start) as u64 * 125
    };
    let (mut heard, mut unknown, mut place) = (Vec::new(), 0u64, 0);
    while place < sound.len() {
        let best = lines
            .iter()
            .map(|line| (line, agreeing(&line.mulaw, &sound[place..])))
            .filter(|(line, bytes)| *bytes > 0 && *bytes >= SURE_BYTES.min(line.mulaw.len()))
            .max_by_key(|(_, bytes)| *bytes);
        match best {
            Some((line, bytes)) => {
                let bytes = upto_another(&starts, &sound, place, bytes, lines);
                heard.push(Hearing {
                    text: line.text.clone(),
                    from_us: at_us(place),
                    to_us: at_us(place + bytes - 1) + 125,
                    heard_ms: bytes as u64 / 8,
                    total_ms: line.ms(),
                });
                place += bytes;
            }
            None => {
                // Padding of a last frame is silence, which is no sound.
                unknown += u64::from(sound[place] != 0xff);
                place += 1;
            }
        }
    }
    (heard, unknown / 8)
}

/// A line that was cut off may agree, by a sample or by a quiet moment, with the beginning of what follows it: from a new span
/// on, what goes further from its own beginning is another line.
fn upto_another(starts: &[(usize, u64)], sound: &[u8], place: usize, bytes: usize, lines: &[Line]) -> usize {
    let end = place + bytes;
    let begins_anew =
        |at: usize| lines.iter().any(|line| agreeing(&line.mulaw, &sound[at..]) > SURE_BYTES.max(end - at));
    let new_spans = starts.iter().map(|(at, _)| *at).filter(|at| (place + 1..end).contains(at));
    new_spans.into_iter().find(|at| begins_anew(*at)).map_or(bytes, |at| at - place)
}

fn agreeing(line: &[u8], sound: &[u8]) -> usize {
    line.iter().zip(sound).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sound;

    #[test]
    fn whole_cut_and_split_hearings_are_told_apart() {
        let line = |text: &str, ms| Line { text: text.into(), mulaw: sound::agent(text, ms) };
        let (a, b) = (line("a", 1_000), line("b", 600));
        let mut first = b.mulaw[..2_400].to_vec();
        first.extend_from_slice(&a.mulaw[..4_000]);
        let second = a.mulaw[4_000..].to_vec();
        let spans = [(1_000_000, first), (9_000_000, second), (12_000_000, vec![1; 160])];
        let (heard, unknown_ms) = listen(&spans, &[a, b]);
        let told: Vec<_> = heard.iter().map(|h| (h.text.as_str(), h.heard_ms, h.is_whole())).collect();
        assert_eq!(told, [("b", 300, false), ("a", 1_000, true)]);
        assert_eq!((heard[0].from_us, heard[1].to_us, unknown_ms), (1_000_000, 9_500_000, 20));
    }
    #[test]
    fn a_line_that_is_cut_off_takes_nothing_of_the_next() {
        let line = |text: &str, ms| Line { text: text.into(), mulaw: sound::agent(text, ms) };
        let (a, mut b) = (line("a", 1_000), line("b", 600));
        // The first milliseconds of the next line are what the one that was cut off would have gone on with.
        b.mulaw[..56].copy_from_slice(&a.mulaw[4_000..4_056]);
        let spans = [(1_000_000, a.mulaw[..4_000].to_vec()), (2_000_000, b.mulaw.clone())];
        let (heard, unknown_ms) = listen(&spans, &[a, b]);
        let told: Vec<_> = heard.iter().map(|h| (h.text.as_str(), h.heard_ms)).collect();
        assert_eq!((told.as_slice(), unknown_ms), ([("a", 500), ("b", 600)].as_slice(), 0));
    }
}
