//! Our own event ids: they come back only in errors and acknowledgements, and name what they were for.

use vocab::ResponseId;

/// What one of our own event ids says about the message that bore it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    SessionUpdate,
    Create(ResponseId),
    /// Anything else of ours: a cancel, a truncation, an item.
    Other,
}

/// A new id, unique in this session: `ab7-create-r5`, `ab8-session`, `ab9-item`.
pub fn event_id(sent_events: &mut u64, what: &str) -> String {
    *sent_events += 1;
    format!("ab{sent_events}-{what}")
}

/// Reads one of our event ids; `None` if it is not one of ours.
pub fn read_event_id(event_id: &str) -> Option<Sent> {
    let (number, what) = event_id.strip_prefix("ab")?.split_once('-')?;
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    match what.strip_prefix("create-") {
        Some(request) => read_request(request).map(Sent::Create),
        None if what == "session" => Some(Sent::SessionUpdate),
        None => Some(Sent::Other),
    }
}

/// Reads `r5`, as we write it into the metadata of a response.
pub fn read_request(text: &str) -> Option<ResponseId> {
    let digits = text.strip_prefix('r')?;
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    if plain { digits.parse().ok().map(ResponseId) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_event_ids_read_back_and_others_do_not() {
        let mut sent = 0;
        let create = event_id(&mut sent, "create-r5");
        assert_eq!(create, "ab1-create-r5");
        assert_eq!(read_event_id(&create), Some(Sent::Create(ResponseId(5))));
        assert_eq!(read_event_id(&event_id(&mut sent, "session")), Some(Sent::SessionUpdate));
        assert_eq!(read_event_id(&event_id(&mut sent, "cancel")), Some(Sent::Other));
        for foreign in
            ["", "ab", "ab-create-r5", "abx-create-r5", "event_7", "ab1-create-r+5", "ab1-create-r99999999999"]
        {
            assert_eq!(read_event_id(foreign), None, "{foreign}");
        }
    }
}
