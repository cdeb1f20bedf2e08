"""How to look into IoTDB's tree model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

from simulator.modules.base import Job
from simulator.modules.iotdb.connection import ServerError
from simulator.testing.events import Losses
from simulator.workloads.schema import ColumnType, EventBlock, Schema

from .iotdb import IotdbUnderTest


def quoted(name: str) -> str:
    """A node of a path. Not by the function of the code under test, as for the table model."""
    return "`" + name.replace("`", "``") + "`"


class IotdbTreeUnderTest(IotdbUnderTest):
    """A database of its own in the tree of an IoTDB server."""

    model: ClassVar = "tree"
    joins: ClassVar = False
    takes_statements: ClassVar = False
    tables_come_with_events: ClassVar = True
    tells_missing_tables: ClassVar = False

    @property
    def root(self) -> str:
        """The database's path."""
        return f"root.{self.database}"

    def make_database(self, stack: ExitStack) -> None:
        self.ask(
            f"CREATE DATABASE {self.root} WITH DATA_REGION_GROUP_NUM=1, SCHEMA_REGION_GROUP_NUM=1"
        )
        stack.callback(self.ask, f"DELETE DATABASE {self.root}")

    def makes_regions(self) -> bool:
        try:
            self.ask(f"INSERT INTO {self.root}.first.d(timestamp, v) ALIGNED VALUES (1, 1)")
        except ServerError:
            return False
        return True

    def read_back(self, schema: Schema, table: str) -> Sequence[Sequence[Any]]:
        names = list(self.expected_columns(schema))
        rows = self.ask(
            f"SELECT {', '.join(map(quoted, names))} FROM {self.root}.{quoted(table)}.* ALIGN BY DEVICE"
        )
        events = []
        for time, device, *values in rows:
            # No name of a device has a dot in it; one of other letters than those from a to z is quoted.
            event = {schema.device: device.rpartition(".")[2].strip("`"), schema.time: time}
            event |= dict(zip(names, values, strict=True))
            for column in schema.columns:
                if column.type is ColumnType.JSON and event[column.name] is not None:
                    event[column.name] = json.loads(event[column.name])
            events.append([event[column.name] for column in schema.columns])
        return events

    def tables(self) -> set[str]:
        rows = self.ask(f"SHOW CHILD PATHS {self.root}")
        return {path.rpartition(".")[2].strip("`") for path, *_ in rows}

    def columns(self, table: str) -> dict[str, str]:
        rows = self.ask(f"SHOW TIMESERIES {self.root}.{quoted(table)}.**")
        return {path.rpartition(".")[2].strip("`"): row[2] for path, *row in rows}

    def expected_columns(self, schema: Schema) -> dict[str, str]:
        apart = {schema.time} | ({schema.device} if schema.device_path is None else set())
        return {
            column.name: self.column_types[column.type]
            for column in schema.columns
            if column.name not in apart
        }

    def make_neighbour(self, name: str) -> object:
        self.ask(
            f"INSERT INTO {self.root}.{quoted(name)}.seven(timestamp, note) ALIGNED VALUES (7, 'keep me')"
        )
        return self.read_neighbour(name)

    def read_neighbour(self, name: str) -> object:
        return self.ask(f"SELECT note FROM {self.root}.{quoted(name)}.seven")

    def lose_values(self, job: Job, block: EventBlock, losses: Losses) -> None:
        for table in job.table_names:
            for device, names in losses.items():
                for name in names:
                    self.ask(f"DELETE FROM {self.root}.{quoted(table)}.{device}.{quoted(name)}")

    def clear(self) -> None:
        for table in self.tables():
            self.ask(f"DELETE TIMESERIES {self.root}.{quoted(table)}.**")
