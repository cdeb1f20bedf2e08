"""What a module says it can do, and what it can't."""

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
    """The database could, this module doesn't yet."""


@dataclass(frozen=True)
class RefusedText:
    """What texts can't have."""

    pattern: str
    """A regular expression for it."""
    what: str
    """In words, after `it has`, and before the column."""
    why: str
    """After the column: why not, or else."""
    tags_only: bool = False
    """Whether texts of events can have it."""


def find_refused_texts(refused_texts: Iterable[RefusedText], schema: Schema) -> Iterator[str]:
    """What of that the workload's texts have, after `it has`, as far as they are known: once a column."""
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
    """By what a module inserts and asks (`Options.client`): its own path, `lean`, or a vendor's client."""

    writer: str = ""
    """`package.module:name` of what makes the writer, of the module; imported only to be used.
    Empty: it inserts nothing."""
    asker: str = ""
    """The same for what makes the asker, of the module and how many queries may be under way.
    Empty: it asks nothing."""
    packages: tuple[str, ...] = ()
    """Its distributions, besides `Module.PACKAGES`; the result keeps their versions."""

    # What else is to be said of a vendor's client.
    ways: Mapping[str, str] = field(default_factory=dict)
    """Insert mode, as `Options.mode` calls it -> the bulk way that the vendor documents for it."""
    in_flight: bool = False
    """Whether a worker can have several inserts in flight: its threads share the client."""
    refused_texts: Collection[RefusedText] = ()
    """What texts of events that it inserts can't have."""


@dataclass(frozen=True)
class Encoding:
    """One way in which a module can build payloads, for the ceiling."""

    label: str
    options: Mapping[str, str]
    batched: bool = True


@dataclass(frozen=True)
class Ageing:
    """How a module deletes what has become too old."""

    way: str = ""
    """In words, after `older events go by`; empty: it doesn't."""
    reason: str = "it doesn't delete by age yet"
    """Why it doesn't, after the module's name."""
    unit_ms: int = 1
    """Limits must be multiples of this."""

    def require(self, retention: Retention, module: str) -> None:
        """OptionError if the module can't keep to a retention."""
        if not self.way:
            raise OptionError(f"module {module} can't do --retention: {self.reason}")
        if retention.step_ms % self.unit_ms:
            least_h = STEPS * self.unit_ms / 3_600_000
            raise OptionError(
                f"module {module} deletes by {self.way}, which needs a --retention of {least_h:g}h or more"
            )


class Needed(NamedTuple):
    """What a setting must be for an acknowledged event to be on disk."""

    values: tuple[str, ...]
    """Each of them will do, in capitals or not; the first is what is advised."""
    otherwise: str
    """When it is on disk with another value, after these words: a format of settings. Empty: not known."""

    def has(self, value: object) -> bool:
        """Whether a setting's value is one of them."""
        return str(value).lower() in map(str.lower, self.values)


class Acknowledged(NamedTuple):
    """What an acknowledgement is worth with certain settings."""

    on_disk: bool | None
    """Whether an event is on disk by then; None: not known."""
    when: str
    """When it is on disk, after these words; where that isn't known, why not."""
    places: int | None
    """In how many places it is by then; None: not known."""
    remedy: Mapping[str, str]
    """Setting -> the value that would have it on disk; none if there is no such setting."""


@dataclass(frozen=True)
class Durability:
    """When an acknowledged event is on disk, and in how many places: by settings, which are options of the
    module or what `server_info` tells."""

    needed: Mapping[str, Needed] = field(default_factory=dict)
    """Setting -> what it must be; all of them must."""
    never: str = ""
    """If there is no such setting: when an event is on disk, after these words; a format of settings."""
    unknown: str = ""
    """If nothing tells it: why not."""
    count_places: Callable[[Mapping[str, Any]], int | None] = lambda settings: 1
    """Settings -> in how many places an event is before it is acknowledged; None: not known."""

    def judge(self, settings: Mapping[str, Any]) -> Acknowledged:
        """What an acknowledgement is worth. What isn't among the settings isn't known."""
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
    """A text with settings in it; one that isn't told stands there by its name."""
    # No `str.format`, for which a dot in a name is an attribute.
    return re.sub(r"\{([^}]+)\}", lambda match: str(settings.get(match[1], match[1])), text)


@dataclass(frozen=True)
class OwnSchema:
    """Whether a workload may make a module's tables by statements of its own."""

    language: str = ""
    """Of these statements; empty: it takes none."""
    reason: str = "it doesn't take statements for its tables yet"
    """Why it takes none, after the module's name."""
    options: Collection[str] = ()
    """Options that shape the module's own tables, besides those that change the schema."""
    ages: bool = False
    """Whether old events are deleted from whatever tables such statements make."""


