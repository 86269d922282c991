//! One caller of a load run. It speaks at fixed times and keeps no audio: sounds are counted, not kept.

use super::ear::Ear;
use super::report::{BargeIn, Measured};
use super::{Connected, LoadPlan};
use crate::phone::{CONNECTED, Carrier, Socket, sid};
use crate::ticker::periods_due;
use crate::{g711, voices};
use futures_util::{SinkExt, StreamExt};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::CancellationToken;

const BLOCK: usize = 160;
/// A response whose next sound is later than this was over: the sound begins another.
const NEW_RESPONSE_AFTER_US: u64 = 500_000;
/// A barge-in without `clear` so long after its burst is unanswered.
const GIVE_UP_AFTER_US: u64 = 1_000_000;

/// What every caller says, frame by frame, and the silence in between.
#[derive(Debug)]
pub(super) struct Voice {
    speech: Vec<[u8; BLOCK]>,
    silence: [u8; BLOCK],
}

impl Voice {
    pub(super) fn new(speech_ms: u64) -> Self {
        let voice = voices::builtin("caller_talk_over").unwrap_or_default();
        // From the first audible frame on, so that the first speech frame is speech.
        let audible = voice.as_chunks::<BLOCK>().0.iter().skip_while(|block| !g711::is_audible(*block));
        let speech: Vec<[u8; BLOCK]> = audible.take((speech_ms / 20).max(1) as usize).copied().collect();
        let silence = std::array::from_fn(|n| if n % 5 == 0 { 0x7f } else { 0xff });
        Self { speech, silence }
    }
}

pub(super) struct Caller {
    socket: Socket,
    carrier: Carrier,
    parameters: Vec<(String, String)>,
    voice: Arc<Voice>,
    measured: Arc<Mutex<Measured>>,
    zero: Instant,
    every_frames: u64,
    frames: u64,
    /// Frame of the cycle at which this caller speaks; callers are spread over the cycle.
    speaks_at: u64,
    /// The burst under way over the agent's voice: when its frames went out.
    barge_in: Option<Vec<u64>>,
    /// Which of them confirmed that it is speech, by our own ear.
    confirmed_us: Option<u64>,
    ear: Option<Ear>,
    /// Where the response's sound would have to be: its start, and how much came.
    response_from_us: Option<u64>,
    response_us: u64,
    /// Marks that wait for their sound, with the moment it will have played.
    marks: VecDeque<(u64, String)>,
}

impl Caller {
    pub(super) fn new(
        plan: &LoadPlan,
        number: usize,
        connected: Connected,
        voice: Arc<Voice>,
        measured: Arc<Mutex<Measured>>,
    ) -> Self {
        let every_frames = plan.speak_every_ms / 20;
        Self {
            carrier: Carrier::new(sid("MZ"), plan.account_sid.clone(), connected.call_sid, 100),
            socket: connected.socket,
            parameters: connected.parameters,
            voice,
            measured,
            zero: Instant::now(),
            every_frames,
            frames: 0,
            speaks_at: number as u64 * 37 % (every_frames - plan.speech_ms / 20),
            barge_in: None,
            confirmed_us: None,
            ear: plan.has_ears.then(Ear::new),
            response_from_us: None,
            response_us: 0,
            marks: VecDeque::new(),
        }
    }

    pub(super) async fn talk(mut self, mut slot: watch::Receiver<Option<Instant>>, stop: CancellationToken) {
        if self.run(&mut slot, &stop).await.is_err() {
            locked(&self.measured).lost_streams += 1;
            return;
        }
        let stop = self.carrier.stop();
        let farewell = async {
            let _ = self.socket.send(Message::text(stop)).await;
            let _ = self.socket.close(None).await;
            while let Some(Ok(_)) = self.socket.next().await {}
        };
        let _ = tokio::time::timeout(std::time::Duration::from_secs(1), farewell).await;
    }

