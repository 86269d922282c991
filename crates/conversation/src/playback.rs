//! The playback clock: queued → sent → playing → played | cleared, paced on absolute deadlines, judged by marks.
//! (behaviour.md 3)
//!
//! The core counts samples; the driver holds the bytes. `buffer_end` is when the carrier's buffer runs dry if everything
//! sent so far plays without a hole: the lead over real time is `buffer_end - now`, and a mark is *due* when the audio
//! before it must have played.

use crate::command::Command;
use crate::policy::PlaybackPolicy;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;
use vocab::audio::FRAME_BYTES;
use vocab::{CallTime, Epoch, MarkName, ModelItemId, PlaybackId, ResponseId, Samples};

/// Of an answer that was cut this close to its end nothing is missing.
const TAIL: Samples = Samples::from_ms(300);
const FRAME: Samples = Samples(FRAME_BYTES as u32);
/// A clear may be this much longer on its way than the sound before it was: above the jitter of a usable line.
const CLEAR_JITTER_MS: u64 = 150;

/// The sound of one response.
#[derive(Clone, Debug)]
struct Playback {
    id: PlaybackId,
    response: ResponseId,
    /// Items in the order of their audio, each with its first sample.
    items: Vec<(ModelItemId, Samples)>,
    received: Samples,
    sent: Samples,
    /// The generation has ended: nothing more will be received.
    complete: bool,
    /// It ended of its own accord, not by a limit, a failure or a cut.
    whole: bool,
    started_at: Option<CallTime>,
    /// When the audio sent so far has played.
    sent_end: CallTime,
    /// Sent since the last mark.
    unmarked: Samples,
    /// The farthest offset that a mark proves, and when the mark came back.
    proven: Samples,
    proven_at: Option<CallTime>,
}

#[derive(Clone, Copy, Debug)]
struct MarkOut {
    playback: PlaybackId,
    offset: Samples,
    due: CallTime,
}

/// A clear on its way: old marks may still be in flight.
#[derive(Clone, Debug)]
struct Clearing {
    fence: Epoch,
    cleared_at: CallTime,
    /// Audio that was due by then had played when the clear came, as far as the echoes tell.
    played_until: CallTime,
    marks: Vec<MarkOut>,
    playbacks: Vec<ClearedPlayback>,
}

#[derive(Clone, Debug)]
struct ClearedPlayback {
    playback: Playback,
    possible: Samples,
    at_most: Samples,
}

/// A finished story, and the doubt that is left.
#[derive(Clone, Debug)]
pub struct EndedPlayback {
    pub end: PlaybackEnd,
    /// What would have played if a clear was slow on its way. Proves nothing, and is no part of what was said; but what may
    /// have been heard to its end is not told again as news.
    pub at_most: Samples,
}

/// How far a caller heard one playback; told once, when nothing can change it any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaybackEnd {
    pub playback: PlaybackId,
    pub response: ResponseId,
    /// Marks prove this much.
    pub proven: Samples,
    /// By the clock it cannot have been more than this.
    pub possible: Samples,
    /// What the model generated; `None` when the generation was cut off.
    pub total: Option<Samples>,
    pub received: Samples,
    pub how: PlaybackEndedBy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlaybackEndedBy {
    /// Its last mark came back.
    Played,
    Cleared,
    /// Its last mark never came back.
    MarksLost,
    /// The stream ended under it.
    StreamEnded,
}

/// An item of a cleared playback and how much of it could have been heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutItem {
    pub item: ModelItemId,
    /// Zero: nothing of it.
    pub heard: Samples,
    /// All of it was heard: nothing to cut.
    pub whole: bool,
}

/// What a clear cut off.
#[derive(Clone, Debug, Default)]
pub struct Cut {
    pub items: Vec<CutItem>,
    pub responses: Vec<ResponseId>,
    /// Those of them that the caller cannot have heard to the end.
    pub unfinished: Vec<ResponseId>,
    /// Generated but never heard.
    pub unheard: Samples,
}

