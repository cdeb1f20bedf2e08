"""As much of AQL as the module for ArangoDB uses, parsed and executed strictly: anything else is refused.

https://docs.arangodb.com/stable/aql/
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"[^"\\]*")|(?P<quoted>`[^`]+`)|(?P<bind>@@?\w+)|(?P<number>\d+(?:\.\d+)?)"""
    r"""|(?P<word>[A-Za-z_]\w*)|(?P<symbol>==|!=|>=|<=|[-\[\](),.+*%<>=]))"""
)
_KEYWORDS = {"FOR", "IN", "FILTER", "COLLECT", "AGGREGATE", "RETURN", "AND"}
_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: order(a) == order(b),
    "!=": lambda a, b: order(a) != order(b),
    ">=": lambda a, b: order(a) >= order(b),
    "<=": lambda a, b: order(a) <= order(b),
    ">": lambda a, b: order(a) > order(b),
    "<": lambda a, b: order(a) < order(b),
    "IN": lambda a, b: any(order(a) == order(item) for item in b),
}

Row = dict[str, Any]
Expression = Callable[[Row], Any]


class AqlError(Exception):
    """The query is none, or none that is known here."""


def order(value: Any) -> Any:
    """The order of values: https://docs.arangodb.com/stable/aql/fundamentals/type-and-value-order/"""
    if value is None:
        return (0,)
    if isinstance(value, bool):
        return (1, value)
    if isinstance(value, (int, float)):
        return (2, value)
    if isinstance(value, str):
        return (3, value)
    if isinstance(value, list):
        return (4, [order(item) for item in value])
    raise AqlError("objects are not compared here")


def _average(values: Sequence[Any]) -> Any:
    return sum(values) / len(values) if values else None


_AGGREGATES: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "MIN": lambda values: min(values, key=order, default=None),
    "MAX": lambda values: max(values, key=order, default=None),
    "AVERAGE": _average,
}


def execute(
    query: str, values: Mapping[str, Any], collections: Mapping[str, Sequence[Row]]
) -> list[Any]:
    """What the query returns; AqlError or KeyError (no such collection)."""
    return _Parser(query, values, collections).query()


class _Parser:
    def __init__(
        self, query: str, values: Mapping[str, Any], collections: Mapping[str, Sequence[Row]]
    ) -> None:
        self._tokens: list[tuple[str, str]] = []
        position = 0
        text = query.rstrip()
        while position < len(text):
            found = _TOKEN.match(text, position)
            if not found or found.lastgroup is None:
                raise AqlError(f"syntax error near {text[position : position + 20]!r}")
            kind, token = found.lastgroup, found[found.lastgroup]
            self._tokens.append(("keyword" if token in _KEYWORDS else kind, token))
            position = found.end()
        self._tokens.append(("end", ""))
        self._next = 0
        self._values, self._unused = values, set(values)
        self._collections = collections
        self._known: set[str] = set()

    # --- statements -------------------------------------------------------------------------------

    def query(self) -> list[Any]:
        rows: list[Row] = [{}]
        while not self._accept("RETURN"):
            if self._accept("FOR"):
                name = self._name()
                self._expect("IN")
                items = self._operand_of_for()
                self._known.add(name)
                rows = [{**row, name: item} for row in rows for item in items(row)]
            elif self._accept("FILTER"):
                condition = self._expression()
                rows = [row for row in rows if condition(row)]
            else:
                self._expect("COLLECT")
                rows = self._collected(rows)
        result = self._expression()
        if self._tokens[self._next][0] != "end" or self._unused:
            raise AqlError(f"something is left: {self._tokens[self._next][1]} {self._unused}")
        return [result(row) for row in rows]

    def _operand_of_for(self) -> Expression:
        kind, token = self._take()
        if kind == "bind" and token.startswith("@@"):
            name = self._bound(token[1:])
        elif kind == "word" and token not in self._known:
            name = token
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
        groups: dict[str, tuple[Row, list[Row]]] = {}
        for row in rows:
            values = {name: key(row) for name, key in keys.items()}
            groups.setdefault(repr(values), (values, []))[1].append(row)
        if not keys:
            # Without rows there is still one group.
            groups = groups or {"": ({}, [])}
        self._known = {*keys, *aggregates}
        return [
            values
            | {
                name: combine([value for row in members if (value := each(row)) is not None])
                for name, (combine, each) in aggregates.items()
            }
            for values, members in groups.values()
        ]

    def _assignments(self, right: Callable[[], Any]) -> list[tuple[str, Any]]:
        found = []
        while True:
            name = self._name()
            self._expect("=")
            found.append((name, right()))
            if not self._accept(","):
                return found

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
        left = self._comparison()
        while self._accept("AND"):
            left = _both(left, self._comparison())
        return left

    def _comparison(self) -> Expression:
        left = self._sum()
        if self._peek() in _COMPARISONS:
            return _applied(_COMPARISONS[self._take()[1]], left, self._sum())
        return left

    def _sum(self) -> Expression:
        left = self._product()
        while self._peek() in ("+", "-"):
            plus = self._take()[1] == "+"
            left = _applied(
                (lambda a, b: a + b) if plus else (lambda a, b: a - b), left, self._product()
            )
        return left

    def _product(self) -> Expression:
        left = self._path()
        while self._peek() in ("*", "%"):
            times = self._take()[1] == "*"
            left = _applied(
                (lambda a, b: a * b) if times else (lambda a, b: a % b), left, self._path()
            )
        return left

    def _path(self) -> Expression:
        value = self._primary()
        while True:
            if self._accept("."):
                value = _member(value, self._name())
            elif self._accept("["):
                value = _item(value, self._expression())
                self._expect("]")
            else:
                return value

    def _primary(self) -> Expression:
        kind, token = self._take()
        if kind == "number":
            number = float(token) if "." in token else int(token)
            return lambda row: number
        if kind == "string":
            return lambda row: token[1:-1]
        if kind == "bind" and not token.startswith("@@"):
            bound = self._bound(token[1:])
            return lambda row: bound
        if token == "[":
            items = self._list("]")
            return lambda row: [item(row) for item in items]
        if kind == "word" and self._accept("("):
            return self._function(token)
        if kind == "word" and token in self._known:
            return lambda row: row[token]
        raise AqlError(f"no value: {token}")

    def _function(self, name: str) -> Expression:
        if name == "LENGTH":
            kind, collection = self._take()
            self._expect(")")
            if kind != "word" or collection in self._known:
                raise AqlError("LENGTH of a collection only")
            count = len(self._collections[collection])
            return lambda row: count
        if name == "APPEND":
            first, second = self._list(")")
            return _applied(lambda a, b: [*a, *b], first, second)
        raise AqlError(f"unknown function {name}")

    def _list(self, end: str) -> list[Expression]:
        items = []
        while not self._accept(end):
            items.append(self._expression())
            if not self._accept(","):
                self._expect(end)
                break
        return items

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


def _applied(
    function: Callable[[Any, Any], Any], left: Expression, right: Expression
) -> Expression:
    return lambda row: function(left(row), right(row))


def _both(left: Expression, right: Expression) -> Expression:
    return lambda row: left(row) and right(row)


def _member(value: Expression, name: str) -> Expression:
    def member(row: Row) -> Any:
        found = value(row)
        return found.get(name) if isinstance(found, dict) else None

    return member


def _item(value: Expression, position: Expression) -> Expression:
    def item(row: Row) -> Any:
        found, wanted = value(row), position(row)
        return found[wanted] if isinstance(found, list) and wanted < len(found) else None

    return item
