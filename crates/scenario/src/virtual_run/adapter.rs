//! The adapter of the model without its socket: our commands become client events, server events become ours.

use super::VirtualError;
use bytes::BytesMut;
use models::gpt_live::session::{LiveSession, Received};
use models::gpt_live::socket::HELD_AUDIO_BYTES;
use models::openai_realtime::ids::Ids;
use models::openai_realtime::wire::{self, Decoded, Standing};
use models::{Provider, SessionConfig, gpt_live, openai_realtime};
use std::collections::VecDeque;
use vocab::model::{Capabilities, ModelCommand, ModelEvent};

pub enum Adapter {
    Realtime(Box<Realtime>),
    Live(Box<Live>),
}

pub struct Realtime {
    ids: Ids,
    standing: Standing,
    events: VecDeque<ModelEvent>,
    /// The sound of the one event that has any.
    sound: Vec<u8>,
    out: VecDeque<String>,
}

pub struct Live {
    session: LiveSession,
    opened_us: u64,
    /// What the caller says before the session has started; the newest.
    held: VecDeque<u8>,
    out: VecDeque<String>,
}

impl Live {
    fn ms(&self, now_us: u64) -> u64 {
        now_us.saturating_sub(self.opened_us) / 1_000
    }

    fn append(&mut self, codes: &[u8]) {
        let mut out = BytesMut::new();
        gpt_live::encode::audio(codes, &mut out);
        self.out.push_back(text(&out));
    }

    fn take_out(&mut self) {
        while let Some(event) = self.session.next_client_event() {
            self.out.push_back(event.to_string());
        }
    }
}

impl Adapter {
    /// The first client events are ready.
    pub fn open(now_us: u64, config: &SessionConfig) -> Self {
        match &config.provider {
            Provider::OpenAiRealtime => {
                let mut adapter = Realtime {
                    ids: Ids::default(),
                    standing: Standing::of(config),
                    events: VecDeque::new(),
                    sound: Vec::new(),
                    out: VecDeque::new(),
                };
                let mut out = BytesMut::new();
                wire::session_update(config, &mut adapter.ids, &mut out);
                adapter.out.push_back(text(&out));
                Self::Realtime(Box::new(adapter))
            }
            Provider::GptLive(settings) => {
                let mut adapter = Live {
                    session: LiveSession::new(config, settings),
                    opened_us: now_us,
                    held: VecDeque::new(),
                    out: VecDeque::new(),
                };
                adapter.take_out();
                Self::Live(Box::new(adapter))
            }
        }
    }

    pub fn capabilities(&self) -> Capabilities {
        match self {
            Self::Realtime(_) => openai_realtime::CAPABILITIES,
            Self::Live(_) => gpt_live::CAPABILITIES,
        }
    }

    /// The next client event.
    pub fn next_out(&mut self) -> Option<String> {
        match self {
            Self::Realtime(realtime) => realtime.out.pop_front(),
            Self::Live(live) => live.out.pop_front(),
        }
    }

    pub fn tell(&mut self, now_us: u64, command: &ModelCommand) {
        match self {
            Self::Realtime(realtime) => {
                let mut out = BytesMut::new();
                match wire::encode(command, &realtime.standing, &mut realtime.ids, &mut out) {
                    wire::Encoded::Written => realtime.out.push_back(text(&out)),
                    wire::Encoded::Deferred | wire::Encoded::Dropped(_) => {}
                }
            }
            Self::Live(live) => {
                let now_ms = live.ms(now_us);
                live.session.command(now_ms, command);
                live.take_out();
            }
        }
    }

    /// The caller's sound.
    pub fn append(&mut self, codes: &[u8]) {
        match self {
            Self::Realtime(realtime) => {
                let mut out = BytesMut::new();
                wire::append(codes, &mut out);
                realtime.out.push_back(text(&out));
            }
            Self::Live(live) if live.session.is_started() => live.append(codes),
            Self::Live(live) => {
                live.held.extend(codes);
                let over = live.held.len().saturating_sub(HELD_AUDIO_BYTES);
                live.held.drain(..over);
            }
        }
    }

    /// A server event.
    pub fn receive(&mut self, now_us: u64, event: &str) -> Result<(), VirtualError> {
        match self {
            Self::Realtime(realtime) => {
                realtime.sound.clear();
                let decoded = wire::decode(event, &mut realtime.ids, &mut realtime.sound);
                let mut out = BytesMut::new();
                while wire::cancel_due(&mut realtime.ids, &mut out) {
                    realtime.out.push_back(text(&out));
                    out.clear();
                }
                match decoded {
                    Decoded::Event(event) => realtime.events.push_back(event),
                    Decoded::Events(several) => realtime.events.extend(several),
                    Decoded::WrongFormat { input, output } => return Err(VirtualError::WrongFormat { input, output }),
                    Decoded::Ignored(_) => {}
                }
            }
            Self::Live(live) => {
                let now_ms = live.ms(now_us);
                if let Received::WrongFormat(format) = live.session.receive(now_ms, event) {
                    return Err(VirtualError::WrongFormat { input: format.clone(), output: format });
                }
                if live.session.is_started() && !live.held.is_empty() {
                    let held = std::mem::take(&mut live.held);
                    live.append(&Vec::from(held));
                }
                live.take_out();
            }
        }
        Ok(())
    }

    /// The next event for the core; its sound is appended to `sound`.
    pub fn next_event(&mut self, sound: &mut Vec<u8>) -> Option<ModelEvent> {
        match self {
            Self::Realtime(realtime) => {
                let event = realtime.events.pop_front()?;
                if matches!(event, ModelEvent::AudioReceived { .. }) {
                    sound.append(&mut realtime.sound);
                }
                Some(event)
            }
            Self::Live(live) => live.session.next_event(sound),
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now_us: u64) {
        let Self::Live(live) = self else { return };
        let now_ms = live.ms(now_us);
        if live.session.next_tick_ms().is_some_and(|due_ms| due_ms <= now_ms) {
            live.session.tick(now_ms);
            live.take_out();
        }
    }

    /// When [`Adapter::tick`] has something to do.
    pub fn next_us(&mut self) -> Option<u64> {
        match self {
            Self::Realtime(_) => None,
            Self::Live(live) => live.session.next_tick_ms().map(|ms| live.opened_us + ms * 1_000),
        }
    }
}

fn text(out: &BytesMut) -> String {
    String::from_utf8_lossy(out).into_owned()
}