/// What became of an echo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MarkVerdict {
    Played,
    /// Of a cleared epoch, but its audio had played before the clear.
    PlayedBeforeClear,
    /// Returned by the clear: proves nothing.
    Cleared,
    /// Nothing of the old epochs is outstanding any more.
    Fence,
    /// Not one that is outstanding.
    Unknown,
}

#[derive(Clone, Debug, Default)]
pub struct PlaybackClock {
    /// In playing order. All but the last may be fully sent and still playing.
    live: VecDeque<Playback>,
    marks: VecDeque<MarkOut>,
    clearing: Option<Clearing>,
    ended: VecDeque<EndedPlayback>,
    epoch: Epoch,
    last: PlaybackId,
    buffer_end: CallTime,
    held: bool,
    /// When the caller last could hear us.
    last_sound: Option<CallTime>,
    lateness: Lateness,
}

/// How late echoes come back after their audio was due. The part of it that is the same for all is the way there and back;
/// what comes on top is a carrier that began to play later than we thought.
#[derive(Clone, Copy, Debug, Default)]
struct Lateness {
    least: Option<Duration>,
    last: Duration,
}

impl Lateness {
    fn see(&mut self, at: CallTime, due: CallTime) {
        self.last = at.since(due);
        self.least = Some(self.least.map_or(self.last, |least| least.min(self.last)));
    }

    fn excess(self) -> Duration {
        self.least.map_or(Duration::ZERO, |least| self.last.saturating_sub(least))
    }
}

impl PlaybackClock {
    /// Whose sound is queued, playing, or may still be in the carrier's buffer.
    pub fn live_responses(&self) -> impl Iterator<Item = ResponseId> {
        self.live.iter().map(|playback| playback.response)
    }

    /// Whoever held these items is gone: nothing is left to cut in them.
    pub fn forget_items(&mut self) {
        for playback in &mut self.live {
            playback.items.clear();
        }
    }

    /// Something of ours is queued, playing, or may still be in the carrier's buffer.
    pub fn is_live(&self) -> bool {
        !self.live.is_empty()
    }

    /// When our own voice last ended; `None` while it is live or before it was ever heard.
    pub fn silent_since(&self) -> Option<CallTime> {
        if self.is_live() { None } else { self.last_sound }
    }

    /// Audio arrived for `response`. Returns where the driver must keep it.
    pub fn receive(&mut self, response: ResponseId, item: ModelItemId, samples: Samples) -> (PlaybackId, Samples) {
        let found = self.live.iter().rposition(|playback| playback.response == response);
        let place = match found {
            Some(place) => place,
            None => {
                self.last = self.last.next();
                self.live.push_back(Playback {
                    id: self.last,
                    response,
                    items: Vec::with_capacity(2),
                    received: Samples::ZERO,
                    sent: Samples::ZERO,
                    complete: false,
                    whole: false,
                    started_at: None,
                    sent_end: CallTime(0),
                    unmarked: Samples::ZERO,
                    proven: Samples::ZERO,
                    proven_at: None,
                });
                self.live.len() - 1
            }
        };
        let playback = &mut self.live[place];
        let from = playback.received;
        if playback.items.last().is_none_or(|(last, _)| *last != item) {
            playback.items.push((item, from));
        }
        playback.received += samples;
        (playback.id, from)
    }

    /// The generation of `response` has ended; what it holds is all there will be. `whole`: of its own accord.
    /// Returns how far the ear is behind.
    pub fn complete(&mut self, at: CallTime, response: ResponseId, whole: bool) -> Option<Samples> {
        let place = self.live.iter().position(|playback| playback.response == response)?;
        let behind = self.live[place].received.saturating_sub(self.possible(&self.live[place], at));
        self.live[place].complete = true;
        self.live[place].whole = whole;
        Some(behind)
    }

    /// Stops feeding the carrier. What is in its buffer plays on: shorter than a false start can last.
    pub fn hold(&mut self) {
        self.held = true;
    }

    /// Feeds on from the sample where it stopped: nothing is lost or repeated.
    pub fn resume(&mut self) {
        self.held = false;
    }

