//! Attempts that leave with a result, and what they cost.

use super::*;
use crate::engine::result::Kept;
use std::time::Instant;

/// A ratio of times, because nothing else shows what the queue looks at.
#[test]
fn cancelling_a_channel_again_costs_nothing_while_its_attempts_leave_with_a_result() {
    const MANY: u64 = 200_000;
    let mut queues: Queues<u64> = Queues::default();
    let (key, channel) = (KeyName::new(0, b"k"), Rc::new(Channel { name: (*b"c").into(), is_sharded: false }));
    for number in 1..=MANY {
        let handle = Handle::Channel { channel: Rc::clone(&channel), session: None, sent: MonotonicMicros(0) };
        let waiter = Waiter { handle, wants_result: true, ..waiter(0, number, 9) };
        queues.join(KeyNames::new(0, &[b"k"]), 0, waiter);
    }
    let result = Kept::default().result(key, b"42", MonotonicMicros(9));
    queues.share_result(key, result, true);
    let mut cancel = |times: usize| {
        let begun = Instant::now();
        for _ in 0..times {
            assert_eq!(queues.cancel_channel(key, &channel), 0, "they have left");
        }
        begun.elapsed()
    };
    let (first, again) = (cancel(1), cancel(1_000));
    assert!(again < 10 * first, "once: {first:?}, a thousand times more: {again:?}");
}
