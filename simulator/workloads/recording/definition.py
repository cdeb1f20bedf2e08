"""The definition of a recorded workload: the typed model of its YAML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field

from ...documents import Problem, refuse
from ..definition import Name, find_query_problems, read_statements
from ..queries import WRITTEN, Part, Query
from ..schema import Column, ColumnType, Schema
from .opening import open_recording
from .settings import Recorded
from .store import RecordedColumn, Recording, Tell, find_recording, tell_nobody

_MOST_KNOWN_TEXTS = 1000
"""The most texts of a column that the schema lists."""


class RecordedDefinition(Part):
    """A workload whose events are recorded ones."""

    name: Name
    """The name that `--workload` takes. Left out in config.yaml, where it is the key."""
    about: str = ""
    """What the workload is, in a line."""
    table: Name = "recorded"
    """The table's name."""
    recorded: Recorded
    """The file and what its columns are."""
    queries: tuple[Query, ...] = ()
    """Queries beside those of all workloads with numbers."""
    # pydantic's models have a `schema` of their own.
    statements: Annotated[Mapping[str, tuple[str, ...]], BeforeValidator(read_statements)] = Field(
        default_factory=dict, alias="schema"
    )
    """For each module, the statements that make the workload's table instead of the module's own."""

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Self:
        """The definition in a parsed YAML or JSON document. pydantic's ValidationError if it is wrong."""
        return cls.model_validate(document, context=WRITTEN)

    def open(self, base: Path | None = None, tell: Tell = tell_nobody) -> Recording:
        """The recording, converted if needed. OptionError if that is impossible."""
        if self.recorded.store is not None:
            return find_recording(self.recorded.store)
        return open_recording(self.recorded, base, tell)

    def check(self, recording: Recording) -> None:
        """Raise all problems of queries and statements, as `documents.refuse` does."""
        refuse(self._find_problems(recording))

    def _find_problems(self, recording: Recording) -> Iterator[Problem]:
        yield from find_query_problems(self.queries, self.statements, make_schema(self, recording))


def make_schema(definition: RecordedDefinition, recording: Recording) -> Schema:
    """The table of a recording, without queries."""
    header = recording.header
    names = _show_texts(recording.devices.tolist())
    return Schema(
        table=definition.table,
        columns=(
            Column(header.time, ColumnType.TIMESTAMP_MS),
            Column(header.device, ColumnType.TEXT, texts=names),
            *(_make_column(recording, column) for column in recording.columns),
        ),
        time=header.time,
        device=header.device,
        key=(header.device, header.time),
        devices_per_worker=header.devices,
        epoch_ms=header.first_ms,
        statements=definition.statements,
        repeated_instants=header.duplicates,
    )


def _make_column(recording: Recording, column: RecordedColumn) -> Column:
    texts: tuple[str, ...] = ()
    if column.distinct is not None and (
        column.type is not ColumnType.JSON or column.distinct <= _MOST_KNOWN_TEXTS
    ):
        known = recording.texts(column.name).all()
        # An empty text also stands in place of a missing value.
        texts = _show_texts([text for text in known.tolist() if text or column.empty])
    return Column(
        column.name,
        column.type,
        column.decimals,
        nullable=column.missing > 0,
        tag=column.tag,
        texts=texts,
        least=column.least,
        most=column.most,
        not_finite=column.not_finite,
        source=column.source,
    )


def _show_texts(texts: list[bytes]) -> tuple[str, ...]:
    """All texts; or, if there are many, those that a database may be unable to store: with other characters
    than letters and digits, empty, and the longest."""
    if len(texts) > _MOST_KNOWN_TEXTS:
        strange = [text for text in texts if not text.isalnum()][:_MOST_KNOWN_TEXTS]
        texts = [*strange, max(texts, key=len), *texts[:10]]
    return tuple(dict.fromkeys(text.decode() for text in texts))
