"""A workload's own statements for making its tables, in SQL or CQL: finds what is wrong with them without a
database, and fills in their parameters."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ..errors import did_you_mean
from .queries import Parsed, find_text_problems, parse_statement
from .schema import ID, Schema, Tags

TABLE, TABLE_TEXT, TAGS = "table", "table_text", "tags"
PARAMETERS = (TABLE, TABLE_TEXT, TAGS)
"""What a statement may contain: the events' table; the same as a quoted text; the tags' table."""

_CREATE = re.compile(
    r"create\s+(?:unlogged\s+)?table\s+(?:if\s+not\s+exists\s+)?(?P<table>[^\s(]+)", re.IGNORECASE
)
_INDEX = re.compile(
    r"create\s+(?:unique\s+|custom\s+)?index\s+(?P<name>.*?)\bon\s+(?:only\s+)?(?P<table>\S+)",
    re.IGNORECASE | re.DOTALL,
)
_NO_NAME = re.compile(r"\bconcurrently\b|\bif\s+not\s+exists\b", re.IGNORECASE)
"""What may stand in place of an index's name."""
_CHANGE = re.compile(
    r"alter\s+table\s+(?:only\s+)?:(?:table|tags)\b"
    r"|(?:select|call)\s+(?:\*\s*from\s+)?[\w.]+\s*\(\s*(?:\w+\s*=>\s*)?:table_text\b",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"\b(drop|truncate|delete|insert|update|grant|revoke|copy|rename|owner|attach|detach|inherits?"
    r"|partition\s+of)\b",
    re.IGNORECASE,
)
"""Words of statements that do more than make a table, or make parts of another one."""
_ADDED = re.compile(
    r"\badd\s+(?:column\s+)?(?:if\s+not\s+exists\s+)?(\"[^\"]+\"|`[^`]+`|\w+)", re.IGNORECASE
)
_CONSTRAINTS = frozenset({
    "check", "constraint", "exclude", "family", "foreign", "index", "like", "primary", "projection", "unique",
})  # fmt: skip
"""Words that begin a part of CREATE TABLE that isn't a column, unless the workload has a column of that
name."""
_MARKS = re.compile(
    r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|[(),]", re.DOTALL
)


@dataclass(frozen=True)
class _Statement:
    """One statement."""

    text: str

    @property
    def parsed(self) -> Parsed:
        return parse_statement(self.text)

    @property
    def bare(self) -> str:
        """The statement without comments and quoted text."""
        return self.parsed.bare.strip()

    @cached_property
    def creates(self) -> bool:
        """Whether it makes a table."""
        return bool(_CREATE.match(self.bare))

    @cached_property
    def place(self) -> str:
        """The table it concerns: that of `:table`, or of `:tags`."""
        return TAGS if TAGS in self.parsed.names else TABLE

    def find_problem(self) -> str | None:
        """What is wrong with it, as a statement that makes or changes a table."""
        bare = self.bare
        if match := _CREATE.match(bare):
            if match["table"] not in (f":{TABLE}", f":{TAGS}"):
                return f"it creates a table with a fixed name: write CREATE TABLE :{TABLE} (…)"
            if re.search(r"\bselect\b", bare, re.IGNORECASE):
                return "it fills the table, which only the run may do: leave SELECT out"
        elif match := _INDEX.match(bare):
            if match["table"].partition("(")[0] not in (f":{TABLE}", f":{TAGS}"):
                return f"its index is on another table: write ON :{TABLE}"
            if _NO_NAME.sub("", match["name"]).strip():
                return "its index has a name, which only one table can use: leave the name out"
        elif not _CHANGE.match(bare):
            return (
                f"it is none of CREATE TABLE :{TABLE}, CREATE INDEX ON :{TABLE}, ALTER TABLE :{TABLE}, and a"
                f" SELECT or CALL of a function whose first argument is :{TABLE_TEXT}"
            )
        if refused := _REFUSED.search(bare):
            return (
                f"{refused[0].upper()} does more than create a table: leave it out, or put it in quotes if"
                " it is a name"
            )
        if {TAGS} < set(self.parsed.names):
            return f"it is about two tables: write a statement for :{TABLE} and one for :{TAGS}"
        return None

    def list_columns(self, needed: Collection[str]) -> list[str]:
        """The columns that it gives its table. A part that begins with a word such as PRIMARY is a column
        only if `needed` contains it."""
        if not self.creates:
            return [_read_name(name) for name in _ADDED.findall(self.text)]
        names = map(_read_name, _split_parts(self.text))
        return [name for name in names if name in needed or name not in _CONSTRAINTS]