    /// Sends what the lead allows. Returns when to come back, if time alone makes room.
    pub fn pump(&mut self, at: CallTime, policy: &PlaybackPolicy, out: &mut Vec<Command>) -> Option<CallTime> {
        if self.held {
            return None;
        }
        // A step always returns: chunks of nothing would never end.
        let (lead, chunk) = (Samples::from_ms(policy.lead_ms), Samples::from_ms(policy.chunk_ms).max(FRAME));
        for place in 0..self.live.len() {
            loop {
                let ahead = Samples::in_duration(self.buffer_end.since(at));
                let playback = &mut self.live[place];
                let waiting = playback.received.saturating_sub(playback.sent);
                // Whole frames only, until the end: separate odd-sized bursts crackle on the line.
                let ready = if playback.complete { waiting } else { Samples(waiting.0 / FRAME.0 * FRAME.0) };
                if ready == Samples::ZERO {
                    break;
                }
                if ahead + FRAME > lead || (ahead > Samples::ZERO && ahead + chunk.min(ready) > lead) {
                    // Room for a whole chunk comes when this much has played.
                    let room_at = self.buffer_end.minus_ms(u64::from(policy.lead_ms.saturating_sub(policy.chunk_ms)));
                    return Some(room_at.max(at.plus_ms(1)));
                }
                let size = chunk.min(ready);
                let from = playback.sent;
                playback.sent += size;
                playback.started_at.get_or_insert(at);
                // The driver pads the last frame with silence to whole frames.
                let padded = Samples(size.0.div_ceil(FRAME.0) * FRAME.0);
                self.buffer_end = self.buffer_end.max(at) + padded.duration();
                playback.sent_end = self.buffer_end;
                playback.unmarked += size;
                out.push(Command::SendAudio { playback: playback.id, from, to: playback.sent });
                let all = playback.complete && playback.sent == playback.received;
                if all || playback.unmarked >= Samples::from_ms(policy.mark_every_ms) {
                    self.mark(place, out);
                }
            }
            if self.needs_end_mark(place) {
                self.mark(place, out);
            }
            let playback = &self.live[place];
            if !playback.complete || playback.sent < playback.received {
                // Later playbacks wait for this one.
                break;
            }
        }
        self.end_the_played(at);
        None
    }

    /// All of it has gone out and nothing on its way will prove the end: the generation's end was told after its last sample
    /// had gone out, or the marks that would have proven it were given up.
    fn needs_end_mark(&self, place: usize) -> bool {
        let playback = &self.live[place];
        let all_sent = playback.complete && playback.sent == playback.received && playback.sent > Samples::ZERO;
        let proof_due = self.marks.iter().any(|mark| mark.playback == playback.id && mark.offset == playback.sent);
        all_sent && playback.proven < playback.sent && !proof_due
    }

    fn mark(&mut self, place: usize, out: &mut Vec<Command>) {
        let playback = &mut self.live[place];
        playback.unmarked = Samples::ZERO;
        let (id, offset) = (playback.id, playback.sent);
        self.marks.push_back(MarkOut { playback: id, offset, due: playback.sent_end });
        out.push(Command::SendMark { mark: MarkName::Played { epoch: self.epoch, playback: id, offset } });
    }

