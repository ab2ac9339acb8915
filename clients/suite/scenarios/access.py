"""Passwords, permissions, TLS and Unix sockets, and connections that a server refuses."""

import shutil
import subprocess

from scenarios.holding import fails
from servers import free_port
from stage import LONG_WAIT, Skip, is_free, scenario, until, waits


def hold_and_wait(stage, place, conn, key="report", **options):
    """Holds a lock in this place, waits for it and hands it over."""
    driver = stage.opened(place, **options)
    first = driver.do("acquire", manager="m", hold="a", key=key, lease_ms=30000)["token"]
    second = driver.begin("acquire", manager="m", hold="b", key=key, lease_ms=30000, wait_ms=LONG_WAIT)
    if conn is not None:
        waits(conn, key)
    assert driver.do("release", hold="a")["held"] is True
    assert second.get()["token"] > first
    assert driver.do("release", hold="b")["held"] is True
    return driver


@scenario(rules="A6 W1")
def the_password_of_the_application_is_used(stage):
    server = stage.server("--requirepass", "secret")
    conn = stage.connect(server, "secret")
    hold_and_wait(stage, {**server.at, "password": "secret"}, conn)


@scenario(rules="A1")
def a_wrong_password_is_denied_and_names_the_lock(stage):
    server = stage.server("--requirepass", "secret")
    for place in ({**server.at, "password": "wrong"}, server.at):
        driver = stage.driver()
        try:
            driver.do("open", manager="m", at=place)
        except Exception as error:  # a library may already connect here
            assert getattr(error, "kind", "") in ("denied", "unknown"), error
            continue
        with fails("denied", "report"):
            driver.do("acquire", manager="m", hold="h", key="report", lease_ms=30000)


@scenario(rules="A1 A5")
def a_user_with_too_few_rights_is_denied(stage):
    server = stage.server()
    conn = stage.connect(server)
    conn.call("ACL", "SETUSER", "app", "on", ">secret", "~mine:*", "&*", "+@all")
    conn.call("ACL", "SETUSER", "reader", "on", ">secret", "~*", "&*", "+@all", "-lock.acquire")
    app = stage.opened({**server.at, "user": "app", "password": "secret"})
    with fails("denied", "theirs:x"):
        app.do("acquire", manager="m", hold="h", key="theirs:x", lease_ms=30000)
    with fails("denied", "theirs:x"):
        app.do("acquire", manager="m", hold="h", key="theirs:x", lease_ms=30000, wait_ms=5000)
    app.do("acquire", manager="m", hold="h", key="mine:x", lease_ms=30000)
    reader = stage.opened({**server.at, "user": "reader", "password": "secret"})
    with fails("denied", "report"):
        reader.do("acquire", manager="m", hold="h", key="report", lease_ms=30000, wait_ms=5000)
    assert is_free(conn, "report") and is_free(conn, "theirs:x")


@scenario("unix", rules="A6 W1")
def a_unix_socket_works(stage):
    server = stage.server("--unixsocket", f"{stage.folder}/sock")
    hold_and_wait(stage, {"kind": "unix", "path": f"{stage.folder}/sock"}, stage.connect(server))


def certify(folder):
    """A CA and a certificate signed by it: some libraries refuse a server that presents the CA's own certificate."""
    key = ["-newkey", "rsa:2048", "-nodes"]
    with open(f"{folder}/names", "w", encoding="utf-8") as names:
        names.write("subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=critical,CA:FALSE\n")
    for words in (
        ["req", "-x509", *key, "-keyout", "ca.key", "-out", "ca", "-days", "2", "-subj", "/CN=an authority"],
        ["req", *key, "-keyout", "key", "-out", "request", "-subj", "/CN=localhost"],
        ["x509", "-req", "-in", "request", "-CA", "ca", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
         "-extfile", "names", "-out", "cert"],
    ):
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)


@scenario("tls", rules="A6 W1 H9")
def tls_works(stage):
    if shutil.which("openssl") is None:
        raise Skip("no openssl")
    folder = stage.folder
    certify(folder)
    port = free_port()
    try:
        server = stage.server("--tls-port", port, "--tls-cert-file", f"{folder}/cert",
                              "--tls-key-file", f"{folder}/key", "--tls-ca-cert-file", f"{folder}/ca",
                              "--tls-auth-clients", "no")
    except AssertionError as error:
        raise Skip(f"a server without TLS: {error}") from None
    conn = stage.connect(server)
    place = {"kind": "single", "host": "localhost", "port": port, "tls": {"ca": f"{folder}/ca"}}
    driver = hold_and_wait(stage, place, conn)
    if "session" in driver.ready["can"]:
        driver.do("acquire", manager="m", hold="s", key="session", lease_ms=30000, session=True)
        conn.call("CLIENT", "KILL", "ID", conn.info("session")["session"])
        if "background" in driver.ready["can"]:
            driver.event("lost", hold="s")
        with fails("lost", "session"):
            until("the loss is noticed", lambda: driver.do("check", hold="s")["left_ms"] < 0)


