"""What is compared: each contender's worker, its server, and where it stands in the tables."""

import dataclasses
import os
import re
import shutil
from pathlib import Path

import systems
from systems import JARS, JAVA, PEERS, ROOT

HERE = Path(__file__).resolve().parent
CLIENTS = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "clients"
PYTHON = CLIENTS / "serverlock-python/bin/python"
NODE = shutil.which("node") or "node"


@dataclasses.dataclass(frozen=True)
class Language:
    command: tuple
    # One process of a server in Java or Go has many clients. In Python and Node a service has several processes.
    processes: int
    warms: float
    needs: tuple
    environment: dict


LANGUAGES = {
    "java": Language(
        (JAVA, "-Xmx1g", "-cp", f"{PEERS}/java:{JARS}", "Worker"), 1, 1.0, (PEERS / "java/Worker.class",), {}
    ),
    "go": Language((str(PEERS / "worker-go"),), 1, 0.1, (PEERS / "worker-go",), {}),
    "python": Language(
        (str(PYTHON), str(HERE / "worker.py")), 8, 0.1, (PYTHON,), {"PYTHONPATH": str(ROOT / "clients/python/src")}
    ),
    "node": Language(
        (NODE, str(HERE / "worker.mjs")),
        8,
        0.2,
        (CLIENTS / "serverlock-node/dist/index.js", CLIENTS / "serverlock-node/node_modules/redlock-5"),
        {"SERVERLOCK": str(CLIENTS / "serverlock-node")},
    ),
}


NEEDS = {
    systems.Etcd: PEERS / "etcd",
    systems.ZooKeeper: PEERS / "jars",
    systems.Hazelcast: PEERS / "jars",
    systems.Postgres: Path("/usr/lib/postgresql"),
}
POM, GO_MOD = HERE / "java/pom.xml", HERE / "go/go.mod"
# By the first words of a worker: the library, and where its version stands.
LIBRARIES = {
    "jedis": ("Jedis", POM, r"<artifactId>jedis</artifactId>\s*<version>([^<]*)"),
    "lettuce": ("Lettuce", POM, r"<artifactId>lettuce-core</artifactId>\s*<version>([^<]*)"),
    "redisson": ("Redisson", POM, r"<artifactId>redisson</artifactId>\s*<version>([^<]*)"),
    "curator": ("Curator", POM, r"<artifactId>curator-recipes</artifactId>\s*<version>([^<]*)"),
    "hazelcast": ("Hazelcast", POM, r"<artifactId>hazelcast</artifactId>\s*<version>([^<]*)"),
    "go-redis": ("go-redis", GO_MOD, r"redis/go-redis/v9 v(\S+)"),
    "redsync": ("redsync", GO_MOD, r"redsync/v4 v(\S+)"),
    "bsm": ("redislock", GO_MOD, r"bsm/redislock v(\S+)"),
    "etcd": ("etcd client", GO_MOD, r"etcd/client/v3 v(\S+)"),
    "PostgreSQL": ("pgx", GO_MOD, r"pgx/v5 v(\S+)"),
    "redis-py": ("redis-py", ROOT / "clients/python/tests/requirements.txt", r"redis==(\S+)"),
    "ioredis": ("ioredis", ROOT / "clients/node/test/package.json", r'"ioredis": "([^"]*)'),
    "node-redlock": ("redlock", ROOT / "clients/node/test/package.json", r"redlock@([^\"]*)"),
}


@dataclasses.dataclass(frozen=True)
class Contender:
    title: str
    worker: str
    language: str
    server: type
    # How the waiting clients are served: "in order", "in any order", or it "polls"; "never" if none can wait.
    served: str
    parts: str = "free hot"

    def library(self):
        """The client library that the worker uses, and its version."""
        for start, (name, source, pattern) in LIBRARIES.items():
            if self.worker.startswith(start):
                return f"{name} {re.search(pattern, source.read_text('utf-8'))[1]}"
        return ""

    def missing(self):
        """The first file that its worker or its server lacks."""
        needs = list(LANGUAGES[self.language].needs)
        node = getattr(self.server, "node", self.server)
        needs += [file for server, file in NEEDS.items() if issubclass(node, server)]
        return next((path for path in needs if not path.exists()), None)