    /// An echo came back.
    pub fn mark_returned(&mut self, at: CallTime, mark: MarkName) -> MarkVerdict {
        match mark {
            MarkName::Fence { epoch } => {
                if self.clearing.as_ref().is_some_and(|clearing| clearing.fence == epoch) {
                    self.end_the_cleared();
                    MarkVerdict::Fence
                } else {
                    MarkVerdict::Unknown
                }
            }
            MarkName::Played { epoch, playback, offset } if epoch == self.epoch => {
                let Some(place) = self.marks.iter().position(|out| out.playback == playback && out.offset == offset)
                else {
                    return MarkVerdict::Unknown;
                };
                self.lateness.see(at, self.marks[place].due);
                // A later mark of the same epoch completes the earlier ones: one that was lost must not hang us.
                for out in self.marks.drain(..=place) {
                    if let Some(playback) = self.live.iter_mut().find(|live| live.id == out.playback) {
                        playback.proven = playback.proven.max(out.offset);
                        playback.proven_at = Some(at);
                    }
                }
                self.end_the_played(at);
                MarkVerdict::Played
            }
            MarkName::Played { playback, offset, .. } => {
                let Some(clearing) = &mut self.clearing else { return MarkVerdict::Unknown };
                let Some(place) =
                    clearing.marks.iter().position(|out| out.playback == playback && out.offset == offset)
                else {
                    return MarkVerdict::Unknown;
                };
                let out = clearing.marks.remove(place);
                if out.due > clearing.played_until {
                    return MarkVerdict::Cleared;
                }
                for cleared in &mut clearing.playbacks {
                    if cleared.playback.id == out.playback {
                        cleared.playback.proven = cleared.playback.proven.max(out.offset);
                        cleared.possible = cleared.possible.max(out.offset);
                    }
                }
                MarkVerdict::PlayedBeforeClear
            }
        }
    }

    /// Empties the carrier's buffer and our own. Returns what was cut; `None` when there was nothing to clear.
    pub fn clear(&mut self, at: CallTime, out: &mut Vec<Command>) -> Option<Cut> {
        self.held = false;
        if self.live.is_empty() {
            return None;
        }
        // A clear while one is on its way: whatever the first one left open is decided now.
        self.end_the_cleared();
        let mut cut = Cut::default();
        let mut playbacks = Vec::with_capacity(self.live.len());
        for playback in std::mem::take(&mut self.live) {
            let possible = self.possible(&playback, at);
            cut.responses.push(playback.response);
            if !playback.complete || possible + TAIL < playback.received {
                cut.unfinished.push(playback.response);
            }
            cut.unheard += playback.received.saturating_sub(possible);
            for (place, (item, start)) in playback.items.iter().enumerate() {
                let end = playback.items.get(place + 1).map_or(playback.received, |(_, next)| *next);
                let heard = possible.min(end).saturating_sub(*start);
                let generated = playback.complete || place + 1 < playback.items.len();
                let whole = generated && possible >= end;
                cut.items.push(CutItem { item: *item, heard, whole });
            }
            out.push(Command::ReleaseAudio { playback: playback.id });
            let at_most = at_most(&playback, at);
            playbacks.push(ClearedPlayback { playback, possible, at_most });
        }
        self.epoch = self.epoch.next();
        let marks = std::mem::take(&mut self.marks).into();
        // What was due within the carrier's own lag may not have played.
        let played_until = at - self.lateness.excess();
        self.clearing = Some(Clearing { fence: self.epoch, cleared_at: at, played_until, marks, playbacks });
        self.buffer_end = at;
        self.last_sound = Some(at);
        out.push(Command::ClearPlayback);
        out.push(Command::SendMark { mark: MarkName::Fence { epoch: self.epoch } });
        Some(cut)
    }

    /// The most that the caller can have heard of it, as far as marks and clock agree: when in doubt, not heard.
    fn possible(&self, playback: &Playback, at: CallTime) -> Samples {
        // The next mark has not come back, so its audio has not all played.
        let next_mark =
            self.marks.iter().find(|mark| mark.playback == playback.id).map_or(playback.sent, |mark| mark.offset);
        self.possible_by_clock(playback, at).min(next_mark).max(playback.proven)
    }

    /// The same without asking the marks, for when they may be lost.
    fn possible_by_clock(&self, playback: &Playback, at: CallTime) -> Samples {
        let Some(started_at) = playback.started_at else { return Samples::ZERO };
        let in_buffer = Samples::in_duration(playback.sent_end.since(at));
        let by_lead = playback.sent.saturating_sub(in_buffer);
        let since_proof = at.since(playback.proven_at.unwrap_or(started_at));
        let by_proof = playback.proven + Samples::in_duration(since_proof);
        by_lead.min(by_proof).max(playback.proven).min(playback.sent)
    }

