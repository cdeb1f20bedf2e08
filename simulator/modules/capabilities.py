"""What a module declares it can and can't do."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from ..contract import ANY_ALLOCATION, STEPS, Allocation, PrimaryKey, Retention
from ..errors import OptionError
from ..units import format_count
from ..workloads import WORKLOADS
from ..workloads.queries import EXACT_PERCENTILES, Exactness, Function, Percentiles, Shape
from ..workloads.schema import Column, ColumnType, Schema, Tags


class Support(StrEnum):
    """Whether a module can do something."""

    FULL = "full"
    UNSUPPORTED = "unsupported"
    """The database can't."""
    MISSING = "missing"
    """The database can, but this module doesn't support it yet."""


@dataclass(frozen=True)
class RefusedText:
    """What texts can't contain."""

    pattern: str
    """A regular expression for it."""
    what: str
    """In words, between `it has` and the column."""
    why: str
    """After the column: the reason or remedy."""
    tags_only: bool = False
    """Whether texts of events can contain it."""


def find_refused_texts(refused_texts: Iterable[RefusedText], schema: Schema) -> Iterator[str]:
    """Which of that the workload's known texts contain, after `it has`: once per column."""
    for column in schema.columns:
        describes = column.tag or column.name == schema.device
        for refused in refused_texts:
            texts = column.texts if describes or not refused.tags_only else ()
            if any(re.search(refused.pattern, text) for text in texts):
                remedy = "use another value" + (", or skip it" if column.source else "")
                yield f"{refused.what} in {column.name}, {refused.why}: {remedy}"
                break


@dataclass(frozen=True)
class Client:
    """A client that inserts and queries (`Options.client`): the module's own path, `lean`, or a vendor's
    client."""

    writer: str = ""
    """`package.module:name` that creates the writer from the module; imported only on use. Empty: it can't
    insert."""
    asker: str = ""
    """The same for the asker, from the module and the number of queries in flight. Empty: it can't query."""
    packages: tuple[str, ...] = ()
    """Its distributions, besides `Module.PACKAGES`; the result stores their versions."""

    # What else is to be said of a vendor's client.
    ways: Mapping[str, str] = field(default_factory=dict)
    """Insert mode, as in `Options.mode` -> the bulk method that the vendor documents for it."""
    in_flight: bool = False
    """Whether a worker can have several inserts in flight: its threads share the client."""
    refused_texts: Collection[RefusedText] = ()
    """What texts of inserted events can't contain."""


@dataclass(frozen=True)
class Encoding:
    """One way in which a module can build payloads, for the ceiling."""

    label: str
    options: Mapping[str, str]
    batched: bool = True


@dataclass(frozen=True)
class Ageing:
    """How a module deletes old events."""

    way: str = ""
    """In words, after `older events are deleted by`; empty: it doesn't."""
    reason: str = "it doesn't delete by age yet"
    """Why it doesn't, after the module's name."""
    unit_ms: int = 1
    """Limits must be multiples of this."""

    def require(self, retention: Retention, module: str) -> None:
        """OptionError if the module can't do a retention."""
        if not self.way:
            raise OptionError(f"module {module} can't do --retention: {self.reason}")
        if retention.step_ms % self.unit_ms:
            least_h = STEPS * self.unit_ms / 3_600_000
            raise OptionError(
                f"module {module} deletes by {self.way}, which needs a --retention of {least_h:g}h or more"
            )


class Needed(NamedTuple):
    """The value a setting needs for an acknowledged event to be on disk."""

    values: tuple[str, ...]
    """Accepted values, case-insensitive; the first is recommended."""
    otherwise: str
    """When it is on disk with another value: a format string of settings. Empty: unknown."""

    def has(self, value: object) -> bool:
        """Whether a setting's value is one of them."""
        return str(value).lower() in map(str.lower, self.values)


class Acknowledged(NamedTuple):
    """The durability of an acknowledgement with certain settings."""

    on_disk: bool | None
    """Whether an event is on disk by then; None: unknown."""
    when: str
    """When it is on disk, or why that is unknown."""
    places: int | None
    """How many copies exist by then; None: unknown."""
    remedy: Mapping[str, str]
    """Setting -> the value that would put it on disk; empty if there is none."""


@dataclass(frozen=True)
class Durability:
    """When an acknowledged event is on disk, and in how many copies, by settings: options of the module, or
    from `server_info`."""

    needed: Mapping[str, Needed] = field(default_factory=dict)
    """Setting -> its requirement; all must be met."""
    never: str = ""
    """If there is no such setting: when an event is on disk; a format string of settings."""
    unknown: str = ""
    """If it is unknown: why."""
    count_places: Callable[[Mapping[str, Any]], int | None] = lambda settings: 1
    """Settings -> the number of copies before an event is acknowledged; None: unknown."""

    def judge(self, settings: Mapping[str, Any]) -> Acknowledged:
        """The durability of an acknowledgement. Missing settings are unknown."""
        counted = self.count_places(settings)
        # A result may be a stranger's.
        places = counted if isinstance(counted, int) else None
        if self.never:
            return Acknowledged(False, _fill(self.never, settings), places, {})
        if self.unknown:
            return Acknowledged(None, self.unknown, places, {})
        stated = {name: settings.get(name) for name in self.needed}
        remedy = {
            name: needed.values[0]
            for name, needed in self.needed.items()
            if stated[name] is not None and not needed.has(stated[name])
        }
        if remedy:
            first = next(iter(remedy))
            if when := _fill(self.needed[first].otherwise, settings):
                return Acknowledged(False, when, places, remedy)
            return Acknowledged(None, f"not known with {first}={stated[first]}", places, {})
        if untold := [name for name, value in stated.items() if value is None]:
            return Acknowledged(None, f"it didn't tell {' and '.join(untold)}", places, {})
        return Acknowledged(True, "before it is acknowledged", places, {})


