//! A stage for the conversation core in virtual time: a carrier that plays, marks and clears as Twilio does, a store that
//! acknowledges, and a caller who makes sounds. No socket, no runtime, no clock: a minute of call takes milliseconds. And
//! whole worlds from a seed ([`world`]), which find the timing that nobody thought of.

mod carrier;
mod stage;

pub use carrier::{Carrier, HeardPiece};
pub use stage::{Stage, Watch, brief};
#[cfg(feature = "world")]
pub mod world;
