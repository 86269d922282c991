//! A Live session at the level of the wire: literal events in, what the call is told and what the service is sent out.

mod call;
mod owed_replies;
mod wire;
