"""As much of KQL as the module for Azure Data Explorer uses, parsed and executed strictly: anything else is
refused. Microsoft's own parser checks the same queries (tests/simulator/test_azure_data_explorer.py).

https://learn.microsoft.com/kusto/query/
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

_TOKEN = re.compile(
    r"""\s*(?:(?P<quoted>\['(?:[^'\\]|\\.)*'\])|(?P<string>'(?:[^'\\\n]|\\.)*')"""
    r"""|(?P<datetime>datetime\([^)]*\))|(?P<null>(?:real|long)\(null\))"""
    r"""|(?P<timespan>\d+(?:ms|d|h|m|s)\b)|(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"""
    r"""|(?P<word>[A-Za-z_]\w*)|(?P<symbol>==|>=|<=|!in\b|[-()<>=,|]))"""
)
_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds"}
# What `bin` counts from.
_BEGINNING = datetime(1, 1, 1, tzinfo=UTC)

_Part = TypeVar("_Part")

Row = Mapping[str, Any]
Expression = Callable[[Row, Sequence[Row]], Any]
"""A value of a row, or of a group of rows."""


class KqlError(Exception):
    """Not a query, or one that isn't known here."""


class Table(NamedTuple):
    """Names of columns, and rows."""

    columns: list[str]
    rows: Sequence[Row]


def execute(query: str, table: Callable[[str], Table]) -> Table:
    """The table that the query returns. `table`: gives a table by its name."""
    return _Parser(query, table).query()


def read_value(kind: str, value: Any) -> Any:
    """A value of an answer, by its column's type, as it is computed with here."""
    if value is None:
        return None
    if kind == "datetime":
        return datetime.fromisoformat(value)
    return json.loads(value) if kind == "dynamic" else value


def write_value(value: Any) -> Any:
    """A value as an answer has it."""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S.%f}0Z"
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def _unquote(text: str) -> str:
    controls = {"n": "\n", "r": "\r", "t": "\t"}
    return re.sub(r"\\(.)", lambda match: controls.get(match[1], match[1]), text[1:-1])


# --- functions ------------------------------------------------------------------------------------


def _bin_at(moment: datetime, span: timedelta, fixed: datetime) -> datetime:
    return fixed + (moment - fixed) // span * span


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "bin": lambda moment, span: _bin_at(moment, span, _BEGINNING),
    "bin_at": _bin_at,
    "iff": lambda condition, yes, no: yes if condition else no,
    "isnull": lambda value: value is None,
    "isnotempty": lambda value: value not in (None, ""),
    "tostring": lambda value: (
        "" if value is None else value if isinstance(value, str) else json.dumps(value)
    ),
    "tolong": lambda value: None if value is None else int(value),
    "todouble": lambda value: None if value is None else float(value),
}
# https://learn.microsoft.com/kusto/query/summarize-operator#default-values-of-aggregations
_AGGREGATES: Mapping[str, Callable[[list[Any]], Any]] = {
    "min": lambda values: min(values, default=None),
    "max": lambda values: max(values, default=None),
    "avg": lambda values: math.fsum(values) / len(values) if values else math.nan,
    "sum": sum,
}
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: a == b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
}


