//! Where the call and the operation executor meet. Both stand on the same floor, so the call says here what it needs of a
//! desk and the door that opens both brings it.

use std::future::Future;
use std::task::{Context, Poll};
use vocab::work::{WorkCommand, WorkEvent};

/// The desk takes no more commands now. Nothing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeskFull;

/// One session's side of the executor.
pub trait Desk: Send {
    /// Never waits.
    fn send(&mut self, command: WorkCommand) -> Result<(), DeskFull>;
    /// The next event; `None` once the executor has let go of the session.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<WorkEvent>>;
    /// Everything sent before is carried out, and the end is on record when this returns. `ends_call`: on purpose, and
    /// not only this stream.
    fn close(self, ends_call: bool) -> impl Future<Output = ()> + Send;
}
