//! What a crash leaves behind, by effect class. (durability.md 6(a))

use vocab::effect::EffectClass;

/// What may be done about a request whose answer is lost, be it through a timeout or a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostAnswer {
    /// The request may be sent again, budget and deadline permitting.
    SendAgain,
    /// Nothing may be sent: unknown until the system of record or a person says.
    LeaveUnknown,
}

pub const fn lost_answer(effect: EffectClass) -> LostAnswer {
    match effect {
        EffectClass::Read | EffectClass::Keyed => LostAnswer::SendAgain,
        EffectClass::Lookup | EffectClass::Opaque => LostAnswer::LeaveUnknown,
    }
}

/// What becomes of an operation that was running when the process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterCrash {
    /// No request left: as if it had never been claimed.
    Admitted,
    /// A request left; go on as after an unclear answer.
    Lost(LostAnswer),
}

/// `sent`: the attempt's *sent* mark is durable. The mark is written before the first byte leaves, so its absence
/// proves that nothing left.
pub const fn after_crash(effect: EffectClass, sent: bool) -> AfterCrash {
    if sent { AfterCrash::Lost(lost_answer(effect)) } else { AfterCrash::Admitted }
}

/// Whether the system of record can be asked at all.
pub const fn can_be_asked(effect: EffectClass) -> bool {
    match effect {
        EffectClass::Keyed | EffectClass::Lookup => true,
        EffectClass::Read | EffectClass::Opaque => false,
    }
}

/// Whether a lost request may have changed something.
pub const fn may_change(effect: EffectClass) -> bool {
    match effect {
        EffectClass::Read => false,
        EffectClass::Keyed | EffectClass::Lookup | EffectClass::Opaque => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unsent_attempt_goes_back_to_admitted_whatever_its_class() {
        for effect in [EffectClass::Read, EffectClass::Keyed, EffectClass::Lookup, EffectClass::Opaque] {
            assert_eq!(after_crash(effect, false), AfterCrash::Admitted);
        }
    }

    #[test]
    fn a_sent_attempt_is_repeated_only_where_a_repeat_is_harmless() {
        assert_eq!(after_crash(EffectClass::Read, true), AfterCrash::Lost(LostAnswer::SendAgain));
        assert_eq!(after_crash(EffectClass::Keyed, true), AfterCrash::Lost(LostAnswer::SendAgain));
        assert_eq!(after_crash(EffectClass::Lookup, true), AfterCrash::Lost(LostAnswer::LeaveUnknown));
        assert_eq!(after_crash(EffectClass::Opaque, true), AfterCrash::Lost(LostAnswer::LeaveUnknown));
    }
}
