//! Where the call and the operation executor meet: two bounded channels of `vocab` words. The call knows no executor.

use tokio::sync::mpsc;
use vocab::work::{WorkCommand, WorkEvent};

/// The call's ends of its session's desk.
pub struct DeskPort {
    /// Full: the command waits at the call, and is refused when too many wait.
    pub commands: mpsc::Sender<WorkCommand>,
    /// Closed: the executor has let go of the session, and the stream ends.
    pub events: mpsc::Receiver<WorkEvent>,
}