    /// When the oldest outstanding mark is given up.
    pub fn mark_lost_at(&self, policy: &PlaybackPolicy) -> Option<CallTime> {
        self.marks.back().map(|mark| mark.due.plus_ms(u64::from(policy.mark_grace_ms)))
    }

    /// The outstanding marks are overdue: nothing more will be proven.
    pub fn give_up_marks(&mut self, at: CallTime, policy: &PlaybackPolicy) {
        if self.mark_lost_at(policy).is_none_or(|lost_at| lost_at > at) {
            return;
        }
        let lost: Vec<_> = self.marks.drain(..).map(|mark| mark.playback).collect();
        let mut kept = VecDeque::with_capacity(self.live.len());
        for playback in std::mem::take(&mut self.live) {
            if playback.complete && playback.sent == playback.received && lost.contains(&playback.id) {
                self.last_sound = Some(playback.sent_end);
                let possible = playback.sent;
                self.end(playback, possible, possible, PlaybackEndedBy::MarksLost);
            } else {
                kept.push_back(playback);
            }
        }
        self.live = kept;
    }

    /// When the fence is given up: a second is far above any round trip.
    pub fn fence_lost_at(&self) -> Option<CallTime> {
        self.clearing.as_ref().map(|clearing| clearing.cleared_at.plus_ms(1_000))
    }

    pub fn give_up_fence(&mut self) {
        self.end_the_cleared();
    }

    /// The stream is gone: what is proven by now is all that ever will be.
    pub fn stream_ended(&mut self, at: CallTime) {
        self.end_the_cleared();
        for playback in std::mem::take(&mut self.live) {
            let possible = self.possible_by_clock(&playback, at);
            let at_most = at_most(&playback, at);
            self.end(playback, possible, at_most, PlaybackEndedBy::StreamEnded);
        }
        self.marks.clear();
    }

    /// The next finished story, in the order of their ends.
    pub fn take_ended(&mut self) -> Option<EndedPlayback> {
        self.ended.pop_front()
    }

    /// For `invariant.rs`.
    pub fn broken_invariant(&self) -> Option<String> {
        let counts = |playback: &Playback| (playback.proven, playback.sent, playback.received);
        self.live
            .iter()
            .map(|playback| (playback.id, counts(playback)))
            .find(|(_, (proven, sent, received))| proven > sent || sent > received)
            .map(|(id, (proven, sent, received))| {
                format!("{id}: proven {} of sent {} of received {}", proven.0, sent.0, received.0)
            })
    }

    fn end_the_played(&mut self, at: CallTime) {
        while let Some(front) = self.live.front() {
            let played = front.complete && front.sent == front.received && front.proven == front.sent;
            if !played {
                break;
            }
            let Some(playback) = self.live.pop_front() else { break };
            self.last_sound = Some(at);
            let possible = playback.proven;
            self.end(playback, possible, possible, PlaybackEndedBy::Played);
        }
    }

    fn end_the_cleared(&mut self) {
        if let Some(clearing) = self.clearing.take() {
            for ClearedPlayback { playback, mut possible, at_most } in clearing.playbacks {
                // A mark that never came back, of audio that was due to have played before the clear: it may have been.
                let lost = clearing.marks.iter().filter(|mark| mark.playback == playback.id);
                for mark in lost.filter(|mark| mark.due <= clearing.cleared_at) {
                    possible = possible.max(mark.offset);
                }
                self.end(playback, possible, at_most, PlaybackEndedBy::Cleared);
            }
        }
    }

    fn end(&mut self, playback: Playback, possible: Samples, at_most: Samples, how: PlaybackEndedBy) {
        let end = PlaybackEnd {
            playback: playback.id,
            response: playback.response,
            proven: playback.proven,
            possible,
            total: playback.whole.then_some(playback.received),
            received: playback.received,
            how,
        };
        self.ended.push_back(EndedPlayback { end, at_most: at_most.max(possible) });
    }
}

/// By the clock of what was sent alone.
fn at_most(playback: &Playback, at: CallTime) -> Samples {
    playback.sent.saturating_sub(Samples::in_duration(playback.sent_end.since(at.plus_ms(CLEAR_JITTER_MS))))
}
