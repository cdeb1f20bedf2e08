"""VictoriaMetrics, single node.

An event becomes a sample in each of its device's series, one for each column; a table is a prefix of these
series' names. The option `import_format` selects lines of CSV, or lines of JSON, one for each series of a
request (`encoding.py`): by default JSON if requests have many events per device.

A sample is a time in ms and a float of 64 bits, of which the server keeps at least 12 significant digits. All
samples of a block share one decimal exponent: a value that is 10**18 times smaller than another near it
becomes 0. So truth values are 0 and 1, whole numbers are exact up to 2**53, and refused beyond; texts and
documents can only be labels, which describe the device.

**Exactly once.** A sample that the server gets twice is kept and counted twice, unless the server was started
with `-dedup.minScrapeInterval=1ms`. The module reads that from its flags. With it, a request whose outcome is
unknown is sent again. Without it, the writer first makes pending samples visible, looks up the request's
events until two look-ups agree, and sends the missing ones. One case is not covered then: a request that the
server was still processing after both answers is stored twice, which the count after the run shows. An
interval above 1 ms would drop events, and is refused. A device has one event at a time
(`Capabilities.repeated_timestamps`).

**What is dropped.** Samples older than `-retentionPeriod` or further ahead than `-futureRetention` (two days)
are dropped silently: a run with such events is refused if its times are known beforehand, and given up once
they occur. So is a run whose series have more labels than `-maxLabelsPerTimeseries` (40), or longer labels
than `-maxLabelValueLen` and `-maxLabelNameLen`.

**Visible.** A sample is visible some seconds after it was acknowledged; `/internal/force_flush`, which is
called before counting, makes samples visible, except for background work in progress. Queries use neither the
server's cache nor its latency offset. **On disk.** A sample is on disk within `-inmemoryDataFlushInterval` (5
s): there is no write-ahead log, so a server that is killed loses up to that much.

Deleted series are invisible at once, and on disk until their part is merged.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import Field

from ...conditions import ACCESS, Condition
from ...contract import CommaList, PrimaryKey, Storage
from ...encoding.columns import TEXTS
from ...errors import SimulatorError
from ...workloads.drawing import BoundQuery
from ...workloads.queries import Function
from ...workloads.schema import ColumnType
from ..base import (
    Ageing,
    Capabilities,
    Client,
    Durability,
    Encoding,
    Job,
    OwnSchema,
    Support,
    support_keys,
)
from ..kit.module import ConnectedModule, Found, missing_table, nothing_to_query
from ..kit.options import BATCH_MODES, BatchOptions, EndpointOptions, InFlightOptions, LoginOptions
from ..kit.series import field_columns, find_witness, has_labels, name_device, tag_columns
from ..options import LEAN, PAYLOAD
from .encoding import (
    ALL_TIME,
    DB,
    MOST_WHOLE,
    ChoosingEncoder,
    CsvEncoder,
    ImportEncoder,
    SeriesEncoder,
    name_metric,
)
from .forms import select_series, write_span
from .queries import IMPOSSIBLE, SHAPES, Question, compile_query
from .server import ALLOCATION, FIGURES_S, VISIBLE_S, Connection, Metrics, find_span


class ImportFormat(StrEnum):
    """The format of a request's body."""

    AUTO = "auto"
    """Depending on the request: JSON if it has many events per device."""
    CSV = "csv"
    """A line for each event."""
    JSON = "json"
    """A line for each series with samples in it."""


class VictoriaMetricsOptions(BatchOptions, InFlightOptions, EndpointOptions, LoginOptions):
    """Options of targets with `module: victoriametrics`."""

    EXAMPLE_URL: ClassVar[str] = "http://victoriametrics:8428"
    LOGIN: ClassVar[str] = "the options username and password"

    import_format: Annotated[ImportFormat, Condition.BATCH, PAYLOAD] = Field(
        ImportFormat.AUTO,
        description="csv (a line for each event), json (a line for each series of a request,"
        " which costs the server less), or auto: json if a request has 60 numbers or"
        " more per device, else csv",
    )
    db: Annotated[str | None, Condition.NONE, PAYLOAD] = Field(
        None,
        min_length=1,
        description="value of a label _db on all series, to separate them from others on the"
        " server (default: no such label)",
    )
    gzip: Annotated[bool, Condition.CLIENT, PAYLOAD] = Field(
        False, description="compress requests: less traffic for more of the client's CPU"
    )
    endpoint: Annotated[CommaList, Condition.NONE, ACCESS] = Field(
        min_length=1,
        max_length=1,
        description="URL of the server, e.g. http://victoriametrics:8428",
    )
    query_timeout_s: Annotated[float, Condition.NONE] = Field(
        3600,
        gt=0,
        description="how long a query may take; the server's own limit (-search.maxQueryDuration,"
        " 30 s by default) applies, too",
    )


