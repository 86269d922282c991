//! The caller: what they hear, what they do next, and the record of both. Lives across the streams of a call and reads
//! no socket.

use super::playout::{Echo, Playout};
use super::record::{
    CallEnd, CallResult, ClearRecord, Happened, MarkRecord, SaidSpan, TimelineEvent, Underrun, Violation,
};
use super::script::{Ready, Until};
use super::wire::Command;
use super::{PhoneConfig, PhoneFaults};
use crate::g711;
use std::collections::VecDeque;
use tokio::sync::mpsc;

/// 20 ms of μ-law, the unit in which hearing is judged.
const BLOCK: usize = 160;
/// Pauses between words are shorter; after this the agent counts as silent.
const SILENT_AFTER_US: u64 = 400_000;
/// A queue that runs dry for less than this was in the middle of a sound.
const UNDERRUN_WITHIN_US: u64 = 500_000;

/// What the stream has to send or do for the script.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Act {
    Digit(char),
    HangUp,
    Drop,
}

#[derive(Debug)]
struct Active {
    number: usize,
    step: Ready,
    since_us: u64,
    audible_ms_before: u64,
}

#[derive(Debug)]
pub(super) struct Line {
    pub(super) playout: Playout,
    pub(super) faults: PhoneFaults,
    steps: VecDeque<(usize, Ready)>,
    active: Option<Active>,
    /// What the caller is saying and has not said yet.
    voice: VecDeque<u8>,
    voice_since_us: Option<u64>,
    random: u64,
    // Hearing.
    seen: (usize, usize),
    block: Vec<u8>,
    audible_ms: u64,
    last_audible_us: Option<u64>,
    agent_is_audible: bool,
    /// Echoes that wait out a fault's delay.
    late: VecDeque<Echo>,
    pub(super) result: CallResult,
    observer: Option<mpsc::Sender<TimelineEvent>>,
}

impl Line {
    pub(super) fn new(config: &PhoneConfig, steps: Vec<Ready>) -> Self {
        Self {
            playout: Playout::default(),
            faults: config.faults,
            steps: steps.into_iter().enumerate().map(|(n, step)| (n + 1, step)).collect(),
            active: None,
            voice: VecDeque::new(),
            voice_since_us: None,
            random: config.seed.wrapping_mul(2).wrapping_add(1),
            seen: (0, 0),
            block: Vec::new(),
            audible_ms: 0,
            last_audible_us: None,
            agent_is_audible: false,
            late: VecDeque::new(),
            result: CallResult {
                call_sid: config.call_sid.clone().unwrap_or_default(),
                end: CallEnd::TooLong,
                ended_us: 0,
                streams: Vec::new(),
                heard: Vec::new(),
                marks: Vec::new(),
                clears: Vec::new(),
                underruns: Vec::new(),
                violations: Vec::new(),
                timeline: Vec::new(),
                timed_out_steps: Vec::new(),
                received_bytes: 0,
                sent_frames: 0,
                said: Vec::new(),
            },
            observer: config.observer.clone(),
        }
    }

    pub(super) fn note(&mut self, at_us: u64, what: Happened) {
        let event = TimelineEvent { at_us, what };
        if let Some(observer) = &self.observer {
            let _ = observer.try_send(event.clone());
        }
        self.result.timeline.push(event);
    }

    pub(super) fn complain(&mut self, at_us: u64, code: u32, detail: String) {
        self.note(at_us, Happened::ViolationSeen { code });
        self.result.violations.push(Violation { at_us, code, detail });
    }

    // What the server sends.

    /// Take a command. Call [`Self::play`] with the same time before it.
    pub(super) fn obey(&mut self, now_us: u64, command: Command) {
        match command {
            Command::Media(mulaw) => {
                self.result.received_bytes += mulaw.len() as u64;
                if let Some(ended) = self.playout.heard().last().map(|span| span.ends_us())
                    && self.playout.queued_ms() == 0
                    && (1_000..UNDERRUN_WITHIN_US).contains(&now_us.saturating_sub(ended))
                {
                    self.result.underruns.push(Underrun { at_us: now_us, gap_ms: (now_us - ended) / 1_000 });
                }
                if self.playout.push_audio(mulaw) > 0 {
                    self.complain(now_us, 31_931, "more than 10 minutes of audio queued".to_owned());
                }
            }
            Command::Mark(name) => {
                self.note(now_us, Happened::MarkReceived { name: name.clone() });
                self.result.marks.push(MarkRecord {
                    name: name.clone(),
                    received_us: now_us,
                    returned_us: None,
                    cleared: false,
                    swallowed: false,
                });
                self.playout.push_mark(name);
            }
            Command::Clear => {
                let (echoes, dropped) = self.playout.clear(now_us);
                let dropped_ms = dropped as u64 / 8;
                self.note(now_us, Happened::ClearReceived { dropped_ms, marks: echoes.len() });
                let caller_spoke_ms = self.voice_since_us.map(|since| (now_us - since) / 1_000);
                self.result.clears.push(ClearRecord {
                    at_us: now_us,
                    dropped_ms,
                    marks: echoes.len(),
                    caller_spoke_ms,
                });
                self.settle(echoes);
            }
        }
    }