@scenario(rules="A1")
def a_server_that_grants_nothing_is_unavailable(stage):
    server = stage.server()
    conn = stage.connect(server)
    conn.call("CONFIG", "SET", "min-replicas-to-write", 1)
    driver = stage.opened(server)
    with fails("unavailable", "report", "NOREPLICAS"):
        driver.do("acquire", manager="m", hold="h", key="report", lease_ms=30000)
    conn.call("CONFIG", "SET", "min-replicas-to-write", 0)
    conn.call("CONFIG", "SET", "maxmemory", 1)
    with fails("unavailable", "report", "OOM"):
        driver.do("acquire", manager="m", hold="h", key="report", lease_ms=30000)
    conn.call("CONFIG", "SET", "maxmemory", 0)
    driver.do("acquire", manager="m", hold="h", key="report", lease_ms=30000)


@scenario(rules="H10")
def replicas_confirm_a_grant_or_it_is_given_back(stage):
    server = stage.server("--repl-ping-replica-period", 1)
    conn = stage.connect(server)
    driver = stage.opened(server)
    with fails("unavailable", "report", "replicas"):
        driver.do("acquire", manager="m", hold="h", key="report", lease_ms=30000, replicas=1, replicas_within_ms=300)
    until("it is released", lambda: is_free(conn, "report"))
    replica = stage.server("--replicaof", "127.0.0.1", server.port)
    until("the replica is in step", lambda: "state=online" in conn.call("INFO", "replication"))
    for wait_ms in (..., 5000):
        driver.do("acquire", manager="m", hold="h", key="report", lease_ms=30000, wait_ms=wait_ms, replicas=1,
                  replicas_within_ms=3000)
        assert stage.connect(replica).call("GET", "report") == conn.call("GET", "report")
        assert driver.do("release", hold="h")["held"] is True


@scenario(rules="H10")
def fsync_needs_a_server_that_writes_to_disk(stage):
    server = stage.server()
    conn = stage.connect(server)
    has_it = conn.call("COMMAND", "INFO", "WAITAOF")[0] is not None
    driver = stage.opened(server)
    with fails("unavailable", "report"):
        driver.do("acquire", manager="m", hold="h", key="report", lease_ms=30000, fsync=True, replicas_within_ms=300)
    until("it is released", lambda: is_free(conn, "report"))
    if has_it:
        conn.call("CONFIG", "SET", "appendonly", "yes")
        until("the file is there", lambda: "aof_rewrite_in_progress:0" in conn.call("INFO", "persistence"))
        driver.do("acquire", manager="m", hold="h", key="report", lease_ms=30000, fsync=True, replicas_within_ms=3000)
        assert driver.do("release", hold="h")["held"] is True


@scenario("prefix", rules="S6")
def the_prefix_of_the_library_is_applied_once(stage):
    for has_module in (True, False):
        server = stage.server(module=has_module)
        conn = stage.connect(server)
        driver = stage.opened(server, prefix="app:")
        driver.do("acquire", manager="m", hold="h", key="x", lease_ms=30000)
        assert (conn.call("EXISTS", "app:x"), conn.call("EXISTS", "x", "app:app:x")) == (1, 0), has_module
        assert driver.do("verify", hold="h")["left_ms"] > 0
        driver.do("extend", hold="h")
        assert driver.do("fenced", hold="h", args=["SET", "y", "1"])["reply"] == "OK"
        assert (conn.call("GET", "app:y"), conn.call("EXISTS", "y", "app:app:y")) == ("1", 0), has_module
        waiting = [driver.begin("acquire", manager="m", hold=f"w{number}", key="x", lease_ms=30000, wait_ms=LONG_WAIT)
                   for number in range(2 if "background" in driver.ready["can"] else 1)]
        if has_module:
            waits(conn, "app:x", len(waiting))
        assert driver.do("release", hold="h")["held"] is True
        pending = dict(enumerate(waiting))
        while pending:
            number = until("one gets it", lambda: [n for n, hold in pending.items() if hold.is_answered])[0]
            pending.pop(number).get()
            assert driver.do("release", hold=f"w{number}")["held"] is True
        until("its key is gone", lambda: conn.call("EXISTS", "app:x") == 0)
        if has_module:
            driver.do("acquire", manager="m", hold="all", keys=["a", "b"], lease_ms=30000)
            assert conn.info("app:a")["token"] == conn.info("app:b")["token"] > 0
            assert driver.do("release", hold="all")["held"] is True
        else:
            theirs = driver.do("acquire", manager="m", hold="i", key="x", lease_ms=1000)["token"]
            assert f"{theirs:016}" in conn.call("GET", "app:x")
        driver.end()
