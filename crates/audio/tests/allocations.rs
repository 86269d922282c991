//! No heap allocation a frame once the buffers have grown: counted, not believed.
#![allow(unsafe_code)] // A global allocator cannot be written without it; this file is a test.

use audio::g711::{ALAW, MULAW};
use audio::voice_activity::Aggressiveness;
use audio::{Detector, FrameCutter, Rate, Resampler};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

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
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(vec![1_u8; 64]))), 1);
}

#[test]
fn a_frame_through_every_detector_allocates_nothing() {
    let codes: Vec<u8> = (0..160_u32).map(|n| (n * 37 % 256) as u8).collect();
    for detector in [
        Detector::Webrtc { mode: Aggressiveness::default() },
        Detector::Earshot { threshold: 0.5 },
        Detector::Cascade { threshold: 0.5 },
    ] {
        let mut ear = detector.open();
        let mut samples = Vec::new();
        let mut frame = |pieces: usize| {
            MULAW.decode(&codes, &mut samples);
            for piece in samples.chunks(pieces) {
                ear.hear(piece);
            }
        };
        frame(160);
        assert_eq!(allocations(|| (0..200).for_each(|_| frame(160))), 0, "{detector:?}");
        assert_eq!(allocations(|| (0..200).for_each(|_| frame(33))), 0, "{detector:?}, odd pieces");
    }
}

#[test]
fn laws_cutting_and_resampling_allocate_nothing_once_warm() {
    let codes = [0x55_u8; 173];
    let (mut samples, mut up, mut down, mut back, mut frames) = (vec![], vec![], vec![], vec![], vec![]);
    let mut cutter = FrameCutter::new();
    let mut to_model = Resampler::new(Rate::Hz8000, Rate::Hz24000);
    let mut from_model = Resampler::new(Rate::Hz24000, Rate::Hz8000);
    let mut frame = || {
        MULAW.decode(&codes, &mut samples);
        up.clear();
        to_model.push(&samples, &mut up);
        down.clear();
        from_model.push(&up, &mut down);
        MULAW.encode(&down, &mut back);
        ALAW.encode(&down, &mut back);
        MULAW.convert(&mut back);
        frames.clear();
        cutter.push(&back, &mut frames);
    };
    (0..50).for_each(|_| frame());
    assert_eq!(allocations(|| (0..500).for_each(|_| frame())), 0);
}
