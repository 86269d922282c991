//! `gate.quiet_ms=400` over a recorded policy.

use super::WhatIfError;
use conversation::Policy;
use serde_json::Value;

/// A copy of `policy` with each `key=value` put in. Values are JSON; what is no JSON is a string.
pub fn override_policy(policy: &Policy, overrides: &[String]) -> Result<Policy, WhatIfError> {
    let mut changed = policy.clone();
    for text in overrides {
        let Some((key, value)) = text.split_once('=') else {
            return Err(WhatIfError::NotAnOverride { text: text.clone() });
        };
        let (key, value) = (key.trim(), value.trim());
        if key == "turn.end" {
            let why = "the other turn detection has left nothing in them";
            return Err(WhatIfError::NotInTheRecording { key: key.into(), why });
        }
        let bad = |error| WhatIfError::BadValue { key: key.into(), value: value.into(), error };
        let mut json = serde_json::to_value(&changed).map_err(bad)?;
        let mut place = &mut json;
        for part in key.split('.') {
            let known = match &*place {
                Value::Object(fields) => fields.keys().cloned().collect::<Vec<_>>().join(", "),
                _ => "nothing".into(),
            };
            place = place.get_mut(part).ok_or_else(|| WhatIfError::UnknownKey { key: key.into(), known })?;
        }
        *place = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        changed = serde_json::from_value(json).map_err(bad)?;
    }
    // Once all are in: two may only fit together.
    match changed.faults().into_iter().next() {
        None => Ok(changed),
        Some(fault) => Err(WhatIfError::Fault { fault }),
    }
}

/// What a policy holds under a key such as `gate.quiet_ms`.
pub(super) fn value_at(policy: &Policy, key: &str) -> Option<String> {
    let json = serde_json::to_value(policy).ok()?;
    let found = key.split('.').try_fold(&json, |place, part| place.get(part))?;
    Some(found.as_str().map_or_else(|| found.to_string(), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(text: &str) -> Result<Policy, String> {
        override_policy(&Policy::default(), &[text.to_owned()]).map_err(|error| error.to_string())
    }

    #[test]
    fn an_override_changes_its_field_and_no_other() {
        let mut expected = Policy::default();
        expected.gate.quiet_ms = 400;
        assert_eq!(put("gate.quiet_ms=400").unwrap(), expected);
        assert_eq!(put("turn.floor_dbfs = -40").unwrap().turn.floor_dbfs, -40);
    }

    #[test]
    fn a_mistake_is_told_with_what_would_be_right() {
        assert!(put("gate.quite_ms=400").unwrap_err().contains("quiet_ms"));
        assert!(put("gate.quiet_ms.x=400").unwrap_err().contains("knows nothing"));
        assert!(put("gate.quiet_ms").unwrap_err().contains("key=value"));
        assert!(put("gate.quiet_ms=soon").unwrap_err().contains("soon"));
        assert!(put("gate.quiet_ms=-1").unwrap_err().contains("-1"));
        assert!(put("turn.end=local").unwrap_err().contains("cannot be tried"));
        let told = put("playback.chunk_ms=0").unwrap_err();
        assert!(told.contains("playback.chunk_ms") && told.contains("from 20 to 1000, not 0"), "{told}");
    }

    #[test]
    fn overrides_are_judged_together() {
        assert!(put("turn.confirm_ms=400").unwrap_err().contains("lead_ms (400)"));
        let both = ["turn.confirm_ms=400".to_owned(), "playback.lead_ms=500".to_owned()];
        assert_eq!(override_policy(&Policy::default(), &both).unwrap().turn.confirm_ms, 400);
    }
}
