"""Lost replies, servers that stop or disappear, networks that are cut or swallow everything, killed workers."""

import time

from driver import Failure
from scenarios.holding import fails
from servers import free_port
from stage import LATE_SUCCESSORS, LONG_LEASE, LONG_WAIT, Skip, Successor, calls, is_free, renewed, scenario, until, waits

MARGIN = 1.0


def ways_to_lose(stage):
    """Whether a lost reply's connection is closed too. It stays open only if the client can close it itself."""
    return (True, False) if "pooled" in stage.driver().ready["can"] else (True,)


@scenario(rules="A3 H6")
def a_lost_reply_leads_to_one_grant_and_one_release(stage):
    server = stage.server()
    conn = stage.connect(server)
    relay = stage.relay(server)
    for close in ways_to_lose(stage):
        for command in ("LOCK.ACQUIRE", "LOCK.RELEASE"):
            driver = stage.opened(relay, timeout_ms=3000)
            driver.do("raw", manager="m", args=["PING"])
            key = f"{command}-{close}"
            expected = relay.lost + 1
            relay.lose(command, close=close)
            token = driver.do("acquire", manager="m", hold="h", key=key, lease_ms=30000)["token"]
            assert conn.info(key)["token"] == token
            assert (relay.lost < expected) == (command == "LOCK.RELEASE"), "the reply to another command was lost"
            assert driver.do("release", hold="h")["held"] is True
            assert is_free(conn, key), conn.info(key)
            assert relay.lost >= expected, command
            assert driver.do("raw", manager="m", args=["ECHO", "hello"])["reply"] == "hello"
            driver.end()


@scenario("background", rules="H3")
def a_lost_reply_to_a_renewal_costs_nothing(stage):
    server = stage.server()
    conn = stage.connect(server)
    relay = stage.relay(server)
    for close in ways_to_lose(stage):
        driver = stage.opened(relay)
        conn.call("CONFIG", "RESETSTAT")
        lost = relay.lost
        driver.do("acquire", manager="m", hold="h", key="report", lease_ms=stage.lease(6000))
        relay.lose("LOCK.EXTEND", close=close)
        renewed(conn, 3)  # the reply to the first was lost
        assert relay.lost > lost
        driver.do("check", hold="h")
        assert driver.do("release", hold="h")["held"] is True
        assert is_free(conn, "report")
        driver.end()


@scenario(rules="A7")
def a_missing_server_causes_one_typed_error_that_names_the_lock(stage):
    driver = stage.opened({"kind": "single", "host": "127.0.0.1", "port": free_port()}, timeout_ms=1000)
    for wait_ms, least in ((..., 0), (800, 0.7)):
        began = time.monotonic()
        with fails("no_server", "report"):
            driver.do("acquire", manager="m", hold="h", key="report", lease_ms=30000, wait_ms=wait_ms)
        assert least <= time.monotonic() - began


@scenario("background", rules="A5 A7")
def a_stopped_server_causes_one_typed_error_and_nothing_stays_held(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server, timeout_ms=500)
    driver.do("raw", manager="m", args=["PING"])
    server.pause()
    try:
        with fails("no_server", "report"):
            driver.do("acquire", manager="m", hold="h", key="report", lease_ms=300_000)
    finally:
        server.resume()
    # The server may run the commands left in its sockets, in any order. They are no longer wanted.
    time.sleep(0.3)
    until("the lock is free", lambda: is_free(conn, "report"))
    time.sleep(0.5)
    assert is_free(conn, "report"), conn.info("report")


@scenario("background", rules="H2 H5")
def the_holder_knows_before_anybody_else_can_have_the_lock(stage):
    server = stage.server(*LATE_SUCCESSORS)
    for fault in ("stopped", "black hole", "down"):
        conn = stage.connect(server)
        relay = stage.relay(server)
        driver = stage.opened(relay)
        lease = stage.lease(3000)
        conn.call("CONFIG", "RESETSTAT")
        driver.do("acquire", manager="m", hold="h", key=fault, lease_ms=lease)
        scope = driver.begin("scope", manager="m", scope="s", key=f"{fault} s", lease_ms=lease)
        driver.event("entered", scope="s")
        renewed(conn, 2)
        successors = [Successor(stage, server, key) for key in (fault, f"{fault} s")]
        if fault == "stopped":
            server.pause()
        elif fault == "black hole":
            relay.black_hole()
        else:
            relay.down()
        try:
            lost = driver.event("lost", hold="h")["at"]
            stopped = driver.event("stopped", scope="s")["at"]
        finally:
            server.resume()
        successors[0].works_after(lost)
        successors[1].works_after(stopped)
        with fails("lost", fault):
            driver.do("check", hold="h")
        relay.black_hole(False)
        relay.down(False)
        with fails("lost", fault):
            scope.get()


