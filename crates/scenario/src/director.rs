//! Says when the caller's lines and the faults are due. Both runners tell it what happens and ask it what is next.

use crate::ear::Line;
use crate::events::{Event, matches};
use crate::file::{Scenario, When};

/// Something that is due now; an index into the scenario's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Caller(usize),
    Fault(usize),
}

#[derive(Clone, Debug)]
struct Waiting {
    act: Act,
    when: When,
    armed_us: Option<u64>,
    seen: u32,
    fire_us: Option<u64>,
    done: bool,
}

pub struct Director {
    lines: Vec<(String, u64)>,
    caller: Vec<Waiting>,
    faults: Vec<Waiting>,
    next_line: usize,
    /// A line is being spoken.
    caller_busy: bool,
    answered_us: Option<u64>,
    /// Playbacks on their way to the caller: the next one may be sent before the last one has ended.
    sounding: u32,
    /// Since when both are silent.
    silent_us: u64,
    /// Since when the agent owes nothing, by its public state.
    idle_us: Option<u64>,
}

/// What the silence of both is judged by.
#[derive(Clone, Copy)]
struct Silence {
    since_us: Option<u64>,
    idle_us: Option<u64>,
}

impl Director {
    pub fn new(scenario: &Scenario, lines: &[Line]) -> Self {
        let waiting =
            |act, when: &When| Waiting { act, when: when.clone(), armed_us: None, seen: 0, fire_us: None, done: false };
        let faults = scenario.fault.iter().enumerate().filter(|(_, fault)| fault.kill_at.is_none());
        Self {
            lines: lines.iter().map(|line| (line.text.clone(), line.ms())).collect(),
            caller: scenario.caller.iter().enumerate().map(|(n, line)| waiting(Act::Caller(n), &line.when)).collect(),
            faults: faults.map(|(n, fault)| waiting(Act::Fault(n), &fault.when)).collect(),
            next_line: 0,
            caller_busy: false,
            answered_us: None,
            sounding: 0,
            silent_us: 0,
            idle_us: Some(0),
        }
    }

    pub fn note(&mut self, event: &Event) {
        match event.name {
            "call_started" if self.answered_us.is_none() => {
                self.answered_us = Some(event.at_us);
                for fault in &mut self.faults {
                    fault.arm(event.at_us, event.at_us);
                }
                if let Some(first) = self.caller.first_mut() {
                    first.arm(event.at_us, event.at_us);
                }
            }
            "agent_starts" => self.sounding += 1,
            "agent_stops" => {
                self.sounding = self.sounding.saturating_sub(1);
                self.silent_us = event.at_us;
            }
            "killed" | "stream_ended" => {
                self.sounding = 0;
                self.silent_us = event.at_us;
            }
            "state" => self.idle_us = (event.text == "listening").then_some(event.at_us),
            "caller_done" => {
                self.caller_busy = false;
                self.silent_us = event.at_us;
            }
            _ => {}
        }
        let length_of = |text: &str| self.lines.iter().find(|(known, _)| known == text).map_or(0, |(_, ms)| *ms);
        for waiting in self.faults.iter_mut().chain(&mut self.caller) {
            waiting.note(event, &length_of);
        }
    }

    /// What is due now. A caller's sound is over at `caller_done`, anything else at once.
    pub fn due(&mut self, now_us: u64, takes_time: impl Fn(usize) -> bool) -> Option<Act> {
        let silence = self.silence();
        for fault in &mut self.faults {
            if !fault.done && fault.fires_us(silence).is_some_and(|at| at <= now_us) {
                fault.done = true;
                return Some(fault.act);
            }
        }
        if self.caller_busy {
            return None;
        }
        let answered_us = self.answered_us?;
        let line = self.caller.get_mut(self.next_line)?;
        if line.fires_us(silence).is_none_or(|at| at > now_us) {
            return None;
        }
        line.done = true;
        let act = line.act;
        self.caller_busy = takes_time(self.next_line);
        self.next_line += 1;
        if let Some(next) = self.caller.get_mut(self.next_line) {
            next.arm(now_us, answered_us);
        }
        Some(act)
    }

    /// When something will be due if nothing happens.
    pub fn next_us(&self) -> Option<u64> {
        let silence = self.silence();
        let faults = self.faults.iter().filter(|fault| !fault.done).filter_map(|fault| fault.fires_us(silence));
        let line = self.caller.get(self.next_line).filter(|_| !self.caller_busy);
        faults.chain(line.and_then(|line| line.fires_us(silence))).min()
    }

