//! The disk of one life of the server: as slow as a fault makes it, and deaf once its process is dead, whoever may still
//! hold it. The rows outlive it.

use operations::attempt::Attempt;
use operations::history::{History, Scope};
use operations::rows::Load;
use operations::store::*;
use operations::{Delivery, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use store::MemoryStore;
use vocab::{OperationId, SessionId, WallTime};

pub struct Disk {
    rows: Arc<MemoryStore>,
    slow_ms: Arc<AtomicU64>,
    /// Each outcome is reported twice, as a callback that comes again would.
    twice: bool,
    dead: AtomicBool,
}

impl Disk {
    pub fn new(rows: Arc<MemoryStore>, slow_ms: Arc<AtomicU64>, twice: bool) -> Self {
        Self { rows, slow_ms, twice, dead: AtomicBool::new(false) }
    }

    /// From now on nothing is written and nobody is answered.
    pub fn die(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    async fn turn(&self) {
        let slow_ms = self.slow_ms.load(Ordering::Relaxed);
        if slow_ms > 0 {
            tokio::time::sleep(Duration::from_millis(slow_ms)).await;
        }
        self.alive().await;
    }

    async fn alive(&self) {
        if self.dead.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }
}

macro_rules! pass {
    ($($verb:ident($ask:ty) -> $reply:ty;)*) => {$(
        fn $verb(&self, ask: $ask) -> StoreFuture<'_, $reply> {
            Box::pin(async move {
                self.turn().await;
                self.rows.$verb(ask).await
            })
        }
    )*};
}

impl Store for Disk {
    pass! {
        open_session(OpenSession) -> OpenedSession;
        close_session(CloseSession) -> Vec<Delivery>;
        end_call(EndCall) -> Vec<Delivery>;
        admit(Admit) -> Admission;
        seal_batch(SealBatch) -> Option<Delivery>;
        save_delivery(SaveDelivery) -> SavedDelivery;
        claim(Claim) -> Claimed;
        mark_sent(MarkSent) -> MarkedSent;
        finish_look_up(FinishLookUp) -> Finished;
        recover(WallTime) -> RecoveryReport;
        history(Scope) -> History;
        missed(SessionId) -> Missed;
        attempts(OperationId) -> Vec<Attempt>;
    }

    fn finish_attempt(&self, ask: FinishAttempt) -> StoreFuture<'_, Finished> {
        Box::pin(async move {
            self.turn().await;
            let first = self.rows.finish_attempt(ask.clone()).await;
            if self.twice {
                match self.rows.finish_attempt(ask).await {
                    Ok(Finished::Stale) => {}
                    other => return other,
                }
            }
            first
        })
    }

    fn load(&self) -> StoreFuture<'_, Load> {
        Box::pin(async move {
            self.alive().await;
            self.rows.load().await
        })
    }
}
