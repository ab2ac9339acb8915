"""The Python code on the page about frameworks runs as it stands; histograms have the boundaries that it lists."""

import re
import unittest

from frame import ROOT, Framed

PAGE = ROOT / "docs/FRAMEWORKS.md"

# Where each package has the boundaries of its histograms, below clients/.
TELEMETRY = (
    "go/opentelemetry/hooks.go",
    "java/src/main/java/dev/serverlock/opentelemetry/OpenTelemetryHooks.java",
    "node/src/opentelemetry.ts",
    "php/src/OpenTelemetry/Instruments.php",
    "python/src/serverlock/opentelemetry.py",
    "ruby/lib/serverlock/opentelemetry.rb",
    "rust/src/opentelemetry.rs",
)


def numbers(text):
    return [float(it) for it in re.findall(r"\d+(?:\.\d+)?", text)]


class Pages(Framed):
    def test_the_code_runs(self):
        blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
        blocks = [block for block in blocks if "serverlock" in block]
        self.assertGreaterEqual(len(blocks), 6)
        for block in blocks:
            code = block.replace("Redis()", f"Redis(port={self.server.port})")
            program = self.start("-c", code, DJANGO_SETTINGS_MODULE="shop.settings")
            self.assertEqual(program.process.wait(240), 0, f"{block}\n{program.said()}")

    def test_histograms_have_the_pages_boundaries_in_each_language(self):
        listed = re.search(r"boundaries of\s+the histograms are ([^s]*?) s\.", PAGE.read_text()).group(1)
        boundaries = numbers(listed)
        self.assertEqual(len(boundaries), 18)
        for file in TELEMETRY:
            with self.subTest(file):
                found = re.search(r"\b0\.001,[\d.,\s]*", (ROOT / "clients" / file).read_text()).group()
                self.assertEqual(numbers(found), boundaries)


if __name__ == "__main__":
    unittest.main()
