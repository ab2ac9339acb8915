"""`serverlock.testing`: the same steps have the same outcomes in memory and on a real server.

The processes of a scenario share one driver in memory, so the names of holds, scopes and leaders differ.
"""

import time

from scenarios.holding import fails
from stage import scenario, until
from worlds import LONGER_THAN_GRACE_MS, Memory, in_both, outcome_of

LONG = 600_000


@scenario("memory", rules="M1 M2 M7")
@in_both
def a_lock_is_granted_refused_and_released(world):
    one, two = world.process(), world.process()
    before = 0
    for turn in range(3):
        token = one.do("acquire", hold=f"h{turn}", key="report", lease_ms=LONG)["token"]
        assert token > before, (token, before)
        before = token
        assert two.outcome("acquire", hold="x", key="report", lease_ms=LONG) == "refused"
        assert two.do("acquire", hold=f"o{turn}", key="other", lease_ms=LONG)["token"] > token
        assert 0 < one.do("check", hold=f"h{turn}")["left_ms"] <= LONG
        assert 0 < one.do("verify", hold=f"h{turn}")["left_ms"] <= LONG
        one.do("extend", hold=f"h{turn}", lease_ms=LONG)
        for process, hold in ((one, f"h{turn}"), (two, f"o{turn}")):
            assert process.do("release", hold=hold)["held"] is True
            assert process.outcome("check", hold=hold) == "lost"
    assert world.is_free("report") and world.is_free("other")
    assert one.outcome("acquire", hold="x", key="report", lease_ms=0) == "argument"
    one.do("close")
    assert one.outcome("acquire", hold="x", key="report", lease_ms=LONG) == "misuse"
    assert two.outcome("acquire", hold="x", key="report", lease_ms=LONG) is None


@scenario("memory", "background", rules="M2 M7")
@in_both
def waiters_get_the_lock_in_the_order_of_their_arrival(world):
    holder, waiters = world.process(), [world.process() for _ in range(3)]
    world.by_messages(holder, *waiters)
    token = holder.do("acquire", hold="h", key="report", lease_ms=LONG)["token"]
    pending = []
    for number, waiter in enumerate(waiters):
        pending.append(waiter.begin("acquire", hold=f"w{number}", key="report", lease_ms=LONG, wait_ms=LONG))
        world.waits("report", number + 1)
    holder.do("release", hold="h")
    for number, waiter in enumerate(waiters):
        newer = pending[number].get()["token"]
        assert newer > token, (newer, token)
        token = newer
        assert not any(it.is_answered for it in pending[number + 1 :])
        assert holder.outcome("acquire", hold="x", key="report", lease_ms=LONG) == "refused"
        assert waiter.do("release", hold=f"w{number}")["held"] is True
    assert world.is_free("report")


@scenario("memory", "background", rules="M3 M7")
@in_both
def a_wait_ends_with_a_timeout_and_leaves_nothing(world):
    holder, waiter, patient = (world.process() for _ in range(3))
    holder.do("acquire", hold="h", key="report", lease_ms=LONG)
    short = waiter.begin("acquire", hold="w", key="report", lease_ms=LONG, wait_ms=world.ms(3000))
    world.waits("report", 1)
    long = patient.begin("acquire", hold="p", key="report", lease_ms=LONG, wait_ms=LONG)
    world.waits("report", 2)
    world.advance(world.ms(3000))
    assert outcome_of(short) == "timeout"
    world.waits("report", 1)
    assert not long.is_answered
    holder.do("release", hold="h")
    long.get()
    assert patient.do("release", hold="p")["held"] is True
    assert world.is_free("report")


