"""What an event takes on disk: known from growth by many units of allocation, or not at all."""

from __future__ import annotations

import pytest

from cli.results.caveats import Caveat, Kind
from cli.results.model import GroupRun
from cli.results.rules import find_unknown_sizes
from cli.results.summaries import EventSize, list_event_sizes, weigh_together
from cli.show.tables import tabulate_runs
from simulator.contract import Allocation, GroupResult, Level, Role, RunResult, Storage

from ..made import inserts

PAGES = Allocation(unit_bytes=1_000, cause="files grow by 1 kB at a time")


def size(
    events: int | None, total: int | None, level: Level | None = None, shared: bool = False
) -> Storage:
    return Storage(
        total_bytes=total, events=events, level=level, allocation=PAGES, event_bytes=25, shared=shared
    )  # fmt: skip


def run(
    storage: Storage | None, amid: Storage | None = None, fill_level: int = 0, number: int = 1
) -> GroupRun:
    events = (storage.events or 0) - fill_level if storage else 0
    group = GroupResult(
        role=Role.WRITE, workers=1, count=events, storage=storage, storage_during=amid
    )
    return GroupRun(RunResult(run=number, fill_level=fill_level, groups=[group]), group)


def test_an_event_takes_what_the_run_grew_by_since_its_middle() -> None:
    # A thousand bytes are there before the first event, so all bytes by all events would be 22.5.
    [event_size] = list_event_sizes([run(size(800, 18_000 + 10_000), size(400, 8_000 + 10_000))])
    assert event_size == EventSize(25.0)


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        pytest.param((100, 9_900), (800, 90_000), id="the lower level is too low"),
        pytest.param((400, 80_000), (800, 89_000), id="too little is between them"),
        pytest.param((400, 90_000), (800, 80_000), id="it shrank"),
        pytest.param((0, 20_000), (0, 40_000), id="of no events"),
        pytest.param((400, 80_000), (440, 120_000), id="what was allocated is for events to come"),
    ],
)
def test_levels_of_few_units_tell_nothing(lower: tuple[int, int], upper: tuple[int, int]) -> None:
    [event_size] = list_event_sizes([run(size(*upper), size(*lower))])
    assert event_size.bytes_per_event is None
    assert event_size.reason is not None


def test_preallocated_files_give_a_reason_and_how_many_events_it_takes() -> None:
    """As QuestDB: 168 MB for 71,100 events are no 2,363 bytes of each."""
    ahead = Allocation(unit_bytes=16_000_000, cause="files grow by 16 MB")
    storage = Storage(total_bytes=168_000_000, events=71_100, allocation=ahead, event_bytes=32)
    runs = [run(storage, storage.model_copy(update={"events": 30_000}))]
    [event_size] = list_event_sizes(runs)
    # 20 units by the 32 bytes that an event's values have.
    reason = "needs about 10,000,000 events or more: files grow by 16 MB"
    assert event_size == EventSize(reason=reason)
    assert list(find_unknown_sizes(runs)) == [Caveat(Kind.NOT_KNOWN, f"bytes per event: {reason}")]


def test_what_the_database_counts_itself_goes_before_all_bytes() -> None:
    """Files that are allocated ahead of their events are left out, on both levels."""
    amid = size(None, 90_000, Level(size_bytes=20_000, events=1_000))
    [event_size] = list_event_sizes(
        [run(size(3_000, 95_000, Level(size_bytes=40_000, events=2_000)), amid)]
    )
    assert event_size.bytes_per_event == 20.0


def test_a_step_is_compared_with_the_end_of_the_one_before_it() -> None:
    flushes = Storage(reason="it would be flushed")
    steps = [
        run(size(1_000, 30_000), flushes),
        run(size(2_000, 50_000), flushes, fill_level=1_000),
        run(size(3_000, 55_000), flushes, fill_level=2_000),
        run(size(4_000, 90_000), flushes, fill_level=1),
    ]
    sizes = list_event_sizes(steps)
    assert [event_size.bytes_per_event for event_size in sizes] == [None, 20.0, None, None]
    alone = "one fill level is not enough: it would be flushed; --steps gives more levels"
    assert [event_size.reason for event_size in sizes] == [
        alone, None, "needs about 6,000 events or more: files grow by 1 kB at a time", alone,
    ]  # fmt: skip
    table = tabulate_runs("On disk", inserts({}), steps, terminal=False)
    place = table.headers.index("B/event")
    assert [row[place] for row in table.rows] == ["-", "20.0", "-", "-"]


def test_indexes_and_what_compaction_leaves_have_their_share() -> None:
    whole = run(size(4_000, 80_000), size(2_000, 40_000))
    assert whole.group.storage is not None
    whole.group.storage.index_bytes = 20_000
    whole.group.storage_compacted = size(4_000, 60_000)
    [event_size] = list_event_sizes([whole])
    assert event_size == EventSize(20.0, index_bytes=5.0, compacted_bytes=15.0)
    assert (event_size.lasting_bytes, weigh_together([whole])) == (15.0, EventSize(15.0))


def test_one_level_tells_nothing_however_many_events_there_are() -> None:
    [event_size] = list_event_sizes([run(size(100_000, 2_500_000))])
    assert event_size.reason is not None
    assert event_size.reason.startswith(
        "one fill level is not enough: no size was measured during the run"
    )


def test_runs_of_one_kind_tell_it_together_where_none_does_alone() -> None:
    """As with a database that must be flushed: each run has a single level."""
    runs = [run(size(1_000, 40_000)), run(size(3_000, 80_000), number=2)]
    assert [event_size.bytes_per_event for event_size in list_event_sizes(runs)] == [None, None]
    assert weigh_together(runs) == EventSize(20.0)
    # Data of others may have come or gone between them.
    shared = [run(size(1_000, 40_000, shared=True)), run(size(3_000, 80_000, shared=True))]
    assert weigh_together(shared).bytes_per_event is None
    assert weigh_together(shared).reason is not None


def test_a_size_that_is_not_told_has_a_reason_of_its_own() -> None:
    runs = [run(None), run(Storage(reason="nobody knows")), run(size(None, None))]
    assert list_event_sizes(runs) == [EventSize()] * 3