    /// `Err`: the server ended it.
    async fn run(&mut self, slot: &mut watch::Receiver<Option<Instant>>, stop: &CancellationToken) -> Result<(), ()> {
        let start = self.carrier.start(&self.parameters);
        self.socket.feed(Message::text(CONNECTED)).await.map_err(drop)?;
        self.socket.send(Message::text(start)).await.map_err(drop)?;
        let mut next_due = None;
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                changed = slot.changed() => {
                    changed.map_err(drop)?;
                    let Some(due) = *slot.borrow_and_update() else { continue };
                    let frames = periods_due(&mut next_due, due);
                    self.send_frames(frames, due).await?;
                }
                message = self.socket.next() => match message {
                    Some(Ok(Message::Text(text))) => self.take(&text).await?,
                    Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                    Some(Ok(Message::Binary(_))) => locked(&self.measured).odd_messages += 1,
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(()),
                },
            }
        }
    }

    fn now_us(&self) -> u64 {
        self.zero.elapsed().as_micros() as u64
    }

    async fn send_frames(&mut self, count: u32, due: Instant) -> Result<(), ()> {
        let now_us = self.now_us();
        while self.marks.front().is_some_and(|(at_us, _)| *at_us <= now_us) {
            let Some((_, name)) = self.marks.pop_front() else { break };
            self.return_mark(&name).await?;
        }
        for _ in 0..count {
            let voice = Arc::clone(&self.voice);
            let place = self.frames % self.every_frames;
            let spoken = place.checked_sub(self.speaks_at).and_then(|n| voice.speech.get(n as usize));
            let text = self.carrier.media(spoken.unwrap_or(&voice.silence), 0);
            self.socket.feed(Message::text(text)).await.map_err(drop)?;
            self.frames += 1;
            if place == self.speaks_at && self.agent_is_playing(now_us) {
                self.barge_in = Some(Vec::with_capacity(voice.speech.len()));
                self.confirmed_us = None;
            }
            // After the frame has left: what the ear costs is no part of the way.
            if self.ear.as_mut().is_some_and(|ear| ear.hear(spoken.unwrap_or(&voice.silence))) {
                self.confirmed_us = Some(now_us);
            }
            if let (Some(sent), Some(_)) = (&mut self.barge_in, spoken) {
                sent.push(now_us);
            }
        }
        self.socket.flush().await.map_err(drop)?;
        let unanswered =
            self.barge_in.as_ref().and_then(|sent| sent.last()).is_some_and(|last| now_us - last > GIVE_UP_AFTER_US);
        let mut measured = locked(&self.measured);
        if unanswered {
            self.barge_in = None;
        }
        if measured.measuring {
            measured.unanswered_barge_ins += u64::from(unanswered);
            measured.sent_frames += u64::from(count);
            measured.generator_late.add(due.elapsed().as_micros() as u64);
        }
        Ok(())
    }

    fn agent_is_playing(&self, now_us: u64) -> bool {
        self.response_from_us.is_some_and(|from| from + self.response_us > now_us.saturating_sub(40_000))
    }

    async fn take(&mut self, text: &str) -> Result<(), ()> {
        let now_us = self.now_us();
        if let Some(payload) = string_field(text, r#""payload":""#) {
            self.note_sound(now_us, payload);
        } else if let Some(name) = string_field(text, r#""name":""#) {
            match self.response_from_us.map(|from| from + self.response_us) {
                Some(at_us) if at_us > now_us => self.marks.push_back((at_us, name.to_owned())),
                Some(_) | None => {
                    let name = name.to_owned();
                    self.return_mark(&name).await?;
                    self.socket.flush().await.map_err(drop)?;
                }
            }
        } else if text.contains(r#""clear""#) {
            self.response_from_us = None;
            if let Some(sent_us) = self.barge_in.take() {
                let mut measured = locked(&self.measured);
                if measured.measuring {
                    measured.barge_ins.push(BargeIn { sent_us, confirmed_us: self.confirmed_us, cleared_us: now_us });
                }
            }
            while let Some((_, name)) = self.marks.pop_front() {
                self.return_mark(&name).await?;
            }
            self.socket.flush().await.map_err(drop)?;
        } else {
            locked(&self.measured).odd_messages += 1;
        }
        Ok(())
    }

    fn note_sound(&mut self, now_us: u64, payload: &str) {
        let padding = payload.bytes().rev().take_while(|&b| b == b'=').count();
        let sound_us = (payload.len() / 4 * 3 - padding) as u64 * 125;
        let needed_us = self.response_from_us.map(|from| from + self.response_us);
        let late_us = match needed_us {
            Some(needed) if now_us < needed + NEW_RESPONSE_AFTER_US => now_us.saturating_sub(needed),
            Some(_) | None => {
                self.response_from_us = Some(now_us);
                self.response_us = 0;
                0
            }
        };
        self.response_us += sound_us;
        let mut measured = locked(&self.measured);
        if measured.measuring {
            measured.lateness.add(late_us);
            measured.received_frames += 1;
        }
    }

    async fn return_mark(&mut self, name: &str) -> Result<(), ()> {
        let text = self.carrier.mark(name);
        {
            let mut measured = locked(&self.measured);
            measured.marks += u64::from(measured.measuring);
        }
        self.socket.feed(Message::text(text)).await.map_err(drop)
    }
}

/// The text behind a key, up to the next quote.
fn string_field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let rest = text.split_once(key)?.1;
    rest.split_once('"').map(|(value, _)| value)
}

pub(super) fn locked(measured: &Mutex<Measured>) -> MutexGuard<'_, Measured> {
    measured.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_wherever_it_stands() {
        let text = r#"{"event":"media","media":{"payload":"//8="},"streamSid":"MZ1"}"#;
        assert_eq!(string_field(text, r#""payload":""#), Some("//8="));
        assert_eq!(string_field(text, r#""name":""#), None);
    }

    #[test]
    fn every_caller_speaks_from_its_first_speech_frame_on() {
        let voice = Voice::new(1_200);
        assert_eq!(voice.speech.len(), 60);
        assert!(g711::is_audible(&voice.speech[0]) && !g711::is_audible(&voice.silence));
    }
}
