"""benches/clients runs: each part, quickly, with plausible results."""

import re
import subprocess
import sys
import unittest
from pathlib import Path

RUN = Path(__file__).resolve().parents[3] / "benches/clients/run.py"


class Bench(unittest.TestCase):
    def test_each_part_measures_the_package_beside_raw_commands(self) -> None:
        words = [
            "--smoke",
            "--language",
            "python",
            "--rounds",
            "1",
            "--pairs",
            "40",
            "--seconds",
            "0.2",
            "--processes",
            "2",
            "--warm",
            "0.2",
            "--waits",
            "20",
        ]
        done = subprocess.run([sys.executable, str(RUN), *words], capture_output=True, text=True, timeout=900)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = {
            (part, measure, name): float(value)
            for part, measure, name, value in re.findall(
                r"^(\w+) +(\w+) +(redis\S+ .*?) {2,}([\d.]+)", done.stdout, re.M
            )
        }
        for part, measure in (("pair", "us"), ("hot", "per_second"), ("start", "ms"), ("trips", "trips")):
            for name in ("redis-py package", "redis-py raw"):
                self.assertGreater(found[part, measure, name], 0, done.stdout)
        self.assertLessEqual(found["waits", "connections", "redis-py package"], 3)
        self.assertEqual(round(found["trips", "trips", "redis-py package"]), 2, done.stdout)


if __name__ == "__main__":
    unittest.main()
