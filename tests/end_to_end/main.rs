//! A call from end to end, over real sockets, with real audio.

mod booking_call;
mod house;
