"""A driver's clocks, which a preloaded library (clock.c) moves as a suspend or a step of the wall clock would."""

import hashlib
import os
import struct
import subprocess
import threading
from pathlib import Path

from drivers import TARGET

SOURCE = Path(__file__).with_name("clock.c")
_building = threading.Lock()


class Clock:
    def __init__(self, path):
        self._path, self._moved = path, [0, 0]
        self._write()
        self.environment = {"LD_PRELOAD": str(_library()), "SERVERLOCK_CLOCK": path}

    def suspend(self, seconds):
        """Acts as if the machine had been suspended for this long: only the monotonic clock stopped."""
        self._moved[0] += round(seconds * 1e9)
        self._write()

    def step(self, seconds):
        """Sets the wall clock forward or back."""
        self._moved[1] += round(seconds * 1e9)
        self._write()

    def _write(self):
        # The file is written in place, because the driver has mapped it.
        file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        os.pwrite(file, struct.pack("qq", *self._moved), 0)
        os.close(file)


def _library():
    name = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    built = Path(TARGET) / f"clients/suite/clock-{name}.so"
    with _building:
        if not built.exists():
            built.parent.mkdir(parents=True, exist_ok=True)
            mine = built.with_suffix(f".{os.getpid()}")
            words = ["cc", "-O2", "-shared", "-fPIC", "-o", mine, SOURCE, "-ldl"]
            subprocess.run([str(word) for word in words], check=True)
            mine.rename(built)
    return built
