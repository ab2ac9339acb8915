#!/usr/bin/env python3
"""Finds prose to rewrite in documents and comments, as far as a pattern can: word order that is not English, words that
mean several things, lines that are too wide, and Rust documentation that repeats the name below it.

    scripts/prose.py [PATH ...]      print file:line, the pattern and the words; exit with 1 if there are any
    scripts/prose.py --lint          the same for the paths of CLEAN, which have none; `make lint` runs it
    scripts/prose.py --count         print how many there are in each folder

PATH is a file or a folder of the repository; without one, all files that git tracks are read. Code, quoted code and
strings are not read. A pattern cannot judge a sentence: it finds a sentence to say aloud.
"""

import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Paths without findings, which must stay that way. Add a folder once it has none.
CLEAN = (
    ".ci .github CONTRIBUTING.md Makefile README.md SECURITY.md benches clients core docs examples fuzz packaging"
    " portable redis.conf scripts src tests tools xtask"
).split()

WIDTH = 120

START = r"(?:^|(?<=[.!?:;|] )|(?<=\n))(?:[-*] |\d+\. )?(?:\*\*)?"  # of a sentence
VERB = (
    r"(?:is|are|was|were|has|have|had|does|do|did|can|cannot|may|must|will|would|gets?|takes?|comes?|goes|go|stays?"
    r"|ends?|counts?|costs?|excludes?|waits?|holds?|keeps?|needs?|makes?|says?|sends?|asks?|reads?|writes?|finds?"
    r"|leaves?|passes|follows?|stands?|knows?|sees?|wants?|loses?|replies|fails?|belongs?|decides?|changes?)"
)
COMPARED = r"(?:longer|more|less|fewer|later|earlier|sooner|\w+er than|different|matter|doubt|problem|use\b)"

PATTERNS = {
    "is no X": rf"(?<![Tt]here )\b(?:is|are|was|were|be|been) no (?!{COMPARED})\w+",
    "is none": r"(?<![Tt]here )\b(?:is|are|was|were) none\b",
    "who or what as the subject": rf"{START}(?:Who|Whom|Whose|What|Whoever|Which)\b"
    rf"[^.?!:;|\n]*?\b{VERB}\b[^.?!:;|\n]*(?<!\bto )\b{VERB}\b[^?|\n]*?[.;|\n]",
    "of which that": r"\b(?:of which|of its|of those|of them) that\b",
    "whom": r"\b[Ww]hom\b",
    "of a thing, first": rf"{START}Of (?:a|an|the|each|all|those|these|several|which|its) ",
    "verb first": rf"{START}(?:[A-Z][a-z]+ed|Told|Kept|Shown|Given|Found|Read|Written|Made|Left|Said|Meant|Sent|Drawn"
    r"|Built|Held|Run|Put|Seen|Taken|Lost|Set) (?:is|are|was|were)\b",
    "told": r"\b(?:is|are|was|were|be|been|being|gets?) told\b",
    "nobody listens": r"\b(?:nobody|somebody|who|one|anybody|no one) listens\b|\bsilent channel",
    "is in no X": r"\b(?:is|are|was|were) (?:in|at) no\b",
    "behind, for after": r"\b[Bb]ehind (?:(?:a|the|its) )?(?:grant|name|command name|numkeys)\b",
    "also, for even": r"\balso (?:if|when|where|while)\b",
    "so many, for this many": rf"\b(?:at most|for|[Aa]fter|in|within|with|of) so (?:many|long|often)\b(?! (?:as|that))"
    rf"|{START}So (?:many|long|often) (?!as\b)",
    "not any more": r"\b(?:not|no|nobody|nothing|none)\b[^.;:]*\bany more\b",
    "of before": r"\bof before\b",
    "circle, for cycle": r"\b[Cc]ircles?\b",
    "those who": r"\b[Tt]hose who\b",
}
PATTERNS = {name: re.compile(pattern) for name, pattern in PATTERNS.items()}

SLASHES = re.compile(r"\s*(?://[/!]?|/?\*+/?)(?: |$)(.*)")
HASHES = re.compile(r"\s*#(?: |$)(.*)")
DASHES = re.compile(r"\s*--(?: |$)(.*)")
COMMENTS = {
    **dict.fromkeys(("rs", "go", "java", "js", "mjs", "cjs", "ts", "mts", "php", "c", "h"), SLASHES),
    **dict.fromkeys(("py", "sh", "rb", "toml", "yml", "yaml", "conf", "Makefile", "Dockerfile", "serverlock"), HASHES),
    "lua": DASHES,
}


