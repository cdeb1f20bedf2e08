"""Every message between the command line, the collector and the workers: one pydantic model each.

Times are seconds on the sender's monotonic clock unless a name ends in another unit; no two
machines' wall clocks are ever compared: `began_at` and `ended_at` of a run are for its reader.

`settings` is what a run is told, `messages` what its processes tell each other, `report` what it
measured: the models of `result.json`.
"""

from __future__ import annotations

from .message import Bounded, Message
from .messages import (
    FAILURE_PREFIX,
    GAP_S,
    QUIET_S,
    REPORT_PREFIX,
    RUN_HEADER,
    STATUS_PREFIX,
    TOKEN_HEADER,
    TOO_EARLY,
    DatabaseUse,
    Failure,
    GivenAnswer,
    Go,
    GroupStatus,
    Phase,
    Progress,
    Ready,
    Stage,
    Status,
    StoredEvents,
    WorkerAnswers,
    WorkerFigures,
    WorkerOffer,
    WorkerQuery,
    WorkerResult,
)
from .report import (
    BOUND_PAUSE_SHARE,
    LEAST_JUDGED_S,
    Answers,
    Client,
    Execution,
    GroupResult,
    LatencyMs,
    Lateness,
    LongWindows,
    Lookup,
    Machine,
    Offered,
    Queryable,
    QueryResult,
    Report,
    RunResult,
    Verification,
    WorkerSpan,
    WorkerTimeline,
    WrongAnswer,
)
from .resources import Mark, Outage, Resources, SkippedFault
from .settings import (
    MAX_IN_FLIGHT,
    MAX_WORKERS,
    Arrivals,
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
    share,
    split_list,
)
from .storage import (
    ANY_ALLOCATION,
    MIB,
    Allocation,
    Level,
    Storage,
    estimate_events,
    measure_growth,
)
