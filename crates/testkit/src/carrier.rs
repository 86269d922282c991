//! The carrier's playout buffer in virtual time: audio plays in real time, a mark comes back when everything before it has
//! played, a clear drops the rest and returns every outstanding mark. (Twilio, "WebSocket messages": mark, clear.)

use std::collections::VecDeque;
use vocab::{CallTime, MarkName, PlaybackId, Samples};

#[derive(Clone, Debug)]
enum Queued {
    Audio { playback: PlaybackId, from: Samples, to: Samples },
    Mark(MarkName),
}

/// A stretch that the caller heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeardPiece {
    pub playback: PlaybackId,
    pub from: Samples,
    pub to: Samples,
    pub at: CallTime,
}

#[derive(Debug)]
pub struct Carrier {
    /// How long a message takes from us to the carrier and an echo back, each way.
    pub delay_ms: u64,
    /// Marks are swallowed.
    pub drops_marks: bool,
    queue: VecDeque<Queued>,
    /// When the audio at the front began to play.
    playing_since: Option<CallTime>,
    echoes: VecDeque<(CallTime, MarkName)>,
    pub heard: Vec<HeardPiece>,
    /// Moments at which a playback ran dry and went on later: an audible hole.
    pub holes: Vec<CallTime>,
    ran_dry: Option<(CallTime, PlaybackId)>,
}

impl Carrier {
    pub fn new() -> Self {
        Self {
            delay_ms: 40,
            drops_marks: false,
            queue: VecDeque::new(),
            playing_since: None,
            echoes: VecDeque::new(),
            heard: Vec::new(),
            holes: Vec::new(),
            ran_dry: None,
        }
    }

    pub fn media(&mut self, now: CallTime, playback: PlaybackId, from: Samples, to: Samples) {
        self.advance(now);
        if self.queue.is_empty() {
            if let Some((_, dry)) = self.ran_dry.take()
                && dry == playback
            {
                self.holes.push(now);
            }
            self.playing_since = Some(now.plus_ms(self.delay_ms));
        }
        self.queue.push_back(Queued::Audio { playback, from, to });
    }

    pub fn mark(&mut self, now: CallTime, mark: MarkName) {
        self.advance(now);
        self.queue.push_back(Queued::Mark(mark));
        self.advance(now);
    }

    pub fn clear(&mut self, now: CallTime) {
        let now = now.plus_ms(self.delay_ms);
        self.advance(now);
        for queued in std::mem::take(&mut self.queue) {
            match queued {
                Queued::Audio { playback, from, to } => {
                    if let Some(since) = self.playing_since.take() {
                        let played = Samples::in_duration(now.since(since)).min(to - from);
                        if played > Samples::ZERO {
                            self.heard.push(HeardPiece { playback, from, to: from + played, at: since });
                        }
                    }
                }
                Queued::Mark(mark) => self.echo(now, mark),
            }
        }
        self.playing_since = None;
        self.ran_dry = None;
    }

    fn echo(&mut self, at: CallTime, mark: MarkName) {
        if !self.drops_marks {
            self.echoes.push_back((at.plus_ms(self.delay_ms), mark));
        }
    }

    /// Plays up to `now`.
    fn advance(&mut self, now: CallTime) {
        while let Some(front) = self.queue.front().cloned() {
            match front {
                Queued::Mark(mark) => {
                    let at = self.playing_since.unwrap_or(now.plus_ms(self.delay_ms));
                    if at > now.plus_ms(self.delay_ms) {
                        return;
                    }
                    self.queue.pop_front();
                    self.echo(at, mark);
                }
                Queued::Audio { playback, from, to } => {
                    let since = *self.playing_since.get_or_insert(now);
                    let ends = since + (to - from).duration();
                    if ends > now {
                        return;
                    }
                    self.queue.pop_front();
                    self.heard.push(HeardPiece { playback, from, to, at: since });
                    self.playing_since = Some(ends);
                    if !self.queue.iter().any(|queued| matches!(queued, Queued::Audio { .. })) {
                        self.ran_dry = Some((ends, playback));
                        // Marks behind it come back at its end; then the clock of the buffer stops.
                        while let Some(Queued::Mark(mark)) = self.queue.pop_front() {
                            self.echo(ends, mark);
                        }
                        self.playing_since = None;
                    }
                }
            }
        }
    }

    /// When something happens here if nobody does anything.
    pub fn next_event(&mut self, now: CallTime) -> Option<CallTime> {
        self.advance(now);
        let echo = self.echoes.iter().map(|(at, _)| *at).min();
        let ends = match (self.queue.front(), self.playing_since) {
            (Some(Queued::Audio { from, to, .. }), Some(since)) => Some(since + (*to - *from).duration()),
            (Some(_) | None, _) => None,
        };
        [echo, ends].into_iter().flatten().min()
    }

    /// An echo that has arrived by `now`.
    pub fn take_echo(&mut self, now: CallTime) -> Option<MarkName> {
        self.advance(now);
        let (at, mark) = *self.echoes.front()?;
        (at <= now).then(|| {
            self.echoes.pop_front();
            mark
        })
    }

    /// Samples of `playback` that the caller heard.
    pub fn heard_of(&self, playback: PlaybackId) -> Samples {
        self.heard
            .iter()
            .filter(|piece| piece.playback == playback)
            .fold(Samples::ZERO, |sum, piece| sum + (piece.to - piece.from))
    }

    /// Whether what was heard of `playback` is one run from its start: nothing lost, nothing repeated.
    pub fn heard_in_order(&self, playback: PlaybackId) -> bool {
        let mut next = Samples::ZERO;
        self.heard.iter().filter(|piece| piece.playback == playback).all(|piece| {
            let in_order = piece.from == next;
            next = piece.to;
            in_order
        })
    }
}

impl Default for Carrier {
    fn default() -> Self {
        Self::new()
    }
}