@scenario("memory", "background", rules="M3 M7")
@in_both
def a_lock_is_renewed_while_it_is_held_and_for_max_hold_at_most(world):
    holder, other = world.process(), world.process()
    holder.do("acquire", hold="h", key="report", lease_ms=world.ms(6000))
    holder.do("acquire", hold="m", key="bounded", lease_ms=world.ms(6000), max_hold_ms=world.ms(3000))
    world.advance(world.ms(14_000))
    assert holder.event("lost", hold="m")
    assert holder.events("lost", hold="h") == []
    holder.do("check", hold="h")
    assert other.outcome("acquire", hold="x", key="report", lease_ms=LONG) == "refused"
    assert other.outcome("acquire", hold="y", key="bounded", lease_ms=LONG) is None
    assert holder.do("release", hold="h")["held"] is True
    assert holder.do("release", hold="m")["held"] is False


@scenario("memory", "background", rules="M4 M7")
@in_both
def an_expired_lease_passes_the_lock_on(world):
    holder, waiter = world.process(), world.process()
    token = holder.do("acquire", hold="h", key="report", lease_ms=world.ms(3000), owner="alice")["token"]
    pending = waiter.begin("acquire", hold="w", key="report", lease_ms=LONG, wait_ms=LONG, details=True)
    world.waits("report")
    world.expire("report", holder)
    got = pending.get()
    before = got["predecessor"]
    assert (before["token"], before["owner"]) == (token, "alice") and got["token"] > token, got
    world.advance(world.ms(3000))
    holder.event("lost", hold="h")
    assert holder.outcome("check", hold="h") == "lost"
    assert holder.do("release", hold="h")["held"] is False
    assert waiter.do("release", hold="w")["held"] is True


@scenario("memory", "background", rules="M2 M3 M7")
@in_both
def a_waiter_gets_a_lock_as_soon_as_its_lease_has_ended(world):
    holder, waiter = world.process(), world.process()
    lease = world.ms(3123)
    token = holder.do("acquire", hold="h", key="report", lease_ms=lease, max_hold_ms=1)["token"]
    pending = waiter.begin("acquire", hold="w", key="report", lease_ms=LONG, wait_ms=LONG, details=True)
    world.waits("report")
    world.advance(lease + 5000)
    before = pending.get()["predecessor"]
    # A waiter that only notices when it asks again is later: it asks every 5 s, or waits in pieces of 2 s.
    assert before["token"] == token and before["overdue_ms"] < 1000, before
    assert waiter.do("release", hold="w")["held"] is True


@scenario("memory", rules="M4 M7")
@in_both
def only_an_expired_lock_can_be_recovered(world):
    holder, other = world.process(), world.process()
    refusals = []
    for key in ("free", "held"):
        if key == "held":
            token = holder.do("acquire", hold="h", key=key, lease_ms=world.ms(3000), owner="alice")["token"]
        with fails("refused", key) as refused:
            other.do("acquire", hold="r", key=key, lease_ms=LONG, recover=True)
        refusals.append("lock is free" in refused.text)
    if world.can("recover_free"):
        assert refusals == [True, False], refusals
    world.expire("held", holder)
    got = other.do("acquire", hold="r", key="held", lease_ms=LONG, recover=True)
    before = got["predecessor"]
    assert (before["token"], before["owner"]) == (token, "alice") and got["token"] > token, got
    assert holder.do("release", hold="h")["held"] is False
    assert other.do("release", hold="r")["held"] is True


@scenario("memory", "background", rules="M5 M7")
@in_both
def a_lost_hold_is_reported_and_its_key_is_free(world):
    holder, waiter = world.process(), world.process()
    token = holder.do("acquire", hold="h", key="report", lease_ms=world.ms(3000))["token"]
    pending = waiter.begin("acquire", hold="w", key="report", lease_ms=LONG, wait_ms=LONG)
    world.waits("report")
    world.lose("report", hold="h")
    assert pending.get()["token"] > token
    holder.event("lost", hold="h")
    assert holder.outcome("check", hold="h") == "lost"
    assert holder.do("release", hold="h")["held"] is False
    assert waiter.do("release", hold="w")["held"] is True
    scope, _ = holder.enter("s", key="scope", lease_ms=world.ms(3000))
    world.lose("scope", scope="s")
    holder.event("lost", scope="s")
    holder.event("stopped", scope="s")
    assert outcome_of(scope) == "lost"
    assert world.is_free("scope")


