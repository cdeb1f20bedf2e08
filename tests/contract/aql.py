"""As much of AQL as the module for ArangoDB uses, parsed and executed strictly: anything else is refused.

https://docs.arangodb.com/stable/aql/
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")|(?P<quoted>`[^`\\]+`)|(?P<bind>@@?\w+)"""
    r"""|(?P<number>(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\w))"""
    r"""|(?P<word>[A-Za-z_]\w*)|(?P<symbol>==|!=|>=|<=|[-\[\](),.+*%<>=?:]))"""
)
# https://docs.arangodb.com/stable/aql/fundamentals/syntax/#keywords: as names they have to be quoted.
_KEYWORDS = {
    "AGGREGATE", "ALL", "ALL_SHORTEST_PATHS", "AND", "ANY", "ASC", "COLLECT", "DESC", "DISTINCT",
    "FALSE", "FILTER", "FOR", "GRAPH", "IN", "INBOUND", "INSERT", "INTO", "K_PATHS",
    "K_SHORTEST_PATHS", "LET", "LIKE", "LIMIT", "NONE", "NOT", "NULL", "OR", "OUTBOUND", "REMOVE",
    "REPLACE", "RETURN", "SHORTEST_PATH", "SORT", "TRUE", "UPDATE", "UPSERT", "WINDOW", "WITH",
}  # fmt: skip
_CONSTANTS = {"NULL": None, "TRUE": True, "FALSE": False}
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: order(a) == order(b),
    "!=": lambda a, b: order(a) != order(b),
    ">=": lambda a, b: order(a) >= order(b),
    "<=": lambda a, b: order(a) <= order(b),
    ">": lambda a, b: order(a) > order(b),
    "<": lambda a, b: order(a) < order(b),
    "IN": lambda a, b: any(order(a) == order(item) for item in b),
}

_ARITHMETIC: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: _number(a) + _number(b),
    "-": lambda a, b: _number(a) - _number(b),
    "*": lambda a, b: _number(a) * _number(b),
    "%": lambda a, b: _remainder(_number(a), _number(b)),
}

Row = dict[str, Any]
Expression = Callable[[Row], Any]


class AqlError(Exception):
    """Not a query, or one that isn't known here."""


def order(value: Any) -> tuple[Any, ...]:
    """The order of values. ArangoDB compares texts by the rules of a language, which are much like this.

    https://docs.arangodb.com/stable/aql/fundamentals/type-and-value-order/
    """
    if value is None:
        return (0,)
    if isinstance(value, bool):
        return (1, value)
    if isinstance(value, (int, float)):
        return (2, value)
    if isinstance(value, str):
        return (3, unicodedata.normalize("NFKD", value).casefold(), value)
    if isinstance(value, list):
        return (4, tuple(order(item) for item in value))
    raise AqlError("objects are not compared here")


def is_true(value: Any) -> bool:
    """https://docs.arangodb.com/stable/aql/functions/type-check-and-cast/#to_bool"""
    return value not in (None, False, 0, "")


def _number(value: Any) -> Any:
    """An operand of arithmetic: `null` is 0."""
    if value is None or isinstance(value, (bool, int, float)):
        return value or 0
    raise AqlError(f"no arithmetic with {value!r} here")


def _remainder(dividend: Any, divisor: Any) -> Any:
    """The remainder as for doubles, with the dividend's sign; None for a division by zero."""
    return math.fmod(dividend, divisor) if divisor else None


def _numbers(values: Sequence[Any]) -> list[Any] | None:
    """The values that are computed with; None if there is anything but numbers and `null`."""
    numbers = [value for value in values if value is not None]
    wrong = [v for v in numbers if isinstance(v, bool) or not isinstance(v, (int, float))]
    return None if wrong else numbers


def _sum(values: Sequence[Any]) -> float | None:
    """None without any event, and 0 if the values of all events are `null`."""
    numbers = _numbers(values)
    return None if numbers is None or not values else math.fsum(numbers)


