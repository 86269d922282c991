//! What the carrier does with our audio: a queue that is drained in real time, with marks in it. Reads no clock.
//! (Twilio, "Media Streams: WebSocket messages": media, mark, clear; error 31931 for the limit.)

use serde::Serialize;
use std::collections::VecDeque;

/// μ-law at 8 kHz: a byte lasts 125 µs.
const US_PER_BYTE: u64 = 125;
/// More queued audio than this is dropped (31931): 10 minutes.
pub const MAX_QUEUED_BYTES: usize = 10 * 60 * 8_000;

/// Audio that the caller heard without a break.
#[derive(Clone, Debug, Serialize)]
pub struct HeardSpan {
    /// When its first sample sounded, in µs on the clock of the call.
    pub at_us: u64,
    /// Serialised as its length in microseconds, `lasted_us`.
    #[serde(rename = "lasted_us", serialize_with = "length_us")]
    pub mulaw: Vec<u8>,
}

// The signature is serde's.
#[allow(clippy::ptr_arg)]
fn length_us<S: serde::Serializer>(mulaw: &Vec<u8>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(mulaw.len() as u64 * US_PER_BYTE)
}

impl HeardSpan {
    pub fn ends_us(&self) -> u64 {
        self.at_us + self.mulaw.len() as u64 * US_PER_BYTE
    }
}

/// A mark to be returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Echo {
    pub name: String,
    /// When everything before it had sounded (or was thrown away).
    pub due_us: u64,
    pub cleared: bool,
}

#[derive(Debug)]
enum Queued {
    Audio { mulaw: Vec<u8>, played: usize },
    Mark(String),
}

#[derive(Debug, Default)]
pub struct Playout {
    queue: VecDeque<Queued>,
    queued_bytes: usize,
    /// Up to here the queue has been played.
    played_to_us: u64,
    heard: Vec<HeardSpan>,
}

impl Playout {
    /// Play up to `now_us`; returns the marks that were reached.
    pub fn advance(&mut self, now_us: u64) -> Vec<Echo> {
        let mut echoes = Vec::new();
        while let Some(front) = self.queue.front_mut() {
            match front {
                Queued::Mark(name) => {
                    let name = std::mem::take(name);
                    echoes.push(Echo { name, due_us: self.played_to_us, cleared: false });
                    self.queue.pop_front();
                }
                Queued::Audio { mulaw, played } => {
                    let time = now_us.saturating_sub(self.played_to_us) / US_PER_BYTE;
                    let bytes = (time as usize).min(mulaw.len() - *played);
                    if bytes > 0 {
                        let sounded = &mulaw[*played..*played + bytes];
                        match self.heard.last_mut() {
                            // Rounding to a byte leaves up to 125 µs between two pieces of one sound.
                            Some(span) if self.played_to_us.abs_diff(span.ends_us()) <= US_PER_BYTE => {
                                span.mulaw.extend_from_slice(sounded);
                            }
                            _ => self.heard.push(HeardSpan { at_us: self.played_to_us, mulaw: sounded.to_vec() }),
                        }
                    }
                    *played += bytes;
                    self.queued_bytes -= bytes;
                    self.played_to_us += bytes as u64 * US_PER_BYTE;
                    if *played < mulaw.len() {
                        return echoes;
                    }
                    self.queue.pop_front();
                }
            }
        }
        // An empty queue plays nothing: the next audio starts when it comes.
        self.played_to_us = self.played_to_us.max(now_us);
        echoes
    }

    /// Queue audio. Returns how many bytes did not fit.
    pub fn push_audio(&mut self, mut mulaw: Vec<u8>) -> usize {
        let room = MAX_QUEUED_BYTES - self.queued_bytes;
        let dropped = mulaw.len().saturating_sub(room);
        mulaw.truncate(room);
        if !mulaw.is_empty() {
            self.queued_bytes += mulaw.len();
            self.queue.push_back(Queued::Audio { mulaw, played: 0 });
        }
        dropped
    }

    /// Queue a mark. `advance` returns it when it is reached, which is at once when nothing is queued.
    pub fn push_mark(&mut self, name: String) {
        self.queue.push_back(Queued::Mark(name));
    }

