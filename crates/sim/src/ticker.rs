//! One timer for many calls. Each call sends a frame every 20 ms, and calls are out of phase with each other as real ones
//! are: the period is cut into slots, and a slot wakes its share of the calls.

use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A frame's length on the line.
pub(crate) const PERIOD: Duration = Duration::from_millis(20);
/// tokio's timer counts milliseconds, so there are not more slots than that.
const SLOTS: u32 = 20;

#[derive(Debug)]
pub(crate) struct Ticker {
    slots: Vec<watch::Receiver<Option<Instant>>>,
    task: JoinHandle<()>,
}

impl Ticker {
    /// Each slot's value is when its newest period was due. A receiver that was busy sees only the newest.
    pub(crate) fn start() -> Self {
        let (senders, slots): (Vec<_>, Vec<_>) = (0..SLOTS).map(|_| watch::channel(None)).unzip();
        let zero = Instant::now();
        let task = tokio::spawn(async move {
            let step = PERIOD / SLOTS;
            for n in 1u32.. {
                // Absolute: a late wake-up is caught up and never moves the rest.
                let due = zero + step * n;
                tokio::time::sleep_until(due).await;
                senders[(n % SLOTS) as usize].send_replace(Some(due));
            }
        });
        Self { slots, task }
    }

    /// The slot of the n-th call.
    pub(crate) fn slot(&self, n: usize) -> watch::Receiver<Option<Instant>> {
        // 7 is prime to 20: calls that start together are spread over the period.
        self.slots[n * 7 % self.slots.len()].clone()
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How many periods have become due since `next`, which moves past them.
pub(crate) fn periods_due(next: &mut Option<Instant>, due: Instant) -> u32 {
    let first = *next.get_or_insert(due);
    let mut count = 0;
    let mut at = first;
    while at <= due {
        count += 1;
        at += PERIOD;
    }
    *next = Some(at);
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_period_is_caught_up() {
        let (start, mut next) = (Instant::now(), None);
        assert_eq!(periods_due(&mut next, start), 1);
        assert_eq!(periods_due(&mut next, start + PERIOD), 1);
        assert_eq!(periods_due(&mut next, start + PERIOD * 4), 3);
        assert_eq!(periods_due(&mut next, start + PERIOD * 4), 0);
    }

    // Real time, 80 ms of it: the timer is what is tested.
    #[tokio::test]
    async fn each_slot_comes_once_a_period() {
        let ticker = Ticker::start();
        for n in [0, 3] {
            let mut slot = ticker.slot(n);
            slot.changed().await.unwrap();
            let first = slot.borrow_and_update().unwrap();
            slot.changed().await.unwrap();
            let passed = slot.borrow_and_update().unwrap() - first;
            assert!(passed >= PERIOD && passed.as_micros().is_multiple_of(PERIOD.as_micros()), "{passed:?}");
        }
    }
}