def _fill(text: str, settings: Mapping[str, Any]) -> str:
    """A text with settings filled in; a missing one appears by name."""
    # No `str.format`, for which a dot in a name is an attribute.
    return re.sub(r"\{([^}]+)\}", lambda match: str(settings.get(match[1], match[1])), text)


@dataclass(frozen=True)
class OwnSchema:
    """Whether a workload may create a module's tables with its own statements."""

    language: str = ""
    """The language of these statements; empty: it takes none."""
    reason: str = "it doesn't take statements for its tables yet"
    """Why it takes none, after the module's name."""
    options: Collection[str] = ()
    """Options that shape the module's own tables, besides those that change the schema."""
    ages: bool = False
    """Whether old events can be deleted from tables that such statements create."""


@dataclass(frozen=True)
class Capabilities:
    """What a module can do. Command-line messages and the reference are generated from it."""

    insert_modes: Mapping[str, Support]
    primary_keys: Mapping[PrimaryKey, Support]
    indices: Support
    column_types: Collection[ColumnType] | Mapping[ColumnType, str]
    """Supported column types, preferably with the database's type."""
    multiple_tables: Support = Support.FULL
    """Whether events can be distributed over several tables (`--tables multiple`)."""
    queries: Mapping[str, Support] = field(default_factory=dict)
    """The queries of all workloads (`Schema.queries`), and variants that the module adds; by default what
    `shapes` allow."""
    tag_types: Mapping[ColumnType, str] = field(default_factory=dict)
    """Further types, with the database's type, that only the device and tags can have, since the database
    stores them per series and not per event."""
    in_flight: Mapping[str, Support] = field(default_factory=dict)
    """The insert modes, as in `Options.mode`, in which a worker can have several requests in flight. Others
    allow one."""
    repeated_timestamps: Support = Support.FULL
    """Whether a device may have several events at one time, as with `--timestamps restart`."""
    int32_range: tuple[int, int] = (-(2**31), 2**31 - 1)
    """The range of the type for INT32."""
    int64_range: tuple[int, int] = (-(2**63), 2**63 - 1)
    """The range of the type for INT64."""
    float64_digits: int | None = None
    """The significant digits of a FLOAT64 that are kept; None: all. A FLOAT64 without decimals has more."""
    most_columns: int | None = None
    """The most columns of a workload's table; None: as many as in a definition."""
    system_columns: Collection[str] = ()
    """Columns that every table has, whose names a workload can't use."""
    not_finite: bool = False
    """Whether NaN and infinite numbers are stored as they are."""
    missing_values: bool = True
    """Whether events without a value in a nullable column can be stored."""
    empty_texts: bool = True
    """Whether an empty text differs from a missing one, also in answers."""
    refused_texts: Collection[RefusedText] = ()
    """What texts can't contain, as far as a workload's are known in advance."""
    needs_value: bool = False
    """Whether an event must have a value besides time, device and tags."""
    tags_table: Support = Support.MISSING
    """Whether tags can be stored in a separate table, which queries join."""
    rounded: Collection[Function] = ()
    """What the database computes from integers in 64-bit floats: rounding beyond 2**53 isn't a wrong
    answer."""
    percentiles: Percentiles = EXACT_PERCENTILES
    """How it computes percentiles, if at all."""
    impossible_shapes: Collection[Shape] = ()
    """Shapes that the database itself can't answer."""
    ageing: Ageing = Ageing()
    """How it deletes what is older than `--retention`."""
    durability: Durability | None = None
    """The durability of an acknowledgement; None: not declared."""
    allocation: Allocation = ANY_ALLOCATION
    """The database's unit of allocation for a table, unless `Module.storage` knows it better."""
    shapes: Collection[Shape] = ()
    """The shapes of queries that `Module.compile` supports. None: only the module's own queries can be
    run."""
    dialects: Collection[str] = ()
    """Further names under which a workload may have its own statements for the module, each for one kind of
    server."""
    statements: str | None = None
    """The language of a workload's own statements for the module; None: it takes none."""
    own_schema: OwnSchema = OwnSchema()
    """Whether a workload may create the tables with its own statements."""

    def __post_init__(self) -> None:
        if not self.queries and self.shapes:
            object.__setattr__(self, "queries", self._claim_queries())

    @property
    def exactness(self) -> Exactness:
        """How exactly the database computes."""
        return Exactness(self.rounded, self.percentiles)

    def _claim_queries(self) -> dict[str, Support]:
        """Which of the workloads' own queries these shapes support."""

        def claim(needed: frozenset[Shape]) -> Support:
            if needed & frozenset(self.impossible_shapes):
                return Support.UNSUPPORTED
            return Support.FULL if needed <= frozenset(self.shapes) else Support.MISSING

        return {
            name: claim(workload.schema.shapes_of(query))
            for workload in WORKLOADS.values()
            for name in workload.schema.queries
            if (query := workload.schema.description(name)) is not None
        }

    def workload(self, schema: Schema) -> Support:
        """Whether events of this schema can be stored: it depends on their columns, and on where tags are."""
        if schema.tags is Tags.TABLE and self.tags_table is not Support.FULL:
            return self.tags_table
        if any(self._find_limits(schema)):
            return Support.UNSUPPORTED
        return Support.MISSING if any(self._find_gaps(schema)) else Support.FULL

    def _find_limits(self, schema: Schema) -> Iterator[str]:
        """What the database itself can't store, after `it has`: once per column."""
        yield from find_refused_texts(self.refused_texts, schema)
        if schema.repeated_instants and self.repeated_timestamps is not Support.FULL:
            yield (
                f"{format_count(schema.repeated_instants, 'event')} of a device and time that it had before,"
                " of which the database keeps one: set recorded.duplicates to drop"
            )
        for column in schema.columns:
            yield from self._find_number_limits(column)
            if column.name in self.system_columns:
                yield (f"a column {column.name}, which is the database's own: give it another name")
            describes = column.tag or column.name == schema.device
            if describes or column.name == schema.time:
                continue
            if column.type in self.tag_types:
                yield (
                    f"a column of type {column.type}, {column.name}, which the database can't store: only"
                    " the device and tags can have that type"
                )
            exact = column.type is not ColumnType.FLOAT64 or column.decimals is not None
            if self.float64_digits is not None and not exact:
                remedy = "take it `as: float32`" if column.source else "give the column `decimals`"
                yield (
                    f"floats of up to 17 digits in {column.name}, but the database keeps only"
                    f" {self.float64_digits}: {remedy}"
                )

    def _find_number_limits(self, column: Column) -> Iterator[str]:
        """Which known numbers of a column the database can't store, after `it has`."""
        if column.not_finite and not self.not_finite:
            yield (
                f"{column.not_finite:,} NaN or infinite numbers in {column.name}, which the database can't"
                f" store: set recorded.columns.{column.source} to `missing: [NaN, inf, -inf]`, or skip it"
            )
        ranges = {ColumnType.INT32: self.int32_range, ColumnType.INT64: self.int64_range}
        if column.type not in ranges or column.least is None or column.most is None:
            return
        least, most = ranges[column.type]
        if column.least < least or most < column.most:
            yield (
                f"numbers from {column.least} to {column.most} in {column.name}, but the database's end at"
                f" {least} and {most}: use `as: text`, or skip it"
            )

    def _find_gaps(self, schema: Schema) -> Iterator[str]:
        """Why the module can't store such events, after `it has`."""
        if self.most_columns is not None and len(schema.row) > self.most_columns:
            yield f"{len(schema.row):,} columns, but a table has {self.most_columns:,} at most"
        for column in schema.columns:
            if column.type not in {*self.column_types, *self.tag_types}:
                yield f"a column of type {column.type}, {column.name}, which the module doesn't map"
            if column.nullable and not self.missing_values:
                yield f"events without a value in {column.name}, which the module doesn't store"
            if column.nullable and "" in column.texts and not self.empty_texts:
                yield (
                    f"both empty and missing texts in {column.name}, which the database can't"
                    " distinguish: use another value for one of them"
                )
        named = (schema.time, schema.device)
        values = [
            column for column in schema.columns if not column.tag and column.name not in named
        ]
        if self.needs_value and all(column.nullable for column in values):
            yield "no column besides time, device and tags that is never missing"

    def require_workload(self, schema: Schema, name: str, module: str) -> None:
        """OptionError, with all reasons, if the workload's events can't be stored."""
        if problems := [*self._find_limits(schema), *self._find_gaps(schema)]:
            raise OptionError(
                *(f"module {module} can't do workload {name}: it has {each}" for each in problems)
            )
        self.require_tags(schema, module)

    def require_tags(self, schema: Schema, module: str) -> None:
        """OptionError if tags are in a separate table that the module can't join."""
        if schema.tags is Tags.TABLE:
            require(self.tags_table, "joins, for tags=table", module)


def support_keys(*kinds: PrimaryKey) -> dict[PrimaryKey, Support]:
    """Support for only these kinds of keys, since the database has no others."""
    return {kind: Support.FULL if kind in kinds else Support.UNSUPPORTED for kind in PrimaryKey}


def require(support: Support | None, feature: str, module: str) -> None:
    """OptionError unless `support` is full; None counts as missing."""
    if support is Support.UNSUPPORTED:
        raise OptionError(f"module {module}: the database has no {feature}")
    if support is not Support.FULL:
        raise OptionError(f"module {module} can't do {feature} yet")
