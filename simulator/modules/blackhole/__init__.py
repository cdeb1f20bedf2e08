"""No database: encodes for another module and discards. What it reaches is the client's ceiling.

`delay_ms` and `max_in_flight` make it a database of known speed, by which the measurement itself is
checked.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from ...conditions import Condition
from ...contract import PrimaryKey
from ...errors import OptionError
from ...workloads.base import ColumnType
from .. import load_module
from ..base import (
    AnyModule,
    Capabilities,
    Encoder,
    Job,
    Module,
    Options,
    Payload,
    Query,
    Support,
    Writer,
)
from ..options import parse_options


class BlackholeOptions(Options):
    """Options of targets with `module: blackhole`; those of the encoder's payloads come on top."""

    model_config = ConfigDict(extra="allow")

    encoder: Annotated[str, Condition.BATCH] = Field(
        "postgres", description="module whose payloads are built"
    )
    delay_ms: Annotated[float, Condition.CLIENT] = Field(
        0, ge=0, description="how long each request seems to take"
    )
    max_in_flight: Annotated[int, Condition.CLIENT] = Field(
        1, ge=1, le=1024, description="requests under way at once"
    )

    @classmethod
    def option_names(cls, values: Mapping[str, Any]) -> list[str]:
        own = super().option_names(values)
        try:
            module = load_module(str(values.get("encoder", cls.model_fields["encoder"].default)))
        except OptionError:
            return [*own, *values]  # that is the error to be told of
        return [*own, *module.encoding_options_model.model_fields]

    def encoding(self) -> tuple[type[AnyModule], Options]:
        """The other module and the options for its encoder; OptionError if they don't fit."""
        module = load_module(self.encoder)
        own = set(Options.model_fields)
        values = {name: getattr(self, name) for name in own} | (self.model_extra or {})
        known = [name for name in type(self).model_fields if name not in own]

        def where(_: str) -> str:
            return f"encoder {self.encoder}"

        return module, parse_options(module.encoding_options_model, values, where, known)


class Blackhole(Module[BlackholeOptions, BlackholeOptions]):
    """Stores nothing; the count is what the writers of a run say they discarded."""

    name = "blackhole"
    options_model = BlackholeOptions
    encoding_options_model = BlackholeOptions
    CAPABILITIES = Capabilities(
        insert_modes={"discard": Support.FULL},
        primary_keys=dict.fromkeys(PrimaryKey, Support.FULL),
        multiple_tables=Support.FULL,
        queries={},
        indices=Support.UNSUPPORTED,
        column_types=frozenset(ColumnType),
    )
    ENCODINGS = ()

    def __init__(self, options: BlackholeOptions, job: Job) -> None:
        super().__init__(options, job)
        self.encoder(self.options, job, job.load.batch)

    @classmethod
    def encoder(cls, options: BlackholeOptions, job: Job, batch: int) -> Encoder:
        module, encoding = options.encoding()
        return module.encoder(encoding, job, batch)

    def writer(self, batch: int, prefill: bool = False) -> BlackholeWriter:
        return BlackholeWriter(self.encoder(self.options, self.job, batch), self.options)

    def open(self) -> None:
        """Nothing to connect to."""

    def close(self) -> None:
        """Nothing to disconnect from."""

    def prepare(self) -> None:
        """Nothing to prepare."""

    def prepare_queries(self) -> None:
        raise OptionError("module blackhole stores nothing that could be queried")

    def count(self) -> None:
        """Nothing is stored, so nothing can be counted."""

    def workload_queries(self) -> Mapping[str, Query]:
        return {}

    def server_info(self) -> dict[str, Any]:
        return {"version": "none: payloads are discarded", "settings": {}}


class BlackholeWriter(Writer):
    """Takes `delay_ms` for each request."""

    def __init__(self, encoder: Encoder, options: BlackholeOptions) -> None:
        super().__init__(encoder)
        self.max_in_flight = options.max_in_flight
        self._delay_s = options.delay_ms / 1000

    def open(self) -> None:
        """Nothing to connect to."""

    def close(self) -> None:
        """Nothing to disconnect from."""

    def send(self, payload: Payload) -> int:
        if self._delay_s:
            time.sleep(self._delay_s)
        return payload.events
