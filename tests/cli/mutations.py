"""Files as a stranger might hand them in: valid ones, damaged in a way that a number chooses. As a program,
hands such files to the command line, one after another, and prints what it made of each."""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Mutation = Callable[[random.Random, bytes], bytes]

_NUMBER = re.compile(rb"(?<=[\s:\[,])-?\d+(?:\.\d+)?(?=[\s,\]}])")
_WORD = re.compile(rb"[A-Za-z_]{3,}")
_ODD_VALUES = [
    b"Infinity", b"-Infinity", b"NaN", b".inf", b".nan", b"true", b"false", b"null", b"[]", b"{}", b'"x"',
    b"-1", b"0", b"1e308", b"-1e308", b"1e18", b"9223372036854775808", b"9" * 5_000, b"0x" + b"f" * 5_000,
    b"[" * 3_000, b"[[[[1]]]]", b"{a: {b: {c: d}}}", b'{"a": {"b": [1, true, null]}}', b"1" * 25,
    b"!!binary aGFsbG8=",
    b"*nothing", b"&a [*a]", b"!!python/object/apply:os.system [ls]", b'"\\u0000\\u001b[2J\\uffff"',
    b'"\\ud800"', b"'\xe2\x80\xae'", b"2024-01-01", b"=1+1",
]  # fmt: skip
"""What stands in place of a number, a word or a line's value."""


def _flip(draw: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.choice([1, 3, 20])):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _cut(draw: random.Random, content: bytes) -> bytes:
    return content[: draw.randrange(len(content))]


def _insert(draw: random.Random, content: bytes) -> bytes:
    at = draw.randrange(len(content))
    odd = [
        b"\0",
        b"\xff\xfe",
        b"\x1b[2J",
        b"\xef\xbf\xbf",
        b"\xc2\x85",
        b"\xed\xa0\x80",
        b"\t",
        b"- " * 2_000,
        b"{[" * 2_000,
    ]
    return content[:at] + draw.choice(odd) + content[at:]


def _replace(draw: random.Random, content: bytes, pattern: re.Pattern[bytes]) -> bytes:
    places = list(pattern.finditer(content))
    if not places:
        return _flip(draw, content)
    match = draw.choice(places)
    return content[: match.start()] + draw.choice(_ODD_VALUES) + content[match.end() :]


def _replace_number(draw: random.Random, content: bytes) -> bytes:
    return _replace(draw, content, _NUMBER)


def _replace_word(draw: random.Random, content: bytes) -> bytes:
    return _replace(draw, content, _WORD)


def _replace_value(draw: random.Random, content: bytes) -> bytes:
    return _replace(draw, content, re.compile(rb"(?<=: ).+?(?=,?\n)"))


def _repeat_line(draw: random.Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    at = draw.randrange(len(lines))
    return b"".join([*lines[:at], lines[at] * draw.choice([2, 2, 2_000]), *lines[at + 1 :]])


def _drop_line(draw: random.Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    del lines[draw.randrange(len(lines))]
    return b"".join(lines)


def _swap_words(draw: random.Random, content: bytes) -> bytes:
    first, second = (match[0] for match in draw.choices(list(_WORD.finditer(content)), k=2))
    return content.replace(first, second, 1)


def _grow_aliases(draw: random.Random, content: bytes) -> bytes:
    laughs = b"a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + b"".join(
        b"a%d: &a%d [%s]\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 12)
    )
    return draw.choice([laughs + content, content + laughs])


MUTATIONS: Sequence[Mutation] = (
    _flip, _cut, _insert, _replace_number, _replace_number, _replace_number, _replace_word, _replace_value,
    _replace_value, _replace_value, _repeat_line, _drop_line, _swap_words, _grow_aliases,
)  # fmt: skip


def mutate(content: bytes, seed: int) -> bytes:
    """The content, damaged once or a few times."""
    draw = random.Random(seed)
    for _ in range(draw.choice([1, 1, 1, 3])):
        content = draw.choice(MUTATIONS)(draw, content or b"\n")
    return content


def measure_peak_mb() -> float:
    """The most memory that this process ever had. Linux counts in `ru_maxrss` that of the process which began
    it, too, so there it comes from /proc."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # macOS: bytes
    return int(status.partition("VmHWM:")[2].split()[0]) / 2**10


def run_command(arguments: Sequence[str]) -> dict[str, Any]:
    """What a command printed and returned, in this process."""
    from cli import main

    out, err = io.StringIO(), io.StringIO()
    began = time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            sys.argv = ["run.py", *arguments]
            main.main()
            status: object = 0
        except SystemExit as end:
            status = end.code
    return {
        "status": status,
        "out": out.getvalue(),
        "err": err.getvalue(),
        "cpu_s": time.process_time() - began,
        "peak_mb": measure_peak_mb(),
    }


def main() -> None:
    """`SOURCE FILE FIRST END COMMANDS`: for each seed, write FILE and run each command (JSON lists)."""
    source, file, first, end, commands = sys.argv[1:]
    # A safety net for the machine: the test looks at what was used.
    resource.setrlimit(resource.RLIMIT_DATA, (2 * 2**30, 2 * 2**30))
    content = Path(source).read_bytes()
    for seed in range(int(first), int(end)):
        Path(file).write_bytes(mutate(content, seed))
        for arguments in json.loads(commands):
            outcome = run_command(arguments)
            print(json.dumps({"seed": seed, "arguments": arguments, **outcome}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
