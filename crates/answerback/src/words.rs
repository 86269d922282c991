//! What the server keeps, and what went wrong, in an operator's words.

use crate::terminal::count;
use operations::attempt::{Attempt, AttemptEnd, AttemptKind};
use operations::audit::{AuditKind, AuditRow};
use operations::delivery::Delivery;
use vocab::delivery::DeliveryState;

/// What was asked of the booking system, and what came of it.
pub(crate) fn attempt_in_words(attempt: &Attempt) -> String {
    let asked = match attempt.kind {
        AttemptKind::Execute => "request",
        AttemptKind::Reconcile => "look-up",
    };
    let end = match (attempt.kind, attempt.end) {
        (AttemptKind::Execute, Some(AttemptEnd::Ok)) => "confirmed",
        (AttemptKind::Reconcile, Some(AttemptEnd::Ok)) => "answered",
        (_, Some(AttemptEnd::Rejected)) => "refused",
        (_, Some(AttemptEnd::Retryable)) => "failed without effect",
        (_, Some(AttemptEnd::Info)) => "without a clear answer (it may have happened)",
        (_, Some(AttemptEnd::Unsent)) => "never left",
        (_, None) => "under way",
    };
    format!("{asked} {end}")
}

/// How a delivery got to the caller, or did not.
pub(crate) fn delivery_in_words(delivery: &Delivery) -> String {
    let how = match (delivery.offers, delivery.state) {
        // Only an offer of its own counts as one.
        (0, DeliveryState::Heard | DeliveryState::Uncertain) => "told with an answer that was due anyway".to_owned(),
        (
            0,
            DeliveryState::Ready
            | DeliveryState::Offered
            | DeliveryState::Suppressed
            | DeliveryState::Superseded
            | DeliveryState::Expired,
        ) => "not told".to_owned(),
        (n, _) => format!("offered {}", if n == 1 { "once".to_owned() } else { format!("{n} times") }),
    };
    format!("{}: {how}, {} ms proven by mark", delivery.state.as_str(), delivery.heard_ms.0)
}

/// One line of a delivery's history.
pub(crate) fn move_in_words(row: &AuditRow) -> String {
    let detail = row.detail.as_deref();
    if row.kind == AuditKind::DeliveryPassed {
        return format!("handed on {}", detail.unwrap_or_default());
    }
    let from = row.from.as_deref().map_or_else(String::new, |from| format!("{from} -> "));
    let to = row.to.as_deref().unwrap_or(row.kind.as_str());
    let detail = match detail {
        Some("attached") => "  (with the answer that was due)".to_owned(),
        Some(other) => format!("  ({other})"),
        None => String::new(),
    };
    format!("{from}{to}{detail}")
}

/// The last line of a work that went over recordings.
pub(crate) fn skipped(recordings: usize) -> String {
    format!("{} skipped: see above for what is wrong with each", count(recordings, "recording"))
}

/// An error with its causes. Libraries often name the cause in their own text too: nothing is told twice.
pub(crate) fn error_in_words(error: &anyhow::Error) -> String {
    let mut told = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if told.is_empty() {
            told = cause;
        } else if !told.contains(&cause) {
            told.push_str(": ");
            told.push_str(&cause);
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::error_in_words;
    use anyhow::Context;

    #[test]
    fn a_cause_is_told_once() {
        let full = || std::io::Error::other("disk full");
        let twice: Result<(), _> = Err(store_like(full()));
        let error = twice.context("the server cannot start").unwrap_err();
        assert_eq!(error_in_words(&error), "the server cannot start: data cannot be used: disk full");
        let once: Result<(), _> = Err(full()).context("cannot write x");
        assert_eq!(error_in_words(&once.unwrap_err()), "cannot write x: disk full");
    }

    /// Its text holds its cause, which it names as its source as well.
    fn store_like(source: std::io::Error) -> anyhow::Error {
        let text = format!("data cannot be used: {source}");
        anyhow::Error::from(source).context(text)
    }
}
