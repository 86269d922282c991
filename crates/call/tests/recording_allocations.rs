//! A quiet frame is recorded without an allocation once the buffers have grown: counted, not believed.
#![allow(unsafe_code)] // A global allocator cannot be written without it; this file is a test.

use call::recorder::{RecordingLimits, Recordings};
use conversation::Input;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use vocab::{AgentId, CallSid, CallTime, Samples, SessionId, StreamSid, VoiceEvidence, WallTime};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes on to the system allocator unchanged; the count is a thread-local integer without a
// destructor and never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        unsafe { System.dealloc(block, layout) }
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations(work: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.with(Cell::get);
    work();
    ALLOCATIONS.with(Cell::get) - before
}

#[test]
fn ten_quiet_seconds_cost_the_calls_task_no_allocation() {
    let place = std::env::temp_dir().join(format!("recording-allocations-{}", std::process::id()));
    let (recordings, thread) = Recordings::start(RecordingLimits::new(&place)).unwrap();
    let header = recording::Header {
        format: recording::FORMAT,
        program: "test".into(),
        session: SessionId::new("ses_1"),
        stream: StreamSid::new("MZ1"),
        call: CallSid::new("CA1"),
        agent: AgentId::new("bistro"),
        caller: "…23".into(),
        started: WallTime(0),
        policy: serde_json::Value::Null,
        detector: serde_json::Value::Null,
        tools: recording::ToolFacts::default(),
        scrubbed: false,
    };
    let mut recorder = recordings.record(&header).unwrap();
    let mut second = |from: u64| {
        for frame in 0..50 {
            // Jitter and a moving level: what does not fold well.
            let at = CallTime((from * 50 + frame) * 20_000 + frame * 37 % 400);
            let evidence = VoiceEvidence { speech: frame % 7 == 0, level_dbfs: -70 + (frame % 20) as i8 };
            recorder.caller_audio(&[0xff; 160]);
            recorder.input(at, &Input::CallerAudio { samples: Samples(160), evidence });
            recorder.commands(&[]);
            if frame % 25 == 0 {
                // In real time the thread has a second for each buffer; here it must be let in, and be done gathering, to
                // give one back before the next is due.
                std::thread::sleep(std::time::Duration::from_millis(60));
            }
        }
    };
    (0..5).for_each(&mut second);
    let counted = allocations(|| (5..15).for_each(&mut second));
    assert_eq!(counted, 0);
    drop((recorder, recordings));
    thread.join();
    std::fs::remove_dir_all(place).unwrap();
}
