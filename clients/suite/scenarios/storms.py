"""Storms: thousands of callers are cancelled, and hundreds of holds are lost. Nothing is left of them."""

import statistics
import time

from driver import Failure
from resp import queue_of
from scenarios.holding import fails
from scenarios.waiting import need_notify
from stage import LONG_LEASE, LONG_WAIT, PATIENCE, is_free, scenario, until


@scenario("storm", "census", rules="A5 A8")
def a_storm_of_cancellations_leaves_nothing(stage):
    server = stage.server()
    conn = stage.connect(server)
    need_notify(conn)
    weather(stage, conn, stage.opened(server), lambda key: is_free(conn, key), (0, 60000), 2000)


@scenario("storm", "census", rules="A5 A8 W9")
def a_storm_over_a_few_blocking_connections_leaves_nothing(stage):
    server = stage.server()
    conn = stage.connect(server)
    need_notify(conn)
    conn.call("ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "resetchannels")
    driver = stage.opened({**server.at, "user": "app", "password": "secret"})
    weather(stage, conn, driver, lambda key: is_free(conn, key), (60000,), 600)


@scenario("storm", "census", rules="A5 A8 W10 W14")
def a_storm_with_the_script_leaves_nothing(stage):
    server = stage.server(module=False)
    conn = stage.connect(server)
    driver = stage.opened(server)
    weather(stage, conn, driver, lambda key: conn.call("EXISTS", key, queue_of(key)) == 0, (0, 60000), 600)


def weather(stage, conn, driver, is_free, waits_ms, attempts):
    """Storms with each of the language's mechanisms, on free keys and on a few contended ones."""
    background = "background" in driver.ready["can"]
    lease_ms = stage.lease(20000)  # a dozen concurrent storms leave a driver little of two cores
    if background:
        driver.do("acquire", manager="m", hold="bystander", key="bystander", lease_ms=lease_ms)
        # On a busy machine, the first storm may be over before anybody waits.
        pair = [driver.begin("acquire", manager="m", hold=f"late{number}", key="bystander", lease_ms=lease_ms, wait_ms=500)
                for number in range(2)]
        for waiting in pair:
            with fails("timeout"):
                waiting.get()
    usual = time_of_one(driver)
    calm = None
    for number in range(2):  # the first creates what remains: threads, a connection for waiting
        for means in driver.ready["storms"]:
            for wait_ms in waits_ms:
                storm(driver, is_free, means, wait_ms, attempts // 2, f"{means}-{number}-{wait_ms}")
        if calm is None:
            calm = settled(driver)
    now = {}
    try:
        until("nothing is left in the process", lambda: settles(driver, calm, now))
    except AssertionError:
        raise AssertionError(f"left in the process: {now}, before: {calm}") from None
    until("a lock takes as long as before", lambda: time_of_one(driver) < 10 * usual + 0.05)
    if background:
        assert driver.events("lost") == []
        driver.do("check", hold="bystander")
    assert conn.call("PING") == "PONG"


def storm(driver, is_free, means, wait_ms, attempts, name):
    background = "background" in driver.ready["can"]
    keys = [f"{name}-{number}" for number in range(5 if wait_ms else 100)]
    pending = driver.begin(
        "storm", manager="m", means=means, among=keys, attempts=attempts, at_once=100, within_ms=20, lease_ms=30000,
        wait_ms=wait_ms or ...)
    served = 0
    while background and not pending.is_answered:  # meanwhile, attempts that are not cancelled are served
        time_of_one(driver, 1)
        served += 1
    said = pending.get(2 * PATIENCE)
    assert not said["failed"], said
    assert said["cancelled"] >= attempts / 20, said
    assert served or not background
    for key in keys:
        until(f"{key} is free", lambda key=key: is_free(key))
        try:
            # A dropped future cannot wait until its attempt is given up, so that may still be in progress.
            driver.do("acquire", manager="m", hold="fresh", key=key, lease_ms=LONG_LEASE, wait_ms=LONG_WAIT)
        except Failure as error:
            raise AssertionError(f"after {said}: {error}") from error
        assert driver.do("release", hold="fresh")["held"] is True


def time_of_one(driver, times=15):
    took = []
    for _ in range(times):
        began = time.monotonic()
        # On a busy machine, a storm of threads keeps this caller from its turn for half a minute.
        driver.do("acquire", manager="m", hold="one", key="one", lease_ms=LONG_LEASE, wait_ms=LONG_WAIT)
        assert driver.do("release", hold="one")["held"] is True
        took.append(time.monotonic() - began)
    return statistics.median(took)


def settled(driver):
    """The census, once two in a row are equal and nothing is left; debts may pause between two tries."""
    seen = [None]

    def same():
        seen.append(driver.do("census"))
        time.sleep(0.3)
        most = {"threads": 20, "tasks": 20, "connections": 20}
        return seen[-1] == seen[-2] and all(count <= most.get(name, 1) for name, count in seen[-1].items())

    until("the process settles", same)
    return seen[-1]


def settles(driver, calm, now):
    now.clear()
    now.update(driver.do("census"))
    return all(count <= calm.get(name, 0) for name, count in now.items())


@scenario("background", "few_threads", rules="H16")
def holds_and_losses_take_few_threads(stage):
    server = stage.server()
    relay = stage.relay(server)
    driver = stage.opened(relay, timeout_ms=1000)
    driver.do("acquire", manager="m", hold="first", key="first", lease_ms=30000, wait_ms=60_000)
    before = driver.threads()
    for number in range(300):
        driver.do("acquire", manager="m", hold=f"h{number}", key=f"k{number}", lease_ms=stage.lease(6000), wait_ms=60_000,
                  lost_takes_ms=100)
    relay.black_hole()
    most = 0

    def all_are_lost():
        nonlocal most
        most = max(most, driver.threads())
        return len(driver.events("lost")) >= 300

    until("all are lost, and reported", all_are_lost)
    assert most <= before + 20, (before, most)
