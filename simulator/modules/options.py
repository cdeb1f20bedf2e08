"""A module's input: its options, from a target, and the job of a run. Options are parsed from strings and
YAML values, with errors that name key and remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, ClassVar, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model

from ..conditions import Condition, Written
from ..contract import Load, Retention, Role, RunSettings, Tables
from ..errors import OptionError, unknown_option
from ..workloads import name_events
from ..workloads.schema import Schema, Tags

LEAN = "lean"
"""Value of the option `client`: inserts and queries use the module's own path, not a vendor's client."""

AnyOptions = TypeVar("AnyOptions", bound=BaseModel)
OptionsT = TypeVar("OptionsT", bound="Options")

HIDDEN = "***"
"""Stands for a secret."""


class InsertMode(StrEnum):
    """How events are sent. Each database has some of these modes."""

    SINGLE = "single"
    """A request per event."""
    BATCH = "batch"
    """One request per batch, for databases with a single method for any number of events."""
    COPY = "copy"
    """COPY FROM STDIN, one per batch."""
    VALUES_LISTS = "values_lists"
    """One INSERT with a list of values per batch."""
    TRANSACTION = "transaction"
    """An INSERT per event, committed once per batch."""
    STATEMENT = "statement"
    """An INSERT per event, each committed at once, where `single` means something else."""
    BULK = "bulk"
    """One bulk request per batch, whose events succeed or fail individually."""
    UNNEST = "unnest"
    """INSERT … SELECT FROM UNNEST with a list of values per column."""
    DOCUMENT = "document"
    """A document API with an array, one request per batch and collection."""
    IMPORT = "import"
    """An import API with JSON lines, one request per batch and collection."""
    QUEUED = "queued"
    """Files that the database loads once it has collected enough."""
    STREAMING = "streaming"
    """Requests that are stored at once."""


def among(*modes: InsertMode) -> BeforeValidator:
    """Marks an option that can be one of these modes."""

    def check(value: object) -> object:
        if value is None or value in modes:
            return value
        *others, last = (f"'{mode}'" for mode in modes)
        raise ValueError(f"Input should be {', '.join(others)} or {last}")

    return BeforeValidator(check)


PAYLOAD = object()
"""Marks an option that affects payloads: an encoder only needs these."""

_LOOPBACK = re.compile(r"^(?:127\.[\d.]+|\[?::1\]?)(?=:\d|$)")


class Options(Written):
    """Keys of a target and of `--extra-option`. A module's own options extend this class."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, allow_inf_nan=False)

    IN_FLIGHT: ClassVar[str | None] = None
    """The option for how many requests each worker may have in flight, if the module has one. `--in-flight`
    is the same for every module."""

    MODE: ClassVar[str] = "insert_mode"
    """The option for the insert mode, for a module that has several."""

    ADDRESSES: ClassVar[str] = "endpoint"
    """The option with the servers' addresses: URLs, `host:port`, host names, or a libpq connection string.
    Two commands must not use the same server at once."""

    client: Annotated[str, Condition.CLIENT] = Field(
        LEAN,
        description="how inserts and queries are sent: lean (the shortest path that the database"
        " documents) or official (the vendor's client, as its documentation recommends), if the module has"
        " it",
    )
    max_retries: Annotated[int, Condition.CLIENT] = Field(
        8, ge=0, description="retries of one request before the run fails"
    )
    database_timeout_s: Annotated[float, Condition.NONE] = Field(
        900,
        gt=0,
        description="time limit in s for preparing tables, counting events, or measuring size",
    )

    @classmethod
    def option_names(cls, values: Mapping[str, Any]) -> list[str]:
        """Names of all options that apply with these values, which may be wrong."""
        return list(cls.model_fields)

    @classmethod
    def list_addresses(cls, values: Mapping[str, Any]) -> list[str]:
        """`host`, `host:port` or a socket's folder of each server in these values, which may be wrong: always
        the same text for the same server."""
        value = values.get(cls.ADDRESSES)
        texts = value if isinstance(value, list) else [] if value is None else [value]
        names = [name.strip().lower() for text in texts for name in cls._split_addresses(str(text))]
        return list(dict.fromkeys(_LOOPBACK.sub("localhost", name) for name in names if name))

    @classmethod
    def _split_addresses(cls, text: str) -> list[str]:
        """The servers that one text of the option `ADDRESSES` names."""
        return [urlsplit(part.strip()).netloc.rpartition("@")[2] if "://" in part else part
                for part in text.split(",")]  # fmt: skip

    def secrets(self) -> list[str]:
        """Texts that must never be shown: what fields with `repr=False` hold."""
        return [secret for name in self._hidden() if (secret := getattr(self, name))]

    def mode(self, load: Load) -> InsertMode:
        """The insert mode of a load; OptionError if the options conflict with it."""
        return InsertMode.BATCH if load.batch else InsertMode.SINGLE

    def for_prefill(self) -> Self:
        """The options for the fastest inserts: neither by single events nor by a vendor's client."""
        changes: dict[str, Any] = {"client": LEAN}
        if getattr(self, self.MODE, None) == InsertMode.SINGLE:
            changes[self.MODE] = None
        return self.model_copy(update=changes)

    def login(self) -> dict[str, str]:
        """The authentication headers of an HTTP request."""
        return {}

    def in_flight(self, load: Load) -> int:
        """Requests that each worker may have in flight: what the load says, or else the target, or one. The
        target's option is about inserts: readers have what their load says, or one.

        Raises OptionError if load and target contradict each other, or if it is more than the module's
        own option allows.
        """
        requested, name = load.in_flight, self.IN_FLIGHT
        if name is None or load.role is Role.READ:
            return requested or 1
        own: int = getattr(self, name)
        if requested is None:
            return own
        if name in self.model_fields_set and own != requested:
            raise OptionError(
                f"--in-flight {requested} and the option {name}={own} contradict each other:"
                " choose one"
            )
        limits = type(self).model_fields[name].metadata
        most = min((limit.le for limit in limits if hasattr(limit, "le")), default=requested)
        if requested > most:
            raise OptionError(
                f"--in-flight may be {most} at most with this module, not {requested}"
            )
        return requested

    def public(self) -> dict[str, Any]:
        """The options as they may be shown and stored, with secrets masked."""
        shown = self.model_dump(mode="json", exclude_none=True)
        return shown | {name: HIDDEN for name in self._hidden() if name in shown}

    @classmethod
    def _hidden(cls) -> list[str]:
        return [name for name, field in cls.model_fields.items() if not field.repr]


