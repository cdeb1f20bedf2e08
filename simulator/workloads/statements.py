"""Statements that a workload has of its own for a query: instead of what a module makes of the description.

What differs from execution to execution are parameters, named as in `:start`; a colon in quotes, in a
comment or in a cast (`::real`) is none. What can be wrong with a statement without a database is found here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from ..errors import did_you_mean
from ..logs import Redactor

TABLE, DEVICE, DEVICES = "table", "device", "devices"
START, END, EVERY = "start", "end", "every"
ABOVE, BELOW, LIMIT = "above", "below", "limit"

_TOKENS = re.compile(
    r"""
    (?P<quoted> (?<!\w)[eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"\\]|\\.|"")*" | `[^`]*`
      | (?P<tag>\$(?:[A-Za-z_]\w*)?\$).*?(?P=tag) )
    | (?P<comment> --[^\n]* | /\*.*?\*/ )
    | (?P<open> ['"`] | /\* )
    | ::
    | (?<![\w\])]) : (?P<name>[A-Za-z_]\w*)
    | (?P<end> ; )
    """,
    re.VERBOSE | re.DOTALL,
)
_CHANGING = re.compile(
    r"\b(alter|copy|create|delete|drop|grant|insert|merge|remove|replace(?!\s*\()|revoke|truncate|update"
    r"|upsert)\b",
    re.IGNORECASE,
)
"""Words of statements that do more than ask."""
_PASSWORD = re.compile(r"\b(?:password|passwd|passphrase|pwd)\b(?:\s*=\s*\S|\s+')", re.IGNORECASE)


class Parsed(NamedTuple):
    """A statement with its parameters told apart."""

    parts: tuple[str, ...]
    """What stands before, between and behind them."""
    names: tuple[str, ...]
    """The parameter behind each part but the last."""
    bare: str
    """All of it without what stands in quotes, and without comments."""
    problem: str | None
    """What is wrong with it as a text."""

    def fill(self, values: Mapping[str, str]) -> str:
        """The statement with these for its parameters."""
        filled = (values[name] for name in self.names)
        return "".join(map(str.__add__, self.parts, [*filled, ""]))


@lru_cache(maxsize=64)
def parse_statement(text: str) -> Parsed:
    """Tell parameters, and what only looks like one, apart."""
    parts, names, bare = [""], list[str](), list[str]()
    problem, at = None, 0
    text = text.strip()
    for match in _TOKENS.finditer(text):
        before, token = text[at : match.start()], match[0]
        at = match.end()
        parts[-1] += before
        bare.append(before)
        if match["open"]:
            problem = f"{token} is never closed (inside a text, write a quote twice)"
            parts[-1] += token
        elif match["end"]:
            if _has_more(text[at:]):
                problem = "it is more than one statement: leave out what follows the `;`"
            return Parsed(tuple(parts), tuple(names), "".join(bare), problem)
        elif match["name"]:
            names.append(match["name"])
            parts.append("")
            bare.append(token)
        else:
            parts[-1] += token
            bare.append("''" if match["quoted"] else " ")
    parts[-1] += text[at:]
    bare.append(text[at:])
    return Parsed(tuple(parts), tuple(names), "".join(bare), problem)


def _has_more(rest: str) -> bool:
    """Whether there is anything but comments."""
    return bool(
        _TOKENS.sub(lambda match: "" if match["comment"] else match[0], rest).strip(" \n\t;")
    )


def find_problems(text: str, parameters: Collection[str]) -> Iterator[str]:
    """All that is wrong with a statement, which may have the parameters that are known."""
    parsed = parse_statement(text)
    if not parsed.bare.strip() and not parsed.problem:
        yield "the statement is empty: write one, or leave the key out"
    if parsed.problem:
        yield parsed.problem
    for name in dict.fromkeys(parsed.names):
        if name not in parameters:
            listed = ", ".join(f":{parameter}" for parameter in parameters)
            yield f"there is no parameter :{name}{did_you_mean(name, parameters)} (this query has {listed})"
    if changing := _CHANGING.search(parsed.bare):
        yield (
            f"a query's statement may only read, but {changing[0].upper()} does more: leave it"
            " out, or put it in quotes if it is a name"
        )
    if _PASSWORD.search(text) or Redactor(())(text) != text:
        yield "it contains a password, which results would store: leave it out"
