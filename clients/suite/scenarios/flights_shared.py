"""One result for many callers of one manager: they share one attempt, and survive one another's ends."""

import itertools
from concurrent.futures import ThreadPoolExecutor

from scenarios.flights import SOON, ask, computes, entered, got, places
from scenarios.holding import fails
from stage import LONG_LEASE, LONG_WAIT, PATIENCE, scenario, until, waits
from worlds import in_both, outcome_of

# A wait that the scenario sees before it ends, on a busy machine too.
SEEN = 5000


@scenario("single_flight", "background", rules="G4")
def callers_of_one_manager_share_one_attempt(stage):
    driver, both = places(stage)
    parts = (shares, shares_a_wait)

    def played(place, turn):
        return [part(driver, place, f"{part.__name__} {turn}") for part in parts]

    with ThreadPoolExecutor(len(both)) as pool:
        # On a slow machine, a caller may come once the value is there, and then computes again.
        for turn in range(3):
            if all(itertools.chain(*pool.map(lambda place, turn=turn: played(place, turn), both))):
                return
    raise AssertionError("callers computed for themselves, three times in a row")


def shares(driver, place, key):
    """Many ask while one of them computes. Returns whether the others came in time and got its value."""
    scope = f"{place.first} {key}"
    holder = computes(driver, place.first, key, scope)
    others = [ask(driver, place.first, key, value=f"by {number}") for number in range(20)]
    with fails("timeout", key):  # the others came earlier
        ask(driver, place.first, key, wait_ms=SOON).get()
    assert place.waiters(key) == 0, "another caller has an attempt"
    driver.do("leave", scope=scope)
    assert got(holder) == (f"by {place.first}", True)
    made = [got(it) for it in others]
    assert place.is_free(key)
    return made == 20 * [(f"by {place.first}", False)]


def shares_a_wait(driver, place, key):
    """Many wait for another process. The wait of the one that began the attempt ends first."""
    scope = f"{place.second} {key}"
    holder = computes(driver, place.second, key, scope)
    first = ask(driver, place.first, key, wait_ms=SEEN)
    waits(place.conn, key)
    others = [ask(driver, place.first, key, value=f"by {number}") for number in range(10)]
    with fails("timeout", key):
        first.get()
    if not place.module:
        place.asked(key, 2)
    with fails("timeout", key):
        ask(driver, place.first, key, wait_ms=SOON).get()
    place.alone(key)
    assert place.waiters(key) <= 1, "another caller has an attempt"
    driver.do("leave", scope=scope)
    assert got(holder) == (f"by {place.second}", True)
    made = [got(it) for it in others]
    assert place.is_free(key)
    return made == 10 * [(f"by {place.second}", False)]


@scenario("single_flight", "background", rules="G3 G4")
def after_a_failure_another_caller_of_the_manager_begins_a_new_attempt(stage):
    driver, both = places(stage)
    for place in both:
        failing, next_, name = f"{place.first}-failing", f"{place.first}-next", place.first
        holder = computes(driver, name, "report", failing)
        waiter = ask(driver, place.second, "report", scope=place.second)
        place.queued("report", 1)
        follower = ask(driver, name, "report", scope=next_)
        driver.do("fail", scope=failing)
        with fails("work"):
            holder.get()
        entered(driver, waiter, place.second)  # it is the first in the queue
        place.queued("report", 1, asked=3)
        driver.do("fail", scope=place.second)
        with fails("work"):
            waiter.get()
        entered(driver, follower, next_)
        driver.do("leave", scope=next_)
        assert got(follower) == (f"by {name}", True)
        assert place.is_free("report")


@scenario("single_flight", "background", "cancel", rules="G4 A8")
def a_cancelled_caller_of_a_shared_attempt_affects_no_other(stage):
    driver, both = places(stage)
    for place in both:
        holder = computes(driver, place.second, "report")
        first = ask(driver, place.first, "report")
        place.queued("report", 1)
        others = [ask(driver, place.first, "report") for _ in range(4)]
        driver.do("cancel", of=others[1].number)
        with fails("cancelled"):
            others.pop(1).get()
        assert place.waiters("report") <= 1
        driver.do("cancel", of=first.number)
        with fails("cancelled"):
            first.get()
        place.alone("report")
        if not place.module:
            place.asked("report", 2)
        driver.do("leave", scope=place.second)
        assert got(holder) == (f"by {place.second}", True)
        # One that came late may have computed again.
        assert got(others[0])[0] in (f"by {place.second}", f"by {place.first}")
        for it in others:
            it.get()
        until("it is free", lambda place=place: place.is_free("report"))


