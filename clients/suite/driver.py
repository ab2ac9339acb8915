"""One driver process: orders go in, answers and events come out. docs/CLIENT_SPEC.md describes the lines."""

import itertools
import json
import os
import queue
import signal
import subprocess
import threading
import time

# In seconds. A JVM on a machine with a load of 37 took longer than a minute to open a manager.
PATIENCE = 240.0


class Failure(Exception):
    """An error with which a driver answered."""

    def __init__(self, kind, text):
        super().__init__(f"{kind}: {text}")
        self.kind, self.text = kind, text


class Cannot(Exception):
    """The language cannot carry out an order."""


class Pending:
    """An order whose answer is pending."""

    def __init__(self, driver, number, order):
        self.number, self._driver, self._order = number, driver, order
        self._answer = queue.Queue()
        self.answered_at = None

    def put(self, line):
        self.answered_at = time.monotonic()
        self._answer.put(line)

    @property
    def is_answered(self):
        return self.answered_at is not None

    def get(self, seconds=PATIENCE):
        try:
            line = self._answer.get(timeout=seconds)
        except queue.Empty:
            raise AssertionError(f"no answer within {seconds} s to {self._order}\n{self._driver.tail()}") from None
        self._answer.put(line)
        if "ok" in line:
            return line["ok"]
        error = line["error"]
        if error["kind"] == "cannot":
            raise Cannot(error["text"])
        raise Failure(error["kind"], error["text"])


class Driver:
    def __init__(self, words, environment, log):
        self._log = log
        with open(log, "wb") as errors:
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment, text=True)
        self._numbers = itertools.count(1)
        self._mutex = threading.Lock()
        self._pending, self._events = {}, []
        self._news = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()
        self.ready = self.event("ready")
        self.pid = self._process.pid

    def _read(self):
        for line in self._process.stdout:
            line = json.loads(line)
            if "event" in line:
                with self._news:
                    self._events.append(line | {"at": time.monotonic()})
                    self._news.notify_all()
            else:
                self._pending.pop(line["n"]).put(line)
        for pending in list(self._pending.values()):
            pending.put({"error": {"kind": "ended", "text": "the driver has ended"}})

    def begin(self, do, **fields):
        """Gives an order; its answer arrives later."""
        number = next(self._numbers)
        order = {"n": number, "do": do, **{name: value for name, value in fields.items() if value is not ...}}
        pending = self._pending[number] = Pending(self, number, order)
        try:
            with self._mutex:
                self._process.stdin.write(json.dumps(order) + "\n")
                self._process.stdin.flush()
        except BrokenPipeError:
            raise AssertionError(f"the driver has ended ({self._process.wait(10)})\n{self.tail()}") from None
        return pending

    def do(self, do, seconds=PATIENCE, **fields):
        """Gives an order and awaits its answer."""
        return self.begin(do, **fields).get(seconds)

    def event(self, event_name, /, seconds=PATIENCE, **fields):
        """Returns the first event with this name and these fields, or waits for it."""
        end = time.monotonic() + seconds
        with self._news:
            while True:
                for event in self._events:
                    if event["event"] == event_name and all(event.get(field) == value for field, value in fields.items()):
                        return event
                left = end - time.monotonic()
                if left <= 0 or not self._news.wait(left):
                    raise AssertionError(f"no event {event_name} {fields} within {seconds} s; {self._events}\n{self.tail()}")

    def events(self, event_name, /, **fields):
        with self._news:
            return [event for event in self._events if event["event"] == event_name
                    and all(event.get(field) == value for field, value in fields.items())]

    def threads(self):
        return len(os.listdir(f"/proc/{self.pid}/task"))

    def pause(self):
        """Stops the driver and its workers. Waits until all its threads have stopped: a while on a busy machine."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self._signal_workers(signal.SIGSTOP)

    def resume(self):
        self._signal_workers(signal.SIGCONT)
        self._process.send_signal(signal.SIGCONT)

    def _signal_workers(self, number):
        with open(f"/proc/{self.pid}/task/{self.pid}/children", encoding="ascii") as children:
            for pid in children.read().split():
                os.kill(int(pid), number)

    def kill(self):
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def end(self, seconds=PATIENCE):
        """Closes the driver's input, after which it must end on its own."""
        self._process.stdin.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the driver did not end\n{self.tail()}") from None

    def tail(self):
        with open(self._log, encoding="utf-8", errors="replace") as log:
            return log.read()[-12000:]