    /// Throw everything away. Returns all outstanding marks, in order, and how much audio was lost, in bytes.
    pub fn clear(&mut self, now_us: u64) -> (Vec<Echo>, usize) {
        let dropped = self.queued_bytes;
        self.queued_bytes = 0;
        let marks = self.queue.drain(..).filter_map(|q| match q {
            Queued::Mark(name) => Some(Echo { name, due_us: now_us, cleared: true }),
            Queued::Audio { .. } => None,
        });
        (marks.collect(), dropped)
    }

    /// When the next mark will be reached, if one is queued.
    pub fn next_mark_us(&self) -> Option<u64> {
        let mut bytes = 0;
        for queued in &self.queue {
            match queued {
                Queued::Mark(_) => return Some(self.played_to_us + bytes * US_PER_BYTE),
                Queued::Audio { mulaw, played } => bytes += (mulaw.len() - played) as u64,
            }
        }
        None
    }

    pub fn queued_ms(&self) -> u64 {
        self.queued_bytes as u64 / 8
    }

    pub fn heard(&self) -> &[HeardSpan] {
        &self.heard
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(echoes: &[Echo]) -> Vec<&str> {
        echoes.iter().map(|e| e.name.as_str()).collect()
    }

    #[test]
    fn a_mark_returns_when_the_audio_before_it_has_played() {
        let mut playout = Playout::default();
        assert!(playout.advance(1_000_000).is_empty());
        playout.push_audio(vec![1; 160]);
        playout.push_mark("a".into());
        playout.push_audio(vec![2; 160]);
        playout.push_mark("b".into());
        assert_eq!(playout.next_mark_us(), Some(1_020_000));
        assert!(playout.advance(1_019_900).is_empty());
        let echoes = playout.advance(1_030_000);
        assert_eq!((names(&echoes), echoes[0].due_us), (vec!["a"], 1_020_000));
        assert_eq!(playout.queued_ms(), 10);
        assert_eq!(names(&playout.advance(1_040_000)), ["b"]);
        assert_eq!(playout.heard().len(), 1);
        assert_eq!((playout.heard()[0].at_us, playout.heard()[0].mulaw.len()), (1_000_000, 320));
    }

    #[test]
    fn a_mark_on_an_empty_queue_returns_at_once() {
        let mut playout = Playout::default();
        playout.advance(5_000);
        playout.push_mark("now".into());
        assert_eq!(names(&playout.advance(5_000)), ["now"]);
    }

    #[test]
    fn clear_returns_every_outstanding_mark_in_order_and_stops_the_sound() {
        let mut playout = Playout::default();
        playout.push_audio(vec![1; 1_600]);
        for name in ["a", "b", "c"] {
            playout.push_mark(name.into());
            playout.push_audio(vec![1; 1_600]);
        }
        playout.advance(250_000);
        let (marks, dropped) = playout.clear(250_000);
        assert_eq!(names(&marks), ["b", "c"]);
        assert!(marks.iter().all(|m| m.cleared));
        assert_eq!(dropped, 6_400 - 2_000);
        assert!(playout.advance(10_000_000).is_empty());
        assert_eq!(playout.heard().iter().map(|s| s.mulaw.len()).sum::<usize>(), 2_000);
        playout.push_mark("fence".into());
        assert_eq!(names(&playout.advance(10_000_000)), ["fence"]);
    }

    #[test]
    fn a_dry_queue_leaves_a_gap_between_what_is_heard() {
        let mut playout = Playout::default();
        playout.push_audio(vec![1; 160]);
        playout.advance(100_000);
        playout.push_audio(vec![2; 160]);
        playout.advance(200_000);
        let spans: Vec<_> = playout.heard().iter().map(|s| (s.at_us, s.mulaw.len())).collect();
        assert_eq!(spans, [(0, 160), (100_000, 160)]);
    }

    #[test]
    fn more_than_ten_minutes_does_not_fit() {
        let mut playout = Playout::default();
        assert_eq!(playout.push_audio(vec![1; MAX_QUEUED_BYTES - 100]), 0);
        assert_eq!(playout.push_audio(vec![1; 160]), 60);
        assert_eq!(playout.queued_ms(), 600_000);
    }
}
