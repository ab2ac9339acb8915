#!/bin/sh
# Builds the module with faults made on purpose (core/src/broken.rs) and demands that the tests find each of them:
# every test named below must fail with its fault, and pass on the same build without one.
# Ends non-zero when a fault survives. Some minutes. Arguments: only these faults.
set -eu
cd "$(dirname "$0")/.."

# fault, tests that have to find it: of the module on a server, or of the model of it
table='
ReleaseAny       complaints::holder::no_stale_owner_releases_the_lock_of_another wire::grants::a_successor_ends_the_grant_before_it model/scopes::leases_exclude
ExtendAny        complaints::holder::no_renewal_outlives_its_unlock complaints::holder::no_lease_is_lost_without_notice
DeleteThenSet    replication::a_takeover_and_a_late_release_replicate_as_set_and_del
DelNotReplicated replication::every_write_replicates_as_set_with_an_absolute_expiry_or_as_del replica::a_replica_is_equal_to_its_master_after_any_mix_of_commands waiting::lost::what_is_replicated_is_what_happened
NoExpiry         complaints::holder::no_crash_leaves_a_lock_without_expiry wire::config::a_takeover_writes_the_expiry_of_its_own_timestamp
NoMargin         wire::config::the_defaults_are_a_margin_of_one_second_and_a_retention_of_one_minute wire::grants::the_same_id_holds_within_the_margin model/scopes::leases_exclude
Barging          complaints::line::no_newcomer_barges_past_the_queue waiting::answers::a_newcomer_never_overtakes_the_line model/scopes::a_queue_is_served_in_order
NoHandOff        waiting::lost::what_is_replicated_is_what_happened
Herd             complaints::line::no_herd_wakes_on_unlock
NoOwner          complaints::holder::nobody_holds_unseen
DeadWaiter       complaints::line::no_dead_waiter_blocks_a_free_lock waiting::ends::a_disconnect_ends_it model/scopes::a_queue_is_served_in_order
LostGrant        complaints::line::no_dead_waiter_blocks_a_free_lock waiting::lost::the_next_in_line_gets_it model/scopes::a_queue_is_served_in_order
SessionStays     sessions::ends::every_end_of_a_connection_ends_its_lock complaints::line::no_lost_reply_leaves_an_orphan
WakesNobody      model/scopes::a_queue_is_served_in_order
PassesOnWhatWasToldAgain model/scopes::a_call_that_is_sent_again_gets_no_second_lock
RestoresCancelledPlaces model/scopes::an_attempt_that_was_cancelled_has_no_place_in_line
EndsSessionsAtOnce model/scopes::a_lock_ends_with_its_session_and_not_before_its_holder_knows
SameIdNoLease    wire::grants::the_same_id_prolongs_its_lease
TokensFromClock  wire::grants::a_token_passes_the_one_in_the_key_even_if_that_is_ahead_of_the_clock model/scopes::leases_exclude
NoMinReplicas    guards::short_of_good_replicas_timers_grant_nothing
GrantInPause     guards::nothing_is_granted_while_writes_are_paused guards::a_deleted_lock_is_not_granted_before_an_unpause
NoGrace          complaints::failover::no_two_owners_after_a_failover stall::a_promoted_replica_grants_nothing_until_its_grace_is_over
NoDoubt          stall::a_replaced_master_that_stood_still_grants_nothing
SleepsThrough    suspend::a_replaced_master_that_was_suspended_grants_and_extends_nothing suspend::waits_places_and_leases_end_while_the_machine_is_suspended
ReplicaGrants    replica::a_writable_replica_leaves_the_locks_to_its_master_too
NoLook           waiting::silent::an_expired_timestamp_set_over_a_lock_is_found
OverdueTwice     several::others::overdue_holders_count_neither_for_nor_against_a_place several::random::random_steps_of_many_clients_end_as_the_plain_account_says
SharedBesidePlain several::admitted::a_caller_is_admitted_where_fewer_live_than_it_bears several::random::random_steps_of_many_clients_end_as_the_plain_account_says
PlainBesideShared several::admitted::a_caller_is_admitted_where_fewer_live_than_it_bears several::order::writers_in_a_stream_of_readers_are_served_in_order
ShortestOverdue  several::admitted::who_needs_a_place_succeeds_the_one_overdue_longest several::random::random_steps_of_many_clients_end_as_the_plain_account_says
SharedOvertakes  several::order::writers_in_a_stream_of_readers_are_served_in_order
TakesHeld        several::admitted::several_locks_are_taken_extended_and_released_together several::philosophers::philosophers_who_take_their_forks_at_once_all_eat
KeepsPart        several::admitted::several_locks_are_taken_extended_and_released_together
ExtendsPart      several::admitted::several_locks_are_taken_extended_and_released_together several::random::random_steps_of_many_clients_end_as_the_plain_account_says
ReleaseAnyOfAll  several::others::what_another_holds_is_not_released_with_several several::random::random_steps_of_many_clients_end_as_the_plain_account_says
FirstKeyOnly     several::others::whichever_of_several_locks_comes_free_last_they_are_granted_in_that_turn_of_the_loop
LostWakeUp       waiting::neighbours::neighbours_are_served_together_when_a_plain_holder_releases waiting::neighbours::neighbours_are_served_together_when_the_waiter_ahead_is_cancelled waiting::neighbours::a_wake_up_that_came_while_the_line_was_ready_is_not_lost
LongLeaseWaits   guards::a_grace_ends_the_waits_for_longer_leases_wherever_they_stand
ZremNotReplicated several::kept::effects_are_those_of_a_sorted_set_in_one_transaction several::kept::a_replica_has_the_same_holders_and_tells_of_them several::kept::holders_outlive_the_server_in_aof_and_rdb
ExpiresWithFirst several::admitted::holders_stand_in_a_sorted_set_by_their_timestamp
EndsOther        several::others::a_session_that_ends_ends_its_own_of_several_holders
ScanReadsAll     acl::scan::it_returns_the_keys_that_its_caller_may_read_and_no_others
AnyShareAgain    several::again::an_id_that_holds_among_several_is_no_id_of_a_lock_alone_nor_the_other_way_round several::random::random_steps_of_many_clients_end_as_the_plain_account_says
ExpiredHoldersStay several::lapsed::without_a_native_expiry_an_expired_holder_stays_for_its_retention_and_no_longer several::lapsed::leases_that_lapse_all_the_time_leave_a_set_that_stays_small
MovedSetStays    several::moved::a_set_that_changed_under_another_name_is_read_anew
PredecessorOfAnyKey several::again::each_of_several_locks_has_a_predecessor_of_its_own
'

