//! Who is listening: session to mailbox. Only a hint after the commit; the store is the truth.

use operations::store::Settled;
use operations::{Delivery, Operation};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use vocab::SessionId;

/// News for one session.
#[derive(Debug)]
pub(crate) enum Note {
    Finished(Box<Operation>),
    Ready(Box<Delivery>),
}

/// One desk's way in.
#[derive(Clone)]
pub(crate) struct Mailbox {
    pub epoch: u32,
    pub notes: mpsc::Sender<Note>,
    /// A note did not fit: the desk reads the store again.
    pub missed: Arc<Notify>,
    /// Another stream has taken the session over.
    pub superseded: CancellationToken,
}

#[derive(Default)]
pub(crate) struct Sessions {
    mailboxes: Mutex<BTreeMap<SessionId, Mailbox>>,
}

impl Sessions {
    fn mailboxes(&self) -> MutexGuard<'_, BTreeMap<SessionId, Mailbox>> {
        // Only inserts and removals happen under the lock, so a poisoned map is still whole.
        self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn len(&self) -> u32 {
        self.mailboxes().len() as u32
    }

    /// An older stream of the same session is shut out. `false`: a younger one is there already.
    pub fn register(&self, session: SessionId, mailbox: Mailbox) -> bool {
        let mut mailboxes = self.mailboxes();
        if let Some(other) = mailboxes.get(&session) {
            if other.epoch > mailbox.epoch {
                return false;
            }
            other.superseded.cancel();
        }
        mailboxes.insert(session, mailbox);
        true
    }

    pub fn remove(&self, session: &SessionId, epoch: u32) {
        let mut mailboxes = self.mailboxes();
        if mailboxes.get(session).is_some_and(|mailbox| mailbox.epoch == epoch) {
            mailboxes.remove(session);
        }
    }

    /// Tells what a write has changed: the outcome to the session that asked, the delivery to the one that holds it.
    pub fn tell(&self, settled: Settled) {
        let Settled { operation, delivery } = settled;
        if operations::batch::can_be_told(operation.status) {
            self.post(&operation.session.clone(), Note::Finished(Box::new(operation)));
        }
        if let Some(delivery) = delivery {
            self.tell_ready(delivery);
        }
    }

    pub fn tell_ready(&self, delivery: Delivery) {
        if let Some(holder) = delivery.holder.clone() {
            self.post(&holder, Note::Ready(Box::new(delivery)));
        }
    }

    fn post(&self, session: &SessionId, note: Note) {
        if let Some(mailbox) = self.mailboxes().get(session)
            && mailbox.notes.try_send(note).is_err()
        {
            mailbox.missed.notify_one();
        }
    }
}