def _compare(sign: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    if isinstance(left, str) != isinstance(right, str):
        raise KqlError(f"{left!r} {sign} {right!r}: the types differ")
    return _COMPARISONS[sign](left, right)


# --- the parser -----------------------------------------------------------------------------------


class _Parser:
    def __init__(self, query: str, table: Callable[[str], Table]) -> None:
        self._table = table
        self._tokens: list[tuple[str, str]] = []
        position = 0
        text = query.strip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if not match or match.lastgroup is None:
                raise KqlError(f"syntax error near {text[position : position + 20]!r}")
            self._tokens.append((match.lastgroup, match[match.lastgroup]))
            position = match.end()
        self._tokens.append(("end", ""))
        self._next = 0
        self._columns: list[str] = []

    # --- operators --------------------------------------------------------------------------------

    def query(self) -> Table:
        table = self._pipeline()
        if self._tokens[self._next][0] != "end":
            raise KqlError(f"something is left: {self._tokens[self._next][1]}")
        return table

    def _pipeline(self) -> Table:
        """A table and what is made of it: the query, or a pipeline in parentheses within it."""
        outer = self._columns
        kind, name = self._take()
        if kind != "quoted":
            raise KqlError(f"no table: {name}")
        table = self._table(_unquote(name[1:-1]))
        while self._accept("|"):
            self._columns = table.columns
            operator = {
                "where": self._where,
                "project": self._project,
                "summarize": self._summarize,
                "sort": self._sort,
                "lookup": self._lookup,
                "take": self._limit,
            }.get(self._word())
            if operator is None:
                raise KqlError("an operator that isn't known")
            table = operator(table.rows)
        self._columns = outer
        return table

    def _inner(self) -> Table:
        """A pipeline in parentheses."""
        self._expect("(")
        table = self._pipeline()
        self._expect(")")
        return table

    def _lookup(self, rows: Sequence[Row]) -> Table:
        """Join by the one column that both tables have; no other column may be in both."""
        for word in ("kind", "=", "inner"):
            self._expect(word)
        right = self._inner()
        self._expect("on")
        key = self._column()
        if set(right.columns) & set(self._columns) != {key}:
            raise KqlError(f"columns of both: {right.columns} and {self._columns}")
        matches: dict[Any, list[Row]] = {}
        for row in right.rows:
            matches.setdefault(row[key], []).append(row)
        joined = [{**row, **match} for row in rows for match in matches.get(row[key], [])]
        return Table([*self._columns, *(name for name in right.columns if name != key)], joined)

    def _where(self, rows: Sequence[Row]) -> Table:
        condition = self._expression()
        return Table(self._columns, [row for row in rows if condition(row, ()) is True])

    def _project(self, rows: Sequence[Row]) -> Table:
        values = dict(self._list(self._assignment))
        projected = [{name: value(row, ()) for name, value in values.items()} for row in rows]
        return Table(list(values), projected)

    def _summarize(self, rows: Sequence[Row]) -> Table:
        computed = [] if self._peek() == "by" else self._list(self._aggregation)
        keys: dict[str, Expression] = {}
        if self._accept("by"):
            keys = dict(self._list(self._assignment))
        groups: dict[tuple[Any, ...], list[Row]] = {} if keys else {(): []}
        for row in rows:
            key = tuple(value(row, ()) for value in keys.values())
            groups.setdefault(key, []).append(row)
        summaries = []
        for key, members in groups.items():
            row = dict(zip(keys, key, strict=True))
            for names, value in computed:
                row |= zip(names, value({}, members), strict=True)
            summaries.append(row)
        names = [*keys, *(name for names, _ in computed for name in names)]
        if len(set(names)) < len(names):
            raise KqlError(f"a name twice: {names}")
        return Table(names, summaries)

    def _sort(self, rows: Sequence[Row]) -> Table:
        self._expect("by")
        for key, descending, nulls_last in reversed(self._list(self._order)):
            present = [row for row in rows if not _is_nothing(key(row))]
            absent = [row for row in rows if _is_nothing(key(row))]
            present.sort(key=key, reverse=descending)
            rows = present + absent if nulls_last else absent + present
        return Table(self._columns, rows)

    def _order(self) -> tuple[Callable[[Row], Any], bool, bool]:
        key: Callable[[Row], Any]
        if self._accept("isempty"):
            self._expect("(")
            column = self._column()
            self._expect(")")
            key = lambda row: row[column] in ("", None)  # noqa: E731 - as short as the other
        else:
            key = itemgetter(self._column())
        descending = not self._accept("asc")
        if descending:
            self._accept("desc")
        nulls_last = descending
        if self._accept("nulls"):
            nulls_last = self._word() == "last"
        return key, descending, nulls_last

    def _limit(self, rows: Sequence[Row]) -> Table:
        kind, token = self._take()
        if kind != "number":
            raise KqlError(f"no number: {token}")
        return Table(self._columns, rows[: int(token)])

    # --- expressions ------------------------------------------------------------------------------

    def _assignment(self) -> tuple[str, Expression]:
        if self._tokens[self._next + 1][1] == "=":
            name = self._word()
            self._expect("=")
            return name, self._expression()
        name = self._column()
        return name, lambda row, _: row[name]

    def _aggregation(self) -> tuple[list[str], Callable[[Row, Sequence[Row]], Iterable[Any]]]:
        if self._accept("("):
            names = self._list(self._word)
            self._expect(")")
            self._expect("=")
            if self._word() != "arg_max":
                raise KqlError("only arg_max has several results")
            parts = self._arguments()
            if len(parts) != len(names) or len(parts) == 1:
                raise KqlError(f"{len(names)} names for {len(parts)} values")
            return names, lambda _, rows: _arg_max(parts, rows)
        named = self._tokens[self._next + 1][1] == "="
        name = self._word() if named else ""
        if named:
            self._expect("=")
        else:
            name = "_".join(
                token if kind == "word" else _unquote(token[1:-1])
                for kind, token in self._tokens[self._next : self._next + 3]
                if kind in ("word", "quoted")
            )
        value = self._expression()
        return [name], lambda row, rows: [value(row, rows)]

    def _expression(self) -> Expression:
        condition = self._comparison()
        while self._accept("and"):
            condition = _both(condition, self._comparison())
        return condition

    def _comparison(self) -> Expression:
        left = self._operand()
        sign = self._peek()
        if sign in _COMPARISONS:
            self._take()
            right = self._operand()
            return lambda row, rows: _compare(sign, left(row, rows), right(row, rows))
        if self._accept("!in"):
            items = self._arguments()
            return lambda row, rows: all(left(row, rows) != item(row, rows) for item in items)
        if self._accept("in"):
            if self._tokens[self._next + 1][1] == "(":
                self._expect("(")
                inner = self._inner()
                self._expect(")")
                [column] = inner.columns
                values = {row[column] for row in inner.rows}
                return lambda row, rows: left(row, rows) in values
            items = self._arguments()
            return lambda row, rows: any(
                _compare("==", left(row, rows), item(row, rows)) for item in items
            )
        return left

    def _operand(self) -> Expression:
        kind, token = self._take()
        if token == "-":
            value = self._operand()
            return lambda row, rows: -value(row, rows)
        if kind in ("string", "number", "datetime", "timespan", "null"):
            literal = _read_literal(kind, token)
            return lambda row, rows: literal
        if kind == "word" and self._peek() == "(":
            return self._call(token)
        self._next -= 1
        return self._path()

    def _path(self) -> Expression:
        name = self._column()
        keys = []
        while self._tokens[self._next][0] == "quoted":
            keys.append(_unquote(self._take()[1][1:-1]))

        def value(row: Row, _: Sequence[Row]) -> Any:
            member = row[name]
            for key in keys:
                member = member.get(key) if isinstance(member, dict) else None
            return member

        return value

    def _call(self, name: str) -> Expression:
        if name == "toscalar":
            first = self._inner()
            scalar = first.rows[0][first.columns[0]] if first.rows else None
            return lambda row, rows: scalar
        arguments = self._arguments()
        if name == "count" and not arguments:
            return lambda row, rows: len(rows)
        if name == "percentile":
            each, percent = arguments
            return lambda row, rows: _percentile(
                [v for member in rows if (v := each(member, ())) is not None], percent(row, rows)
            )
        if name in _AGGREGATES:
            [each] = arguments
            return lambda row, rows: _AGGREGATES[name](
                [value for member in rows if (value := each(member, ())) is not None]
            )
        if name not in _FUNCTIONS:
            raise KqlError(f"no function {name}")
        return lambda row, rows: _FUNCTIONS[name](*(value(row, rows) for value in arguments))

    def _arguments(self) -> list[Expression]:
        self._expect("(")
        arguments = [] if self._peek() == ")" else self._list(self._expression)
        self._expect(")")
        return arguments

    def _list(self, part: Callable[[], _Part]) -> list[_Part]:
        parts = [part()]
        while self._accept(","):
            parts.append(part())
        return parts

    # --- tokens -----------------------------------------------------------------------------------

    def _column(self) -> str:
        kind, token = self._take()
        name = _unquote(token[1:-1]) if kind == "quoted" else token
        if kind not in ("quoted", "word") or name not in self._columns:
            raise KqlError(f"no column {token}")
        return name

    def _word(self) -> str:
        kind, token = self._take()
        if kind != "word":
            raise KqlError(f"no name: {token}")
        return token

    def _peek(self) -> str:
        return self._tokens[self._next][1]

    def _take(self) -> tuple[str, str]:
        self._next += 1
        return self._tokens[self._next - 1]

    def _accept(self, token: str) -> bool:
        upcoming = self._tokens[self._next]
        if upcoming[0] in ("word", "symbol") and upcoming[1] == token:
            self._next += 1
            return True
        return False

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            raise KqlError(f"{token!r} expected, not {self._peek()!r}")


def _both(left: Expression, right: Expression) -> Expression:
    return lambda row, rows: left(row, rows) is True and right(row, rows) is True


def _is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _percentile(values: list[float], percent: float) -> float:
    """By the nearest rank."""
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1] if values else math.nan


def _arg_max(parts: Sequence[Expression], rows: Sequence[Row]) -> list[Any]:
    most, *_ = parts
    candidates = [row for row in rows if most(row, ()) is not None]
    if not candidates:
        return [None] * len(parts)
    best = max(candidates, key=lambda row: most(row, ()))
    return [part(best, ()) for part in parts]


def _read_literal(kind: str, token: str) -> Any:
    if kind == "string":
        return _unquote(token)
    if kind == "datetime":
        return datetime.fromisoformat(token[len("datetime(") : -1])
    if kind == "timespan":
        number, unit = re.fullmatch(r"(\d+)(\w+)", token).groups()  # type: ignore[union-attr]
        return timedelta(**{_UNITS[unit]: int(number)})
    if kind == "null":
        return None
    return float(token) if re.search(r"[.eE]", token) else int(token)
