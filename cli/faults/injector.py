"""What is done to the database, or to the fleet, during the run: how it is written, and when it is done."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from tempfile import NamedTemporaryFile

from simulator.contract import FleetPause, Load, Mark, Phase, SkippedFault, Status
from simulator.errors import did_you_mean, one_line
from simulator.logs import Redactor
from simulator.units import parse_duration_s

from ..errors import ConfigError, RunFailed
from ..output import note
from ..processes import run_program
from ..signals import END_PATIENCE_S, Interrupted, Interrupts

_TEXT = re.compile(r"\s*(\d\S*(?:\s+(?:ms|s|m|h)\b)?)\s+([a-z-]+):?\s*(.*)", re.DOTALL)
_ELSEWHERE = re.compile(r"(.*\S)\s+in\s+([a-z0-9-]+)", re.DOTALL)
"""The end can't be a selector's own `in`, which has its values in brackets: `app in (a, b)`."""
ENDED = "it was still running when the run ended, and was stopped"
"""What is said of a command that outlasts the run."""
NEVER_BEGUN, TOO_LATE = "the run never began", "the run ended first"
"""Why something was not done."""
_SAID = 300
"""Characters of a command's last words that are kept."""


class Action(StrEnum):
    """What can be done."""

    RUN = "run"
    """A command of the user's, by the shell of this machine."""
    KILL_SERVER = "kill-server"
    RESTART_SERVER = "restart-server"
    """A server that this tool has started: killed, or stopped in good order, and started again."""
    DELETE_PODS = "delete-pods"
    RESTART = "restart"
    SCALE = "scale"
    PAUSE_FLEET = "pause-fleet"
    """The devices are cut off for so long: the workers hold their events back, and send them afterwards."""


ARGUMENTS: Mapping[Action, str] = {
    Action.RUN: "COMMAND",
    Action.KILL_SERVER: "",
    Action.RESTART_SERVER: "",
    Action.DELETE_PODS: "LABEL=VALUE",
    Action.RESTART: "KIND/NAME",
    Action.SCALE: "KIND/NAME REPLICAS",
    Action.PAUSE_FLEET: "DURATION",
}
"""The argument that each takes."""

WORKLOADS = ("statefulset", "deployment", "daemonset")
"""Kinds of what can be restarted and, but for the last, scaled."""

Doer = Callable[[str], None]
"""Does an action with its argument. RunFailed if that fails."""


@dataclass(frozen=True)
class Disturbance:
    """Something that is to be done at a time after the common start."""

    at_s: float
    action: Action
    argument: str
    written: str | None = None
    """How it is shown, if not in full: with the names of variables instead of their values."""
    secrets: tuple[str, ...] = ()
    """The values of these variables, which aren't shown in what a command says either."""

    def __str__(self) -> str:
        return self.written or " ".join(
            filter(None, [f"{self.at_s:g}s", self.action, self.argument])
        )

    @property
    def pause(self) -> FleetPause | None:
        """When the fleet is cut off, if that is what is to be done."""
        length_s = parse_duration_s(self.argument, "s")
        if self.action is not Action.PAUSE_FLEET or not length_s:
            return None
        return FleetPause(begins_s=self.at_s, length_s=length_s)


@dataclass(frozen=True)
class Workload:
    """What is restarted or scaled on Kubernetes."""

    kind: str
    name: str
    replicas: int | None = None
    """None: it keeps its number of pods."""

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


def split_namespace(argument: str) -> tuple[str, str | None]:
    """`app=db in databases` -> what, and the namespace that is named; None: the run's."""
    match = _ELSEWHERE.fullmatch(argument)
    return (match[1], match[2]) if match else (argument, None)


def parse_workload(action: Action, text: str) -> Workload:
    """`statefulset/db 0` of a `scale`, `statefulset/db` of a `restart` -> workload; ConfigError if none."""
    reference, *numbers = text.split()
    kind, slash, name = reference.partition("/")
    form = f"{text!r}: write {', '.join(WORKLOADS)} and a name"
    if not slash:
        guesses = " or ".join(f"{guess}/{reference}" for guess in WORKLOADS[:2])
        raise ConfigError(f"{form}; did you mean {guesses}?")
    kind = kind.lower()
    if kind not in WORKLOADS or not name:
        raise ConfigError(f"{form}, as in deployment/db{did_you_mean(kind, WORKLOADS)}")
    if action is Action.SCALE and kind == "daemonset":
        raise ConfigError(f"{text!r}: a daemonset has a pod on each node, and can't be scaled")
    if action is Action.RESTART:
        if numbers:
            raise ConfigError(f"{text!r}: a restart takes no number; did you mean scale?")
        return Workload(kind, name)
    if len(numbers) != 1 or not numbers[0].isdecimal():
        raise ConfigError(f"{text!r}: write a number of replicas, as in {reference} 0")
    return Workload(kind, name, int(numbers[0]))


