"""Every message between the command line, the collector and the workers: one pydantic model each.

Times are seconds on the sender's monotonic clock unless a name ends in another unit; no two
machines' wall clocks are ever compared.

`settings` is what a run is told, `messages` what its processes tell each other, `report` what it
measured: the models of `result.json`.
"""

from __future__ import annotations

from .message import Message
from .messages import (
    FAILURE_PREFIX,
    QUIET_S,
    REPORT_PREFIX,
    RUN_HEADER,
    STATUS_PREFIX,
    TOKEN_HEADER,
    TOO_EARLY,
    Failure,
    Go,
    Phase,
    Progress,
    Ready,
    Stage,
    Status,
    WorkerInsert,
    WorkerQueries,
    WorkerResult,
)
from .report import (
    Client,
    InsertRun,
    LatencyMs,
    Queryable,
    QueryRun,
    Report,
    Verification,
    WorkerSpan,
    WorkerTimeline,
)
from .settings import (
    MAX_WORKERS,
    Carried,
    CommaList,
    DataSet,
    Group,
    Load,
    PrimaryKey,
    Role,
    RunSettings,
    Tables,
    Timestamps,
    fields_of,
    make_groups,
    split_list,
)

__all__ = [
    "FAILURE_PREFIX",
    "MAX_WORKERS",
    "QUIET_S",
    "REPORT_PREFIX",
    "RUN_HEADER",
    "STATUS_PREFIX",
    "TOKEN_HEADER",
    "TOO_EARLY",
    "Carried",
    "Client",
    "CommaList",
    "DataSet",
    "Failure",
    "Go",
    "Group",
    "InsertRun",
    "LatencyMs",
    "Load",
    "Message",
    "Phase",
    "PrimaryKey",
    "Progress",
    "QueryRun",
    "Queryable",
    "Ready",
    "Report",
    "Role",
    "RunSettings",
    "Stage",
    "Status",
    "Tables",
    "Timestamps",
    "Verification",
    "WorkerInsert",
    "WorkerQueries",
    "WorkerResult",
    "WorkerSpan",
    "WorkerTimeline",
    "fields_of",
    "make_groups",
    "split_list",
]
