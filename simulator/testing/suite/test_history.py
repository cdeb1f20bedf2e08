"""A history, and what follows it: stored, counted, recognized, and asked about together."""

from __future__ import annotations

from typing import Any

import pytest

from ...collector.lookup import look_up
from ...contract import Load, Lookup, StoredPart
from ...modules.base import await_count, connect
from ...oracle.answers import answer_all, compare_answers
from ...oracle.survey import (
    Beginning,
    OtherEvents,
    UnknownEvents,
    recognize_events,
    resume_history,
    survey_devices,
)
from ...workloads.base import Workload
from ...workloads.cpu import Cpu
from ...workloads.drawing import BoundQuery, Stored
from ...workloads.history import History, WithHistory
from ...workloads.queries import Query
from ..events import insert
from ..server import ServerUnderTest, batch_of, new_job
from .test_queries import make_settings, prepare_queries

SEED, DEVICES, STEPS, AFTER = 9, 5, 40, 60
EVERY_MS = 90_000
"""Eighteen times as long as from one event of a device to the next."""


def make_workload(every_ms: int = EVERY_MS) -> WithHistory:
    base = Cpu(seed=SEED, device_spread=DEVICES)
    return WithHistory(base, History(every_ms, STEPS, base.device_interval_ms))


_ASKED: list[dict[str, Any]] = [
    {"compute": [{"function": "count"}]},
    {
        "compute": [{"function": "count"}, {"function": "max", "column": "usage_user"}],
        "per": ["tags"],
    },
    {
        "compute": [{"function": "avg", "column": "usage_idle"}],
        "per": [{"every": "1m"}],
        "devices": ["w00000d000001", "w00000d000004"],
    },
    {"events": ["ts", "usage_user"], "devices": ["w00000d000002"]},
]
QUESTIONS = [
    Query.model_validate({"name": f"asked-{number}", "window": {"span": "10m"}, **question})
    for number, question in enumerate(_ASKED)
]


def test_a_history_and_what_follows_are_one(server: ServerUnderTest) -> None:
    workload = make_workload()
    if not server.can_hold(workload.schema):
        pytest.skip("the module doesn't store it")
    history = workload.count_history(0)
    job = new_job(workload.schema, batch=batch_of(server.module_type.ENCODINGS[0], 20))
    stored_events = history + AFTER
    with server.prepare(job) as module:
        with connect(server.module(job).for_prefill().writer()) as writer:
            insert(writer, workload, history)
        with connect(server.module(job).writer()) as writer:
            insert(writer, workload, AFTER, first=history)
        assert await_count(module.count, stored_events, module.settle_s) == stored_events
    with prepare_queries(server, workload) as module:
        try:
            inventory = survey_devices(module, workload)
        except UnknownEvents as error:
            pytest.skip(str(error))
        parts = [StoredPart(0, 0, stored_events)]
        assert recognize_events(module, workload, inventory).parts == parts
        resumed = resume_history(begin(job.load, workload), module)
        assert resumed.is_certain
        assert (resumed.first_of(0), resumed.prefill) == (stored_events, 0)
        with pytest.raises(OtherEvents, match="not the history's"):
            resume_history(begin(job.load, make_workload(2 * EVERY_MS)), module)
        stored = Stored(workload, parts)
        border_ms = int(workload.block(0, history, 1).columns["ts"][0])
        shapes = frozenset(module.CAPABILITIES.shapes)
        bounds = [
            BoundQuery(query, devices_of(query), border_ms + at, border_ms + at + 600_000)
            for query in QUESTIONS
            if workload.schema.shapes_of(query) <= shapes
            # In the history, across its end, and with its end alone.
            for at in (-3_000_000, -300_000, -600_000 + 5_000)
        ]
        for bound, right in zip(bounds, answer_all(bounds, stored), strict=True):
            assert len(right)
            assert compare_answers(right, module.fetch(module.compile(bound))) is None, bound
        # Of the history nothing is looked up.
        assert look_up(module, workload, parts, border_ms) == Lookup(
            events=AFTER, missing=0, doubled=0, per_group=1
        )

    # A run that left a gap: the next one goes on behind all that is there, and knows that it doesn't know.
    far = stored_events + 20 * DEVICES
    with connect(server.module(job).writer()) as writer:
        insert(writer, workload, DEVICES, first=far)
    with prepare_queries(server, workload) as module:
        assert await_count(module.count, stored_events + DEVICES, module.settle_s)
        resumed = resume_history(begin(job.load, workload), module)
        assert not resumed.is_certain
        assert resumed.first_of(0) >= far + DEVICES


def begin(load: Load, workload: Workload) -> Beginning:
    """The beginning of a run with one writer."""
    return Beginning(make_settings("m", load), workload)


def devices_of(query: Query) -> tuple[str, ...] | None:
    return query.devices if isinstance(query.devices, tuple) else None


def test_the_questions_find_both() -> None:
    workload: Workload = make_workload()
    count = STEPS * DEVICES
    block = workload.block(0, count - DEVICES, 2 * DEVICES)
    times = block.columns["ts"].tolist()
    assert times[DEVICES] - times[0] == EVERY_MS
    assert times[DEVICES + 1] - times[DEVICES] == 1000
