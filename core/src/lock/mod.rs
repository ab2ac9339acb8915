//! The lock itself, without a server: what a value in a key means, who may have the lock, and which token a grant gets.
//! Every function takes the time as an argument.
//!
//! A caller reads a key's value into a [`state::State`], asks a rule, and writes the rule's decision:
//!
//! ```
//! use redis_lock_core::lock::record::{Record, Value};
//! use redis_lock_core::lock::request::{Request, Share};
//! use redis_lock_core::lock::terms::Terms;
//! use redis_lock_core::lock::admit::{acquire, Acquire, Turn};
//! use redis_lock_core::lock::state::State;
//! use redis_lock_core::lock::time::{Micros, UnixMicros};
//! use redis_lock_core::lock::token::Tokens;
//!
//! let terms = Terms { margin: Micros::from_ms(1_000) };
//! let request = Request { share: Share::Alone, lease: Micros::from_ms(30_000), id: None, owner: None };
//! let mut tokens = Tokens::new();
//! let now = UnixMicros(1_763_710_000_000_000);
//!
//! // The key is absent: the lock is granted.
//! let decision = acquire(State::of(None, now), &request, Turn::Now, terms, &mut tokens, now)?;
//! let Acquire::Grant { record, .. } = decision else { return Err("refused".into()) };
//! let value = record.encode();
//! assert_eq!(value.as_bytes(), b"1763710031.0000001763710000000000");
//!
//! // The next caller reads that value and is refused.
//! let state = State::of(Some(Value::read(value.as_bytes(), || true)), now);
//! assert_eq!(acquire(state, &request, Turn::Now, terms, &mut tokens, now)?, Acquire::Refuse);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod admit;
pub mod change;
pub mod clocks;
pub mod error;
pub mod grace;
pub mod held;
pub mod holders;
pub mod record;
pub mod request;
pub mod retention;
pub mod state;
pub mod terms;
pub mod time;
pub mod token;