def _average(values: Sequence[Any]) -> float | None:
    numbers = _numbers(values)
    return math.fsum(numbers) / len(numbers) if numbers else None


# What is computed of a group's values, `null` among them.
# https://docs.arangodb.com/stable/aql/high-level-operations/collect/#aggregation
_AGGREGATES: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "COUNT": len,
    "MIN": lambda values: min(
        (value for value in values if value is not None), key=order, default=None
    ),
    "MAX": lambda values: max(values, key=order, default=None),
    "SUM": _sum,
    "AVERAGE": _average,
}


def execute(
    query: str, values: Mapping[str, Any], collections: Mapping[str, Sequence[Row]]
) -> list[Any]:
    """What the query returns. Raises AqlError, or KeyError if there is no such collection."""
    return _Parser(query, values, collections).query()


class _Parser:
    def __init__(
        self, query: str, values: Mapping[str, Any], collections: Mapping[str, Sequence[Row]]
    ) -> None:
        self._tokens: list[tuple[str, str]] = []
        position = 0
        text = query.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if not match or match.lastgroup is None:
                raise AqlError(f"syntax error near {text[position : position + 20]!r}")
            kind, token = match.lastgroup, match[match.lastgroup]
            if kind == "word" and token.upper() in _KEYWORDS:
                kind, token = "keyword", token.upper()
            self._tokens.append((kind, token))
            position = match.end()
        self._tokens.append(("end", ""))
        self._next = 0
        self._values, self._unused = values, set(values)
        self._collections = collections
        self._known: set[str] = set()

    # --- statements -------------------------------------------------------------------------------

    def query(self) -> list[Any]:
        results = self._statements()
        if self._tokens[self._next][0] != "end" or self._unused:
            raise AqlError(f"something is left: {self._tokens[self._next][1]} {self._unused}")
        return results

    def _statements(self) -> list[Any]:
        """What the statements up to a RETURN return, those of the query or of a subquery."""
        rows: list[Row] = [{}]
        while not self._accept("RETURN"):
            if self._accept("FOR"):
                name = self._name()
                self._expect("IN")
                items = self._operand_of_for()
                self._declare(name)
                rows = [{**row, name: item} for row in rows for item in items(row)]
            elif self._accept("LET"):
                name = self._name()
                self._expect("=")
                value = self._expression()
                self._declare(name)
                rows = [{**row, name: value(row)} for row in rows]
            elif self._accept("FILTER"):
                condition = self._expression()
                rows = [row for row in rows if is_true(condition(row))]
            elif self._accept("SORT"):
                self._sort(rows)
            elif self._accept("LIMIT"):
                rows = rows[: self._limit()]
            else:
                self._expect("COLLECT")
                rows = self._collected(rows)
        result = self._expression()
        return [result(row) for row in rows]

    def _subquery(self) -> Expression:
        """A subquery that knows none of the variables around it, so its answer is the same for all rows."""
        outer, self._known = self._known, set()
        results = self._statements()
        self._known = outer
        return lambda row: results

    def _operand_of_for(self) -> Expression:
        kind, token = self._take()
        if kind == "bind" and token.startswith("@@"):
            name = self._bound(token[1:])
        elif kind in ("word", "quoted") and token.strip("`") not in self._known:
            name = token.strip("`")
        else:
            raise AqlError(f"no collection: {token}")
        documents = self._collections[name]
        return lambda row: documents

    def _collected(self, rows: list[Row]) -> list[Row]:
        keys: dict[str, Expression] = {}
        if self._peek() != "AGGREGATE":
            keys = dict(self._assignments(self._expression))
        aggregates = {}
        if self._accept("AGGREGATE"):
            aggregates = dict(self._assignments(self._aggregate))
        into: list[tuple[str, Expression]] = []
        if self._accept("INTO"):
            into = self._assignments(self._expression)
        groups: dict[tuple[Any, ...], tuple[Row, list[Row]]] = {}
        for row in rows:
            values = {name: key(row) for name, key in keys.items()}
            group = tuple(order(value) for value in values.values())
            groups.setdefault(group, (values, []))[1].append(row)
        if not keys:
            # Without rows there is still one group.
            groups = groups or {(): ({}, [])}
        self._known = set()
        for name in (*keys, *aggregates, *dict(into)):
            self._declare(name)
        return [
            values
            | {
                name: combine([each(row) for row in members])
                for name, (combine, each) in aggregates.items()
            }
            | {name: [each(row) for row in members] for name, each in into}
            for values, members in groups.values()
        ]

    def _sort(self, rows: list[Row]) -> None:
        places: list[tuple[Expression, bool]] = []
        while not places or self._accept(","):
            place = self._expression()
            descending = self._accept("DESC")
            if not descending:
                self._accept("ASC")
            places.append((place, descending))
        for place, descending in reversed(places):
            # Stable, also if reversed.
            rows.sort(key=_ordered(place), reverse=descending)

    def _limit(self) -> int:
        kind, token = self._take()
        if kind != "number" or not token.isdecimal():
            raise AqlError(f"LIMIT takes a number, not {token}")
        return int(token)

    def _assignments(self, right: Callable[[], Any]) -> list[tuple[str, Any]]:
        assignments = []
        while True:
            name = self._name()
            self._expect("=")
            assignments.append((name, right()))
            if not self._accept(","):
                return assignments

    def _aggregate(self) -> tuple[Callable[[Sequence[Any]], Any], Expression]:
        _, name = self._take()
        self._expect("(")
        each = self._expression()
        self._expect(")")
        if name not in _AGGREGATES:
            raise AqlError(f"unknown function {name} in AGGREGATE")
        return _AGGREGATES[name], each

    # --- expressions ------------------------------------------------------------------------------

    def _expression(self) -> Expression:
        condition = self._conjunction()
        if not self._accept("?"):
            return condition
        then = self._expression()
        self._expect(":")
        otherwise = self._expression()
        return lambda row: then(row) if is_true(condition(row)) else otherwise(row)

    def _conjunction(self) -> Expression:
        left = self._comparison()
        while self._accept("AND"):
            left = _both(left, self._comparison())
        return left

    def _comparison(self) -> Expression:
        left = self._sum()
        if self._accept("NOT"):
            self._expect("IN")
            among = _applied(_COMPARISONS["IN"], left, self._sum())
            return lambda row: not among(row)
        if self._peek() in _COMPARISONS:
            return _applied(_COMPARISONS[self._take()[1]], left, self._sum())
        return left

    def _sum(self) -> Expression:
        return self._arithmetic(("+", "-"), self._product)

    def _product(self) -> Expression:
        return self._arithmetic(("*", "%"), self._signed)

    def _arithmetic(self, signs: Sequence[str], operand: Callable[[], Expression]) -> Expression:
        """Operands with these signs between them, from left to right."""
        left = operand()
        while self._peek() in signs:
            function = _ARITHMETIC[self._take()[1]]
            left = _applied(function, left, operand())
        return left

    def _signed(self) -> Expression:
        if not self._accept("-"):
            return self._path()
        value = self._path()
        return lambda row: -_number(value(row))

    def _path(self) -> Expression:
        value = self._primary()
        while True:
            if self._accept("."):
                value = _member(value, self._name())
            elif self._accept("["):
                if self._accept("*"):
                    # What follows is done with each element.
                    self._expect("]")
                    self._expect("[")
                    value = _each(value, self._expression())
                else:
                    value = _item(value, self._expression())
                self._expect("]")
            else:
                return value

    def _primary(self) -> Expression:
        kind, token = self._take()
        if kind == "number":
            number = int(token) if token.isdecimal() else float(token)
            return lambda row: number
        if kind == "string":
            text = _read_text(token)
            return lambda row: text
        if kind == "keyword" and token in _CONSTANTS:
            return lambda row: _CONSTANTS[token]
        if kind == "bind" and not token.startswith("@@"):
            bound = self._bound(token[1:])
            return lambda row: bound
        if token == "[":
            items = self._list("]")
            return lambda row: [item(row) for item in items]
        if token == "(" and kind == "symbol":
            inner = self._subquery() if self._peek() == "FOR" else self._expression()
            self._expect(")")
            return inner
        if kind == "word" and self._accept("("):
            return self._function(token)
        if kind == "word" and token in self._known:
            return lambda row: row[token]
        raise AqlError(f"no value: {token}")

    def _function(self, name: str) -> Expression:
        if name == "LENGTH":
            collection = self._name()
            self._expect(")")
            if collection in self._known:
                raise AqlError("LENGTH of a collection only")
            count = len(self._collections[collection])
            return lambda row: count
        if name == "PERCENTILE":
            numbers, percent, method = self._list(")")
            return lambda row: _percentile(numbers(row), percent(row), method(row))
        if name in ("TO_STRING", "TO_HEX"):
            value = self._expression()
            self._expect(")")
            if name == "TO_HEX":
                return lambda row: _write_text(value(row)).encode().hex()
            return lambda row: _write_text(value(row))
        raise AqlError(f"unknown function {name}")

    def _list(self, end: str) -> list[Expression]:
        items = []
        while not self._accept(end):
            items.append(self._expression())
            if not self._accept(","):
                self._expect(end)
                break
        return items

    def _declare(self, name: str) -> None:
        if name in self._known:
            raise AqlError(f"variable {name} is assigned multiple times")
        self._known.add(name)

    # --- tokens -----------------------------------------------------------------------------------

    def _bound(self, name: str) -> Any:
        if name not in self._values:
            raise AqlError(f"no value for @{name}")
        self._unused.discard(name)
        return self._values[name]

    def _name(self) -> str:
        kind, token = self._take()
        if kind not in ("word", "quoted"):
            raise AqlError(f"no name: {token}")
        return token.strip("`")

    def _peek(self) -> str:
        kind, token = self._tokens[self._next]
        return token if kind in ("symbol", "keyword") else ""

    def _take(self) -> tuple[str, str]:
        self._next += 1
        return self._tokens[self._next - 1]

    def _accept(self, token: str) -> bool:
        if self._peek() != token:
            return False
        self._next += 1
        return True

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            raise AqlError(f"expected {token}, not {self._tokens[self._next][1]}")