@scenario("memory", rules="M6 M7")
@in_both
def a_refused_key_fails_as_unavailable_until_it_is_allowed(world):
    holder, other = world.process(), world.process()
    lease_ms = LONGER_THAN_GRACE_MS
    holder.do("acquire", hold="h", key="report", lease_ms=lease_ms)
    world.refuse("report")
    holder.do("check", hold="h")
    assert holder.outcome("extend", hold="h", lease_ms=lease_ms) == "unavailable"
    assert holder.do("release", hold="h")["held"] is True
    for wait_ms in (..., LONG):
        assert other.outcome("acquire", hold="x", key="report", lease_ms=lease_ms, wait_ms=wait_ms) == "unavailable"
    assert world.is_free("report")
    world.allow("report")
    assert other.outcome("acquire", hold="o", key="report", lease_ms=lease_ms) is None
    assert other.do("release", hold="o")["held"] is True


@scenario("memory", "background", rules="M2 M7")
@in_both
def shared_and_limited_locks_have_several_holders(world):
    one, two = world.process(), world.process()
    world.by_messages(one, one, two)
    for number, process in enumerate((one, two)):
        process.do("acquire", hold=f"s{number}", key="page", lease_ms=LONG, shared=True)
        process.do("acquire", hold=f"l{number}", key="pool", lease_ms=LONG, limit=2)
    assert one.outcome("acquire", hold="x", key="page", lease_ms=LONG) == "refused"
    assert one.outcome("acquire", hold="x", key="pool", lease_ms=LONG, limit=2) == "refused"
    writer = one.begin("acquire", hold="w", key="page", lease_ms=LONG, wait_ms=LONG)
    world.waits("page")
    reader = two.begin("acquire", hold="r", key="page", lease_ms=LONG, wait_ms=LONG, shared=True)
    world.waits("page", 2)
    one.do("release", hold="s0")
    assert not writer.is_answered
    two.do("release", hold="s1")
    writer.get()
    assert not reader.is_answered
    one.do("release", hold="w")
    reader.get()
    slot = two.begin("acquire", hold="slot", key="pool", lease_ms=LONG, wait_ms=LONG, limit=2)
    world.waits("pool")
    one.do("release", hold="l0")
    slot.get()
    for process, hold in ((two, "r"), (two, "l1"), (two, "slot")):
        assert process.do("release", hold=hold)["held"] is True
    assert world.is_free("page") and world.is_free("pool")


@scenario("memory", "background", rules="M2 M7")
@in_both
def several_keys_are_locked_together_or_not_at_all(world):
    one, two = world.process(), world.process()
    one.do("acquire", hold="b", key="b", lease_ms=LONG)
    assert two.outcome("acquire", hold="x", keys=["a", "b"], lease_ms=LONG) == "refused"
    assert world.is_free("a")
    pending = two.begin("acquire", hold="all", keys=["a", "b"], lease_ms=LONG, wait_ms=LONG)
    until("it waits", lambda: world.info("a")["waiters"] + world.info("b")["waiters"] == 1)
    one.do("acquire", hold="a", key="a", lease_ms=LONG)
    one.do("release", hold="b")
    assert not pending.is_answered
    one.do("release", hold="a")
    token = pending.get()["token"]
    assert (world.info("a")["token"], world.info("b")["token"]) == (token, token)
    assert 0 < two.do("verify", hold="all")["left_ms"] <= LONG
    two.do("extend", hold="all", lease_ms=LONG)
    assert one.outcome("acquire", hold="y", key="a", lease_ms=LONG) == "refused"
    assert two.do("release", hold="all")["held"] is True
    assert world.is_free("a") and world.is_free("b")


