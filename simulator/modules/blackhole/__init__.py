"""No database: encodes for another module and discards the result. Its rate is the client's ceiling.

`delay_ms` and `--in-flight` make it a database of known speed, which is used to check the measurement itself.
Nothing is stored, so nothing can be stored twice: a request counts once its time is over.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Annotated, Any, ClassVar

from numpy.typing import NDArray
from pydantic import ConfigDict, Field

from ...conditions import Condition
from ...contract import PrimaryKey, Storage
from ...errors import OptionError
from ...workloads.schema import ColumnType
from .. import load_module
from ..base import (
    Ageing,
    AnyModule,
    Capabilities,
    Client,
    Durability,
    Job,
    Module,
    OwnSchema,
    Support,
    require,
)
from ..kit.options import InFlightOptions
from ..options import LEAN, Options, list_payload_options, parse_payload_options
from ..sending import CALLING, Completion, Encoder, Request, Writer


class BlackholeOptions(InFlightOptions):
    """Options of targets with `module: blackhole`, in addition to those of the encoder's payloads."""

    model_config = ConfigDict(extra="allow")

    encoder: Annotated[str, Condition.BATCH] = Field(
        "postgres", description="module whose payloads are built"
    )
    delay_ms: Annotated[float, Condition.CLIENT] = Field(
        0, ge=0, description="simulated duration of each request"
    )

    @classmethod
    def option_names(cls, values: Mapping[str, Any]) -> list[str]:
        own = super().option_names(values)
        try:
            module = load_module(str(values.get("encoder", cls.model_fields["encoder"].default)))
        except OptionError:
            return [*own, *values]  # that is the error to report
        return [*own, *list_payload_options(module.options_model)]

    def encoding(self) -> tuple[type[AnyModule], Options]:
        """The other module and the options for its encoder; OptionError if they don't fit."""
        module = load_module(self.encoder)
        own = set(Options.model_fields)
        values = {name: getattr(self, name) for name in own} | (self.model_extra or {})
        names = [name for name in type(self).model_fields if name not in own]

        def where(_: str) -> str:
            return f"encoder {self.encoder}"

        return module, parse_payload_options(module.options_model, values, where, names)


class BlackholeWriter(Writer):
    """Takes `delay_ms` for each request, however many are in flight."""

    def __init__(self, module: Blackhole) -> None:
        options, job = module.options, module.job
        super().__init__(module.encoder(options, job))
        self.max_in_flight = options.in_flight(job.load)
        self._delay_s = options.delay_ms / 1000
        self._held: deque[tuple[float, Request]] = deque()
        """When each request ends; in order."""

    def open(self) -> None:
        """Nothing to connect to."""

    def close(self) -> None:
        self._held.clear()

    def submit(self, request: Request) -> None:
        self._held.append((time.perf_counter() + self._delay_s, request))

    def poll(self, timeout_s: float) -> Sequence[Completion]:
        held, now = self._held, time.perf_counter()
        until = min(held[0][0] if held else inf, now + timeout_s)
        if until > now:
            time.sleep(until - now)
            now = time.perf_counter()
        ended = []
        while held and held[0][0] <= now:
            _, request = held.popleft()
            ended.append(Completion(request, request.events, now))
        return ended


class Blackhole(Module[BlackholeOptions]):
    """Stores nothing; the count is what a run's writers report as discarded."""

    name = "blackhole"
    CLIENTS: ClassVar[Mapping[str, Client]] = {LEAN: Client(f"{__name__}:BlackholeWriter", CALLING)}
    options_model = BlackholeOptions
    CAPABILITIES = Capabilities(
        own_schema=OwnSchema(reason="it stores nothing"),
        ageing=Ageing(reason="it stores nothing"),
        durability=Durability(never="never: nothing is stored", count_places=lambda settings: 0),
        insert_modes={"discard": Support.FULL},
        primary_keys=dict.fromkeys(PrimaryKey, Support.FULL),
        indices=Support.UNSUPPORTED,
        column_types=frozenset(ColumnType),
        in_flight=dict.fromkeys(("batch", "single"), Support.FULL),
        tags_table=Support.FULL,
    )
    ENCODINGS = ()

    def __init__(self, options: BlackholeOptions, job: Job) -> None:
        super().__init__(options, job)
        self.encoder(self.options, job)

    @classmethod
    def encoder(cls, options: BlackholeOptions, job: Job) -> Encoder:
        module, encoding = options.encoding()
        kinds = "events with columns of these types"
        module.CAPABILITIES.require_tags(job.schema, module.name)
        require(module.CAPABILITIES.workload(job.schema), kinds, module.name)
        return module.encoder(encoding, job)

    def open(self) -> None:
        """Nothing to connect to."""

    def close(self) -> None:
        """Nothing to disconnect from."""

    def prepare(self) -> None:
        """Nothing to prepare."""

    def prepare_queries(self) -> None:
        raise OptionError("module blackhole stores nothing to query")

    def store_devices(self, rows: Iterable[Mapping[str, NDArray[Any]]]) -> None:
        """Nothing is stored."""

    def count(self) -> None:
        """Nothing is stored, so nothing can be counted."""

    def storage(self) -> Storage:
        return Storage(reason="nothing is stored")

    def server_info(self) -> dict[str, Any]:
        return {"version": "none: payloads are discarded", "settings": {}}
