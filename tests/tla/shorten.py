#!/usr/bin/env python3
"""Prints the counterexample in TLC's output (standard input) as short text: each step, and what it changes."""

import re
import sys

TOKEN = re.compile(r'\|->|:>|@@|<<|>>|[\[\](){},]|"[^"]*"|-?\w+')


def parse(text):
    """Reads a value of TLC: records and functions become dictionaries, everything else text."""
    tokens = TOKEN.findall(text)

    def items(end):
        found = []
        while tokens[0] != end:
            found.append(value())
            if tokens[0] == ",":
                tokens.pop(0)
        tokens.pop(0)
        return found

    def pairs(arrow, separator, end):
        found = {}
        while tokens[0] != end:
            name = tokens.pop(0)
            assert tokens.pop(0) == arrow
            found[name] = value()
            if tokens[0] == separator:
                tokens.pop(0)
        tokens.pop(0)
        return found

    def value():
        token = tokens.pop(0)
        if token == "[":
            return pairs("|->", ",", "]")
        if token == "(":
            return pairs(":>", "@@", ")")
        if token in ("<<", "{"):
            return [token, *items(">>" if token == "<<" else "}")]
        return token.strip('"')

    return value()


def written(value):
    if isinstance(value, dict):
        return "[" + " ".join(f"{name}={written(part)}" for name, part in value.items()) + "]"
    if isinstance(value, list):
        end = ">>" if value[0] == "<<" else "}"
        return value[0] + ", ".join(map(written, value[1:])) + end
    return value


def leaves(value, name=""):
    # The value in a key is read as one thing.
    if isinstance(value, dict) and not name.endswith((".key", ".claim")):
        for key, part in value.items():
            yield from leaves(part, f"{name}.{key}" if name else key)
    else:
        yield name, written(value)


def main():
    before, steps = {}, 0
    for block in re.split(r"\n\n", sys.stdin.read()):
        match = re.match(r"(?:.*\n)*?State (\d+): <(.*?)(?: line .*)?>\n((?:.*\n?)*)", block)
        if not match:
            continue
        after = {}
        for field in re.split(r"^/\\ ", match[3], flags=re.M)[1:]:
            name, text = field.split(" = ", 1)
            after.update(leaves(parse(text), name))
        # The witness of the order and the clocks follow from the rest.
        changed = [
            f"{name.removeprefix('srv.').removeprefix('cl.')}: {value}"
            for name, value in sorted(after.items())
            if before.get(name) != value and not re.match(r"came|top|faults|clock|.*\.(fresh|mode|last|own)", name)
        ]
        if steps:
            print(f"{steps:2} {match[2]:<11} {'; '.join(changed)}".rstrip())
        before, steps = after, steps + 1


if __name__ == "__main__":
    main()
