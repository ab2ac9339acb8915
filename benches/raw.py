"""Raw runs of the benches in Python: a CSV file in benches/runs, with its facts in front and one measurement in each row;
and the tables in pages that are filled from there."""

import csv
import datetime
import os
import platform
import re
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "benches/runs"


def facts(settings, server=None, **more):
    """When, where and how this program runs. server: a connection to the one that is measured, if it is only one."""
    with open("/proc/cpuinfo", encoding="utf-8") as cpus:
        cpu = next((line.split(":", 1)[1].strip() for line in cpus if line.startswith("model name")), "unknown")
    module = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
        "date": f"{now:%Y-%m-%dT%H:%M:%SZ}",
        **({} if server is None else {"server": version(server)}),
        "module": module.stdout.strip(),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "kernel": f"{platform.system()} {platform.release()}",
        "command": " ".join(["python3", str(Path(sys.argv[0]).resolve().relative_to(ROOT)), *sys.argv[1:]]),
        "load before": f"{os.getloadavg()[0]:.2f}",
        "rounds": settings.rounds,
        **more,
    }


def version(conn):
    info = dict(line.split(":", 1) for line in conn.call("INFO", "server").splitlines() if ":" in line)
    name = "valkey" if "valkey_version" in info else "redis"
    return f"{name}-{info[f'{name}_version']}"


def keep(bench, header, rows, found):
    """Writes benches/runs/DATE-BENCH.csv."""
    file = RUNS / f"{found['date'].replace(':', '')}-{bench}.csv"
    with open(file, "w", encoding="utf-8", newline="") as out:
        out.writelines(f"# {name}: {fact}\n" for name, fact in found.items())
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
    print(f"kept in {file.relative_to(ROOT)}", file=sys.stderr, flush=True)


class Run:
    """A raw file. key: the columns that identify what was measured; its values are those of all rounds."""

    def __init__(self, path, key):
        text = path.read_text("utf-8").splitlines()
        self.path = path
        self.facts = dict(line[2:].split(": ", 1) for line in text if line.startswith("# "))
        self.values = {}
        for row in csv.DictReader(line for line in text if not line.startswith("# ")):
            self.values.setdefault(tuple(row[name] for name in key), []).append(float(row["value"]))

    def median(self, *key):
        values = self.values.get(tuple(str(part) for part in key))
        return None if values is None else statistics.median(values)

    def link(self, folder):
        """To the file, from a page in this folder."""
        return f"[{self.path.name}]({os.path.relpath(self.path, folder)})"


def runs(bench, key):
    """From the newest to the oldest."""
    return (Run(path, key) for path in sorted(RUNS.glob(f"*-{bench}.csv"), reverse=True))


def number(value, digits=0):
    return "" if value is None else f"{value:.{digits}f}"


def markdown(header, rows, text_columns=1):
    """Columns after the first `text_columns` are right-aligned."""
    if not rows:
        return "Not measured yet."
    widths = [max(3, *(len(row[at]) for row in [header, *rows])) for at in range(len(header))]
    rules = ["-" * width if at < text_columns else "-" * (width - 1) + ":" for at, width in enumerate(widths)]
    lines = [
        [
            cell.ljust(width) if at < text_columns else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        for row in [header, *rows]
    ]
    lines.insert(1, rules)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def fill(page, tables, word="table"):
    """Writes each table after its mark in the page: `<!-- table: NAME -->`."""

    def filled(match):
        return f"{match[1]}\n\n{tables[match[2]]()}\n\n<!-- end of table -->"

    pattern = rf"(<!-- {word}: ([^>]*) -->).*?<!-- end of table -->"
    text, count = re.subn(pattern, filled, page.read_text("utf-8"), flags=re.DOTALL)
    page.write_text(text, "utf-8")
    print(f"{page.relative_to(ROOT)}: {count} tables")
