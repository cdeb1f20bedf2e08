"""Servers that a campaign's file starts before their turns and stops after them, so that only the one that is
measured runs. Starting and stopping is in no time that is measured."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from simulator.documents import DocumentError, read_json
from simulator.errors import one_line

from ..diagnosis import check_database
from ..errors import CliError, RunFailed
from ..experiments.experiment import AnyExperiment
from ..faults.injector import run_command
from ..output import note, write_whole
from ..signals import Interrupts
from .definition import Definition
from .plan import Job

START_TIMEOUT_S, STOP_TIMEOUT_S = 600.0, 120.0
"""How long a server may take to start and to answer, and to stop."""
_PAUSE_S = 1.0
"""The pause between two checks whether it answers."""


class TurnServer:
    """Keeps at most one server running: that of the turn, which is started anew for each turn.

    The campaign's folder notes which one it is, so that whoever goes on with a campaign that was killed stops
    it first.
    """

    def __init__(
        self,
        definition: Definition,
        note_file: Path,
        prepared: Mapping[str, AnyExperiment],
        interrupts: Interrupts,
        timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        self._targets = definition.targets
        self._note_file = note_file
        self._prepared = prepared
        self._interrupts = interrupts
        self._timeout_s = timeout_s
        self._turn: object = None
        """The turn whose server runs."""
        self.left: list[str] = []
        """What couldn't be stopped, and why."""

    def provide(self, job: Job) -> str | None:
        """Make sure that the server of the job's turn answers, and that the one of the turn before is
        stopped; why that can't be done, or None."""
        turn = (job.candidate, job.repeat)
        if turn == self._turn:
            return None
        self.stop()
        label = job.candidate.target
        command = self._targets[label].start
        if command is None:
            return None
        self._turn = turn
        write_whole(self._note_file, json.dumps({"target": label}))
        note(f"starting the server of {label}")
        deadline = time.monotonic() + self._timeout_s
        try:
            self._run(command, self._timeout_s)
            self._await_answer(job, deadline)
        except CliError as error:
            self.stop()
            return f"its server can't be started: {one_line(error.message, 300)}"
        return None

    def stop(self) -> None:
        """Stop the server that runs, whatever comes in between. What fails is kept in `left`."""
        with self._interrupts.shield():
            self._turn = None
            label = self._read_note()
            if label is None:
                return
            command = self._targets[label].stop if label in self._targets else None
            why = "it is no longer a target of the file"
            if command is not None:
                note(f"stopping the server of {label}")
                try:
                    self._run(command, STOP_TIMEOUT_S)
                    why = ""
                except RunFailed as error:
                    why = error.message
            if why:
                self.left.append(f"the server of {label} was not stopped: {one_line(why, 300)}")
                note(self.left[-1])
            self._note_file.unlink(missing_ok=True)

    def _run(self, command: str, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        try:
            run_command(command, self._interrupts, lambda: time.monotonic() > deadline)
        except RunFailed as error:
            if time.monotonic() > deadline:
                raise RunFailed(f"{command} had not ended after {timeout_s:g} s") from error
            raise RunFailed(f"{command}: {error.message}") from error

    def _await_answer(self, job: Job, deadline: float) -> None:
        """RunFailed if the database doesn't answer in time."""
        request = replace(self._prepared[job.name].session.request, live=None, disturb=())
        noted = None
        while not (finding := check_database(request, self._interrupts)).ok:
            if time.monotonic() + _PAUSE_S > deadline:
                raise RunFailed(f"it doesn't answer: {finding.text}")
            if finding.text != noted:
                noted = finding.text
                note(f"it doesn't answer yet: {one_line(noted, 300)}")
            time.sleep(_PAUSE_S)

    def _read_note(self) -> str | None:
        try:
            document = read_json(self._note_file)
        except (FileNotFoundError, DocumentError):
            return None
        return str(document.get("target")) if isinstance(document, dict) else None