def parse_options(
    model: type[AnyOptions],
    values: Mapping[str, Any],
    where: Callable[[str], str],
    more_known: Iterable[str] = (),
) -> AnyOptions:
    """Validated options; OptionError naming each wrong key, beginning with `where(key)`. Unknown keys come

    before missing ones, since they are probably misspellings of these. The error never shows a value, which

    could be a secret.
    """
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        details.sort(key=lambda detail: detail["type"] != "extra_forbidden")
        problems: dict[str, str] = {}
        for detail in details:
            key = str(detail["loc"][0]) if detail["loc"] else ""
            if detail["type"] == "extra_forbidden":
                problem = unknown_option(key, [*model.model_fields, *more_known])
            elif detail["type"] == "missing":
                description = model.model_fields[key].description
                problem = f"option {key} is missing ({description})"
            else:
                message = detail["msg"].removeprefix("Value error, ")
                message = message[:1].lower() + message[1:]
                # No key: it is several that don't fit together.
                problem = f"option {key}: {message}" if key else message
            problems.setdefault(key, f"{where(key)}: {problem}")
        raise OptionError(*problems.values()) from error


@cache
def _take_payload_fields(model: type[Options]) -> type[Options]:
    """A model of the options of every module plus those marked with `PAYLOAD`."""
    marked: dict[str, Any] = {
        name: (field.annotation, field)
        for name, field in model.model_fields.items()
        if PAYLOAD in field.metadata
    }
    return create_model(model.__name__, __base__=Options, **marked)


