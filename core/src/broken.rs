//! Faults made on purpose, to see that the tests find them: cargo feature `broken`, never in a
//! release.
//!
//! With the feature, the environment variable `LOCK_BROKEN` names the one fault that the module has;
//! without it [`is`] is a constant, and no trace of a fault is compiled. `scripts/mutants.sh` says
//! which tests have to find which, `scripts/memcheck.sh` has the faults of memory.

/// A module with one fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// RELEASE does not compare the token.
    ReleaseAny,
    /// EXTEND does not compare the token.
    ExtendAny,
    /// A key is deleted before it is written, as by clients that DEL and then SETNX.
    DeleteThenSet,
    /// Replicas and the AOF are not told of a DEL.
    DelNotReplicated,
    /// A lock is written without a native expiry.
    NoExpiry,
    /// The timestamp is that of the lease, without the margin.
    NoMargin,
    /// A newcomer takes a free lock ahead of those who wait.
    Barging,
    /// RELEASE deletes and leaves it to an event to wake the first who waits.
    NoHandOff,
    /// RELEASE deletes, and wakes nobody who waits.
    WakesNobody,
    /// All who wait are woken when one of them gets the lock.
    Herd,
    /// The label of the holder is not kept.
    NoOwner,
    /// A waiter that is gone stays in line.
    DeadWaiter,
    /// A grant that nobody received is not passed on.
    LostGrant,
    /// A grant that nobody received is passed on although its attempt has asked again and was told of it.
    PassesOnWhatWasToldAgain,
    /// An attempt that was cancelled while its grant was on its way has its place back if nobody received that.
    RestoresCancelledPlaces,
    /// The end of a connection ends no lock.
    SessionStays,
    /// The end of a connection leaves its holder no margin.
    EndsSessionsAtOnce,
    /// The same ID gets its token, but no longer lease.
    SameIdNoLease,
    /// Tokens are the time of the clock, whatever was granted before.
    TokensFromClock,
    /// A timer grants short of good replicas.
    NoMinReplicas,
    /// A timer grants while the server is paused.
    GrantInPause,
    /// A new master grants at once.
    NoGrace,
    /// A master that stood still grants at once.
    NoDoubt,
    /// The time for which the machine was suspended does not count.
    SleepsThrough,
    /// A replica that clients may write to grants locks.
    ReplicaGrants,
    /// Nobody looks at locks that others changed in silence.
    NoLook,
    /// LIMIT takes those who are overdue off twice: one more than n is admitted beside them.
    OverdueTwice,
    /// Who shares is admitted beside a plain holder.
    SharedBesidePlain,
    /// A plain caller is admitted beside those who share.
    PlainBesideShared,
    /// Who needs a place takes that of the holder who is overdue shortest.
    ShortestOverdue,
    /// SHARED overtakes those who wait.
    SharedOvertakes,
    /// MACQUIRE takes a lock that somebody has, if it is not the first of them.
    TakesHeld,
    /// MACQUIRE that is refused keeps the first lock if that is free.
    KeepsPart,
    /// MEXTEND extends those that are held, though not all are.
    ExtendsPart,
    /// MRELEASE does not compare the token.
    ReleaseAnyOfAll,
    /// Who waits for several locks is parked at the first of them, whether it can have that one or not.
    FirstKeyOnly,
    /// The timer is not set for a line that a command made ready.
    LostWakeUp,
    /// Waiters whose leases a new grace does not cover wait on.
    LongLeaseWaits,
    /// Replicas and the AOF are not told of a ZREM.
    ZremNotReplicated,
    /// A key with several holders expires natively with the first of them.
    ExpiresWithFirst,
    /// The end of a connection ends another of several holders.
    EndsOther,
    /// LOCK.SCAN returns keys that its caller may not read.
    ScanReadsAll,
    /// The ID of a holder gets its token again, whether it asks alone or among several.
    AnyShareAgain,
    /// Expired holders stay in a set whose key has no native expiry.
    ExpiredHoldersStay,
    /// What is in memory of a set of holders stays when its key is renamed.
    MovedSetStays,
    /// A predecessor is remembered by the token of its successor alone.
    PredecessorOfAnyKey,
    /// The answer to a waiter is read after it was freed.
    ReadFreed,
    /// The answer to a waiter is never freed.
    Leak,
}

/// Whether the module has that fault.
#[cfg(not(feature = "broken"))]
#[inline]
#[must_use]
pub const fn is(_mutant: Mutant) -> bool {
    false
}

/// Whether the module has that fault: asked for by its name in `LOCK_BROKEN`, read once.
#[cfg(feature = "broken")]
#[must_use]
pub fn is(mutant: Mutant) -> bool {
    static CHOSEN: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| std::env::var("LOCK_BROKEN").unwrap_or_default());
    *chosen == format!("{mutant:?}")
}
