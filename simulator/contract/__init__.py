"""Every message between the command line, the collector and the workers: one pydantic model each.

Times are seconds on the sender's monotonic clock unless a name ends in another unit; no two
machines' wall clocks are ever compared: `began_at` and `ended_at` of a run are for its reader.

`settings` is what a run is told, `limits` what it is not to exceed, `messages` what its processes tell
each other, `figures` what workers measure and `report` what came of it: the models of `result.json`.
"""

from __future__ import annotations

from .figures import (
    GAP_S,
    CatchUp,
    Execution,
    LatencyMs,
    MinuteLatency,
    Offered,
    QueryResult,
    StageResult,
    WorkerFigures,
    WorkerSpan,
    WorkerTimeline,
)
from .limits import Measure, RunLimit
from .message import Bounded, Message
from .messages import (
    AFTER_HEADER,
    FAILURE_PREFIX,
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
    ProgressAnswer,
    QueryProgress,
    Ready,
    Stage,
    Status,
    StoredPart,
    WorkerAnswers,
    WorkerResult,
)
from .report import (
    BOUND_PAUSE_SHARE,
    LEAST_JUDGED_S,
    Answers,
    Client,
    EarlyEnd,
    GroupResult,
    Lateness,
    LongWindows,
    Lookup,
    Queryable,
    Report,
    RunResult,
    Verification,
    WrongAnswer,
)
from .resources import (
    ANY_ALLOCATION,
    MIB,
    STALL_S,
    Allocation,
    Level,
    Machine,
    Mark,
    Outage,
    Resources,
    SkippedFault,
    Stall,
    Storage,
    describe_stalls,
    estimate_events,
    is_stalled,
    measure_growth,
    sum_stalls_s,
)
from .retention import (
    SHORTEST_S,
    STEPS,
    Deletion,
    DeletionCost,
    IntervalFigures,
    Retention,
    RetentionResult,
    find_step_ms,
)
from .settings import (
    MAX_IN_FLIGHT,
    MAX_WORKERS,
    MOST_STAGES,
    Arrivals,
    CarriedState,
    CommaList,
    DataSet,
    FleetPause,
    Group,
    Load,
    PrimaryKey,
    RateStage,
    Role,
    RunSettings,
    Stages,
    Tables,
    Timestamps,
    fields_of,
    find_mean_rate,
    format_stages,
    make_groups,
    parse_stages,
    share,
    split_list,
    sum_durations_s,
)
