"""The lease clock, where the system has none that keeps running during a suspend."""

import unittest

from serverlock.core.clock import Larger


class Clock(unittest.TestCase):
    def setUp(self) -> None:
        self.monotonic, self.wall = 100.0, 1_800_000_000.0
        self.now = Larger(lambda: self.monotonic, lambda: self.wall)

    def test_the_clock_runs_during_a_suspend(self) -> None:
        before = self.now()
        self.monotonic += 1
        self.wall += 31
        self.assertAlmostEqual(self.now() - before, 31)

    def test_a_wall_clock_that_is_set_back_takes_nothing_away(self) -> None:
        before = self.now()
        self.wall -= 86400
        self.monotonic += 5
        self.assertAlmostEqual(self.now() - before, 5)
        self.monotonic += 1
        self.wall += 1
        self.assertAlmostEqual(self.now() - before, 6)

    def test_a_wall_clock_that_is_set_forwards_only_ends_leases_early(self) -> None:
        before = self.now()
        self.wall += 3600
        self.assertGreaterEqual(self.now() - before, 3600)
        self.wall -= 3600
        self.monotonic += 1
        self.assertAlmostEqual(self.now() - before, 3601)


if __name__ == "__main__":
    unittest.main()
