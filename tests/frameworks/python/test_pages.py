"""The Python code on the page about frameworks runs as it stands."""

import re
import unittest

from frame import ROOT, Framed

PAGE = ROOT / "docs/FRAMEWORKS.md"


class Pages(Framed):
    def test_the_code_runs(self):
        blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
        blocks = [block for block in blocks if "serverlock" in block]
        self.assertGreaterEqual(len(blocks), 6)
        for block in blocks:
            code = block.replace("Redis()", f"Redis(port={self.server.port})")
            program = self.start("-c", code, DJANGO_SETTINGS_MODULE="shop.settings")
            self.assertEqual(program.process.wait(240), 0, f"{block}\n{program.said()}")


if __name__ == "__main__":
    unittest.main()