def _split_parts(text: str) -> Iterator[str]:
    """The parts between the commas of the first parentheses."""
    depth, part, at = 0, "", 0
    for match in _MARKS.finditer(text):
        if depth:
            part += text[at : match.start()]
        at, mark = match.end(), match[0]
        depth -= mark == ")"
        if (mark == "," and depth == 1) or (mark == ")" and depth == 0):
            yield part.strip()
            part = ""
            if not depth:
                return
        elif depth and not mark.startswith(("--", "/*")):
            part += mark
        depth += mark == "("


def _read_name(part: str) -> str:
    """The name at the beginning of a column's definition; in lowercase if it isn't quoted."""
    match = re.match(r"\"([^\"]+)\"|`([^`]+)`|(\w+)", part)
    return (match[1] or match[2] or match[3].lower()) if match else ""


def find_schema_problems(
    texts: Sequence[str], schema: Schema
) -> Iterator[tuple[tuple[int, ...], str]]:
    """Everything that is wrong with the statements for the tables of such events, with the index of the wrong
    one, or None if no single one is to blame."""
    statements = list(map(_Statement, texts))
    problems = []
    for number, one in enumerate(statements):
        wrong = list(find_text_problems(one.text, PARAMETERS, "a schema"))
        if not wrong and (problem := one.find_problem()):
            wrong.append(problem)
        problems += [((number,), problem) for problem in wrong]
    if problems:
        yield from problems
        return
    created = [one.place for one in statements if one.creates]
    for place in (TABLE, *([TAGS] if makes_tags_table(texts) else [])):
        if created.count(place) != 1:
            count = "nothing makes" if place not in created else "two statements make"
            yield (), f"{count} :{place}: write one CREATE TABLE :{place} (…)"
            return
    schema = replace(schema, tags=Tags.TABLE if TAGS in created else Tags.ROW)
    for place, columns in ((TABLE, schema.row), (TAGS, schema.tags_row)):
        if place not in created:
            continue
        needed = [column.name for column in columns]
        parts = (one.list_columns(needed) for one in statements if one.place == place)
        there = [name for names in parts for name in names]
        for name in needed:
            if name not in there:
                hint = did_you_mean(name, [other for other in there if other not in needed])
                yield (), f":{place} has no column {name}, which the workload's events need{hint}"


def makes_tags_table(texts: Sequence[str]) -> bool:
    """Whether the statements put tags into a table of their own."""
    return any(_Statement(text).place == TAGS for text in texts)


def fill_statements(texts: Sequence[str], table: str, text: str, is_tags: bool) -> list[str]:
    """The statements about one of the events' tables, or about the tags' table; the first makes it. `table`:
    its name in a statement. `text`: the same as a text."""
    place = TAGS if is_tags else TABLE
    statements = [one for text in texts if (one := _Statement(text)).place == place]
    values = {TABLE: table, TAGS: table, TABLE_TEXT: text}
    return [one.parsed.fill(values).strip() for one in sorted(statements, key=_comes_later)]


def _comes_later(one: _Statement) -> bool:
    return not one.creates


def serves_newest(texts: Sequence[str], schema: Schema) -> bool:
    """Whether the statements make an index or a key that begins with device and time: it serves queries for
    each device's newest event."""
    device = ID if makes_tags_table(texts) else schema.device
    first, second = (rf"[\"`]?{re.escape(name)}[\"`]?" for name in (device, schema.time))
    columns = re.compile(
        rf"\(\s*{first}(?:\s+(?:asc|desc))?\s*,\s*{second}\s*[,)ad]", re.IGNORECASE
    )
    return any(columns.search(text) for text in texts)
