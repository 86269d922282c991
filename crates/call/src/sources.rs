//! Which of a call's sources may have something to say. Each has a waker of its own: a frame from the carrier must not make
//! the call ask the model, the desk and the clock as well. A source that said "not yet" is asked again when it has called.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Phone,
    Model,
    Desk,
    Time,
}

impl Source {
    /// In the order in which they are asked.
    pub const ALL: [Self; 4] = [Self::Phone, Self::Model, Self::Desk, Self::Time];

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

pub(crate) struct Sources {
    shared: Arc<Shared>,
    wakers: [Waker; 4],
    /// To be asked.
    due: u8,
}

struct Shared {
    /// Those that called since the task last looked.
    called: AtomicU8,
    task: Mutex<Waker>,
}

struct Bell {
    source: Source,
    shared: Arc<Shared>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Whoever called first wakes the task; until it has looked, once is enough.
        if self.shared.called.fetch_or(self.source.bit(), Ordering::AcqRel) == 0 {
            self.shared.task.lock().unwrap_or_else(PoisonError::into_inner).wake_by_ref();
        }
    }
}

impl Sources {
    /// Nobody has been asked yet.
    pub fn new() -> Self {
        let shared = Arc::new(Shared { called: AtomicU8::new(0), task: Mutex::new(Waker::noop().clone()) });
        let wakers = Source::ALL.map(|source| Arc::new(Bell { source, shared: Arc::clone(&shared) }).into());
        Self { shared, wakers, due: Source::ALL.iter().fold(0, |due, source| due | source.bit()) }
    }

    /// The task looks: whoever called is due.
    pub fn look(&mut self, task: &Waker) {
        {
            // First, so that nobody who calls from now on wakes a task that is not this one any more.
            let mut known = self.shared.task.lock().unwrap_or_else(PoisonError::into_inner);
            known.clone_from(task);
        }
        self.due |= self.shared.called.swap(0, Ordering::AcqRel);
    }

    pub const fn is_due(&self, source: Source) -> bool {
        self.due & source.bit() != 0
    }

    /// Has not been asked, or may say more, without having called.
    pub const fn ask(&mut self, source: Source) {
        self.due |= source.bit();
    }

    pub const fn not_yet(&mut self, source: Source) {
        self.due &= !source.bit();
    }

    /// What the source is asked with.
    pub fn context(&self, source: Source) -> Context<'_> {
        Context::from_waker(&self.wakers[source as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Task(AtomicUsize);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn due(sources: &Sources) -> Vec<Source> {
        Source::ALL.into_iter().filter(|source| sources.is_due(*source)).collect()
    }

    #[test]
    fn only_those_that_called_are_asked_and_the_task_is_woken_once() {
        let task = Arc::new(Task::default());
        let waker = Waker::from(Arc::clone(&task));
        let mut sources = Sources::new();
        sources.look(&waker);
        assert_eq!(due(&sources), Source::ALL, "at first everybody is asked");
        for source in Source::ALL {
            sources.not_yet(source);
        }
        sources.context(Source::Model).waker().wake_by_ref();
        sources.context(Source::Desk).waker().wake_by_ref();
        assert_eq!(task.0.load(Ordering::Relaxed), 1);
        sources.look(&waker);
        assert_eq!(due(&sources), [Source::Model, Source::Desk]);
    }

    #[test]
    fn a_call_after_the_look_wakes_again_and_a_new_task_is_the_one_that_is_woken() {
        let (before, now) = (Arc::new(Task::default()), Arc::new(Task::default()));
        let mut sources = Sources::new();
        sources.look(&Waker::from(Arc::clone(&before)));
        sources.context(Source::Phone).waker().wake_by_ref();
        sources.look(&Waker::from(Arc::clone(&now)));
        sources.context(Source::Phone).waker().wake_by_ref();
        assert_eq!((before.0.load(Ordering::Relaxed), now.0.load(Ordering::Relaxed)), (1, 1));
    }
}
