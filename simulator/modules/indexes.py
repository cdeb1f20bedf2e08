"""Secondary indexes: the option that asks for them, and what a module that has them does.

They are paid for: inserts are measured with the indexes that queries go through, or building them is timed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, Field

from ..conditions import Condition
from .base import Module
from .options import Options, OptionsT


class CreateIndices(StrEnum):
    """When the indexes on device, time and temperature are made."""

    NO = "no"
    BEFORE = "before"
    """With the tables: all inserts pay for them."""
    AFTER = "after"
    """When the events are loaded, outside of what is measured: the time that it takes is kept."""


_WORDS = {
    "true": CreateIndices.BEFORE, "yes": CreateIndices.BEFORE, "on": CreateIndices.BEFORE,
    "1": CreateIndices.BEFORE,
    "false": CreateIndices.NO, "off": CreateIndices.NO, "0": CreateIndices.NO,
}  # fmt: skip
"""What the option could be when it was true or false."""


def _read_words(value: object) -> object:
    text = str(value).strip().lower()
    return _WORDS.get(text, text)


class IndexOptions(Options):
    """Whether tables have indexes besides that of the primary key."""

    create_indices: Annotated[CreateIndices, BeforeValidator(_read_words), Condition.SCHEMA] = (
        Field(
            CreateIndices.NO,
            description="indexes on device, time and temperature: no, before (made with the"
            " tables, so that inserts maintain them; true means the same) or after"
            " (built once the events are loaded, and timed); with them, queries for"
            " each device's newest event use the form that the indexes serve",
        )
    )

    @property
    def is_indexed(self) -> bool:
        """Whether queries find indexes."""
        return self.create_indices is not CreateIndices.NO


class IndexedModule(Module[OptionsT]):
    """A module whose options are `IndexOptions`."""

    @property
    @abstractmethod
    def index_names(self) -> Collection[str]:
        """Names of the indexes that the job's tables have with `create_indices`."""

    def describe_indexes(self) -> list[str]:
        """What `create_indexes` makes of all of them, as `describe_schema` has it."""
        return [*self.index_names]

    @abstractmethod
    def create_indexes(self, names: Collection[str]) -> None:
        """Make these of `index_names`, and wait until they are built."""

    @abstractmethod
    def drop_indexes(self, names: Collection[str]) -> None:
        """Drop these of `index_names`."""

    @abstractmethod
    def list_indexes(self) -> Mapping[str, str]:
        """Name -> table and columns of all indexes that the job's tables have, whoever made them."""