@scenario("background", rules="H3")
def a_short_fault_costs_nothing(stage):
    server = stage.server()
    relay = stage.relay(server)
    driver = stage.opened(relay, timeout_ms=1000)
    driver.do("acquire", manager="m", hold="h", key="report", lease_ms=stage.lease(9000), wait_ms=LONG_WAIT)
    for fault in ("cut", "down", "black hole"):
        if fault == "cut":
            relay.cut()
            time.sleep(1)
        elif fault == "down":
            relay.down()
            time.sleep(1)
            relay.down(False)
        else:
            relay.black_hole()
            time.sleep(1)
            relay.black_hole(False)
        time.sleep(3)
        driver.do("check", hold="h")
    assert driver.do("release", hold="h")["held"] is True
    assert driver.events("lost") == []


@scenario("background", rules="H5")
def a_server_that_was_restarted_empty_loses_the_lock_and_the_holder_knows(stage):
    server = stage.server()
    driver = stage.opened(server)
    driver.do("acquire", manager="m", hold="h", key="report", lease_ms=3000)
    server.restart()
    lost = driver.event("lost", hold="h")
    assert "report" in lost["text"]
    assert driver.do("release", hold="h")["held"] is False
    conn = stage.connect(server)
    assert is_free(conn, "report")
    driver.do("acquire", manager="m", hold="i", key="report", lease_ms=3000)


@scenario("background", rules="H6 A5")
def a_release_that_cannot_be_sent_is_made_up_for(stage):
    server = stage.server()
    conn = stage.connect(server)
    relay = stage.relay(server)
    driver = stage.opened(relay, timeout_ms=1000)
    driver.do("acquire", manager="m", hold="h", key="report", lease_ms=300_000)
    relay.down()
    assert driver.do("release", hold="h")["held"] is True
    relay.down(False)
    until("it is free", lambda: is_free(conn, "report"))


@scenario(rules="H13")
def a_killed_worker_frees_its_lock_and_the_successor_learns_of_it(stage):
    server = stage.server()
    conn = stage.connect(server)
    dead, next_ = stage.opened(server), stage.opened(server)
    token = dead.do("acquire", manager="m", hold="h", key="report", lease_ms=stage.lease(6000), owner="alice")["token"]
    hold = next_.begin("acquire", manager="m", hold="h", key="report", lease_ms=30000, wait_ms=LONG_WAIT, details=True)
    waits(conn, "report")
    dead.kill()
    got = hold.get()
    before = got["predecessor"]
    assert before is not None and (before["token"], before["owner"]) == (token, "alice"), got


@scenario("session", rules="H9")
def a_session_ends_with_its_worker(stage):
    server = stage.server()
    conn = stage.connect(server)
    dead, next_ = stage.opened(server), stage.opened(server)
    dead.do("acquire", manager="m", hold="h", key="report", lease_ms=300_000, session=True)
    hold = next_.begin("acquire", manager="m", hold="h", key="report", lease_ms=300_000, wait_ms=300_000, session=True)
    waits(conn, "report")
    began = time.monotonic()
    dead.kill()
    hold.get()  # long before its lease ends
    assert 0.8 * MARGIN < time.monotonic() - began
    assert conn.info("report")["session"] is not None
    assert next_.do("release", hold="h")["held"] is True
    assert is_free(conn, "report")
    until("its connection is closed", lambda: len(stage.clients_of(conn)) <= 3)


@scenario("session", rules="H9 H5")
def a_session_that_is_killed_is_noticed_before_the_successor_works(stage):
    server = stage.server(*LATE_SUCCESSORS)
    conn = stage.connect(server)
    driver = stage.opened(server)
    scope = driver.begin("scope", manager="m", scope="s", key="report", lease_ms=30000, session=True)
    driver.event("entered", scope="s")
    successor = Successor(stage, server, "report")
    waits(conn, "report")
    session = conn.info("report")["session"]
    conn.call("CLIENT", "KILL", "ID", session)
    lost, stopped = driver.event("lost", scope="s")["at"], driver.event("stopped", scope="s")["at"]
    successor.works_after(lost, stopped)
    with fails("lost", "report"):
        scope.get()
    assert conn.info("report")["state"] == "held"