_SETTINGS = (
    "retentionPeriod", "futureRetention", "dedup.minScrapeInterval", "inmemoryDataFlushInterval",
    "search.latencyOffset", "search.maxQueryDuration", "search.maxSamplesPerQuery",
    "search.maxConcurrentRequests", "search.maxWorkersPerQuery", "maxConcurrentInserts", "maxIngestionRate",
    "memory.allowedPercent", "memory.allowedBytes", "precisionBits", "maxLabelsPerTimeseries",
    "relabelConfig", "streamAggr.config",
    "storage.maxHourlySeries", "storage.maxDailySeries", "smallMergeConcurrency", "bigMergeConcurrency",
    "disablePerDayIndex",
)  # fmt: skip

_SAMPLE = "float64"

_ENCODERS: Mapping[ImportFormat, type[ImportEncoder]] = {
    ImportFormat.AUTO: ChoosingEncoder,
    ImportFormat.CSV: CsvEncoder,
    ImportFormat.JSON: SeriesEncoder,
}


class Victoriametrics(ConnectedModule[VictoriaMetricsOptions, Connection]):
    """VictoriaMetrics, over its HTTP API."""

    name = "victoriametrics"
    options_model = VictoriaMetricsOptions
    # The oldest version that was tested.
    OLDEST: ClassVar[Mapping[str, str]] = {"VictoriaMetrics": "1.79"}
    CONDITIONS: ClassVar[Mapping[str, Condition]] = {
        "inmemoryDataFlushInterval": Condition.DURABILITY,
    }
    CLIENTS: ClassVar[Mapping[str, Client]] = {
        LEAN: Client(
            f"{__name__}.server:VictoriaMetricsWriter",
            f"{__name__}.server:VictoriaMetricsAsker",
        )
    }
    CAPABILITIES = Capabilities(
        own_schema=OwnSchema(reason="it creates no tables, metrics come with events"),
        durability=Durability(
            never="within {inmemoryDataFlushInterval}: there is no write-ahead log"
        ),
        ageing=Ageing(reason="-retentionPeriod is a flag of the server, and uses today's date"),
        allocation=ALLOCATION,
        insert_modes=dict.fromkeys(BATCH_MODES, Support.FULL),
        primary_keys=support_keys(PrimaryKey.NONE),
        indices=Support.UNSUPPORTED,
        column_types={kind: _SAMPLE for kind in ColumnType if kind not in TEXTS},
        tag_types={ColumnType.TEXT: "label", ColumnType.JSON: "labels"},
        in_flight=dict.fromkeys(BATCH_MODES, Support.FULL),
        needs_value=True,
        # An empty label is the same as none.
        empty_texts=False,
        tags_table=Support.UNSUPPORTED,
        shapes=SHAPES,
        impossible_shapes=IMPOSSIBLE,
        repeated_timestamps=Support.UNSUPPORTED,
        int64_range=(-MOST_WHOLE, MOST_WHOLE),
        float64_digits=12,
        rounded=(Function.SUM,),
    )
    ENCODINGS = (
        Encoding("batch", {"insert_mode": "batch"}),
        Encoding("batch gzip", {"insert_mode": "batch", "gzip": "true"}),
        Encoding("batch json", {"insert_mode": "batch", "import_format": "json"}),
        Encoding("single", {"insert_mode": "single"}, batched=False),
    )

    # A flush doesn't wait for one that is running in the background.
    settle_s = VISIBLE_S

    @classmethod
    def encoder(cls, options: VictoriaMetricsOptions, job: Job) -> ImportEncoder:
        return _ENCODERS[options.import_format](job, options.gzip, options.db)

    ELSEWHERE = "another value of the option db"

    def connect(self) -> Connection:
        return Connection.connect(self.options, self.job)

    def prepare(self) -> None:
        self._check_flags(self.connection.read_flags())
        # A series that isn't visible yet would not be found.
        self.connection.flush()
        ours = self.claim_tables()
        if self.job.clean and ours:
            self.connection.delete(self._select(ours))

    def find_tables(self, names: Collection[str]) -> Mapping[str, Found]:
        list_metrics = self.connection.list_metrics
        return {name: Found(False) for name in names if list_metrics(self._select([name]))}

    def read_columns(self, table: str) -> Mapping[str, str]:
        labels = self.connection.list_labels(self._select([table]))
        return {name: "label" for name in labels if name not in ("__name__", DB)}

    def is_like_ours(self, table: str) -> bool:
        schema = self.job.schema
        unnamed = self.connection.list_metrics(self._select([table], devices=[""]))
        return has_labels(schema, self.read_columns(table)) and not unnamed

    def describe_schema(self) -> list[str]:
        return []  # series come with their first sample

    def _check_flags(self, metrics: Metrics | None) -> None:
        """SimulatorError if the server would drop events."""
        if metrics is None:
            return
        interval_ms = metrics.duration_ms("dedup.minScrapeInterval") or 0
        if interval_ms > 1:
            raise SimulatorError(
                f"VictoriaMetrics at {self.options.server} keeps one sample per {interval_ms} ms in a"
                " series, and would drop events: start it with -dedup.minScrapeInterval=1ms"
            )
        bits = metrics.flags.get("precisionBits", "64")
        if bits != "64":
            raise SimulatorError(
                f"VictoriaMetrics at {self.options.server} keeps {bits} bits of each number, and would"
                " alter values: start it without -precisionBits"
            )
        # The names of a series' labels, and all their texts that are known in advance.
        schema, db = self.job.schema, self.options.db
        names = ["__name__", *(column.name for column in tag_columns(schema))]
        names += [""] * (schema.json_keys - 1 if schema.device_path else 0) + [name_device(schema)]
        names += [DB] * (db is not None)
        texts = [text for column in schema.columns if column.tag for text in column.texts]
        for table in self.job.table_names:
            texts += [name_metric(table, column.name) for column in field_columns(schema)]
        texts.append(db or "")
        for flag, what, length in (
            ("maxLabelsPerTimeseries", "{:,} labels with the metric's name", len(names)),
            ("maxLabelNameLen", "labels with names of {:,} bytes", _longest(names)),
            ("maxLabelValueLen", "labels of {:,} bytes", _longest(texts)),
        ):
            limit = int(metrics.flags.get(flag, 0))
            if 0 < limit < length:
                raise SimulatorError(
                    f"VictoriaMetrics at {self.options.server} drops samples beyond -{flag}={limit}, and this"
                    f" workload has {what.format(length)}: start it with -{flag}={length}"
                )

    def times_taken(self) -> tuple[int, int] | None:
        span = find_span(self.connection.read_flags())
        return None if span is None else span.times_ms

    def _select(self, tables: list[str], devices: list[str] | None = None) -> str:
        columns = [column.name for column in field_columns(self.job.schema)]
        return select_series(self.job.schema, self.options.db, tables, columns, devices)

    def prepare_queries(self) -> None:
        self.connection.flush()
        if self.must_have_events and not self._is_there(self.connection, self.job.schema.table):
            raise nothing_to_query(self.job.schema.table, self.job)

    def require_events(self, connection: Connection) -> None:
        """SimulatorError if the queried table has no series but should have."""
        table = self.job.schema.table
        if self.must_have_events and not self._is_there(connection, table):
            raise missing_table(
                f"VictoriaMetrics at {self.options.server} has no series of {table}", self.job
            )

    def _is_there(self, connection: Connection, table: str) -> bool:
        witness = find_witness(self.job.schema)
        events = select_series(self.job.schema, self.options.db, [table], [witness])
        return bool(connection.list_metrics(events))

    def list_kept_apart(self) -> Sequence[str]:
        return [column.name for column in field_columns(self.job.schema)]

    def make_visible(self) -> None:
        self.connection.flush()

    def count(self) -> int:
        self.make_visible()
        schema = self.job.schema
        events = select_series(
            schema, self.options.db, self.job.table_names, [find_witness(schema)]
        )
        time_ms, window = write_span(*ALL_TIME)
        text = f"sum(count_over_time({events}{window}))"
        return sum(
            int(float(series["value"][1])) for series in self.connection.query(text, time_ms)
        )

    def storage(self) -> Storage:
        # Pending samples become parts.
        self.connection.flush()
        time.sleep(FIGURES_S)
        return self.connection.read_storage(self._count_others(), self._count_values())

    def storage_during(self) -> Storage:
        values = self._count_values()
        if values is None:
            return super().storage_during()  # the server counts samples, not events
        return self.connection.read_storage(self._count_others(), values)

    def _count_values(self) -> int | None:
        """Samples per event; None if some events have fewer."""
        fields = field_columns(self.job.schema)
        return None if any(column.nullable for column in fields) else len(fields)

    def _count_others(self) -> int:
        """Metrics on the server that aren't the job's."""
        schema = self.job.schema
        own = {
            name_metric(table, column.name)
            for table in self.job.table_names
            for column in field_columns(schema)
        }
        return len(set(self.connection.list_metrics()) - own)

    def compact(self) -> bool:
        self.connection.merge_parts()
        return True

    def compile(self, bound: BoundQuery) -> Question:
        return compile_query(bound, self.job.schema, self.options.db, self.job.schema.table)

    def describe_statement(self, statement: Question) -> str:
        return statement.describe()

    def server_info(self) -> dict[str, Any]:
        metrics = self.connection.read_flags()
        if metrics is None:
            # Only users with the key may read them.
            return {"version": "not shown", "settings": {"flags": "not shown"}}
        version = metrics.version or f"not reported, built with {metrics.built_by}"
        settings = {name: metrics.flags[name] for name in _SETTINGS if name in metrics.flags}
        return {"version": version, "settings": settings}


def _longest(texts: Sequence[str]) -> int:
    return max(len(text.encode()) for text in texts)
