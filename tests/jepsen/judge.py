"""Judges the histories of the clients: pairs their events, counts holders and lost elements, and has Porcupine search
for an order of acquire and release."""

import collections
import json
import subprocess

PERMITS = {"mutex": 1, "fenced-mutex": 1, "semaphore": 2}


def operations(events):
    """Pairs each `invoke` with its end; `end` is None and `type` is info if it has none."""
    begun, paired = {}, []
    for event in events:
        process = event["process"]
        if event["type"] == "invoke":
            op = {**event, "call": event["time"], "end": None, "type": "info"}
            begun[process] = op
            paired.append(op)
            continue
        op = begun.pop(process)
        assert op["op"] == event["op"], f"{op} ended with {event}"
        op.update({name: event[name] for name in ("type", "token", "value") if name in event})
        if event["type"] != "info":
            op["end"] = event["time"]
    return paired


def holds(ops):
    """The grants of one lock, in the order in which the clients got them: from when to when a client certainly relied
    on it. A release that the library refused, or whose result is unknown, ends that too."""
    found, last = [], {}
    for op in ops:
        if op["op"] == "acquire" and op["type"] == "ok":
            hold = {"client": op["process"], "token": op["token"], "asked": op["call"], "from": op["end"], "to": None}
            last[op["process"]] = hold
            found.append(hold)
        elif op["op"] == "release":
            hold = last.pop(op["process"])
            hold["to"], hold["released"] = op["call"], op["end"]
    return sorted(found, key=lambda hold: hold["from"])


def beside_others(grants, permits):
    """How many grants reached their client while as many others as there are permits certainly held the lock."""
    count = 0
    for at, grant in enumerate(grants):
        others = sum(1 for other in grants[:at] if other["to"] is None or other["to"] > grant["from"])
        count += others >= permits
    return count


def stale_tokens(grants):
    """How many grants had a token that was not larger than one that a client had already got."""
    count, largest = 0, 0
    for grant in grants:
        count += grant["token"] <= largest
        largest = max(largest, grant["token"])
    return count


def history(key, grants):
    """The operations for Porcupine. Attempts that failed changed nothing, and one without a result can be left out: if
    it was granted after all, it only forbids orders."""
    for number, grant in enumerate(grants):
        hold = f"{key}/{number}"
        common = {"key": key, "client": grant["client"], "attempt": hold, "token": grant["token"]}
        yield {**common, "op": "ACQUIRE", "call": grant["asked"], "return": grant["from"]}
        if grant["to"] is not None:
            yield {**common, "op": "RELEASE", "call": grant["to"], "return": grant.get("released")}


def lost(ops, key, content):
    """Elements whose write the store acknowledged, and the ones that are missing in the end."""
    written = {op["value"] for op in ops if op["op"] == "add" and op["type"] == "ok"}
    return written, written - set(content["sets"].get(key, []))


def judge(events, content, folder, name, seed, porcupine):
    """The figures of one run: a row for each workload."""
    ops_by_key = collections.defaultdict(list)
    for op in operations(events):
        ops_by_key[op["workload"], op["key"]].append(op)
    rows = {}
    for (workload, key), ops in sorted(ops_by_key.items()):
        row = rows.setdefault(workload, collections.Counter(workload=workload))
        grants = holds(ops)
        row["operations"] += len(ops)
        row["grants"] += len(grants)
        row["unknown"] += sum(op["type"] == "info" for op in ops)
        row["refused_releases"] += sum(op["op"] == "release" and op["type"] == "fail" for op in ops)
        if workload in PERMITS:
            permits = PERMITS[workload]
            row["histories"] += 1
            beside = beside_others(grants, permits)
            stale = stale_tokens(grants) if workload == "fenced-mutex" else 0
            row["too_many"] += beside
            row["stale_tokens"] += stale
            path = folder / f"{name}-{key}.jsonl"
            with open(path, "w") as out:
                first = {"setup": name, "seed": seed, "workload": workload, "permits": permits}
                for line in (first, *history(key, grants)):
                    out.write(json.dumps(line) + "\n")
            verdict = verdict_of(porcupine, path) if grants else "Ok"
            row["rejected"] += verdict == "Illegal"
            row["undecided"] += verdict == "Unknown"
            # Without leases, an order exists exactly if the clients' certain holds never overlap.
            if verdict != "Unknown":
                assert (verdict == "Illegal") == (beside + stale > 0), (
                    f"the judges disagree on {path}: {beside}, {stale}"
                )
        else:
            written, missing = lost(ops, key, content)
            row["written"] += len(written)
            row["lost"] += len(missing)
            row["refused"] += content["refused"].get(key, 0)
    return list(map(dict, rows.values()))


def verdict_of(porcupine, path):
    said = subprocess.run([porcupine, "--verdict", path], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    return said.stdout.strip()