    /// Let the queue play up to now, and hear it.
    pub(super) fn play(&mut self, now_us: u64) {
        let echoes = self.playout.advance(now_us);
        self.settle(echoes);
        self.hear(now_us);
    }

    /// The echoes to send by now.
    pub(super) fn echoes_due(&mut self, now_us: u64) -> Vec<String> {
        let mut names = Vec::new();
        while self.late.front().is_some_and(|echo| echo.due_us <= now_us) {
            let Some(echo) = self.late.pop_front() else { break };
            if let Some(mark) =
                self.result.marks.iter_mut().find(|m| m.name == echo.name && m.returned_us.is_none() && !m.swallowed)
            {
                mark.returned_us = Some(now_us);
                mark.cleared = echo.cleared;
            }
            self.note(now_us, Happened::MarkReturned { name: echo.name.clone(), cleared: echo.cleared });
            names.push(echo.name);
        }
        names
    }

    fn settle(&mut self, echoes: Vec<Echo>) {
        for mut echo in echoes {
            if self.faults.drop_marks {
                if let Some(mark) = self
                    .result
                    .marks
                    .iter_mut()
                    .find(|m| m.name == echo.name && m.returned_us.is_none() && !m.swallowed)
                {
                    mark.swallowed = true;
                    mark.cleared = echo.cleared;
                }
                self.note(echo.due_us, Happened::MarkSwallowed { name: echo.name });
            } else {
                echo.due_us += u64::from(self.faults.delay_marks_ms) * 1_000;
                self.late.push_back(echo);
            }
        }
    }

    /// When something is due on this side, beside the frames.
    pub(super) fn next_at_us(&self) -> Option<u64> {
        [self.playout.next_mark_us(), self.late.front().map(|echo| echo.due_us)].into_iter().flatten().min()
    }

    fn hear(&mut self, now_us: u64) {
        while let Some(span) = self.playout.heard().get(self.seen.0) {
            let fresh = &span.mulaw[self.seen.1..];
            let take = fresh.len().min(BLOCK - self.block.len());
            self.block.extend_from_slice(&fresh[..take]);
            self.seen.1 += take;
            if self.block.len() == BLOCK {
                if g711::is_audible(&self.block) {
                    self.audible_ms += 20;
                    self.last_audible_us = Some(now_us);
                    if !std::mem::replace(&mut self.agent_is_audible, true) {
                        self.note(now_us, Happened::AgentAudible);
                    }
                }
                self.block.clear();
            } else if self.playout.heard().len() > self.seen.0 + 1 {
                self.seen = (self.seen.0 + 1, 0);
            } else {
                break;
            }
        }
        if self.agent_is_audible && self.last_audible_us.is_none_or(|at| now_us - at >= SILENT_AFTER_US) {
            self.agent_is_audible = false;
            self.note(now_us, Happened::AgentSilent);
        }
    }

    // What the caller does.

    /// Go on in the script. The end of the script hangs up.
    pub(super) fn act(&mut self, now_us: u64) -> Vec<Act> {
        let mut acts = Vec::new();
        loop {
            if let Some(active) = self.active.take() {
                match self.is_done(&active, now_us) {
                    None => {
                        self.active = Some(active);
                        return acts;
                    }
                    Some(timed_out) => {
                        if timed_out {
                            self.result.timed_out_steps.push(active.number);
                        }
                        self.note(now_us, Happened::StepDone { step: active.number, timed_out });
                    }
                }
            }
            let Some((number, step)) = self.steps.pop_front() else {
                acts.push(Act::HangUp);
                return acts;
            };
            self.note(now_us, Happened::StepStarted { step: number, what: step.what() });
            acts.extend(self.do_now(now_us, &step));
            if matches!(acts.last(), Some(Act::HangUp | Act::Drop)) {
                return acts;
            }
            self.active = Some(Active { number, step, since_us: now_us, audible_ms_before: self.audible_ms });
        }
    }

