//! The doors over real sockets on 127.0.0.1.

mod admin;
mod house;
mod stopping;
mod streams;
mod webhooks;
