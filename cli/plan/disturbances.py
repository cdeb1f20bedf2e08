"""Disturbances: what to do to the database, or to the fleet, during a run, and their syntax."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from simulator.contract import FleetPause, Load
from simulator.errors import did_you_mean
from simulator.units import parse_duration_s

from ..system.errors import ConfigError

_TEXT = re.compile(r"\s*(\d\S*(?:\s+(?:ms|s|m|h)\b)?)\s+([a-z-]+):?\s*(.*)", re.DOTALL)
_ELSEWHERE = re.compile(r"(.*\S)\s+in\s+([a-z0-9-]+)", re.DOTALL)
"""The end can't be a selector's own `in`, whose values are in parentheses: `app in (a, b)`."""


class Action(StrEnum):
    """The kinds of disturbances."""

    RUN = "run"
    """A user's command, run by this machine's shell."""
    KILL_SERVER = "kill-server"
    RESTART_SERVER = "restart-server"
    """A server started by this tool: killed, or shut down properly, and started again."""
    DELETE_PODS = "delete-pods"
    RESTART = "restart"
    SCALE = "scale"
    PAUSE_FLEET = "pause-fleet"
    """The devices are cut off for a while: the workers hold their events back and send them afterwards."""


ARGUMENTS: Mapping[Action, str] = {
    Action.RUN: "COMMAND",
    Action.KILL_SERVER: "",
    Action.RESTART_SERVER: "",
    Action.DELETE_PODS: "LABEL=VALUE",
    Action.RESTART: "KIND/NAME",
    Action.SCALE: "KIND/NAME REPLICAS",
    Action.PAUSE_FLEET: "DURATION",
}
"""The argument of each."""

WORKLOADS = ("statefulset", "deployment", "daemonset")
"""What can be restarted and, except for the last, scaled."""


@dataclass(frozen=True)
class Disturbance:
    """Something to do at a time after the start."""

    at_s: float
    action: Action
    argument: str
    written: str | None = None
    """How to show it, if not in full: with the names of variables instead of their values."""
    secrets: tuple[str, ...] = ()
    """The values of these variables, which must also be hidden in a command's output."""

    def __str__(self) -> str:
        return self.written or " ".join(
            filter(None, [f"{self.at_s:g}s", self.action, self.argument])
        )

    @property
    def pause(self) -> FleetPause | None:
        """When the fleet is cut off, for that kind."""
        length_s = parse_duration_s(self.argument, "s")
        if self.action is not Action.PAUSE_FLEET or not length_s:
            return None
        return FleetPause(begins_s=self.at_s, length_s=length_s)


@dataclass(frozen=True)
class Workload:
    """What to restart or scale on Kubernetes."""

    kind: str
    name: str
    replicas: int | None = None
    """None: it keeps its number of pods."""

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


def split_namespace(argument: str) -> tuple[str, str | None]:
    """`app=db in databases` -> what, and the namespace; None: the run's."""
    match = _ELSEWHERE.fullmatch(argument)
    return (match[1], match[2]) if match else (argument, None)


def parse_workload(action: Action, text: str) -> Workload:
    """`statefulset/db 0` for `scale`, `statefulset/db` for `restart` -> workload; ConfigError if
    malformed."""
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
    """Parses `30s delete-pods app=postgresql`; ConfigError if malformed."""
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
    """A disturbance from a config file, whose variables had these values: shown as it was written.
    ConfigError, without the values, if it is malformed."""
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
    """The action meant by a text without a time."""
    name = text.split(None, 1)[0].rstrip(":") if text.strip() else ""
    return text.strip() if name in list(Action) else None


def check_disturbances(disturbances: Sequence[Disturbance], actions: Collection[Action]) -> None:
    """ConfigError if one isn't possible here. `actions`: the possible ones."""
    for disturbance in disturbances:
        if disturbance.action not in actions:
            raise ConfigError(
                f"--disturb '{disturbance}' needs"
                f" {_NEEDED.get(disturbance.action, '--executor kubernetes')}; possible here:"
                f" {', '.join(actions)}"
            )


def check_times(disturbances: Sequence[Disturbance], duration_s: float | None) -> None:
    """ConfigError if one comes after the end of a run with a duration."""
    for disturbance in disturbances:
        if duration_s is not None and disturbance.at_s >= duration_s:
            raise ConfigError(
                f"--disturb '{disturbance}' comes after the end of the run ({duration_s:g} s): give an"
                " earlier time or a longer --duration"
            )


def add_pauses(load: Load, disturbances: Sequence[Disturbance]) -> Load:
    """The load with the times in which its fleet is cut off. ConfigError if they conflict with it."""
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
                f"--disturb '{disturbance}' begins while the fleet is already cut off: give a time after"
                f" {before.ends_s:g} s on"
            )
    return load.model_copy(update={"pauses": [pause for pause, _ in pauses]})


def check_pauses(load: Load) -> None:
    """ConfigError if the fleet is not back before the last event is due: the run couldn't show how the
    database ingests the backlog."""
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
    (Action.KILL_SERVER, Action.RESTART_SERVER), "a server started by this tool (start_server)"
)