    /// Begin a step; those that take time are then waited for by [`Self::act`].
    pub(super) fn do_now(&mut self, now_us: u64, step: &Ready) -> Vec<Act> {
        match step {
            Ready::Say { file, mulaw } => {
                if self.voice.is_empty() {
                    self.voice_since_us = Some(now_us);
                    self.note(now_us, Happened::CallerSpeaks { file: file.clone() });
                }
                let at_us = now_us + self.voice.len() as u64 * 125;
                self.result.said.push(SaidSpan { at_us, file: file.clone(), mulaw: mulaw.clone() });
                self.voice.extend(mulaw);
                Vec::new()
            }
            Ready::Silence { .. } | Ready::WaitForAgent { .. } => Vec::new(),
            Ready::Dtmf { digits } => {
                for digit in digits.chars() {
                    self.note(now_us, Happened::DigitSent { digit });
                }
                digits.chars().map(Act::Digit).collect()
            }
            Ready::DropMarks { on } => {
                self.faults.drop_marks = *on;
                Vec::new()
            }
            Ready::DelayMarks { ms } => {
                self.faults.delay_marks_ms = *ms;
                Vec::new()
            }
            Ready::HangUp => vec![Act::HangUp],
            Ready::AbruptDrop => vec![Act::Drop],
        }
    }

    /// `Some(timed_out)` when the step is over.
    fn is_done(&self, active: &Active, now_us: u64) -> Option<bool> {
        let since_ms = (now_us - active.since_us) / 1_000;
        match &active.step {
            Ready::Say { .. } => self.voice.is_empty().then_some(false),
            Ready::Silence { ms } => (since_ms >= u64::from(*ms)).then_some(false),
            Ready::WaitForAgent { until, timeout_ms } => {
                let heard_ms = self.audible_ms - active.audible_ms_before;
                let met = match until {
                    Until::Audible => heard_ms > 0,
                    Until::Quiet { ms } => {
                        let quiet_us = self.last_audible_us.map_or(0, |at| now_us - at);
                        heard_ms > 0 && quiet_us >= u64::from(*ms) * 1_000
                    }
                    Until::Heard { ms } => heard_ms >= u64::from(*ms),
                };
                if met { Some(false) } else { (since_ms >= u64::from(*timeout_ms)).then_some(true) }
            }
            Ready::Dtmf { .. } | Ready::DropMarks { .. } | Ready::DelayMarks { .. } => Some(false),
            Ready::HangUp | Ready::AbruptDrop => Some(false),
        }
    }

    /// Nothing is being said: a carrier that saves bandwidth sends nothing.
    pub(super) fn is_silent(&self) -> bool {
        self.voice.is_empty() && self.voice_since_us.is_none()
    }

    /// The next 20 ms of the caller's line.
    pub(super) fn frame(&mut self, now_us: u64) -> [u8; BLOCK] {
        // Twilio's silence is +0 and -0 mixed, not one byte for ever.
        let mut frame = std::array::from_fn(|_| if self.draw() & 7 == 0 { 0x7f } else { 0xff });
        let spoken = self.voice.len().min(BLOCK);
        for (slot, byte) in frame.iter_mut().zip(self.voice.drain(..spoken)) {
            *slot = byte;
        }
        if self.voice.is_empty() && self.voice_since_us.take().is_some() {
            self.note(now_us, Happened::CallerSilent);
        }
        self.result.sent_frames += 1;
        frame
    }

    /// The caller went on speaking while no stream was there to carry it.
    pub(super) fn lose_voice(&mut self, us: u64) {
        let lost = ((us / 125) as usize).min(self.voice.len());
        self.voice.drain(..lost);
    }

    /// A small deterministic generator (splitmix64); nothing here needs better.
    pub(super) fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Ready {
    fn what(&self) -> String {
        match self {
            Self::Say { file, .. } => format!("say {file}"),
            Self::Silence { ms } => format!("silent for {ms} ms"),
            Self::WaitForAgent { until: Until::Audible, .. } => "wait until the agent speaks".to_owned(),
            Self::WaitForAgent { until: Until::Quiet { ms }, .. } => {
                format!("wait until the agent is quiet for {ms} ms")
            }
            Self::WaitForAgent { until: Until::Heard { ms }, .. } => format!("listen to {ms} ms"),
            Self::Dtmf { digits } => format!("press {digits}"),
            Self::DropMarks { on } => format!("swallow marks: {on}"),
            Self::DelayMarks { ms } => format!("delay marks by {ms} ms"),
            Self::HangUp => "hang up".to_owned(),
            Self::AbruptDrop => "break the line".to_owned(),
        }
    }
}
