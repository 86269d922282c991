//! The questions that the doors ask the store.

use futures_util::future::BoxFuture;
use vocab::CallSid;

/// The store could not answer. The text goes to the log and to `/readyz`; it must hold no secret.
#[derive(Debug, Clone, thiserror::Error)]
#[error("store unavailable: {0}")]
pub struct RecordsUnavailable(pub String);

/// What the doors need to know of the durable record of calls. It must outlive the process: after a restart it is the only
/// memory of which calls were ended on purpose.
pub trait CallRecords: Send + Sync + 'static {
    /// Was this call ended on purpose (farewell heard, hang-up decided)? A lost stream is not an end. The call's driver must
    /// have this on record *before* it closes the socket: the carrier asks `/twilio/resume` within a second of the close.
    fn finished(&self, call_sid: &CallSid) -> BoxFuture<'_, Result<bool, RecordsUnavailable>>;
    /// All that is known of a call: its session, operations, deliveries and audit rows; `None` for an unknown call.
    fn history(&self, call_sid: &CallSid) -> BoxFuture<'_, Result<Option<serde_json::Value>, RecordsUnavailable>>;
    /// The carrier says that the call is over, and its streams have let go.
    fn end_call(&self, call_sid: &CallSid) -> BoxFuture<'_, Result<(), RecordsUnavailable>>;
    /// Can the store be read and written now? Found out by doing both.
    fn usable(&self) -> BoxFuture<'_, Result<(), RecordsUnavailable>>;
}