def parse_disturbance(text: str) -> Disturbance:
    """`30s delete-pods app=postgresql`; ConfigError if that isn't understood."""
    match = _TEXT.fullmatch(text)
    at_s = parse_duration_s(match[1], "s") if match else None
    if match is None or at_s is None:
        raise ConfigError(
            f"{text!r} isn't a disturbance: write when and what, as in"
            f" '30s {_guess(text) or Action.RESTART_SERVER}'"
        )
    when, name, argument = match.groups()
    actions = list(Action)
    if name not in actions:
        raise ConfigError(
            f"{text!r}: there is no action {name!r}{did_you_mean(name, actions)}"
            f" (known: {', '.join(actions)})"
        )
    action, argument = Action(name), argument.strip()
    expected = ARGUMENTS[action]
    if len(argument.split()) < len(expected.split()) or (argument and not expected):
        form = " ".join(
            filter(None, [when if when[-1:].isalpha() else f"{when}s", action, expected])
        )
        raise ConfigError(f"{text!r}: write '{form}'")
    if action in (Action.RESTART, Action.SCALE):
        try:
            parse_workload(action, split_namespace(argument)[0])
        except ConfigError as error:
            raise ConfigError(f"{text!r}: {error.message}") from error
    disturbance = Disturbance(at_s, action, argument)
    if action is Action.PAUSE_FLEET and disturbance.pause is None:
        raise ConfigError(f"{text!r}: write how long it is cut off, as in '{when} {action} 30s'")
    return disturbance


def read_disturbance(written: str, resolved: str, values: Collection[str]) -> Disturbance:
    """A disturbance of a config file, in which variables had these values: it is shown as it was written.
    ConfigError, which shows none of the values, if it isn't understood."""
    if not values:
        return parse_disturbance(resolved)
    shown, problem = written, None
    try:
        shown = str(parse_disturbance(written))
    except ConfigError as error:
        problem = error
    try:
        disturbance = parse_disturbance(resolved)
    except ConfigError as error:
        raise problem or ConfigError(f"{written!r} isn't a disturbance") from error
    return replace(disturbance, written=shown, secrets=tuple(values))


def _guess(text: str) -> str | None:
    """What was meant by a text without a time."""
    name = text.split(None, 1)[0].rstrip(":") if text.strip() else ""
    return text.strip() if name in list(Action) else None


def check_disturbances(disturbances: Sequence[Disturbance], actions: Collection[Action]) -> None:
    """ConfigError if one can't be done here. `actions`: those that can be done."""
    for disturbance in disturbances:
        if disturbance.action not in actions:
            raise ConfigError(
                f"--disturb '{disturbance}' needs"
                f" {_NEEDED.get(disturbance.action, '--executor kubernetes')}; possible here:"
                f" {', '.join(actions)}"
            )


def check_times(disturbances: Sequence[Disturbance], duration_s: float | None) -> None:
    """ConfigError if one comes when a run by the clock is over."""
    for disturbance in disturbances:
        if duration_s is not None and disturbance.at_s >= duration_s:
            raise ConfigError(
                f"--disturb '{disturbance}' comes after the end of the run ({duration_s:g} s): give an"
                " earlier time or a longer --duration"
            )


def add_pauses(load: Load, disturbances: Sequence[Disturbance]) -> Load:
    """The load with the times in which its fleet is cut off. ConfigError if they don't go with it."""
    pauses = [
        (pause, disturbance)
        for disturbance in disturbances
        if (pause := disturbance.pause) is not None
    ]
    if not pauses:
        return load
    pauses.sort(key=lambda pair: pair[0].begins_s)
    if load.rate_per_s is None:
        raise ConfigError(
            f"--disturb '{pauses[0][1]}' holds back events that are due, and without a rate none are: give"
            " --rate, the events per second of the fleet"
        )
    for (before, _), (pause, disturbance) in pairwise(pauses):
        if pause.begins_s < before.ends_s:
            raise ConfigError(
                f"--disturb '{disturbance}' begins while the fleet is cut off already: give a time from"
                f" {before.ends_s:g} s on"
            )
    return load.model_copy(update={"pauses": [pause for pause, _ in pauses]})


def check_pauses(load: Load) -> None:
    """ConfigError if the fleet is not back when the last event becomes due: then nothing shows how the
    database takes in what was held back."""
    length_s = load.duration_s
    if length_s is None and load.rate_per_s is not None:
        length_s = load.workers * load.events / load.rate_per_s
    for pause in load.pauses:
        if length_s is not None and pause.ends_s >= length_s:
            raise ConfigError(
                f"the fleet, cut off at {pause.begins_s:g} s for {pause.length_s:g} s, is not back before the"
                f" run's end at {length_s:g} s: give a longer --duration"
            )


_NEEDED = dict.fromkeys(
    (Action.KILL_SERVER, Action.RESTART_SERVER), "a server that this tool starts (start_server)"
)


