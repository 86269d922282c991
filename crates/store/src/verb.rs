//! One verb as a value: what a writer can queue, run over its rows and answer after the commit.

use operations::history::{History, Scope, history};
use operations::ledger;
use operations::rows::{Load, Row, Rows};
use operations::store::*;
use operations::{Attempt, Delivery};
use vocab::{OperationId, SessionId, WallTime};

pub(crate) trait Verb: Send + Sync + 'static {
    type Reply: Send + 'static;
    fn run<'a>(&'a self, rows: &'a mut dyn Rows) -> Row<'a, Self::Reply>;
}

macro_rules! verbs {
    ($($verb:ty => $reply:ty, $run:path;)*) => {$(
        impl Verb for $verb {
            type Reply = $reply;
            fn run<'a>(&'a self, rows: &'a mut dyn Rows) -> Row<'a, $reply> {
                Box::pin($run(rows, self))
            }
        }
    )*};
}

verbs! {
    OpenSession => OpenedSession, ledger::open_session;
    CloseSession => Vec<Delivery>, ledger::close_session;
    EndCall => Vec<Delivery>, ledger::end_call;
    Admit => Admission, ledger::admit;
    SealBatch => Option<Delivery>, ledger::seal_batch;
    SaveDelivery => SavedDelivery, ledger::save_delivery;
    Claim => Claimed, ledger::claim;
    MarkSent => MarkedSent, ledger::mark_sent;
    FinishAttempt => Finished, ledger::finish_attempt;
    FinishLookUp => Finished, ledger::finish_look_up;
    Scope => History, history;
    SessionId => Missed, ledger::missed;
}

pub(crate) struct Recover(pub WallTime);
impl Verb for Recover {
    type Reply = RecoveryReport;
    fn run<'a>(&'a self, rows: &'a mut dyn Rows) -> Row<'a, RecoveryReport> {
        Box::pin(ledger::recover(rows, self.0))
    }
}

pub(crate) struct AttemptsOf(pub OperationId);
impl Verb for AttemptsOf {
    type Reply = Vec<Attempt>;
    fn run<'a>(&'a self, rows: &'a mut dyn Rows) -> Row<'a, Vec<Attempt>> {
        rows.attempts(&self.0)
    }
}

pub(crate) struct LoadOfAll;
impl Verb for LoadOfAll {
    type Reply = Load;
    fn run<'a>(&'a self, rows: &'a mut dyn Rows) -> Row<'a, Load> {
        rows.load(None)
    }
}

/// `Store` for a type that has `write` and `read`, both taking a verb.
macro_rules! store_by_verbs {
    ($store:ty) => {
        impl operations::Store for $store {
            fn open_session(&self, verb: OpenSession) -> StoreFuture<'_, OpenedSession> {
                self.write(verb)
            }
            fn close_session(&self, verb: CloseSession) -> StoreFuture<'_, Vec<operations::Delivery>> {
                self.write(verb)
            }
            fn end_call(&self, verb: EndCall) -> StoreFuture<'_, Vec<operations::Delivery>> {
                self.write(verb)
            }
            fn admit(&self, verb: Admit) -> StoreFuture<'_, Admission> {
                self.write(verb)
            }
            fn seal_batch(&self, verb: SealBatch) -> StoreFuture<'_, Option<operations::Delivery>> {
                self.write(verb)
            }
            fn save_delivery(&self, verb: SaveDelivery) -> StoreFuture<'_, SavedDelivery> {
                self.write(verb)
            }
            fn claim(&self, verb: Claim) -> StoreFuture<'_, Claimed> {
                self.write(verb)
            }
            fn mark_sent(&self, verb: MarkSent) -> StoreFuture<'_, MarkedSent> {
                self.write(verb)
            }
            fn finish_attempt(&self, verb: FinishAttempt) -> StoreFuture<'_, Finished> {
                self.write(verb)
            }
            fn finish_look_up(&self, verb: FinishLookUp) -> StoreFuture<'_, Finished> {
                self.write(verb)
            }
            fn recover(&self, now: vocab::WallTime) -> StoreFuture<'_, RecoveryReport> {
                self.write($crate::verb::Recover(now))
            }
            fn history(&self, scope: operations::history::Scope) -> StoreFuture<'_, operations::history::History> {
                self.read(scope)
            }
            fn missed(&self, session: vocab::SessionId) -> StoreFuture<'_, Missed> {
                self.read(session)
            }
            fn attempts(&self, operation: vocab::OperationId) -> StoreFuture<'_, Vec<operations::Attempt>> {
                self.read($crate::verb::AttemptsOf(operation))
            }
            fn load(&self) -> StoreFuture<'_, operations::rows::Load> {
                self.read($crate::verb::LoadOfAll)
            }
        }
    };
}
pub(crate) use store_by_verbs;
