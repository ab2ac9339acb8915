"""What is compared: each contender's worker, its server, and where it stands in the tables."""

import dataclasses
import os
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


@dataclasses.dataclass(frozen=True)
class Contender:
    title: str
    worker: str
    language: str
    server: type
    # "fifo", "any" or "polls": how the waiting clients are served.
    served: str
    parts: str = "free hot"
    is_ours: bool = False

    def missing(self):
        """The first file that its worker or its server lacks."""
        needs = list(LANGUAGES[self.language].needs)
        needs += {
            systems.Etcd: [PEERS / "etcd"],
            systems.ZooKeeper: [PEERS / "jars"],
            systems.Hazelcast: [PEERS / "jars"],
            systems.Postgres: [Path("/usr/lib/postgresql")],
        }.get(self.server, [])
        return next((path for path in needs if not path.exists()), None)


MODULE, REDIS = systems.RedisWithModule, systems.Redis
ALL = "free hot slots killed restarted lost fenced"
CONTENDERS = [
    Contender("LOCK.*, serverlock over Jedis", "jedis package", "java", MODULE, "in order", ALL, True),
    Contender("LOCK.*, serverlock over Lettuce", "lettuce package", "java", MODULE, "in order", "free hot slots", True),
    Contender("LOCK.*, serverlock over go-redis", "go-redis package", "go", MODULE, "in order", ALL, True),
    Contender(
        "LOCK.*, serverlock over redis-py", "redis-py package", "python", MODULE, "in order", "free hot slots", True
    ),
    Contender("LOCK.*, serverlock over ioredis", "ioredis package", "node", MODULE, "in order", "free hot slots", True),
    Contender("LOCK.* commands, Jedis", "jedis raw", "java", MODULE, "in order", "free hot slots", True),
    Contender("LOCK.* commands, go-redis", "go-redis raw", "go", MODULE, "in order", "free hot slots", True),
    Contender(
        "LOCK.* commands with NOTIFY, go-redis", "go-redis raw NOTIFY", "go", MODULE, "in order", "free hot slots", True
    ),
    Contender("LOCK.* SESSION, serverlock over Jedis", "jedis session", "java", MODULE, "in order", "killed", True),
    Contender("LOCK.* SESSION, serverlock over go-redis", "go-redis session", "go", MODULE, "in order", "killed", True),
    Contender("lock.lua, serverlock over Jedis", "jedis package, script", "java", REDIS, "in order", ALL, True),
    Contender("lock.lua, serverlock over go-redis", "go-redis package, script", "go", REDIS, "in order", ALL, True),
    Contender("Redisson RLock", "redisson RLock", "java", REDIS, "in any order", "free hot killed restarted lost"),
    Contender("Redisson FairLock", "redisson FairLock", "java", REDIS, "in order", "free hot killed restarted lost"),
    Contender(
        "Redisson FencedLock",
        "redisson FencedLock",
        "java",
        REDIS,
        "in any order",
        "free hot killed restarted lost fenced",
    ),
    Contender("Redisson PermitExpirableSemaphore", "redisson Semaphore", "java", REDIS, "in any order", "slots"),
    Contender("redsync", "redsync", "go", REDIS, "polls", "free hot killed restarted lost"),
    Contender("bsm/redislock", "bsm/redislock", "go", REDIS, "polls", "free hot killed restarted lost"),
    Contender("redis-py Lock", "redis-py Lock", "python", REDIS, "polls"),
    Contender("node-redlock", "node-redlock", "node", REDIS, "polls"),
    Contender(
        "etcd concurrency.Mutex", "etcd", "go", systems.Etcd, "in order", "free hot killed restarted lost fenced"
    ),
    Contender(
        "ZooKeeper, Curator", "curator", "java", systems.ZooKeeper, "in order", "free hot slots killed restarted lost"
    ),
    Contender("Hazelcast IMap", "hazelcast", "java", systems.Hazelcast, "in order", "free hot killed restarted lost"),
    Contender(
        "PostgreSQL advisory lock",
        "PostgreSQL advisory lock",
        "go",
        systems.Postgres,
        "in order",
        "free hot killed restarted lost",
    ),
    Contender(
        "PostgreSQL FOR UPDATE",
        "PostgreSQL FOR UPDATE",
        "go",
        systems.Postgres,
        "in order",
        "free hot killed restarted lost",
    ),
    Contender(
        "ReentrantLock(true), one process", "in one process", "java", systems.InOneProcess, "in order", "free hot slots"
    ),
]
