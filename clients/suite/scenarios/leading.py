"""Leader election."""

from stage import scenario, until


@scenario("leader", rules="L3")
def one_leads_then_the_next(stage):
    server = stage.server()
    conn = stage.connect(server)
    one, two, looker = (stage.opened(server) for _ in range(3))
    looker.do("observe", manager="m", observer="o", key="chief", lease_ms=stage.lease(900))
    assert looker.event("leader", observer="o")["token"] is None
    one.do("lead", manager="m", leader="l", key="chief", lease_ms=stage.lease(3000), owner="one")
    first = one.event("elected", leader="l")
    two.do("lead", manager="m", leader="l", key="chief", lease_ms=stage.lease(3000), owner="two")
    until("two campaigns", lambda: conn.info("chief")["waiters"] == 1)
    looker.event("leader", token=first["token"], owner="one")
    one.do("resign", leader="l")
    deposed, second = one.event("deposed", leader="l"), two.event("elected", leader="l")
    assert deposed["token"] == first["token"] < second["token"]
    looker.event("leader", token=second["token"], owner="two")
    until("one campaigns again", lambda: conn.info("chief")["waiters"] == 1)
    two.do("stop", leader="l")
    until("one leads again", lambda: len(one.events("elected")) == 2)
    assert two.event("deposed", leader="l")["token"] == second["token"]
    conn.call("DEL", "chief")
    until("one has noticed the loss", lambda: len(one.events("deposed")) == 2)
    until("one is elected again", lambda: len(one.events("elected")) == 3)


@scenario("leader", rules="L3")
def a_leader_that_dies_is_replaced(stage):
    server = stage.server()
    conn = stage.connect(server)
    one, two = stage.opened(server), stage.opened(server)
    one.do("lead", manager="m", leader="l", key="chief", lease_ms=1500, owner="one")
    one.event("elected", leader="l")
    two.do("lead", manager="m", leader="l", key="chief", lease_ms=1500, owner="two")
    until("two campaigns", lambda: conn.info("chief")["waiters"] == 1)
    one.kill()
    two.event("elected", leader="l")
