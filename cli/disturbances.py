"""What is done to the database in mid-run: how it is written, and when it is done."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType

from simulator.contract import Mark, Phase, Status
from simulator.errors import did_you_mean, one_line

from .errors import ConfigError, RunFailed
from .output import note
from .processes import run_program
from .signals import Interrupts

_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h)?\s+([a-z-]+):?\s*(.*)", re.DOTALL)
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
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


ARGUMENTS: Mapping[Action, str] = {
    Action.RUN: "COMMAND",
    Action.KILL_SERVER: "",
    Action.RESTART_SERVER: "",
    Action.DELETE_PODS: "LABEL=VALUE",
    Action.RESTART: "KIND/NAME",
    Action.SCALE: "KIND/NAME REPLICAS",
}
"""What each is told."""

Doer = Callable[[str], None]
"""Does it, told its argument. RunFailed if that fails."""


@dataclass(frozen=True)
class Disturbance:
    """Something that is to be done so long after the common start."""

    at_s: float
    action: Action
    argument: str

    def __str__(self) -> str:
        return " ".join(filter(None, [f"{self.at_s:g}s", self.action, self.argument]))


def parse_disturbance(text: str) -> Disturbance:
    """`30s delete-pods app=postgresql`; ConfigError if that isn't understood."""
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"{text!r} is no disturbance: write when and what, as in '30s restart-server'"
        )
    number, unit, name, argument = found.groups()
    known = list(Action)
    if name not in known:
        raise ConfigError(
            f"{text!r}: there is no action {name!r}{did_you_mean(name, known)}"
            f" (known: {', '.join(known)})"
        )
    action, argument = Action(name), argument.strip()
    wanted = ARGUMENTS[action]
    if len(argument.split()) < len(wanted.split()) or (argument and not wanted):
        form = " ".join(filter(None, [f"{number}{unit or 's'}", action, wanted]))
        raise ConfigError(f"{text!r}: write '{form}'")
    return Disturbance(float(number) * _UNITS_S[unit or "s"], action, argument)


def check_disturbances(disturbances: Sequence[Disturbance], actions: Collection[Action]) -> None:
    """ConfigError if one can't be done here. `actions`: those that can be done."""
    for one in disturbances:
        if one.action not in actions:
            raise ConfigError(
                f"--disturb '{one}' needs {_NEEDED.get(one.action, '--executor kubernetes')}; here there"
                f" are: {', '.join(actions)}"
            )


_NEEDED = dict.fromkeys(
    (Action.KILL_SERVER, Action.RESTART_SERVER), "a server that this tool starts (start_server)"
)


class Disturber:
    """Does them in one run; use as a context manager around it. `follow` must get the run's status."""

    def __init__(
        self,
        disturbances: Sequence[Disturbance],
        doers: Mapping[Action, Doer],
        interrupts: Interrupts,
    ) -> None:
        """`doers`: of all actions but `run`, which is the same everywhere."""
        self._left = sorted(disturbances, key=lambda one: one.at_s)
        self._doers = doers
        self._interrupts = interrupts
        self._origin_s = 0.0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.marks: list[Mark] = []

    def follow(self, status: Status) -> None:
        """Begin when the run does."""
        if self._thread is None and self._left and status.phase is Phase.RUN:
            self._origin_s = time.monotonic() - (status.elapsed_s or 0.0)
            self._thread = threading.Thread(target=self._work, name="disturb", daemon=True)
            self._thread.start()

    def __enter__(self) -> Disturber:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        for one in self._left if error is None else ():
            note(f"warning: '{one}' was not done: the run was over before")

    def _work(self) -> None:
        while self._left:
            one = self._left[0]
            wait_s = self._origin_s + one.at_s - time.monotonic()
            if self._ended.wait(max(0.0, wait_s)):
                return
            del self._left[0]
            began_s = time.monotonic() - self._origin_s
            ok, said = True, None
            try:
                if one.action is Action.RUN:
                    run_command(one.argument, self._interrupts, self._ended.is_set)
                else:
                    self._doers[one.action](one.argument)
            except RunFailed as error:
                ok, said = False, error.message
            ended_s = time.monotonic() - self._origin_s
            self.marks.append(
                Mark(at_s=began_s, ended_s=ended_s, action=str(one), ok=ok, said=said)
            )


def run_command(command: str, interrupts: Interrupts, has_ended: Callable[[], bool]) -> None:
    """Run a user's command by the shell. RunFailed if it fails, or if the run or the user's patience ends
    before it does: then it is ended, with all that it has started."""

    def is_over() -> bool:
        return has_ended() or interrupts.hurry.is_set()

    try:
        done = run_program(["/bin/sh", "-c", command], in_a_hurry=is_over)
    except subprocess.TimeoutExpired:
        raise RunFailed("it had not ended when the run was over, and was ended then") from None
    except OSError as error:
        raise RunFailed(f"it can't be run: {error.strerror}") from error
    if done.returncode:
        words = one_line((done.stderr or done.stdout).strip() or "nothing")[-_SAID:]
        raise RunFailed(f"it ended with status {done.returncode} and said: {words}")
