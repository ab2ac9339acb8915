//! A server that is full: it accepts no more clients, or has no more memory. Locks end and are passed on as before, and
//! what the server refuses changes nothing.

mod clients;
mod memory;