@dataclass(frozen=True)
class Capabilities:
    """What a module can do. Messages of the command line and the README's table come from it."""

    insert_modes: Mapping[str, Support]
    primary_keys: Mapping[PrimaryKey, Support]
    indices: Support
    column_types: Collection[ColumnType] | Mapping[ColumnType, str]
    """The types of columns that the module has a type of its database for, best with that type's name."""
    multiple_tables: Support = Support.FULL
    """Whether events can be dealt to several tables (`--tables multiple`)."""
    queries: Mapping[str, Support] = field(default_factory=dict)
    """The queries of all workloads (`Schema.queries`), and variants that the module adds; by default what
    `shapes` allow."""
    tag_types: Mapping[ColumnType, str] = field(default_factory=dict)
    """Further types, which only the device and tags can have, as the database keeps them for a series and not
    for each event, with the database's type."""
    in_flight: Mapping[str, Support] = field(default_factory=dict)
    """The insert modes, as `Options.mode` calls them, in which a worker can have several requests in
    flight. A mode that isn't named holds one."""
    repeated_timestamps: Support = Support.FULL
    """Whether a device may have several events at one time, as with `--timestamps restart`."""
    int32_range: tuple[int, int] = (-(2**31), 2**31 - 1)
    """The smallest and the largest number that the type for INT32 holds."""
    int64_range: tuple[int, int] = (-(2**63), 2**63 - 1)
    """The smallest and the largest number that the type for INT64 holds."""
    float64_digits: int | None = None
    """How many significant digits of a FLOAT64 are kept at least; None: all. A FLOAT64 without decimals has
    more."""
    most_columns: int | None = None
    """How many columns a table can have for a workload; None: as many as a definition."""
    system_columns: Collection[str] = ()
    """Columns that every table has, so that none of a workload's can be called so."""
    not_finite: bool = False
    """Whether NaN and infinite numbers are stored as they are."""
    missing_values: bool = True
    """Whether events without a value in a nullable column can be stored."""
    empty_texts: bool = True
    """Whether an empty text of a column differs from a missing one, also in answers."""
    refused_texts: Collection[RefusedText] = ()
    """What texts can't have, as far as a workload's are known beforehand."""
    needs_value: bool = False
    """Whether an event must have a value besides its time, its device and tags."""
    tags_table: Support = Support.MISSING
    """Whether tags can be stored in a table of their own, which queries join."""
    rounded: Collection[Function] = ()
    """What the database computes of whole numbers in floats of 64 bits: beyond 2**53 it is rounded, which is
    no wrong answer."""
    percentiles: Percentiles = EXACT_PERCENTILES
    """How it finds percentiles, if it has any."""
    impossible_shapes: Collection[Shape] = ()
    """Shapes that the database itself can't answer."""
    ageing: Ageing = Ageing()
    """How it deletes what is older than `--retention`."""
    durability: Durability | None = None
    """What an acknowledgement is worth; None: the module doesn't say."""
    allocation: Allocation = ANY_ALLOCATION
    """What the database allocates at a time for a table, unless `Module.storage` knows it better."""
    shapes: Collection[Shape] = ()
    """What described queries may be made of, so that `Module.compile` can put them into the database's
    language. None: only the module's own queries can be asked."""
    dialects: Collection[str] = ()
    """Further names by which a workload may have statements of its own for the module, each for one kind of
    server."""
    statements: str | None = None
    """The language of statements that a workload may have of its own for the module; None: it takes none."""
    own_schema: OwnSchema = OwnSchema()
    """Whether a workload may make the tables by statements of its own."""

    def __post_init__(self) -> None:
        if not self.queries and self.shapes:
            object.__setattr__(self, "queries", self._claim_queries())

    @property
    def exactness(self) -> Exactness:
        """How exactly the database computes."""
        return Exactness(self.rounded, self.percentiles)

    def _claim_queries(self) -> dict[str, Support]:
        """Which of the workloads' own queries can be asked by these shapes."""

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
        """Whether events of this schema can be stored: it depends on their columns, and where tags are."""
        if schema.tags is Tags.TABLE and self.tags_table is not Support.FULL:
            return self.tags_table
        if any(self._find_limits(schema)):
            return Support.UNSUPPORTED
        return Support.MISSING if any(self._find_gaps(schema)) else Support.FULL

    def _find_limits(self, schema: Schema) -> Iterator[str]:
        """What the database itself can't store, after `it has`: once for each column."""
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
                    f"a column of type {column.type}, {column.name}, which the database can't store: only the"
                    " device and tags can have it"
                )
            exact = column.type is not ColumnType.FLOAT64 or column.decimals is not None
            if self.float64_digits is not None and not exact:
                remedy = "take it `as: float32`" if column.source else "give the column `decimals`"
                yield (
                    f"floats of up to 17 digits in {column.name}, but the database keeps only"
                    f" {self.float64_digits}: {remedy}"
                )

    def _find_number_limits(self, column: Column) -> Iterator[str]:
        """What of a column's known numbers the database can't store, after `it has`."""
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
                f" {least} and {most}: take it `as: text`, or skip it"
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
        """OptionError, with everything that is in the way, if the workload's events can't be stored."""
        if problems := [*self._find_limits(schema), *self._find_gaps(schema)]:
            raise OptionError(
                *(f"module {module} can't do workload {name}: it has {each}" for each in problems)
            )
        self.require_tags(schema, module)

    def require_tags(self, schema: Schema, module: str) -> None:
        """OptionError if tags are to be in a table of their own, and the module can't join it."""
        if schema.tags is Tags.TABLE:
            require(self.tags_table, "joins, for tags=table", module)


def support_keys(*kinds: PrimaryKey) -> dict[PrimaryKey, Support]:
    """Support for these kinds of keys, and for no others, as the database hasn't any."""
    return {kind: Support.FULL if kind in kinds else Support.UNSUPPORTED for kind in PrimaryKey}


def require(support: Support | None, feature: str, module: str) -> None:
    """OptionError unless `support` is full; None counts as missing."""
    if support is Support.UNSUPPORTED:
        raise OptionError(f"module {module}: the database has no {feature}")
    if support is not Support.FULL:
        raise OptionError(f"module {module} can't do {feature} yet")