    fn silence(&self) -> Silence {
        let silent = self.sounding == 0 && !self.caller_busy;
        Silence { since_us: silent.then_some(self.silent_us), idle_us: self.idle_us.filter(|_| silent) }
    }

    pub fn is_done(&self) -> bool {
        self.next_line >= self.caller.len() && !self.caller_busy
    }

    /// Lines and faults that never came.
    pub fn unfinished(&self) -> Vec<String> {
        self.caller
            .iter()
            .chain(&self.faults)
            .filter(|waiting| !waiting.done)
            .map(|waiting| match waiting.act {
                Act::Caller(n) => format!("caller line {} never came: {:?}", n + 1, waiting.when),
                Act::Fault(n) => format!("fault {} never came: {:?}", n + 1, waiting.when),
            })
            .collect()
    }
}

impl Waiting {
    fn arm(&mut self, now_us: u64, answered_us: u64) {
        self.armed_us = Some(now_us);
        let when = &self.when;
        if let Some(at_ms) = when.at_ms {
            self.fire_us = Some(answered_us + at_ms * 1_000);
        } else if when.after.is_none()
            && when.heard_percent.is_none()
            && when.quiet_ms.is_none()
            && when.idle_ms.is_none()
        {
            self.fire_us = Some(now_us + when.plus_ms.unwrap_or_default() * 1_000);
        }
    }

    fn note(&mut self, event: &Event, length_of: &impl Fn(&str) -> u64) {
        if self.armed_us.is_none() || self.done || self.fire_us.is_some() {
            return;
        }
        let when = &self.when;
        let plus_us = when.plus_ms.unwrap_or_default() * 1_000;
        let found = match (&when.after, when.heard_percent) {
            (Some(pattern), _) if matches(pattern, event) => Some(event.at_us),
            (None, Some(percent)) if event.name == "agent_starts" => {
                let meant = when.of.as_ref().is_none_or(|of| event.text.to_lowercase().contains(&of.to_lowercase()));
                meant.then(|| event.at_us + length_of(&event.text) * u64::from(percent) * 10)
            }
            (Some(_) | None, _) => None,
        };
        if let Some(at_us) = found {
            self.seen += 1;
            if self.seen == when.nth.unwrap_or(1) {
                self.fire_us = Some(at_us + plus_us);
            }
        }
    }

    fn fires_us(&self, silence: Silence) -> Option<u64> {
        let armed_us = self.armed_us?;
        match (self.when.quiet_ms, self.when.idle_ms) {
            (Some(ms), _) => Some(silence.since_us?.max(armed_us) + ms * 1_000),
            (None, Some(ms)) => Some(silence.since_us?.max(silence.idle_us?).max(armed_us) + ms * 1_000),
            (None, None) => self.fire_us,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn director(text: &str) -> Director {
        let scenario = Scenario::parse(text, Path::new("t.toml")).unwrap();
        Director::new(&scenario, &[Line { text: "Hello there".into(), mulaw: vec![0; 8_000] }])
    }
    fn event(at_ms: u64, name: &'static str, text: &str) -> Event {
        Event { at_us: at_ms * 1_000, name, text: text.into() }
    }

    #[test]
    fn lines_come_one_after_the_other_at_their_moments() {
        let mut director = director(
            r#"
            name = "t"
            story = "t"
            [[caller]]
            when = { heard_percent = 40, of = "hello" }
            speech_ms = 500
            [[caller]]
            when = { after = "backend_committed", plus_ms = 200 }
            dtmf = "1"
            [[caller]]
            when = { quiet_ms = 600 }
            hang_up = true
            [expect]
            "#,
        );
        let sound = |n| n == 0;
        assert_eq!(director.due(0, sound), None);
        director.note(&event(10, "call_started", ""));
        director.note(&event(100, "agent_starts", "Hello there"));
        assert_eq!(director.next_us(), Some(500_000));
        assert_eq!(director.due(499_000, sound), None);
        assert_eq!(director.due(500_000, sound), Some(Act::Caller(0)));
        // It happens while the first line is spoken, and is not missed.
        director.note(&event(700, "backend_committed", "B-7"));
        assert_eq!(director.due(950_000, sound), None);
        director.note(&event(1_000, "caller_done", ""));
        assert_eq!(director.due(1_000_000, sound), Some(Act::Caller(1)));
        assert_eq!(director.due(1_700_000, sound), None, "the agent still sounds");
        director.note(&event(2_000, "agent_stops", "played"));
        assert_eq!(director.next_us(), Some(2_600_000));
        assert_eq!(director.due(2_600_000, sound), Some(Act::Caller(2)));
        assert!(director.is_done() && director.unfinished().is_empty());
    }
}
