"""The settings of a project without a database. Its cache is on the test's server."""

import os

PORT = os.environ.get("SERVERLOCK_TESTS_PORT", "0")
SECRET_KEY = "a test"
ALLOWED_HOSTS = ["testserver"]
ROOT_URLCONF = "shop.urls"
INSTALLED_APPS = ["shop"]
CACHES = {
    "default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": f"redis://127.0.0.1:{PORT}/0",
        "KEY_PREFIX": "shop",
        # Django-redis ignores a SOCKET_TIMEOUT of None, and redis-py waits for 5 seconds at most.
        "OPTIONS": {"CONNECTION_POOL_KWARGS": {"socket_timeout": None}},
    }
}
