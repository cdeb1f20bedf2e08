"""A learnt definition as YAML, with a comment on each line that gives its evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from simulator.errors import one_line

from .describing import Learnt, Line

_COMMENT_FROM = 40


def write_definition(learnt: Learnt) -> str:
    """The file."""
    return "\n".join([*_list_lines(learnt), ""])


def _list_lines(learnt: Learnt) -> Iterator[str]:
    yield from (f"# {line}" for line in learnt.head)
    for line in learnt.lines:
        yield _write(line)
    yield "columns:"
    for column in learnt.columns:
        yield from _write_column(column)


def _write_column(lines: Sequence[Line]) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield _write(line, "    " if number else "  - ")


def _write(line: Line, indent: str = "") -> str:
    key, value, about = line
    text = f"{indent}{key}: {_dump(value)}"
    return f"{text:<{_COMMENT_FROM}}  # {one_line(about, 100)}" if about else text


def _dump(value: Any) -> str:
    """A value on one line."""
    text = yaml.safe_dump(
        value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=float("inf")
    )
    return str(text).removesuffix("\n").removesuffix("\n...")
