"""One result for many callers without the module: it is stored at a key of its own, beside the queue (G6)."""

from scenarios.flights import Place, ask, computes, got, places, result_of
from stage import LONG_LEASE, scenario, waits


@scenario("single_flight", rules="G6")
def the_result_is_stored_beside_the_queue(stage):
    driver, (_, place) = places(stage)
    for key, stored in (("report", "report:result:{report}"), ("{42}:report", "{42}:report:result"), ("a{b", None)):
        scope = f"scope {key}"
        holder = computes(driver, "p", key, scope, lease_ms=LONG_LEASE)
        token = driver.events("entered", scope=scope)[0]["token"]
        waiter = ask(driver, "q", key)
        if stored:
            assert result_of(key) == stored
            place.queued(key)
        driver.do("leave", scope=scope)
        assert got(holder) == ("by p", True)
        if stored:
            assert got(waiter) == ("by p", False)
            assert place.conn.call("GET", stored) == f"{token} by p"
            assert LONG_LEASE / 2 < place.conn.call("PTTL", stored) <= LONG_LEASE
        else:
            assert got(waiter) == ("by q", True)
        assert place.is_free(key)
    assert sorted(place.conn.call("KEYS", "*")) == ["report:result:{report}", "{42}:report:result"]


@scenario("single_flight", rules="G6")
def only_a_result_that_was_stored_during_the_wait_counts(stage):
    driver, (_, place) = places(stage)
    for number, stale in enumerate((None, "1795257107955466 stale", "nonsense", "")):
        key = f"report {number}"
        if stale is not None:
            place.conn.call("SET", result_of(key), stale)
        # An older package, or a plain lock, stores no result.
        theirs = place.conn.script("lock_acquire", key, "PX", LONG_LEASE)
        waiter = ask(driver, "p", key)
        place.queued(key)
        assert place.conn.script("lock_release", key, theirs) == 1
        assert got(waiter) == ("by p", True)
        assert place.is_free(key)


@scenario("single_flight", rules="G6 Q8")
def without_the_right_to_the_key_of_the_result_each_computes(stage):
    driver = stage.drivers[0]
    place = Place(stage, "pq", module=False, user="app", password="secret")
    place.conn.call("ACL", "SETUSER", "app", "on", ">secret", "~report", "~report:queue:*", "+@all", "allchannels")
    place.open(driver)
    holder = computes(driver, "p", "report")
    waiter = ask(driver, "q", "report")
    waits(place.conn, "report")
    driver.do("leave", scope="p")
    assert [got(holder), got(waiter)] == [("by p", True), ("by q", True)]
    assert place.is_free("report")


@scenario("single_flight", "prefix", rules="G6 S6")
def the_prefix_of_the_library_applies_to_the_result(stage):
    driver, both = places(stage)
    for place, managers in zip(both, ("ab", "cd"), strict=True):
        for prefix in ("app:", "{app}:"):
            one, two = (prefix + name for name in managers)
            place.open(driver, one, two, prefix=prefix)
            holder = computes(driver, one, "x")
            waiter = ask(driver, two, "x")
            place.queued(f"{prefix}x")
            driver.do("leave", scope=one)
            assert [got(holder), got(waiter)] == [(f"by {one}", True), (f"by {one}", False)]
            if not place.module:
                assert place.conn.call("EXISTS", result_of(f"{prefix}x")) == 1
            assert place.is_free(f"{prefix}x")
