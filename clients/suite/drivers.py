"""The driver of each language: its client libraries, the command that runs one of them, and its build requirements."""

import os
import shutil

from servers import ROOT

TARGET = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))
REDIS_RB_5 = f"{TARGET}/clients/redis-rb-5"
PYTHON = f"{TARGET}/clients/serverlock-python/bin/python"

# `more`: client libraries that share nearly all of their code with others, so they run only at night.
LANGUAGES = {
    "python": {
        "built": PYTHON,
        "clients": ["redis-py", "redis-py-asyncio"],
        "more": ["valkey-py", "valkey-py-asyncio"],
        "command": [PYTHON, str(ROOT / "clients/python/tests/driver.py")],
        "environment": {"PYTHONPATH": str(ROOT / "clients/python/src")},
    },
    "node": {
        "built": f"{TARGET}/clients/serverlock-node/dist",
        "clients": ["node-redis", "ioredis"],
        "command": [shutil.which("node") or "node", "--expose-gc", str(ROOT / "clients/node/test/driver.mjs")],
        "environment": {"SERVERLOCK": f"{TARGET}/clients/serverlock-node"},
    },
    "go": {
        "built": f"{TARGET}/clients/serverlock-go/driver",
        "clients": ["go-redis", "redigo"],
        "command": [f"{TARGET}/clients/serverlock-go/driver"],
        "environment": {},
    },
    "java": {
        "built": f"{TARGET}/clients/serverlock-java/test-classes",
        "clients": ["jedis", "lettuce"],
        "more": ["lettuce-async"],
        "command": [
            shutil.which("java") or "java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp",
            ":".join(f"{TARGET}/clients/serverlock-java/{part}"
                     for part in ("classes", "test-classes", "dependency/*")),
            "dev.serverlock.suite.Driver"],
        "environment": {},
    },
    "rust": {
        "built": f"{TARGET}/clients/serverlock-rust/debug/serverlock-driver",
        "clients": ["redis", "redis-tokio"],
        "command": [f"{TARGET}/clients/serverlock-rust/debug/serverlock-driver"],
        "environment": {},
    },
    "php": {
        "built": str(ROOT / "clients/php/tests/driver.php"),
        "clients": ["phpredis", "predis"],
        "command": [shutil.which("php") or "php", str(ROOT / "clients/php/tests/driver.php")],
        "environment": {},
    },
    "ruby": {
        "built": str(ROOT / "clients/ruby/test/driver.rb"),
        # scripts/test-clients.sh fetches version 5 where Debian's other suites are reachable.
        "clients": ["redis-rb-pool", "redis-rb-5" if os.path.exists(REDIS_RB_5) else "redis-rb"],
        "more": ["redis-rb"] if os.path.exists(REDIS_RB_5) else [],
        "command": [shutil.which("ruby") or "ruby", str(ROOT / "clients/ruby/test/driver.rb")],
        "environment": {"REDIS_RB_5": REDIS_RB_5},
    },
}
