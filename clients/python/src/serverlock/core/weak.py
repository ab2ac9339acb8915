"""A mapping that keeps no value alive. An entry whose value is gone counts as absent, and is removed later.

It has no callbacks, unlike `weakref.WeakValueDictionary`: an exception of a signal handler can end a callback, and then
the entry would stay.
"""

import weakref
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

# Below this number, nothing is swept.
FEW = 16


class WeakMap(Generic[K, V]):
    """Callers must not change it from several threads at once."""

    def __init__(self) -> None:
        self._refs: dict[K, weakref.ref[V]] = {}
        self._sweep_at = FEW

    def __len__(self) -> int:
        return len(self.values())

    def __setitem__(self, key: K, value: V) -> None:
        if len(self._refs) >= self._sweep_at:
            self._refs = {key: ref for key, ref in self._refs.items() if ref() is not None}
            self._sweep_at = max(FEW, 2 * len(self._refs))
        self._refs[key] = weakref.ref(value)

    def get(self, key: K) -> V | None:
        ref = self._refs.get(key)
        return None if ref is None else ref()

    def pop(self, key: K) -> None:
        self._refs.pop(key, None)

    def values(self) -> list[V]:
        values = (ref() for ref in tuple(self._refs.values()))
        return [value for value in values if value is not None]