target=$PWD/target/broken
cargo build --release --lib --quiet --features broken --target-dir "$target"
LOCK_MODULE=$target/release/libredis_lock.so
export LOCK_MODULE
# A fault that no test is named for would survive. Those of memory are for scripts/memcheck.sh.
sed -n 's/^    \([A-Z][A-Za-z]*\),$/\1/p' core/src/broken.rs | while read -r fault; do
    case $fault in ReadFreed | Leak) continue ;; esac
    case $table in *"
$fault "*) ;; *) echo "mutants: no test is named for $fault" >&2; exit 1 ;; esac
done
grep -q LOCK_BROKEN "$LOCK_MODULE" || { echo "mutants: $LOCK_MODULE has no faults in it" >&2; exit 1; }
cargo build --quiet --tests
out=$(mktemp)
trap 'rm -f "$out"' EXIT

# The tests' results, one line each, in $out.
# shellcheck disable=SC2086 # Tests are words.
run() {
    server='' model=''
    for test in "$@"; do
        case $test in model/*) model="$model ${test#model/}" ;; *) server="$server $test" ;; esac
    done
    {
        RUST_BACKTRACE=0
        export RUST_BACKTRACE
        [ -z "$server" ] || cargo test --quiet --test integration -- --exact --format=pretty $server || true
        [ -z "$model" ] || cargo test --quiet -p redis-lock-core --features broken --test model -- --exact --format=pretty $model || true
    } >"$out" 2>&1
}
result() { sed -n "s/^test ${1#model/} \.\.\. //p" "$out"; }
# What of the model does not hold.
property() { case $1 in model/*) sed -n 's/^[a-z ]*: does not hold: /: not /p' "$out" ;; esac; }

survived=0
# shellcheck disable=SC2086 # The tests of a row are words.
while read -r fault tests; do
    [ -n "$fault" ] || continue
    [ $# -eq 0 ] || case " $* " in *" $fault "*) ;; *) continue ;; esac
    LOCK_BROKEN='' run $tests
    for test in $tests; do
        [ "$(result "$test")" = ok ] || { cat "$out"; echo "mutants: $test does not pass without a fault" >&2; exit 1; }
    done
    LOCK_BROKEN=$fault
    export LOCK_BROKEN
    run $tests
    unset LOCK_BROKEN
    for test in $tests; do
        if [ "$(result "$test")" = FAILED ]; then
            echo "$fault: found by $test$(property "$test")"
        else
            echo "$fault: SURVIVES $test"
            survived=1
        fi
    done
done <<TABLE
$table
TABLE
exit $survived