@scenario("memory", "background", "session", rules="M2 M7")
@in_both
def a_session_lock_is_waited_for_and_released(world):
    one, two = world.process(), world.process()
    token = one.do("acquire", hold="s1", key="report", lease_ms=LONG, session=True)["token"]
    assert two.outcome("acquire", hold="x", key="report", lease_ms=LONG, session=True) == "refused"
    pending = two.begin("acquire", hold="s2", key="report", lease_ms=LONG, wait_ms=LONG, session=True)
    world.waits("report")
    assert one.do("release", hold="s1")["held"] is True
    assert pending.get()["token"] > token
    two.do("verify", hold="s2")
    assert two.do("release", hold="s2")["held"] is True
    assert world.is_free("report")


@scenario("memory", "reentrant", "scopes", rules="M1 M7")
@in_both
def a_caller_that_asks_again_is_treated_as_in_production(world):
    one, two = world.process(), world.process()
    scope, token = one.enter("s", key="report", lease_ms=LONG)
    with fails("misuse", "report"):
        one.driver.do("again", scope="s", hold="again")
    one.driver.do("leave", scope="s")
    scope.get()
    scope, token = one.enter("r", key="report", lease_ms=LONG, reentrant=True)
    assert one.driver.do("again", scope="r", nested=True)["token"] == token
    assert two.outcome("acquire", hold="x", key="report", lease_ms=LONG) == "refused"
    one.driver.do("fail", scope="r")
    assert outcome_of(scope) == "work"
    assert world.is_free("report")


@scenario("memory", "once", rules="M2 M3 M7")
@in_both
def one_of_several_processes_runs_each_tick(world):
    processes = [world.process() for _ in range(3)]
    for _ in range(2):
        world.next_tick(10)
        made = [it.begin("once", key="job", period_ms=10_000, lease_ms=3000) for it in processes]
        assert sorted(it.get()["outcome"] for it in made) == ["elsewhere", "elsewhere", "ran"]
    world.next_tick(10)
    body = processes[0].begin("once", scope="job", key="job", period_ms=10_000, lease_ms=5000)
    processes[0].event("entered", scope="job")
    processes[0].driver.do("fail", scope="job")
    assert outcome_of(body) == "work"
    assert processes[1].do("once", key="job", period_ms=10_000, lease_ms=3000)["outcome"] == "ran"


@scenario("memory", "leader", "background", rules="M2 M3 M7")
@in_both
def leaders_take_turns(world):
    one, two, looker = (world.process() for _ in range(3))
    lease_ms = world.ms(3000)
    one.do("lead", leader="l1", key="chief", lease_ms=lease_ms, owner="one")
    first = one.event("elected", leader="l1")["token"]
    looker.do("observe", observer="o", key="chief", lease_ms=lease_ms)
    looker.event("leader", observer="o", token=first, owner="one")
    two.do("lead", leader="l2", key="chief", lease_ms=lease_ms, owner="two")
    world.waits("chief")
    one.driver.do("resign", leader="l1")
    assert one.event("deposed", leader="l1")["token"] == first
    second = two.event("elected", leader="l2")["token"]
    assert second > first
    world.advance(lease_ms)
    looker.event("leader", observer="o", token=second, owner="two")
    world.waits("chief")
    two.driver.do("stop", leader="l2")
    until("one leads again", lambda: len(one.events("elected", leader="l1")) == 2)
    one.driver.do("stop", leader="l1")


@scenario("memory", rules="M3")
def in_memory_time_stands_still(stage):
    world = Memory(stage)
    holder = world.process()
    lease_ms = 30_000
    holder.do("acquire", hold="h", key="report", lease_ms=lease_ms)
    before = holder.do("left", hold="h")["left_ms"]
    assert abs(before - 0.9 * lease_ms) <= 1, before
    time.sleep(0.05)
    assert holder.do("left", hold="h")["left_ms"] == before
    world.advance(1000)
    assert abs(holder.do("left", hold="h")["left_ms"] - (before - 1000)) <= 1
    other = Memory(stage).process()
    assert other.outcome("acquire", hold="o", key="report", lease_ms=lease_ms) is None, "servers share no locks"