def paragraphs(path, text):
    """The paragraphs of a document, or the comments of a source, each with the number of its first line."""
    kind = path.suffix.lstrip(".") or path.name
    is_page, comment = kind == "md", COMMENTS.get(kind)
    if not (is_page or comment):
        return
    lines, first, fenced, docstring = [], 0, False, False
    for number, line in enumerate(text.splitlines() + [""], 1):
        words = None
        if is_page:
            if line.lstrip().startswith("```"):
                fenced = not fenced
            elif not fenced and not line.startswith(("#", "    ", "<")):
                words = line.strip() or None
        else:
            quotes = line.count('"""') if kind == "py" else 0
            if docstring or quotes:
                words = line.strip().strip('"') or None
                docstring ^= quotes == 1
            elif found := comment.fullmatch(line):
                words = found[1].strip() or None
        if words and not (lines and words.startswith(("|", "- ", "* "))):
            first = first if lines else number
            lines.append(words)
            continue
        if lines:
            yield first, "\n".join(lines)
        lines, first = ([words] if words else []), number


def wide(path, text):
    """The comments of a source that are wider than WIDTH, unless for an address."""
    comment = COMMENTS.get(path.suffix.lstrip(".") or path.name)
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > WIDTH and comment and comment.fullmatch(line) and "://" not in line:
            yield number, f"wider than {WIDTH}", f"{len(line)} characters"


IDLE = set("a all an and are as be by for has in is it its of on one or own that the this to with".split())
ITEM = re.compile(
    r"\s*(?:pub(?:\([^)]*\))? )?(?:(?:async|const|static|unsafe|extern \"C\") )*"
    r"(?:(?:fn|struct|enum|trait|type|mod) )?(\w+).*"
)


def stems(text):
    """The words of a text or of names, without their endings."""
    words = re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", text)
    return {re.sub(r"(?<=\w{3})(?:ing|ies|es|ed|s)$", "", word.lower()) for word in words}


def repeated(path, text):
    """One-line Rust documentation with no word that the item below it lacks."""
    if path.suffix != ".rs":
        return
    lines = text.splitlines()
    for at, line in enumerate(lines):
        found = re.fullmatch(r"\s*/// ([A-Z][^`A-Z]*)", line)
        if not found or any(0 <= i < len(lines) and lines[i].lstrip().startswith("///") for i in (at - 1, at + 1)):
            continue
        item = next((line for line in lines[at + 1 :] if not line.lstrip().startswith("#[")), "")
        words = stems(found[1].lower()) - {re.sub(r"(?<=\w{3})s$", "", word) for word in IDLE} - IDLE
        if words and ITEM.fullmatch(item) and words <= stems(item):
            yield at + 1, "repeats the name", found[1]


def findings(path):
    try:
        text = (ROOT / path).read_text()
    except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
        return
    yield from wide(path, text)
    yield from repeated(path, text)
    for first, paragraph in paragraphs(path, text):
        plain = re.sub(r"`[^`]*`|\"[^\"\n]*\"", lambda code: re.sub(r"[^\n]", "x", code[0]), paragraph)
        # One line, whose characters stay where they were.
        flat = re.sub(r"\n(?![-|*] )", " ", plain) + "\n"
        for name, pattern in PATTERNS.items():
            for found in pattern.finditer(flat):
                line = first + paragraph[: found.start()].count("\n")
                yield line, name, " ".join(paragraph[found.start() : found.end()].split())[:90]


def main():
    args = [arg for arg in sys.argv[1:] if not arg.startswith("--")]
    if "--lint" in sys.argv:
        args = CLEAN
    listed = subprocess.run(["git", "ls-files", "--", *args], cwd=ROOT, capture_output=True, text=True, check=True)
    counts = collections.Counter()
    for name in listed.stdout.splitlines():
        path = pathlib.Path(name)
        for line, pattern, words in findings(path):
            folder = path.parts[:2] if path.parts[0] == "clients" and len(path.parts) > 2 else path.parts[:1]
            counts["/".join(folder)] += 1
            if "--count" not in sys.argv:
                print(f"{name}:{line}: {pattern}: {words}")
    if "--count" in sys.argv:
        for folder, count in counts.most_common():
            print(f"{count:5} {folder}")
    if "--lint" not in sys.argv or counts:
        print(f"{counts.total()} found", file=sys.stderr)
    return 1 if counts else 0


if __name__ == "__main__":
    sys.exit(main())