MODULE, REDIS = systems.RedisWithModule, systems.Redis
PARTS = (
    *("free", "pair", "hot", "slots", "durable", "replicated", "readers"),
    *("crowd", "killed", "restarted", "lost", "fenced"),
)
ALL = "free hot slots crowd readers killed restarted lost fenced"
CONTENDERS = [
    Contender("LOCK.*, serverlock over Jedis", "jedis package", "java", MODULE, "in order", ALL),
    Contender("LOCK.*, serverlock over Lettuce", "lettuce package", "java", MODULE, "in order", "free hot slots"),
    Contender("LOCK.*, serverlock over go-redis", "go-redis package", "go", MODULE, "in order", ALL),
    Contender("LOCK.*, serverlock over redis-py", "redis-py package", "python", MODULE, "in order", "free hot slots"),
    Contender("LOCK.*, serverlock over ioredis", "ioredis package", "node", MODULE, "in order", "free hot slots"),
    Contender("LOCK.* commands, Jedis", "jedis raw", "java", MODULE, "in order", "free hot slots"),
    Contender("LOCK.* commands, go-redis", "go-redis raw", "go", MODULE, "in order", "free hot slots"),
    Contender(
        "LOCK.* commands with NOTIFY, go-redis", "go-redis raw NOTIFY", "go", MODULE, "in order", "free hot slots crowd"
    ),
    Contender(
        "LOCK.* commands, go-redis, 10,000 connections",
        "go-redis raw, 10,000 connections",
        "go",
        systems.CrowdedRedisWithModule,
        "in order",
        "crowd",
    ),
    Contender("LOCK.* SESSION, serverlock over Jedis", "jedis session", "java", MODULE, "in order", "killed"),
    Contender("LOCK.* SESSION, serverlock over go-redis", "go-redis session", "go", MODULE, "in order", "killed"),
    Contender("lock.lua, serverlock over Jedis", "jedis package, script", "java", REDIS, "in order", ALL),
    Contender("lock.lua, serverlock over go-redis", "go-redis package, script", "go", REDIS, "in order", ALL),
    Contender("Redisson RLock", "redisson RLock", "java", REDIS, "in any order", "free hot killed restarted lost"),
    Contender("Redisson FairLock", "redisson FairLock", "java", REDIS, "in order", "free hot killed restarted lost"),
    Contender("Redisson RReadWriteLock", "redisson RReadWriteLock", "java", REDIS, "in any order", "readers"),
    Contender(
        "Redisson FencedLock",
        "redisson FencedLock",
        "java",
        REDIS,
        "in any order",
        "free hot killed restarted lost fenced",
    ),
    Contender("Redisson PermitExpirableSemaphore", "redisson Semaphore", "java", REDIS, "in any order", "slots"),
    Contender("redsync", "redsync", "go", REDIS, "polls", "free hot crowd killed restarted lost"),
    Contender("bsm/redislock", "bsm/redislock", "go", REDIS, "polls", "free hot crowd killed restarted lost"),
    Contender("redis-py Lock", "redis-py Lock", "python", REDIS, "polls"),
    Contender("node-redlock", "node-redlock", "node", REDIS, "polls"),
    Contender(
        "etcd concurrency.Mutex", "etcd", "go", systems.Etcd, "in order", "free hot crowd killed restarted lost fenced"
    ),
    Contender(
        "ZooKeeper, Curator",
        "curator",
        "java",
        systems.ZooKeeper,
        "in order",
        "free hot slots crowd readers killed restarted lost",
    ),
    Contender(
        "Hazelcast IMap", "hazelcast", "java", systems.Hazelcast, "in order", "free hot crowd killed restarted lost"
    ),
    Contender(
        "PostgreSQL advisory lock",
        "PostgreSQL advisory lock",
        "go",
        systems.Postgres,
        "in order",
        "free hot readers killed restarted lost",
    ),
    Contender(
        "PostgreSQL FOR UPDATE",
        "PostgreSQL FOR UPDATE",
        "go",
        systems.Postgres,
        "in any order",
        "free hot killed restarted lost",
    ),
    Contender(
        "ReentrantLock(true), one process", "in one process", "java", systems.InOneProcess, "in order", "free hot slots"
    ),
    Contender(
        "ReentrantReadWriteLock(true), one process",
        "in one process",
        "java",
        systems.InOneProcess,
        "in order",
        "readers",
    ),
]
CONTENDERS = [
    dataclasses.replace(each, parts=f"{each.parts} pair") if each.title.startswith("LOCK.*, serverlock") else each
    for each in CONTENDERS
]
# Redisson subscribes to a channel for each lock, or each waiter.
CONTENDERS += [
    dataclasses.replace(
        each,
        title=f"{each.title}, 12,500 subscriptions",
        worker=f"{each.worker}, 12,500 subscriptions",
        parts="crowd",
    )
    for each in CONTENDERS
    if each.title in ("Redisson RLock", "Redisson FairLock")
]
CONTENDERS += [
    Contender(f"SET NX PX and DEL, {library}", f"{worker} SET and DEL", language, REDIS, "never", "pair")
    for library, worker, language in (
        ("Jedis", "jedis", "java"),
        ("Lettuce", "lettuce", "java"),
        ("go-redis", "go-redis", "go"),
        ("redis-py", "redis-py", "python"),
        ("ioredis", "ioredis", "node"),
    )
]

