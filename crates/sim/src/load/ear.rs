//! The server's own detector and turn tracker over what a caller says: which frame confirms that it is speech, to the frame.

use audio::g711::MULAW;
use audio::{Detector, VoiceActivity};
use conversation::{Command, Conversation, Decision, Input, Policy};
use vocab::{CallTime, Samples};

pub(super) struct Ear {
    detector: Box<dyn VoiceActivity>,
    conversation: Conversation,
    samples: Vec<i16>,
    commands: Vec<Command>,
    heard: Samples,
}

impl Ear {
    pub(super) fn new() -> Self {
        let mut conversation = Conversation::new(Policy::default());
        conversation.step(CallTime(0), Input::CallStarted { greeting: None }, &mut Vec::new());
        Self {
            detector: Detector::default().open(),
            conversation,
            samples: Vec::new(),
            commands: Vec::new(),
            heard: Samples::ZERO,
        }
    }

    /// Takes the next frame. True when it is the one that confirms speech.
    pub(super) fn hear(&mut self, codes: &[u8]) -> bool {
        self.samples.clear();
        self.commands.clear();
        MULAW.decode(codes, &mut self.samples);
        let evidence = self.detector.hear(&self.samples);
        let samples = Samples(codes.len() as u32);
        self.heard += samples;
        let at = CallTime::from_ms(u64::from(self.heard.ms().0));
        self.conversation.step(at, Input::CallerAudio { samples, evidence }, &mut self.commands);
        self.commands.iter().any(|command| matches!(command, Command::Explain(Decision::SpeechConfirmed)))
    }
}
