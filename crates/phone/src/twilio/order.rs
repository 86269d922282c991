//! Which message may come when: `connected`, `start`, then media, keys and marks of that one stream, then `stop`. What comes
//! at another time, or names another stream, is passed over and counted; it never ends the call. Pure.

use super::wire::{Decoded, Ignored, Inbound};
use vocab::StreamSid;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    BeforeStart,
    Streaming,
    Stopped,
}

/// What one stream has said so far.
#[derive(Debug)]
pub struct MessageOrder {
    stage: Stage,
    connected: bool,
    stream: Option<StreamSid>,
}

impl Default for MessageOrder {
    fn default() -> Self {
        Self::new()
    }
}

impl MessageOrder {
    pub const fn new() -> Self {
        Self { stage: Stage::BeforeStart, connected: false, stream: None }
    }

    /// The stream that `start` named.
    pub const fn stream(&self) -> Option<&StreamSid> {
        self.stream.as_ref()
    }

    /// Lets a message through, or turns it into [`Inbound::Ignored`].
    pub fn admit(&mut self, decoded: Decoded<'_>) -> Inbound {
        let Decoded { stream, inbound } = decoded;
        if let (Some(ours), Some(theirs)) = (&self.stream, &stream)
            && ours.as_str() != theirs.as_ref()
        {
            return Inbound::Ignored(Ignored::OtherStream(theirs.chars().take(64).collect()));
        }
        let wrong = |event| Inbound::Ignored(Ignored::OutOfOrder { event });
        let streaming = self.stage == Stage::Streaming;
        match inbound {
            Inbound::Connected { .. } if self.connected || self.stage != Stage::BeforeStart => wrong("connected"),
            Inbound::Connected { .. } => {
                self.connected = true;
                inbound
            }
            // `connected` carries nothing that we need, so a start without one is a start.
            Inbound::Started(_) | Inbound::StartRefused(_) if self.stage != Stage::BeforeStart => wrong("start"),
            Inbound::Started(ref start) => {
                self.stage = Stage::Streaming;
                self.stream = Some(start.stream.clone());
                inbound
            }
            Inbound::StartRefused(_) => inbound,
            Inbound::Media(_) => {
                if streaming {
                    inbound
                } else {
                    wrong("media")
                }
            }
            Inbound::KeyPressed { .. } => {
                if streaming {
                    inbound
                } else {
                    wrong("dtmf")
                }
            }
            Inbound::MarkReturned(_) => {
                if streaming {
                    inbound
                } else {
                    wrong("mark")
                }
            }
            Inbound::Stopped if self.stage == Stage::Stopped => wrong("stop"),
            // A stop before any start ends a stream that never was: there is nothing to wait for.
            Inbound::Stopped => {
                self.stage = Stage::Stopped;
                inbound
            }
            Inbound::Ignored(_) => inbound,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::decode;
    use super::*;

    const START: &str = r#"{"event":"start","streamSid":"MZ1","start":{"streamSid":"MZ1","callSid":"CA1","accountSid":"AC1","tracks":["inbound"],"customParameters":{},"mediaFormat":{"encoding":"audio/x-mulaw","sampleRate":8000,"channels":1}}}"#;
    const CONNECTED: &str = r#"{"event":"connected","protocol":"Call","version":"1.0.0"}"#;
    const STOP: &str = r#"{"event":"stop","streamSid":"MZ1","stop":{"callSid":"CA1","accountSid":"AC1"}}"#;

    fn media(stream: &str) -> String {
        format!(r#"{{"event":"media","streamSid":"{stream}","media":{{"payload":"/w=="}}}}"#)
    }
    fn feed(order: &mut MessageOrder, text: &str) -> Inbound {
        order.admit(decode(text, &mut Vec::new()))
    }
    fn refused(event: &'static str) -> Inbound {
        Inbound::Ignored(Ignored::OutOfOrder { event })
    }

    #[test]
    fn a_whole_stream_passes_in_its_order() {
        let mut order = MessageOrder::new();
        assert!(matches!(feed(&mut order, CONNECTED), Inbound::Connected { .. }));
        assert!(matches!(feed(&mut order, START), Inbound::Started(_)));
        assert_eq!(order.stream(), Some(&StreamSid::new("MZ1")));
        assert!(matches!(feed(&mut order, &media("MZ1")), Inbound::Media(_)));
        assert_eq!(feed(&mut order, STOP), Inbound::Stopped);
    }

    #[test]
    fn what_comes_before_start_or_after_stop_is_passed_over() {
        let mut order = MessageOrder::new();
        let dtmf = r#"{"event":"dtmf","streamSid":"MZ1","dtmf":{"digit":"1"}}"#;
        let mark = r#"{"event":"mark","streamSid":"MZ1","mark":{"name":"f1"}}"#;
        for _ in 0..2 {
            assert_eq!(feed(&mut order, &media("MZ1")), refused("media"));
            assert_eq!(feed(&mut order, dtmf), refused("dtmf"));
            assert_eq!(feed(&mut order, mark), refused("mark"));
            assert!(!matches!(feed(&mut order, STOP), Inbound::Media(_)));
        }
        assert_eq!(feed(&mut order, START), refused("start"));
        assert_eq!(feed(&mut order, CONNECTED), refused("connected"));
    }

    #[test]
    fn nothing_happens_twice() {
        let mut order = MessageOrder::new();
        feed(&mut order, CONNECTED);
        assert_eq!(feed(&mut order, CONNECTED), refused("connected"));
        feed(&mut order, START);
        assert_eq!(feed(&mut order, START), refused("start"));
        feed(&mut order, STOP);
        assert_eq!(feed(&mut order, STOP), refused("stop"));
    }

    #[test]
    fn a_start_without_a_connected_is_a_start_and_a_refused_one_may_be_mended() {
        let mut order = MessageOrder::new();
        assert!(matches!(feed(&mut order, &START.replace("x-mulaw", "x-alaw")), Inbound::StartRefused(_)));
        assert!(matches!(feed(&mut order, START), Inbound::Started(_)));
    }

    #[test]
    fn another_streams_message_is_not_ours() {
        let mut order = MessageOrder::new();
        feed(&mut order, START);
        assert_eq!(feed(&mut order, &media("MZ2")), Inbound::Ignored(Ignored::OtherStream("MZ2".into())));
        assert!(matches!(feed(&mut order, r#"{"event":"media","media":{"payload":""}}"#), Inbound::Media(_)));
    }
}