@scenario("single_flight", "background", rules="G4 C1 W7")
def other_errors_go_to_all_callers_of_the_attempt(stage):
    driver, (place, _) = places(stage)
    theirs = place.conn.call("LOCK.ACQUIRE", "report", "PX", LONG_LEASE)
    for kind in ("refused", "misuse"):
        pending = [ask(driver, "m", "report") for _ in range(5)]
        place.queued("report", 1)
        if kind == "misuse":
            driver.do("close", manager="m")

        def all_have_failed(pending=pending, kind=kind):
            """A caller that came after the others had failed is cancelled as well."""
            if kind == "refused":
                for entry in place.conn.map("LOCK.INFO", "report", "FULL")["queue"]:
                    place.conn.call("LOCK.CANCEL", "report", dict(zip(entry[::2], entry[1::2], strict=True))["id"])
            return all(it.is_answered for it in pending)

        until("all have failed", all_have_failed)
        assert [outcome_of(it) for it in pending] == 5 * [kind]
    until("nobody waits", lambda: place.waiters("report") == 0)
    assert place.conn.call("LOCK.RELEASE", "report", theirs) == 1


@scenario("single_flight", "storm", "census", rules="G4 A5 A8")
def a_storm_of_cancelled_callers_leaves_nothing(stage):
    driver, both = places(stage)
    for place in both:
        for turn in range(2):  # the first creates what remains: threads, a connection for waiting
            for means in driver.ready["storms"]:
                keys = [f"{means} {turn} {number}" for number in range(3)]
                said = driver.do(
                    "storm", manager=place.first, means=means, among=keys, attempts=60, at_once=20, within_ms=10,
                    lease_ms=LONG_LEASE, wait_ms=LONG_WAIT, single_flight=True, seconds=2 * PATIENCE)
                assert not said["failed"] and not said["refused"], said
                assert said["cancelled"] >= 3, said
                for key in keys:
                    until(f"{key} is free", lambda key=key, place=place: place.is_free(key))
                    assert got(ask(driver, place.second, key)) == (f"by {place.second}", True)
    most = {"threads": 20, "tasks": 20, "connections": 20}
    now = {}

    def is_calm():
        now.clear()
        now.update(driver.do("census"))
        return all(count <= most.get(name, 0) for name, count in now.items())

    try:
        until("nothing is left in the process", is_calm)
    except AssertionError:
        raise AssertionError(f"left in the process: {now}") from None


@scenario("single_flight", "memory", "background", rules="M1 M2 M7 G1 G3 G4")
@in_both
def in_memory_all_get_the_value_too(world):
    one, two, three = (world.process() for _ in range(3))
    world.by_messages(one, one, two, three)
    fields = {"key": "report", "lease_ms": LONG_LEASE, "wait_ms": LONG_WAIT}

    def begin(process, name, **more):
        return process.begin("single_flight", value=name, **fields, **more)

    holder = begin(one, "one", scope="one")
    one.event("entered", scope="one")
    second = begin(two, "two", scope="two")
    world.waits("report", 1)
    plain = three.begin("acquire", hold="h", key="report", lease_ms=LONG_LEASE, wait_ms=LONG_WAIT)
    world.waits("report", 2)
    one.driver.do("fail", scope="one")
    assert outcome_of(holder) == "work"
    two.event("entered", scope="two")
    third = begin(one, "three")
    world.waits("report", 2)
    two.driver.do("leave", scope="two")
    assert [got(second), got(third)] == [("two", True), ("two", False)]
    plain.get()
    assert three.do("release", hold="h")["held"] is True
    assert world.is_free("report")
    assert got(begin(two, "again")) == ("again", True)
    assert world.is_free("report")
