"""Carries out disturbances during a run."""

from __future__ import annotations

import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from tempfile import NamedTemporaryFile

from simulator.contract import Mark, Phase, SkippedFault, Status
from simulator.errors import Redactor, one_line

from ..plan.disturbances import Action, Disturbance
from ..system.errors import RunFailed
from ..system.output import note
from ..system.processes import END_PATIENCE_S, Interrupted, Interrupts, run_program

ENDED = "it was still running when the run ended, and was stopped"
"""What a mark says of a command that was still running when the run ended."""
NEVER_BEGUN, TOO_LATE = "the run never began", "the run ended first"
"""Why a disturbance was not carried out."""
_SAID = 300
"""How many characters of a command's output are kept: the last ones."""

Doer = Callable[[str], None]
"""Carries out an action with its argument. RunFailed if that fails."""


class FaultInjector:
    """Carries out the disturbances of one run; use as a context manager around it. Pass its status to
    `follow`."""

    def __init__(
        self,
        disturbances: Sequence[Disturbance],
        doers: Mapping[Action, Doer],
        interrupts: Interrupts,
        end_patience_s: float = END_PATIENCE_S,
    ) -> None:
        """`doers`: for all actions but `run`, which is the same everywhere; `end_patience_s`: how long a
        command that outlasts the run has after SIGTERM."""
        self._left = sorted(disturbances, key=lambda disturbance: disturbance.at_s)
        self._doers = doers
        self._interrupts = interrupts
        self._end_patience_s = end_patience_s
        self._origin_s = 0.0
        self._closed = threading.Event()
        """Set once the load is over: no disturbance begins after that, though events may still be counted."""
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.marks: list[Mark] = []
        self.undone: list[SkippedFault] = []
        """The disturbances that were not carried out. Known at the end."""
        self._under_way: Mark | None = None

    def follow(self, status: Status) -> None:
        """Begin when the run does. Begin no further disturbance once its load is over."""
        if self._thread is not None:
            if status.phase is not Phase.RUN:
                self._closed.set()
        elif self._left and status.phase is Phase.RUN:
            self._origin_s = time.monotonic() - (status.elapsed_s or 0.0)
            self._thread = threading.Thread(target=self._work, name="disturb", daemon=True)
            self._thread.start()

    def list_marks(self) -> list[Mark]:
        """All marks so far, including that of a disturbance under way."""
        under_way = self._under_way
        return [*self.marks, under_way] if under_way is not None else list(self.marks)

    def __enter__(self) -> FaultInjector:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._closed.set()
        self._ended.set()
        if (
            self._thread is not None and self._thread.is_alive()
        ):  # a signal may have come before the thread began
            with self._interrupts.shield():  # a disturbance must not be left half undone
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
                # The workers do this themselves, exactly on time.
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
        """Carry it out. Returns why it failed, or None."""
        try:
            if disturbance.action is Action.RUN:
                run_command(
                    disturbance.argument, self._interrupts, self._ended.is_set, self._end_patience_s
                )
            else:
                self._doers[disturbance.action](disturbance.argument)
        except RunFailed as error:
            return Redactor(disturbance.secrets)(error.message)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next ones are carried out
            return f"{type(error).__name__}: {one_line(str(error)) or 'nothing said'}"
        return None


def run_command(
    command: str,
    interrupts: Interrupts,
    is_over: Callable[[], bool],
    end_patience_s: float = END_PATIENCE_S,
) -> None:
    """Run a user's command in the shell. RunFailed if it fails, or if the run ends or the user loses patience
    first: then the command and all that it started are ended. They have `end_patience_s` to undo what they
    did."""
    # Not through a pipe: a server that the command starts may keep it open for good.
    with NamedTemporaryFile() as output:
        text = f"exec >{shlex.quote(output.name)} 2>&1\n{command}"
        try:
            status = run_program(
                ["/bin/sh", "-c", text], in_a_hurry=interrupts.hurry.is_set, is_over=is_over,
                end_patience_s=end_patience_s,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            raise RunFailed(ENDED) from None
        except OSError as error:
            raise RunFailed(f"it can't be run: {error.strerror}") from error
        words = one_line(output.read().decode(errors="replace").strip() or "nothing")[-_SAID:]
    if status < 0:
        raise RunFailed(f"it was ended by {signal.Signals(-status).name}; output: {words}")
    if status:
        raise RunFailed(f"it ended with status {status}; output: {words}")
