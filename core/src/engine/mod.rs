//! What the module remembers outside the keys, and what it decides on each event.
//!
//! The folder [`events`] contains one `impl Engine` per event. Beside it are the parts, which are independent of each
//! other; only the events touch more than one of them.
//!
//! Nothing here writes a key or calls a server. A decision changes nothing but tokens: the caller writes it to the key
//! and reports the write with [`Engine::commit`], and only then does the engine change.
//!
//! A grant, and a waiter that gets the lock when it is released:
//!
//! ```
//! use redis_lock_core::engine::grant::Decision;
//! use redis_lock_core::engine::queue::{Handle, Leaving, Of, ReplyShape, Waiter};
//! use redis_lock_core::engine::{Blocked, Clock, Conditions, Engine, KeyName, Next, Shape, Wanted};
//! use redis_lock_core::lock::record::Value;
//! use redis_lock_core::lock::request::{Request, Share};
//! use redis_lock_core::lock::terms::Terms;
//! use redis_lock_core::lock::admit::Acquire;
//! use redis_lock_core::lock::state::State;
//! use redis_lock_core::lock::time::{Micros, MonotonicMicros, UnixMicros};
//!
//! #[derive(Clone, Copy)]
//! struct At(UnixMicros);
//! impl Clock for At {
//!     fn now(self) -> UnixMicros {
//!         self.0
//!     }
//!     fn monotonic(self) -> MonotonicMicros {
//!         MonotonicMicros(self.0 .0)
//!     }
//! }
//!
//! let now = UnixMicros(1_763_710_000_000_000);
//! let terms = Terms { margin: Micros::from_ms(1_000) };
//! let request = Request { share: Share::Alone, lease: Micros::from_ms(30_000), id: None, owner: None };
//! let wanted = Wanted { request: &request, terms, may_grant: Ok(()), now };
//! let key = KeyName { db: 0, name: b"door" };
//! let mut engine = Engine::<&str>::default();
//!
//! // The key is absent. The engine decides; the caller writes the value and commits it.
//! let decision = engine.acquire(key, State::Free, &wanted)?;
//! let (mut decision, first) = Decision::to_grant(&decision).ok_or("refused")?;
//! // ... SET door <value> ...
//! engine.commit(&mut decision, key, Shape::One);
//!
//! // The next caller is refused and joins the queue.
//! let held = Value::Ours(first_record(&decision).ok_or("no value")?);
//! let lock = State::of(Some(held), now);
//! assert_eq!(engine.acquire(key, lock, &wanted)?, Acquire::Refuse);
//! let waiter = Waiter {
//!     handle: Handle::Blocked { handle: "bob", client: 7 },
//!     share: Share::Alone,
//!     lease: request.lease,
//!     id: None,
//!     owner: None,
//!     shape: ReplyShape::Token,
//!     session: false,
//!     wants_result: false,
//!     since: MonotonicMicros(now.0),
//!     until: MonotonicMicros(now.0).after(Micros::from_ms(60_000)),
//! };
//! engine.join(key.alone(), Blocked::default(), waiter);
//!
//! // The holder releases: the same change to the key grants the lock to the waiter.
//! let queue = engine.awaited_queue(key).ok_or("nobody waits")?;
//! let conditions = Conditions { terms, grace: None, of: Of::Head(Leaving::Nobody), ends: Some(first.token), now };
//! let Next::Grant(mut next) = engine.next_holder(queue, State::Free, None, &conditions) else {
//!     return Err("nobody gets it".into());
//! };
//! engine.commit(&mut next.decision, key, Shape::One);
//! assert!(next.granted.token > first.token);
//! engine.granted_to_waiter(next.ticket, next.granted, None, At(now));
//! assert_eq!(engine.outbox().take().map(|(handle, _)| handle), Some("bob"));
//! assert_eq!(engine.queues().waiters(), 0);
//! #
//! # use redis_lock_core::lock::change::Write;
//! # use redis_lock_core::lock::record::Record;
//! # fn first_record(decision: &Decision) -> Option<Record<'_>> {
//! #     match decision.write()? {
//! #         Write::Value(value, _) => value.record(),
//! #         Write::Release => None,
//! #     }
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod budget;
pub mod counters;
pub mod events;
pub mod gate;
pub mod grant;
pub mod grantees;
pub mod outbox;
pub mod outstanding;
pub mod predecessors;
pub mod queue;
pub mod result;
pub mod sessions;
pub mod unclaimed;
pub mod wait_graph;
pub mod waits;

mod by_name;
#[cfg(feature = "model")]
mod canonical;
mod clock;
mod cut_short;
#[allow(clippy::module_inception, reason = "it contains the struct of that name, which all events extend")]
mod engine;
mod key_name;
mod leftovers;
mod limits;
mod names;

#[cfg(feature = "model")]
pub use canonical::Canonical;
pub use clock::Clock;
pub use engine::Engine;
pub use events::acquire::Wanted;
pub use events::commit::{Caller, Shape};
pub use events::hand_off::{Conditions, Next, Successor};
pub use events::join::{due, gone_at, Blocked};
pub use events::next_run::Wake;
pub use events::notify::{Notification, Notified};
pub use events::serve::{Iteration, KeyChange, Task, Why};
pub use events::unclaimed::GivenUp;
pub use key_name::{KeyName, KeyNames};
pub use limits::Limits;
