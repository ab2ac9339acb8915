"""Locks over the connections of Django's cache, and management commands that run on one host. Needs Django, and
django-redis or Django's own Redis cache.

    with lock(f"order:{order.pk}", lease=30, wait=5) as held: ...

    class Command(OneHost, BaseCommand):
        def handle(self, *args, **options): ...
"""

import signal
import threading
from typing import Any, ClassVar, Unpack

from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError
from django.core.signals import setting_changed

from .core.manager import shows
from .core.options import LockOptions
from .core.request import Duration
from .errors import LockRefused
from .threads.held import Held
from .threads.locks import Lock, Locks

_managers: dict[str, Locks] = {}
_mutex = threading.Lock()


def locks(cache: str = "default") -> Locks:
    """The manager over the connections of this cache (the name of an entry in CACHES), for the whole process."""
    manager = _managers.get(cache)
    if manager is None:
        with _mutex:
            manager = _managers.get(cache) or _managers.setdefault(cache, Locks(_client_of(cache)))
    return manager


def _client_of(cache: str) -> Any:
    backend = caches[cache]
    if hasattr(backend, "client"):  # django-redis
        return backend.client.get_client(write=True)
    if hasattr(getattr(backend, "_cache", None), "get_client"):  # Django's own
        return backend._cache.get_client(None, write=True)
    raise ImproperlyConfigured(f"the cache {cache!r} is not a Redis cache: {type(backend).__name__}")


def _forget(*, setting: str, **_: object) -> None:
    """A test has changed CACHES."""
    if setting == "CACHES":
        with _mutex:
            _managers.clear()


setting_changed.connect(_forget, dispatch_uid="serverlock.django")


@shows(LockOptions)
def lock(
    key: str, lease: Duration, *, cache: str = "default", version: int | None = None, **options: Unpack[LockOptions]
) -> Lock:
    """A lock with one holder, named as the cache names its keys: with KEY_PREFIX and the version."""
    return locks(cache).lock(str(caches[cache].make_key(key, version=version)), lease, **options)


class OneHost:
    """A mixin for management commands: while one host runs the command, the others say so and end with the status 0.

    lock_key: the default is the command's name.
    lock_lease: if the host dies, another one may run it once the lease and the server's margin (1 s) have passed.
    lock_wait: how long to wait for the lock. With math.inf, the other hosts stand by.
    lock_cache: an entry in CACHES.
    held: the lock, while the command runs. If it is lost, the command is interrupted, and ends with CommandError.
    """

    lock_key: ClassVar[str | None] = None
    lock_lease: ClassVar[Duration] = 30.0
    lock_wait: ClassVar[Duration] = 0.0
    lock_cache: ClassVar[str] = "default"
    held: Held | None = None

    def execute(self, *args: Any, **options: Any) -> Any:
        name = self.lock_key or "command:" + type(self).__module__.rpartition(".")[2]
        interrupt = _Interrupt()
        wanted = lock(
            name, self.lock_lease, cache=self.lock_cache, wait=self.lock_wait, on_lost=lambda _: interrupt.send()
        )
        try:
            held = wanted.acquire()
        except LockRefused:
            stderr: Any = options.get("stderr") or self.stderr  # type: ignore[attr-defined]
            stderr.write(f"{name}: another host is running it\n")
            return None
        with held:
            self.held = held
            try:
                try:
                    return super().execute(*args, **options)  # type: ignore[misc]
                finally:
                    interrupt.end()
            except KeyboardInterrupt:
                if held.lost is None:
                    raise
                raise CommandError(str(held.lost)) from held.lost
            finally:
                self.held = None


class _Interrupt:
    """Raises KeyboardInterrupt in the main thread, until `end`. In any other thread, nothing can stop a command."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._may_send = threading.current_thread() is threading.main_thread()

    def send(self) -> None:
        with self._mutex:
            if self._may_send:
                main = threading.main_thread().ident
                assert main is not None
                signal.pthread_kill(main, signal.SIGINT)  # unlike interrupt_main, it ends a system call

    def end(self) -> None:
        with self._mutex:
            self._may_send = False