def list_payload_options(model: type[Options]) -> list[str]:
    """The options that `parse_payload_options` takes."""
    return list(_take_payload_fields(model).model_fields)


def parse_payload_options(
    model: type[OptionsT],
    values: Mapping[str, Any],
    where: Callable[[str], str] = str,
    more_known: Iterable[str] = (),
) -> OptionsT:
    """Options for an encoder, which needs no server: only those marked with `PAYLOAD`.
    Errors as in `parse_options`."""
    parsed: Options = parse_options(_take_payload_fields(model), values, where, more_known)
    options: Any = model.model_construct(parsed.model_fields_set, **dict(parsed))
    own: OptionsT = options
    return own


def choose_mode(
    option: str, mode: InsertMode | None, load: Load, single: InsertMode, default: InsertMode
) -> InsertMode:
    """The mode for a load: the requested one, or else `single` or `default`. OptionError, naming the option,

    if the requested one doesn't fit the batch.
    """
    if load.batch and mode is single:
        raise OptionError(f"{option}={mode} sends one event per request: leave --batch out")
    if not load.batch and mode not in (None, single):
        raise OptionError(f"{option}={mode} needs --batch N")
    return mode or (default if load.batch else single)


PREFILL_BATCH = 1000
"""Smallest batch of a prefill."""
TABLE_COUNT = 4
"""How many tables `--tables multiple` writes to."""


@dataclass(frozen=True, slots=True)
class Job:
    """A run's job for a module, apart from the module's own options."""

    schema: Schema
    load: Load = field(default_factory=Load)
    """The writers' load, with the readers' queries; in a run without writers, the readers' load."""
    run_id: str = "none"
    clean: bool = True
    target: str = "TARGET"
    """The target's name, for commands suggested in messages."""
    workload: str = "WORKLOAD"
    """What follows --workload in those commands."""
    program: str = "python run.py"
    """The beginning of those commands."""
    reads_by_clock: bool = False
    """Whether readers run in an open loop."""
    retention: Retention | None = None
    """How long events are kept; None: nothing is deleted."""

    @classmethod
    def of(cls, settings: RunSettings, schema: Schema, retention: Retention | None = None) -> Job:
        """The job of a run's settings."""
        writing = settings.groups_of(Role.WRITE, Role.FILL)
        load = (writing or settings.groups)[0].load
        for group in settings.groups_of(Role.READ):
            load = load.model_copy(update={"queries": group.load.queries})
        data = settings.data
        return cls(
            schema,
            load,
            settings.run_id,
            data.clean,
            settings.target,
            name_events(data),
            settings.program,
            any(group.load.rate_per_s is not None for group in settings.groups_of(Role.READ)),
            retention,
        )

    def change(self, **load: Any) -> Job:
        """The job with these changes to its load."""
        return replace(self, load=self.load.model_copy(update=load))

    def for_prefill(self) -> Job:
        """The job of inserts before a run, in large requests."""
        return self.change(role=Role.FILL, batch=max(PREFILL_BATCH, self.load.batch))

    @property
    def stamps_arrivals(self) -> bool:
        """Whether to use the kernel's time stamps of answers (`modules/sending.py`)."""
        return self.reads_by_clock or self.load.rate_per_s is not None

    @property
    def table_names(self) -> list[str]:
        """The tables written to; event i goes to table i modulo their number."""
        if self.load.tables is Tables.MULTIPLE:
            return [f"{self.schema.table}{number}" for number in range(TABLE_COUNT)]
        return [self.schema.table]

    @property
    def all_table_names(self) -> list[str]:
        """All tables that any run may have left behind."""
        numbered = [f"{self.schema.table}{number}" for number in range(TABLE_COUNT)]
        return [*numbered, self.schema.table]

    @property
    def tags_tables(self) -> list[str]:
        """The tags' table, if they have one."""
        return [self.schema.tags_table] if self.schema.tags is Tags.TABLE else []
