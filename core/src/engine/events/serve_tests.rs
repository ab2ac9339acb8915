//! The order of an iteration's work, and when none is left.

use super::*;
use crate::engine::grant::Written;
use crate::engine::queue::{Handle, ReplyShape, Waiter};
use crate::engine::Blocked;
use crate::engine::KeyNames;
use crate::lock::request::Share;

/// The wall clock.
#[derive(Clone, Copy)]
struct At(u64);

impl Clock for At {
    fn now(self) -> UnixMicros {
        UnixMicros(self.0)
    }

    fn monotonic(self) -> MonotonicMicros {
        MonotonicMicros(self.0)
    }
}

/// A client waits for a lock that becomes free at 100, when all queues are scanned.
fn scanned() -> Engine<u64> {
    let waiter = Waiter {
        handle: Handle::Blocked { handle: 1, client: 1 },
        share: Share::Alone,
        lease: Micros(1),
        id: None,
        owner: None,
        shape: ReplyShape::Token,
        session: false,
        wants_result: false,
        since: MonotonicMicros(0),
        until: MonotonicMicros(1_000),
    };
    let mut engine = Engine::default();
    engine.join(KeyNames::new(0, &[b"k"]), Blocked { due: Some(UnixMicros(100)), ..Blocked::default() }, waiter);
    engine.scan(MonotonicMicros(900_000), true);
    engine
}

#[test]
fn a_lock_freed_during_the_check_of_all_queues_is_not_a_missed_wake_up() {
    let mut engine = scanned();
    let mut iteration = engine.begin_iteration(&mut Budget::of(1_000), At(99)).unwrap();
    let task = engine.next_task(&mut iteration, &mut Budget::of(1_000));
    let Some(Task::Serve(_, why)) = task else { panic!("{task:?}") };
    // The lock can become due between the choice of the task and the grant.
    assert!(why.is_missed(UnixMicros(99)));
    assert!(!why.is_missed(UnixMicros(100)));
    assert!(Why::Scan(None).is_missed(UnixMicros(100)));
    assert!(!Why::Known.is_missed(UnixMicros(100)));
}

#[test]
fn the_engine_is_not_quiet_while_anybody_waits_or_work_is_left() {
    assert!(Engine::<u64>::default().is_quiet());
    assert!(!scanned().is_quiet());
    let mut engine = Engine::<u64>::default();
    engine.gate().set_longest_lease(Some(Micros(1)));
    assert!(!engine.is_quiet());
    let mut engine = Engine::<u64>::default();
    let keys = engine.queues.keys_named(KeyNames::new(0, &[b"k"]));
    engine.outstanding.lose([Lost {
        db: 0,
        keys,
        at: 0,
        token: Token::LAST,
        written: Written::default(),
        succeeds: None,
        is_unclaimed: false,
    }]);
    assert!(!engine.is_quiet());
}