DURABLE = {
    "LOCK.*, serverlock over Jedis": systems.DurableRedisWithModule,
    "LOCK.*, serverlock over go-redis": systems.DurableRedisWithModule,
    "Redisson FairLock": systems.DurableRedis,
    "redsync": systems.DurableRedis,
    "etcd concurrency.Mutex": systems.DurableEtcd,
    "ZooKeeper, Curator": systems.DurableZooKeeper,
    "PostgreSQL advisory lock": systems.DurablePostgres,
    "PostgreSQL FOR UPDATE": systems.DurablePostgres,
}
CONTENDERS += [
    dataclasses.replace(each, title=f"{each.title}, on disk", server=DURABLE[each.title], parts="durable")
    for each in CONTENDERS
    if each.title in DURABLE
]

# The title of the one that has a single node, what is added to it, its servers, and its worker's words if they differ.
OVER_JEDIS, OVER_GO_REDIS = "LOCK.*, serverlock over Jedis", "LOCK.*, serverlock over go-redis"
ASYNCHRONOUS, GRACE = systems.ReplicatedRedisWithModule, systems.RedisWithGrace
DURABLE_GROUP = systems.DurableReplicatedRedisWithModule
REPLICATED = [
    (OVER_JEDIS, "two replicas", ASYNCHRONOUS, ""),
    (OVER_GO_REDIS, "two replicas", ASYNCHRONOUS, ""),
    (OVER_JEDIS, "replicas=1", ASYNCHRONOUS, ", replicas=1"),
    (OVER_GO_REDIS, "replicas=1", ASYNCHRONOUS, ", replicas=1"),
    (OVER_JEDIS, "grace", GRACE, ""),
    (OVER_GO_REDIS, "grace", GRACE, ""),
    ("Redisson RLock", "two replicas", systems.ReplicatedRedis, ""),
    ("Redisson FairLock", "two replicas", systems.ReplicatedRedis, ""),
    ("etcd concurrency.Mutex", "3 nodes", systems.EtcdCluster, ""),
    ("ZooKeeper, Curator", "3 nodes", systems.ZooKeeperEnsemble, ""),
    ("Hazelcast IMap", "3 members", systems.HazelcastCluster, ""),
    (OVER_JEDIS, "two replicas, on disk", DURABLE_GROUP, ""),
    (OVER_GO_REDIS, "two replicas, on disk", DURABLE_GROUP, ""),
    (OVER_JEDIS, "replicas=1, on disk", DURABLE_GROUP, ", replicas=1"),
    (OVER_GO_REDIS, "replicas=1, on disk", DURABLE_GROUP, ", replicas=1"),
    ("etcd concurrency.Mutex", "3 nodes, on disk", systems.DurableEtcdCluster, ""),
    ("ZooKeeper, Curator", "3 nodes, on disk", systems.DurableZooKeeperEnsemble, ""),
]
SINGLE = {each.title: each for each in CONTENDERS}
CONTENDERS += [
    dataclasses.replace(
        SINGLE[title],
        title=f"{title}, {addition}",
        server=server,
        worker=SINGLE[title].worker + words,
        parts="replicated",
    )
    for title, addition, server, words in REPLICATED
]