def _write_text(value: Any) -> str:
    """https://docs.arangodb.com/stable/aql/functions/type-check-and-cast/#to_string"""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, bool) or not isinstance(value, int):
        raise AqlError("no text of anything but whole numbers here")
    return str(value)


def _read_text(token: str) -> str:
    """A text in double quotes, which has JSON's escapes."""
    try:
        # It may contain line breaks as they are.
        return str(json.loads(token, strict=False))
    except ValueError as error:
        raise AqlError(f"no text: {token}") from error


def _applied(
    function: Callable[[Any, Any], Any], left: Expression, right: Expression
) -> Expression:
    return lambda row: function(left(row), right(row))


def _ordered(value: Expression) -> Expression:
    return lambda row: order(value(row))


def _both(left: Expression, right: Expression) -> Expression:
    return lambda row: right(row) if is_true(left(row)) else left(row)


def _member(value: Expression, name: str) -> Expression:
    def member(row: Row) -> Any:
        document = value(row)
        return document.get(name) if isinstance(document, dict) else None

    return member


def _each(value: Expression, position: Expression) -> Expression:
    return lambda row: [item[position(row)] for item in value(row)]


def _percentile(values: Sequence[Any], percent: float, method: str) -> float | None:
    """https://docs.arangodb.com/stable/aql/functions/numeric/#percentile"""
    if method != "rank":
        raise AqlError(f"unknown method {method}")
    numbers = sorted(_numbers(values) or [])
    return numbers[math.ceil(percent * len(numbers) / 100) - 1] if numbers else None


def _item(value: Expression, position: Expression) -> Expression:
    def item(row: Row) -> Any:
        items, index = value(row), position(row)
        if isinstance(items, dict) and isinstance(index, str):
            return items.get(index)
        return items[index] if isinstance(items, list) and index < len(items) else None

    return item
