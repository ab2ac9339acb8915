"""The counting judges accept right histories, and reject wrong ones."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import judge
from store import Store


def events(*lines):
    """`time process op type [token or value]`"""
    for line in lines:
        time, process, op, kind, *number = line.split()
        event = {
            "time": int(time),
            "process": int(process),
            "op": op,
            "type": kind,
            "workload": "mutex",
            "key": "mutex-0",
        }
        if number:
            event["value" if op == "add" else "token"] = int(number[0])
        yield event


def grants(*lines):
    return judge.holds(judge.operations(events(*lines)))


ONE = ("1 1 acquire invoke", "2 1 acquire ok 7", "9 1 release invoke 7", "10 1 release ok 7")


class Judges(unittest.TestCase):
    def test_one_after_the_other(self):
        found = grants(*ONE, "3 2 acquire invoke", "11 2 acquire ok 8")
        self.assertEqual([0, 0], [judge.beside_others(found, 1), judge.stale_tokens(found)])

    def test_a_grant_while_another_client_holds_the_lock(self):
        found = grants(*ONE, "3 2 acquire invoke", "8 2 acquire ok 8")
        self.assertEqual([1, 0], [judge.beside_others(found, 1), judge.beside_others(found, 2)])

    def test_a_client_that_never_releases_holds_the_lock(self):
        self.assertEqual(1, judge.beside_others(grants(*ONE[:2], "3 2 acquire invoke", "99 2 acquire ok 8"), 1))

    def test_a_release_ends_a_hold_when_it_is_sent_whatever_its_result(self):
        for end in ("10 1 release fail 7", "10 1 release info"):
            found = grants(*ONE[:3], end, "3 2 acquire invoke", "10 2 acquire ok 8")
            self.assertEqual(0, judge.beside_others(found, 1))
        self.assertEqual(1, judge.beside_others(grants(*ONE[:3], "3 2 acquire invoke", "8 2 acquire ok 8"), 1))

    def test_attempts_that_failed_or_have_no_result_hold_nothing(self):
        for end in ("3 1 acquire fail", "3 1 acquire info", None):
            lines = ["1 1 acquire invoke", *([end] if end else []), "4 2 acquire invoke", "5 2 acquire ok 8"]
            self.assertEqual(0, judge.beside_others(grants(*lines), 1))

    def test_tokens_that_do_not_increase(self):
        for token, count in ((6, 1), (7, 1), (8, 0)):
            found = grants(*ONE, "11 2 acquire invoke", f"12 2 acquire ok {token}")
            self.assertEqual(count, judge.stale_tokens(found))

    def test_acknowledged_elements_that_are_missing(self):
        lines = (
            "1 1 add invoke 5",
            "2 1 add ok 5",
            "3 1 add invoke 6",
            "4 1 add fail 6",
            "5 1 add invoke 7",
            "6 1 add info",
        )
        ops = judge.operations(events(*lines))
        for content, missing in (([5], set()), ([5, 7], set()), ([], {5})):
            self.assertEqual(({5}, missing), judge.lost(ops, "mutex-0", {"sets": {"mutex-0": content}}))

    def test_the_store_compares_tokens(self):
        store = Store()
        try:
            said = [
                store.answer("read", "a", 2),
                store.answer("write", "a", 1, "5"),
                store.answer("write", "a", 2, "6"),
            ]
            said += [store.answer("read", "a", 1), store.answer("read", "b", 1), store.answer("write", "a", 0, "7")]
            self.assertEqual(["", "stale", "ok", "stale", "", "ok"], said)
            self.assertEqual({"sets": {"a": [7]}, "refused": {"a": 2}}, store.content())
        finally:
            store.shutdown()
            store.server_close()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=0)
