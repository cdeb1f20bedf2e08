"""A hundred campaign files with a mistake each: one clear line, or two, with file, line and remedy."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.run.campaign.campaign import open_campaign
from cli.system.errors import ConfigError
from cli.system.processes import Interrupts

CONFIG = "targets:\n  one: {module: postgres, executor: local, connection_string: host=127.0.0.1}\n"
FILE = """\
title: Will it do?
targets:
  one: {}
options:
  workload: machines
  workers: 2
requirements:
  devices: 8000
  insert:
    p99: 250ms
    batch: 50
    error_share: 1%
  queries:
    last-values:
      p99: 1s
      rate: 2
    range:
      p90: 2s
      rate: 0.5
  history:
    span: 10m
  retention: 90d
  disk: 2TB
  cost_per_month: 800
  faults:
    kill-server: 60s
    run ./pull.sh: 1m
price:
  cpu_hour: 0.05
  gb_month: 0.1
repeats: 3
settle: 2s
"""
_OWN = re.compile(r"^( *)([\w./ -]+): *(\S.*)?$")
_TYPED = range(*(FILE.splitlines().index(line) for line in ("requirements:", "repeats: 3")))
"""The lines of the requirements, and of the price."""
_NAMES = ("last-values", "range", "run ./pull.sh")
_WRONG = [
    "",
    "[1, 2]",
    "{a: 1}",
    "true",
    "-1",
    "soon",
    "0",
    "'5 parsecs'",
    "12345678901234567890123",
]


def _misspell(word: str, draw: random.Random) -> str:
    """With two neighbours in each other's place, or without a character."""
    at = draw.randrange(len(word) - 1)
    swapped = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return swapped if swapped != word else word[:at] + word[at + 1 :]


def _list_mistakes() -> Iterator[tuple[str, int]]:
    """Files with a mistake, and the line in which it is, from 1."""
    draw = random.Random(29)
    lines = FILE.splitlines()
    for number in _TYPED:
        match = _OWN.match(lines[number])
        assert match is not None
        indent, key, value = match.groups()
        changed = []
        if key not in _NAMES:
            changed += [f"{indent}{_misspell(key, draw)}: {value or ''}" for _ in range(2)]
        if value is not None:
            changed += [f"{indent}{key}: {wrong}" for wrong in draw.sample(_WRONG, 4)]
            changed.append(f"{lines[number]}\n{lines[number]}")
        for text in changed:
            yield "\n".join([*lines[:number], text, *lines[number + 1 :]]), number + 1


MISTAKES = list(_list_mistakes())


def test_the_file_is_right(tmp_path: Path) -> None:
    _open(tmp_path, FILE)


def _open(folder: Path, text: str) -> None:
    file, config = folder / "needs.yaml", folder / "config.yaml"
    file.write_text(text)
    config.write_text(CONFIG)
    open_campaign(file, config, folder / "out", Interrupts())


def test_there_are_a_hundred() -> None:
    assert len(MISTAKES) >= 100


@pytest.mark.parametrize("place", range(len(MISTAKES)))
def test_a_mistake_is_a_clear_line(tmp_path: Path, place: int) -> None:
    text, line = MISTAKES[place]
    try:
        _open(tmp_path, text)
    except ConfigError as error:
        message = error.message.replace(str(tmp_path), "")
        assert len(message.splitlines()) <= 2
        assert len(message) < 400, message
        assert re.match(r"/needs\.yaml:\d+: ", message), message
        # Where keys contradict each other, or one is missing, the line is that of what they are in.
        reported = int(message.split(":")[1])
        assert reported <= line + 1, (message, line)
        assert not re.search(r"pydantic|input_value|Value error|\bloc\b|type=", message), message
    else:
        pytest.fail(f"no mistake: {text.splitlines()[line - 1]!r}")
