"""Disturbances: how they are written, when they are done, and how they end."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path

import pytest
from kubernetes.client import Configuration

from cli.plan.disturbances import (
    Action,
    Disturbance,
    add_pauses,
    check_disturbances,
    check_pauses,
    check_times,
    parse_disturbance,
)
from cli.run.executors.kubernetes import PodFaultInjector, matches_own_pods
from cli.run.faults import ENDED, FaultInjector
from cli.run.kubeclient import KubeClient
from cli.system.errors import ConfigError, RunFailed
from cli.system.processes import Interrupted, Interrupts
from simulator.contract import FleetPause, Load, Mark, Phase, SkippedFault, Status

from ....helpers import eventually

RUNNING = Status(phase=Phase.RUN, age_s=1.0, elapsed_s=0.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s delete-pods app=db", Disturbance(30.0, Action.DELETE_PODS, "app=db")),
        ("1.5m restart statefulset/db", Disturbance(90.0, Action.RESTART, "statefulset/db")),
        ("5 kill-server", Disturbance(5.0, Action.KILL_SERVER, "")),
        ("500ms scale deployment/db 0", Disturbance(0.5, Action.SCALE, "deployment/db 0")),
        ("2s run: echo a; exit 1", Disturbance(2.0, Action.RUN, "echo a; exit 1")),
        ("60s pause-fleet 30s", Disturbance(60.0, Action.PAUSE_FLEET, "30s")),
    ],
)
def test_what_is_written(text: str, expected: Disturbance) -> None:
    assert parse_disturbance(text) == expected
    assert parse_disturbance(str(expected)) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("restart-server", "write when and what"),
        ("30s restart-servr", "did you mean restart-server"),
        ("30s delete-pods", "write '30s delete-pods LABEL=VALUE'"),
        ("30s scale deployment/db", "write '30s scale KIND/NAME REPLICAS'"),
        ("30s kill-server now", "write '30s kill-server'"),
        ("restart db", "as in '30s restart db'"),
        ("30s restart db", "did you mean statefulset/db or deployment/db"),
        ("30s restart statefulst/db", "did you mean statefulset"),
        ("30s restart deployment/db 2", "did you mean scale"),
        ("30s scale deployment/db two", "write a number of replicas, as in deployment/db 0"),
        ("30s scale deployment/db in databases", "write a number of replicas"),
        ("30s scale daemonset/db 2", "can't be scaled"),
        ("30s pause-fleet", "write '30s pause-fleet DURATION'"),
        ("30s pause-fleet soon", "write how long it is cut off, as in '30s pause-fleet 30s'"),
        ("30s pause-fleet 0s", "write how long it is cut off"),
    ],
)
def test_what_is_not_understood(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_disturbance(text)


def test_what_can_not_be_done_here() -> None:
    with pytest.raises(ConfigError, match="needs --executor kubernetes; possible here: run"):
        check_disturbances([parse_disturbance("1s delete-pods a=b")], [Action.RUN])
    with pytest.raises(ConfigError, match="needs a server started by this tool"):
        check_disturbances([parse_disturbance("1s kill-server")], [Action.RUN])


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("app=postgresql", False),
        ("app.kubernetes.io/name=postgresql,app.kubernetes.io/component=primary", False),
        ("app.kubernetes.io/name=iot-database-benchmark", True),
        ("app.kubernetes.io/component in (primary, worker)", True),
        ("app.kubernetes.io/component in (primary, worker), app == db", False),
        ("iot-database-benchmark/run", True),
        ("!iot-database-benchmark/run", False),
        ("app!=web", True),
        ("app notin (web, api)", True),
        ("!app", True),
        ("app.kubernetes.io/name!=iot-database-benchmark", False),
        ("app.kubernetes.io/component notin (worker)", True),
    ],
)
def test_selectors_that_have_the_pods_of_runs_too(selector: str, matches: bool) -> None:
    assert matches_own_pods(selector) is matches


def disturb(
    *texts: str,
    doer: Callable[[str], None] = lambda _: None,
    interrupts: Interrupts | None = None,
    end_patience_s: float = 60.0,
) -> FaultInjector:
    actions = dict.fromkeys((Action.KILL_SERVER, Action.RESTART_SERVER), doer)
    disturbances = [parse_disturbance(text) for text in texts]
    return FaultInjector(disturbances, actions, interrupts or Interrupts(), end_patience_s)


def test_they_are_done_in_their_time_and_marked() -> None:
    done: list[float] = []

    def fail_the_second(_: str) -> None:
        done.append(time.monotonic())
        if len(done) == 2:
            raise RunFailed("no such server")

    with disturb("200ms kill-server", "100ms restart-server", doer=fail_the_second) as injector:
        began = time.monotonic()
        injector.follow(Status(phase=Phase.PREPARE, age_s=1.0))
        injector.follow(RUNNING)
        eventually(lambda: len(injector.marks) == 2, "both are done")
    first, second = injector.marks
    assert (first.action, first.ok) == ("0.1s restart-server", True)
    assert (second.action, second.ok, second.said) == ("0.2s kill-server", False, "no such server")
    assert first.at_s >= 0.1
    assert done[0] - began >= 0.1
    assert 0.2 <= second.at_s <= (second.ended_s or 0)


def test_a_command_that_outlasts_the_run_is_ended() -> None:
    with disturb("0 run sleep 60") as injector:
        injector.follow(RUNNING)
        eventually(injector.list_marks, "it has begun")
        assert [(mark.action, mark.ended_s) for mark in injector.list_marks()] == [
            ("0s run sleep 60", None)
        ]
        began = time.monotonic()
    assert time.monotonic() - began < 30
    [mark] = injector.list_marks()
    assert not mark.ok
    assert "and was stopped" in (mark.said or "")


UNDOING = (
    # As a script that takes a rule of tc back; by a process of the shell's, which ends at once.
    f"{sys.executable} -c 'import pathlib, signal, sys, time; rule = pathlib.Path(sys.argv[1]);"
    " signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), rule.unlink(), sys.exit()));"
    ' rule.touch(); signal.pause()\' "$RULE" & wait'
)


@pytest.mark.parametrize("end", [None, Interrupted(signal.SIGINT), RunFailed("killed")])
def test_a_command_that_outlasts_the_run_can_undo_what_it_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: BaseException | None
) -> None:
    rule = tmp_path / "rule"
    monkeypatch.setenv("RULE", str(rule))
    with (
        suppress(Interrupted, RunFailed),
        disturb(f"0 run {UNDOING}") as injector,
    ):
        injector.follow(RUNNING)
        eventually(rule.exists, "it has begun")
        if end is not None:
            raise end
    assert not rule.exists()
    assert injector.marks[0].said == ENDED


STUBBORN = "0 run trap '' TERM; touch $RULE; while :; do sleep 0.1; done"


def test_a_command_that_does_not_end_is_killed_after_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = tmp_path / "rule"
    monkeypatch.setenv("RULE", str(rule))
    with disturb(STUBBORN, end_patience_s=0.5) as injector:
        injector.follow(RUNNING)
        eventually(rule.exists, "it has begun")
        began = time.monotonic()
    assert 0.5 <= time.monotonic() - began < 30


def test_a_second_interrupt_kills_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = tmp_path / "rule"
    monkeypatch.setenv("RULE", str(rule))
    with Interrupts() as interrupts:
        hurry = threading.Timer(0.5, interrupts.hurry.set)
        injector = disturb(STUBBORN, interrupts=interrupts, end_patience_s=600.0)
        with suppress(Interrupted), injector:
            injector.follow(RUNNING)
            eventually(rule.exists, "it has begun")
            hurry.start()
            raise Interrupted(signal.SIGINT)
    hurry.join()
    assert injector.marks[0].said == ENDED


@pytest.mark.parametrize(
    ("how", "end"),
    [("exit 3", "it ended with status 3"), ("kill -9 $$", "it was ended by SIGKILL")],
)
def test_a_command_that_fails_says_why(how: str, end: str) -> None:
    with disturb(f"0 run: echo it broke >&2; {how}") as injector:
        injector.follow(RUNNING)
        eventually(lambda: injector.marks, "it is done")
    assert injector.marks[0].said == f"{end}; output: it broke"


def test_a_command_that_leaves_a_server_running_has_ended() -> None:
    with disturb("0 run sleep 99 & echo it is up") as injector:
        injector.follow(RUNNING)
        eventually(lambda: injector.marks, "it is done")
    (mark,) = injector.marks
    assert mark.ok
    assert (mark.ended_s or inf) - mark.at_s < 60


def test_a_command_that_an_interrupt_ends_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> None:
        with disturb("0 run true", "100ms run sleep 60", "60s kill-server") as injector:
            injector.follow(RUNNING)
            eventually(lambda: len(injector.list_marks()) == 2, "the second has begun")
            raise Interrupted(signal.SIGINT)

    with pytest.raises(Interrupted):
        interrupt()
    assert capsys.readouterr().err == "'0.1s run sleep 60' was still running and was stopped\n"


def test_what_comes_after_the_end_is_kept_as_undone() -> None:
    with disturb("1m kill-server", "0 run true") as injector:
        injector.follow(RUNNING)
        eventually(lambda: injector.marks, "the first is done")
    assert [mark.action for mark in injector.marks] == ["0s run true"]
    late = SkippedFault(due_s=60.0, action="60s kill-server", reason="the run ended first")
    assert injector.undone == [late]


def test_none_begins_when_the_load_is_over() -> None:
    # No command of the first: a busy machine may take as long to start one as the second is away.
    with disturb("0 restart-server", "500ms kill-server") as injector:
        injector.follow(RUNNING)
        eventually(lambda: injector.marks, "the first is done")
        injector.follow(Status(phase=Phase.VERIFY, age_s=2.0))
        time.sleep(0.7)
    assert [fault.action for fault in injector.undone] == ["0.5s kill-server"]


def test_one_that_fails_unforeseen_is_marked_and_the_next_is_done() -> None:
    def crash_once(_: str) -> None:
        if not injector.marks:
            raise KeyError("pods")

    injector = disturb("0 kill-server", "100ms restart-server", doer=crash_once)
    with injector:
        injector.follow(RUNNING)
        eventually(lambda: len(injector.marks) == 2, "both are done")
    assert [(mark.ok, mark.said) for mark in injector.marks] == [
        (False, "KeyError: 'pods'"), (True, None),
    ]  # fmt: skip


def test_of_a_run_that_fails_before_it_begins_all_are_undone() -> None:
    injector = disturb("0 run true")

    def fail() -> None:
        with injector:
            injector.follow(Status(phase=Phase.PREPARE, age_s=1.0))
            raise RunFailed("can't connect")

    with pytest.raises(RunFailed):
        fail()
    assert injector.undone == [
        SkippedFault(due_s=0.0, action="0s run true", reason="the run never began")
    ]


def test_a_signal_may_come_before_the_first_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: threading.Thread) -> None:
        raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(Interrupted), disturb("0 run true") as injector:
        injector.follow(Status(phase=Phase.RUN, age_s=1.0))
    assert [fault.action for fault in injector.undone] == ["0s run true"]


def test_what_would_come_after_the_end_is_refused() -> None:
    late, early = parse_disturbance("60s kill-server"), parse_disturbance("59s kill-server")
    check_times([late, early], None)
    check_times([early], 60.0)
    with pytest.raises(
        ConfigError, match=r"'60s kill-server' comes after the end of the run \(60 s\): give"
    ):
        check_times([early, late], 60.0)


@pytest.mark.parametrize(
    ("action", "argument", "words"),
    [
        (Action.SCALE, "deployment/db many", "write a number of replicas"),
        (Action.SCALE, "deployment/db -1 in databases", "write a number of replicas"),
        (Action.SCALE, "job/db 1", "write statefulset, deployment, daemonset and a name"),
        (Action.RESTART, "deployment/", "'deployment/': write"),
        (Action.RESTART, "db in databases", "'db': write"),
    ],
)
def test_workloads_that_are_not_understood(action: Action, argument: str, words: str) -> None:
    doers = PodFaultInjector(KubeClient(Configuration()), "default").doers()
    with pytest.raises(RunFailed, match=words):
        doers[action](argument)


# --- a fleet that is cut off ----------------------------------------------------------------------


def pause(*texts: str, **load: object) -> Load:
    """A load of 100 events/s with these disturbances."""
    values = {"rate_per_s": 100.0, "duration_s": 100.0, **load}
    return add_pauses(Load.model_validate(values), [parse_disturbance(text) for text in texts])


def test_writers_are_told_when_the_fleet_is_cut_off() -> None:
    assert pause("5s kill-server").pauses == []
    assert pause("60s pause-fleet 30", "10s pause-fleet 20s").pauses == [
        FleetPause(begins_s=10, length_s=20),
        FleetPause(begins_s=60, length_s=30),
    ]


def test_a_fleet_that_is_cut_off_needs_a_rate_and_a_run_that_goes_on() -> None:
    with pytest.raises(ConfigError, match="'1s pause-fleet 5s' holds back events that are due"):
        pause("1s pause-fleet 5s", rate_per_s=None)
    assert pause("5s kill-server", rate_per_s=None).pauses == []
    with pytest.raises(ConfigError, match="already cut off: give a time after 40 s"):
        pause("30s pause-fleet 5s", "10s pause-fleet 30s")
    check_pauses(pause("60s pause-fleet 30s"))
    check_pauses(pause("1h kill-server"))
    with pytest.raises(ConfigError, match="is not back before the run's end at 100 s"):
        check_pauses(pause("60s pause-fleet 40s"))
    # 20 s of events.
    with pytest.raises(ConfigError, match="is not back before the run's end at 20 s"):
        check_pauses(pause("5s pause-fleet 15s", duration_s=None, workers=2, events=1000))


def test_the_workers_do_it_themselves_and_the_next_one_need_not_wait() -> None:
    done: list[float] = []
    with disturb(
        "100ms pause-fleet 20s", "200ms kill-server", doer=lambda _: done.append(time.monotonic())
    ) as injector:
        injector.follow(RUNNING)
        eventually(lambda: len(injector.marks) == 2, "both are marked")
    assert injector.marks[0] == Mark(at_s=0.1, ended_s=20.1, action="0.1s pause-fleet 20s")
    assert len(done) == 1
