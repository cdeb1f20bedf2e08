"""`capacity`: the highest rate that a database holds within limits."""

from __future__ import annotations

import sys
from typing import Any, ClassVar

from simulator.contract import RunResult
from simulator.errors import OptionError
from simulator.units import format_span

from ...errors import ConfigError, RunFailed
from ...output import note, print_prose, say, terminal_width
from ...plan import (
    PlannedRun,
    check_capabilities,
    check_load,
    check_query,
    check_workload,
    share_devices,
)
from ...render.answers import describe_answers
from ...render.capacity import describe_capacity, describe_steps, tabulate_capacity
from ...render.notes import summarize_notes
from ...results.model import Result
from ..experiment import Experiment, Plan
from ..session import Session
from .limits import check_limits
from .steps import CapacityRequest, CapacitySearch, find_answer


class CapacityExperiment(Experiment[CapacityRequest]):
    """One search."""

    command: ClassVar = "capacity"
    at_most: ClassVar = True

    def __init__(self, request: CapacityRequest, session: Session) -> None:
        check_load(request.load, request.given - {"arrivals"})
        super().__init__(request, session)
        wanted = self.request
        check_capabilities(wanted, session.module, session.options)
        asked = None
        if wanted.readers is not None:
            data = share_devices(wanted.data, wanted.load.workers)
            check_query(wanted.readers, data, session.module, session.options)
            if not wanted.data.prefill:
                note(
                    "the readers have nothing to ask about but what the writers insert meanwhile: give"
                    " --fill"
                )
        try:
            if wanted.readers is not None:
                job = check_workload(wanted.readers, wanted.data, session.module)
                asked = session.module(session.assume_options(), job).choose_queries()
            check_limits(wanted.limits, asked, wanted.readers)
        except OptionError as error:
            raise ConfigError(str(error)) from error
        of = session.target.name, session.request.label
        self._search = CapacitySearch(wanted, of=of)
        self.lengths = wanted.loads

    def describe_length(self) -> str:
        """How long a search takes at most, without what is before and after each step."""
        wanted = self.request
        all_s = sum(load.duration_s or 0.0 for load in wanted.loads)
        prefill = wanted.data.prefill
        fill = f", and the time to insert {prefill:,} events before each" if prefill else ""
        return (
            f"a closed loop and at most {wanted.max_steps} steps of {wanted.load.duration_s:g} s:"
            f" {format_span(all_s)} at most, without what is before and after each step{fill}"
        )

    def plan(self) -> Plan:
        yield from self._search.plan()

    def absorb(self, planned: PlannedRun, run: RunResult, failure: RunFailed | None) -> str:
        return self._search.absorb(planned, run, failure)

    def summarize(self) -> dict[str, Any]:
        return {"capacity": find_answer(self._search, self.session.target.cost_per_hour)}

    def show(self, result: Result) -> None:
        terminal = sys.stdout.isatty()
        say(tabulate_capacity(result, terminal).text(width=terminal_width()))
        print_prose(f"{describe_steps(result)}\n")
        for line in describe_capacity(result):
            print_prose(line)
        for line in summarize_notes(result, terminal, describe_answers(result)):
            print_prose(line)
