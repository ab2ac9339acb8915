"""The sets that the locks guard, in a store outside of the system under test, which never fails.

`read KEY TOKEN` returns the elements, `write KEY TOKEN ELEMENTS` replaces them. With a token other than 0 the store
refuses a request whose token is smaller than the largest that it has seen for the key, with `stale`. A read counts too:
otherwise an older holder could still write between a newer holder's read and write.
"""

import socketserver
import threading


class Store(socketserver.ThreadingTCPServer):
    allow_reuse_address, daemon_threads = True, True

    def __init__(self):
        super().__init__(("0.0.0.0", 0), _Client)
        self.mutex, self.sets, self.tokens, self.refused = threading.Lock(), {}, {}, {}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self):
        return self.server_address[1]

    def answer(self, order, key, token, elements=""):
        token = int(token)
        with self.mutex:
            if 0 < token < self.tokens.get(key, 0):
                self.refused[key] = self.refused.get(key, 0) + 1
                return "stale"
            self.tokens[key] = max(token, self.tokens.get(key, 0))
            if order == "read":
                return self.sets.get(key, "")
            self.sets[key] = elements
            return "ok"

    def content(self):
        with self.mutex:
            sets = {key: [int(it) for it in elements.split(",") if it] for key, elements in self.sets.items()}
            return {"sets": sets, "refused": dict(self.refused)}


class _Client(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self):
        for line in self.rfile:
            self.wfile.write(self.server.answer(*line.decode().split()).encode() + b"\n")