class FaultInjector:
    """Does disturbances in one run; use as a context manager around it. `follow` must get its status."""

    def __init__(
        self,
        disturbances: Sequence[Disturbance],
        doers: Mapping[Action, Doer],
        interrupts: Interrupts,
        end_patience_s: float = END_PATIENCE_S,
    ) -> None:
        """`doers`: of all actions but `run`, which is the same everywhere; `end_patience_s`: how long a
        command that outlasts the run has after SIGTERM."""
        self._left = sorted(disturbances, key=lambda disturbance: disturbance.at_s)
        self._doers = doers
        self._interrupts = interrupts
        self._end_patience_s = end_patience_s
        self._origin_s = 0.0
        self._closed = threading.Event()
        """Nothing is begun any more: load is over, though events may still be counted."""
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.marks: list[Mark] = []
        self.undone: list[SkippedFault] = []
        """What wasn't done: known at the end."""
        self._under_way: Mark | None = None

    def follow(self, status: Status) -> None:
        """Begin when the run does; begin nothing more when its load is over."""
        if self._thread is not None:
            if status.phase is not Phase.RUN:
                self._closed.set()
        elif self._left and status.phase is Phase.RUN:
            self._origin_s = time.monotonic() - (status.elapsed_s or 0.0)
            self._thread = threading.Thread(target=self._work, name="disturb", daemon=True)
            self._thread.start()

    def list_marks(self) -> list[Mark]:
        """All marks so far, with the one that is under way."""
        under_way = self._under_way
        return [*self.marks, under_way] if under_way is not None else list(self.marks)

    def __enter__(self) -> FaultInjector:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._closed.set()
        self._ended.set()
        if (
            self._thread is not None and self._thread.is_alive()
        ):  # a signal may have come before it began
            with self._interrupts.shield():  # what undoes the disturbance is not left alone
                self._thread.join()
        reason = NEVER_BEGUN if self._thread is None else TOO_LATE
        self.undone = [
            SkippedFault(due_s=disturbance.at_s, action=str(disturbance), reason=reason)
            for disturbance in self._left
        ]
        if kind is not None and issubclass(kind, Interrupted):
            for mark in self.marks:
                if mark.said == ENDED:
                    note(f"'{mark.action}' was still running and was stopped")

    def _work(self) -> None:
        while self._left:
            disturbance = self._left[0]
            wait_s = self._origin_s + disturbance.at_s - time.monotonic()
            if self._closed.wait(max(0.0, wait_s)):
                return
            del self._left[0]
            if (pause := disturbance.pause) is not None:
                # By the workers themselves, exactly then.
                mark = Mark(at_s=pause.begins_s, ended_s=pause.ends_s, action=str(disturbance))
                self.marks.append(mark)
                continue
            began_s = time.monotonic() - self._origin_s
            self._under_way = Mark(at_s=began_s, action=str(disturbance))
            failure = self._do(disturbance)
            ended_s = time.monotonic() - self._origin_s
            self._under_way = None
            self.marks.append(
                Mark(
                    at_s=began_s,
                    ended_s=ended_s,
                    action=str(disturbance),
                    ok=failure is None,
                    said=failure,
                )
            )

    def _do(self, disturbance: Disturbance) -> str | None:
        """Do it; why it failed, if it did."""
        try:
            if disturbance.action is Action.RUN:
                run_command(
                    disturbance.argument, self._interrupts, self._ended.is_set, self._end_patience_s
                )
            else:
                self._doers[disturbance.action](disturbance.argument)
        except RunFailed as error:
            return Redactor(disturbance.secrets)(error.message)
        except Exception as error:  # noqa: BLE001 - those that follow are done, whatever it is
            return f"{type(error).__name__}: {one_line(str(error)) or 'nothing said'}"
        return None


def run_command(
    command: str,
    interrupts: Interrupts,
    is_over: Callable[[], bool],
    end_patience_s: float = END_PATIENCE_S,
) -> None:
    """Run a user's command by the shell. RunFailed if it fails, or if the run or the user's patience ends
    before it does: then it is ended, with all that it has started, and has `end_patience_s` to undo what it
    did."""
    # Not through a pipe: a server that the command starts may keep it open for good.
    with NamedTemporaryFile() as output:
        text = f"exec >{shlex.quote(output.name)} 2>&1\n{command}"
        status = _run_shell(text, interrupts, is_over, end_patience_s)
        words = one_line(output.read().decode(errors="replace").strip() or "nothing")[-_SAID:]
    if status < 0:
        raise RunFailed(f"it was ended by {signal.Signals(-status).name}; output: {words}")
    if status:
        raise RunFailed(f"it ended with status {status}; output: {words}")


def _run_shell(
    text: str, interrupts: Interrupts, is_over: Callable[[], bool], end_patience_s: float
) -> int:
    try:
        return run_program(
            ["/bin/sh", "-c", text], in_a_hurry=interrupts.hurry.is_set, is_over=is_over,
            end_patience_s=end_patience_s,
        ).returncode  # fmt: skip
    except subprocess.TimeoutExpired:
        raise RunFailed(ENDED) from None
    except OSError as error:
        raise RunFailed(f"it can't be run: {error.strerror}") from error
