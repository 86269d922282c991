//! Every timer of the conversation, in one table. Those at or before a step's time fire inside that step, earliest first
//! and, at the same time, in the order of the variants: so a replay fires them alike.

use vocab::CallTime;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum Deadline {
    /// The carrier's buffer has room for the next chunk.
    SendDue,
    /// A mark should have come back by now.
    MarkLost,
    /// The fence after a clear should have come back by now.
    FenceLost,
    /// The caller is quiet and the model's turn detection has said nothing.
    ModelTurnEnd,
    /// The provider has not started the response that we asked for.
    CreateTimeout,
    /// The provider has not ended the response that we cancelled.
    CancelTimeout,
    /// The provider has gone silent in the middle of a response.
    GenerationStalled,
    /// The model session nears its end.
    RenewalDue,
    /// A model that speaks by itself should have answered the caller by now.
    OwnAnswer,
    /// An owed answer may be asked for again.
    RetryDue,
    /// A tool call has had its wait for a direct answer.
    InlineWait,
    /// The output of a tool call should have come by now.
    OutputWait,
    /// A drained batch's delivery should have come by now.
    AnswerWait,
    /// The quiet window of some delivery is over.
    QuietOver,
    /// A caller who is silent is spoken to.
    IdleOver,
    /// Some delivery stops being news.
    DeliveryStale,
    /// The disk has had its time to take an offer that an answer waits for.
    SaveOverdue,
    /// A write that failed may be asked for again.
    SaveRetry,
}

const ALL: [Deadline; 18] = [
    Deadline::SendDue,
    Deadline::MarkLost,
    Deadline::FenceLost,
    Deadline::ModelTurnEnd,
    Deadline::CreateTimeout,
    Deadline::CancelTimeout,
    Deadline::GenerationStalled,
    Deadline::RenewalDue,
    Deadline::OwnAnswer,
    Deadline::RetryDue,
    Deadline::InlineWait,
    Deadline::OutputWait,
    Deadline::AnswerWait,
    Deadline::QuietOver,
    Deadline::IdleOver,
    Deadline::DeliveryStale,
    Deadline::SaveOverdue,
    Deadline::SaveRetry,
];

#[derive(Clone, Debug, Default)]
pub struct Deadlines {
    due: [Option<CallTime>; ALL.len()],
}

impl Deadlines {
    pub fn set(&mut self, deadline: Deadline, at: Option<CallTime>) {
        self.due[deadline as usize] = at;
    }

    pub fn get(&self, deadline: Deadline) -> Option<CallTime> {
        self.due[deadline as usize]
    }

    /// The earliest of all.
    pub fn next(&self) -> Option<CallTime> {
        self.due.iter().flatten().min().copied()
    }

    /// Takes the earliest deadline at or before `now` off the table.
    pub fn take_due(&mut self, now: CallTime) -> Option<Deadline> {
        let (_, deadline) = ALL
            .iter()
            .filter_map(|deadline| self.get(*deadline).map(|due| (due, *deadline)))
            .filter(|(due, _)| *due <= now)
            .min()?;
        self.set(deadline, None);
        Some(deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_deadlines_fire_earliest_first_and_ties_in_the_order_of_the_variants() {
        let mut table = Deadlines::default();
        table.set(Deadline::QuietOver, Some(CallTime(5)));
        table.set(Deadline::RetryDue, Some(CallTime(7)));
        table.set(Deadline::MarkLost, Some(CallTime(7)));
        table.set(Deadline::SendDue, Some(CallTime(9)));
        assert_eq!(table.next(), Some(CallTime(5)));
        assert_eq!(table.take_due(CallTime(4)), None);
        let fired: Vec<_> = std::iter::from_fn(|| table.take_due(CallTime(8))).collect();
        assert_eq!(fired, [Deadline::QuietOver, Deadline::MarkLost, Deadline::RetryDue]);
        assert_eq!(table.next(), Some(CallTime(9)));
    }

    #[test]
    fn every_variant_has_its_own_place_in_the_table() {
        for (place, deadline) in ALL.iter().enumerate() {
            assert_eq!(*deadline as usize, place);
        }
    }
}