@scenario("drop", rules="H7")
def a_dropped_hold_is_not_renewed(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    driver.do("acquire", manager="m", hold="h", key="report", lease_ms=stage.lease(6000))
    has_session = "session" in driver.ready["can"]
    if has_session:
        driver.do("acquire", manager="m", hold="s", key="session", lease_ms=stage.lease(6000), session=True)
        session = conn.info("session")["session"]
    driver.do("acquire", manager="m", hold="kept", key="kept", lease_ms=stage.lease(12000))
    driver.do("drop", hold="h")
    until("others can have it", lambda: conn.call("LOCK.ACQUIRE", "report", "PX", 30000))
    if has_session:
        driver.do("drop", hold="s")
        until("others can have it", lambda: conn.call("LOCK.ACQUIRE", "session", "PX", 30000))
        until("its connection is closed", lambda: not conn.call("CLIENT", "LIST", "ID", session))
    if "background" in driver.ready["can"]:
        conn.call("CONFIG", "RESETSTAT")
        renewed(conn, 2)  # of the only remaining hold
        driver.do("check", hold="kept")


@scenario("drop", "background", rules="H7")
def a_hold_that_is_dropped_after_a_renewal_is_not_renewed_again(stage):
    """It is the only hold of its manager, so no other one takes its place anywhere."""
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    driver.do("acquire", manager="m", hold="h", key="report", lease_ms=stage.lease(3000))
    renewed(conn, 1)
    driver.do("drop", hold="h")
    until("others can have it", lambda: conn.call("LOCK.ACQUIRE", "report", "PX", 30000))


@scenario(rules="H13")
def a_forgotten_lock_does_not_keep_the_process_alive(stage):
    server = stage.server()
    conn = stage.connect(server)
    conn.call("LOCK.ACQUIRE", "theirs", "PX", LONG_LEASE)
    driver = stage.opened(server)
    driver.do("acquire", manager="m", hold="h", key="report", lease_ms=30000)
    driver.begin("acquire", manager="m", hold="i", key="theirs", lease_ms=30000, wait_ms=LONG_WAIT)
    waits(conn, "theirs")
    driver.end()


@scenario("fork", rules="H8")
def a_forked_child_leaves_its_parents_lock_alone(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    scope = driver.begin("scope", manager="m", scope="s", key="report", lease_ms=stage.lease(9000))
    token = driver.event("entered", scope="s")["token"]
    said = driver.do("fork", scope="s", manager="m", at=server.at)
    assert said == {"check": "lost", "own": True}, said
    assert conn.info("report")["token"] == token
    renewed(conn, 4)  # these take longer than a lease
    assert conn.info("report")["token"] == token
    driver.do("leave", scope="s")
    scope.get()
    assert is_free(conn, "report")


@scenario(rules="A6")
def a_hundred_locks_leave_no_connections_behind(stage):
    server = stage.server()
    conn = stage.connect(server)
    driver = stage.opened(server)
    theirs = conn.call("LOCK.ACQUIRE", "x", "PX", LONG_LEASE)
    for turn in range(100):
        driver.do("acquire", manager="m", hold=f"h{turn}", key=f"k{turn}", lease_ms=30000)
        driver.do("release", hold=f"h{turn}")
        if turn % 20 == 0:
            try:
                driver.do("acquire", manager="m", hold="x", key="x", lease_ms=30000, wait_ms=50)
            except Failure as error:
                assert error.kind == "timeout", error
    conn.call("LOCK.RELEASE", "x", theirs)
    accepted = int(conn.call("INFO", "stats").split("total_connections_received:")[1].split()[0])
    # The suite's own two, the application's, and those of the first wait.
    assert accepted <= 7, accepted


@scenario(rules="H15")
def a_shorter_lease_counts_although_its_reply_was_lost(stage):
    server = stage.server()
    conn = stage.connect(server)
    for closes in ways_to_lose(stage):
        relay = stage.relay(server)
        driver = stage.opened(relay, timeout_ms=1500)
        token = driver.do("acquire", manager="m", hold="h", key="report", lease_ms=300_000)["token"]
        relay.lose("LOCK.EXTEND", times=3, close=closes)
        try:
            driver.do("extend", hold="h", lease_ms=5000)
        except Failure as error:
            assert error.kind in ("no_server", "lost"), str(error)
        end = time.monotonic() + 5.5
        while time.monotonic() < end:
            asked = time.monotonic()
            left = driver.do("left", hold="h")["left_ms"]
            held = conn.call("LOCK.CHECK", "report", token)
            passed = 1000 * (time.monotonic() - asked)
            assert left <= held + passed, f"the client counts on {left} ms, the server on {held} ms"
            time.sleep(0.05)
        driver.kill()
        conn.call("DEL", "report")


@scenario("background", rules="W3 W6")
def a_subscription_that_is_not_confirmed_is_made_again(stage):
    server = stage.server()
    conn = stage.connect(server)
    relay = stage.relay(server)
    driver = stage.opened(relay, timeout_ms=500)
    theirs = conn.call("LOCK.ACQUIRE", "report", "PX", LONG_LEASE)
    relay.lose("SUBSCRIBE", close=False)
    holds = [driver.begin("acquire", manager="m", hold=f"h{number}", key="report", lease_ms=500, wait_ms=LONG_WAIT)
             for number in range(2)]

    def lines():
        return [client["id"] for client in stage.clients_of(conn) if client["sub"] == "1"]

    silent = until("the server has subscribed it", lines)
    until("its reply was lost", lambda: relay.lost)
    until("that connection is closed, and another subscribed", lambda: len(lines()) == 1 and lines() != silent)
    waits(conn, "report", 2)
    conn.call("LOCK.RELEASE", "report", theirs)
    left = dict(enumerate(holds))
    while left:
        number = until("one gets it", lambda: [n for n, hold in left.items() if hold.is_answered])[0]
        left.pop(number).get()
        driver.begin("release", hold=f"h{number}")


@scenario("background", "cancel", "pooled", rules="H3 A5")
def what_cannot_be_given_back_delays_no_renewal(stage):
    server = stage.server()
    conn = stage.connect(server)
    relay = stage.relay(server)
    driver = stage.opened(relay, timeout_ms=3000)
    theirs = conn.call("LOCK.ACQUIRE", "other", "PX", LONG_LEASE)
    driver.do("acquire", manager="m", hold="h", key="report", lease_ms=stage.lease(3000))
    relay.lose("LOCK.CANCEL", times=20, close=False)
    attempts = [driver.begin("acquire", manager="m", hold=f"w{number}", key="other", lease_ms=20000, wait_ms=LONG_WAIT)
                for number in range(3)]
    waits(conn, "other", 3)
    # As long as the first attempt blocks, as a lone wait does, calls have only one connection.
    until("nobody blocks", lambda: "blocked_clients:0" in conn.call("INFO", "clients"))
    driver.do("cancel", of=attempts[0].number)
    end = time.monotonic() + 9
    while time.monotonic() < end:
        driver.do("check", hold="h")
        time.sleep(0.1)
    assert relay.lost >= 2, relay.lost
    assert driver.do("release", hold="h")["held"] is True
    conn.call("LOCK.RELEASE", "other", theirs)


@scenario("background", "half_open", rules="A6 H3")
def a_half_open_connection_costs_no_lock(stage):
    server = stage.server()
    relay = stage.relay(server)
    driver = stage.opened(relay, timeout_ms=500)
    driver.do("acquire", manager="m", hold="h", key="report", lease_ms=stage.lease(9000), wait_ms=LONG_WAIT)
    relay.strand()
    for turn in range(10):
        driver.do("acquire", manager="m", hold=f"h{turn}", key=f"k{turn}", lease_ms=30000, wait_ms=LONG_WAIT)
        assert driver.do("release", hold=f"h{turn}")["held"] is True
    time.sleep(stage.lease(9000) / 1000)
    driver.do("check", hold="h")
    assert driver.events("lost") == []
    assert driver.do("release", hold="h")["held"] is True


@scenario("background", "half_open", rules="A4 A10")
def what_a_half_open_connection_delivers_late_is_withdrawn(stage):
    server = stage.server()
    conn = stage.connect(server)
    relay = stage.relay(server)
    driver = stage.opened(relay, timeout_ms=500)
    if "pooled" in driver.ready["can"]:
        raise Skip("the library closes the connection")
    driver.do("raw", manager="m", args=["PING"])
    relay.strand()
    try:
        driver.do("acquire", manager="m", hold="h", key="report", lease_ms=LONG_LEASE)
        assert driver.do("release", hold="h")["held"] is True
    except Failure as error:
        assert error.kind == "no_server", error
    before = calls(conn, "lock.acquire")
    relay.heal()
    until("the late copy arrives", lambda: calls(conn, "lock.acquire") > before)
    until("its grant is released", lambda: is_free(conn, "report"))
