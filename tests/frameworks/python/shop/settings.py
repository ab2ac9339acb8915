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
        "OPTIONS": {"SOCKET_TIMEOUT": None},
    }
}
