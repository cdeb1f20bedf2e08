"""No database: encodes for another module and discards. What it reaches is the client's ceiling.

`delay_ms` and `--in-flight` make it a database of known speed, by which the measurement itself is
checked. Nothing is stored, so nothing can be stored twice: a request counts once `send` has returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from numpy.typing import NDArray

from ...contract import PrimaryKey, Storage
from ...errors import OptionError
from ...workloads.schema import ColumnType
from ..base import Capabilities, Job, Module, Support, require
from ..sending import Encoder
from .options import BlackholeOptions
from .writer import BlackholeWriter


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
        in_flight=dict.fromkeys(("batch", "single"), Support.FULL),
        missing_values=True,
        tags_table=Support.FULL,
    )
    ENCODINGS = ()

    def __init__(self, options: BlackholeOptions, job: Job) -> None:
        super().__init__(options, job)
        self.encoder(self.options, job, job.load.batch)

    @classmethod
    def encoder(cls, options: BlackholeOptions, job: Job, batch: int) -> Encoder:
        module, encoding = options.encoding()
        kinds = "events with columns of these types"
        module.CAPABILITIES.require_tags(job.schema, module.name)
        require(module.CAPABILITIES.workload(job.schema), kinds, module.name)
        return module.encoder(encoding, job, batch)

    def writer(self, batch: int, prefill: bool = False) -> BlackholeWriter:
        return BlackholeWriter(self.encoder(self.options, self.job, batch), self.options, self.job)

    def open(self) -> None:
        """Nothing to connect to."""

    def close(self) -> None:
        """Nothing to disconnect from."""

    def prepare(self) -> None:
        """Nothing to prepare."""

    def prepare_queries(self) -> None:
        raise OptionError("module blackhole stores nothing that could be queried")

    def store_devices(self, rows: Iterable[Mapping[str, NDArray[Any]]]) -> None:
        """Nothing is stored."""

    def count(self) -> None:
        """Nothing is stored, so nothing can be counted."""

    def storage(self) -> Storage:
        return Storage(reason="nothing is stored")

    def server_info(self) -> dict[str, Any]:
        return {"version": "none: payloads are discarded", "settings": {}}
