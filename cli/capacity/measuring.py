"""The runs of a search: made one after the other, as the search asks for them."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.contract import InsertRun, Load, ReadRun, Report, Role

from ..errors import RunFailed
from ..inserting import join_environments
from ..plan import share_devices
from ..results.capacity import Capacity, CapacityStep
from ..running import Running
from ..show.progress import Display
from .answer import find_answer
from .course import Course
from .limits import judge_run
from .search import choose_next

MOST_FAILURES = 2
"""A rate may be too much for a database; if so many runs in a row give no figures, it is something else."""


def find_capacity(
    course: Course,
    running: Running,
    display: Display,
    name: str = "",
    after: Sequence[Load] = (),
) -> Capacity:
    """Search until the capacity is sure, or all steps are made; RunFailed if it can't be found out.

    The settings are those of `running.values` (the module's options: `dataclasses.replace(running,
    values=…)` for others) and of the quest. `name` tells labels and logs of several searches apart;
    `after`: what the command does behind this one, for the time that is left.
    """
    searching = _Searching(course, running, display, name, after)
    searching.measure_closed_loop()
    while (rate := searching.choose()) is not None:
        searching.measure(rate)
    return find_answer(course, running.target.cost_per_hour)


class _Searching:
    """One search."""

    def __init__(
        self, course: Course, running: Running, display: Display, name: str, after: Sequence[Load]
    ) -> None:
        self._course = course
        self._running = running
        self._display = display
        self._name = name
        self._after = after
        self._failures = 0

    def choose(self) -> float | None:
        """The rate of the next step; None: there is none."""
        goal = self._course.goal
        assert goal is not None
        return choose_next(goal, self._course.tried)

    def measure_closed_loop(self) -> None:
        """Find out what the workers reach without a rate. RunFailed if that gives no figure."""
        report = self._run(self._course.quest.closed_loop, "closed loop")
        run = report.insert
        assert run is not None
        if not run.inserts_per_s:
            reasons = "; ".join(run.invalid_reasons) or "nothing was acknowledged"
            self._display.end("no figure")
            raise RunFailed(f"the closed loop at the beginning gave no rate to go by: {reasons}")
        self._course.steps.append(CapacityStep(run=run.run))
        self._display.end(f"{run.inserts_per_s:,.0f} inserts/s")

    def measure(self, rate: float) -> None:
        """Find out whether a rate holds."""
        quest = self._course.quest
        load = quest.writers.model_copy(update={"rate_per_s": rate})
        number = len(self._course.tried) + 1
        label = f"step {number} of at most {quest.max_steps}, {rate:,.10g} events/s"
        try:
            report = self._run(load, label, rate)
        except RunFailed as error:
            self._failures += 1
            if self._failures >= MOST_FAILURES:
                raise
            self._display.end(f"failed: {error.message}")
            return
        self._failures = 0
        assert report.insert is not None
        verdict = judge_run(report.insert, report.read, quest.limits, load.events_per_request)
        self._course.steps.append(
            CapacityStep(
                run=report.insert.run,
                rate_per_s=rate,
                holds=verdict.holds,
                reasons=list(verdict.reasons),
                figures=dict(verdict.figures),
                client_bound=verdict.client_bound,
            )
        )
        self._display.end(
            "holds" if verdict.holds else f"doesn't hold: {'; '.join(verdict.reasons)}"
        )

    def _run(self, load: Load, label: str, rate: float | None = None) -> Report:
        """One run, kept in the course, even if it fails."""
        course, quest = self._course, self._course.quest
        number = len(course.runs) + 1
        begun = len(course.tried) + (rate is not None)
        coming = [quest.writers] * (quest.max_steps - begun)
        self._display.expect([load, *coming, *self._after], at_most=True)
        self._display.begin(f"{self._name}, {label}" if self._name else label)
        loads = [load] if quest.readers is None else [load, self._make_readers(load, quest.readers)]
        # Seeds of their own, so that chance in when requests are due meets no two steps alike.
        seed = (quest.data.seed + number) % 2**64
        data = share_devices(quest.data, quest.writers.workers)
        settings = self._running.make_settings(data.model_copy(update={"seed": seed}), *loads)
        prefix = f"{self._name.replace(' ', '-')}-" if self._name else ""
        try:
            with self._running.series(f"{prefix}step-{number:02d}", [settings]) as series:
                report = self._running.run(series, settings, self._display.update)
        except RunFailed as error:
            self._keep_failure(number, rate, error)
            raise
        course.environment = join_environments(course.environment, report.environment)
        assert report.insert is not None
        report.insert.run, report.insert.phases_s = number, report.phases_s
        course.runs.append(report.insert)
        if report.read is not None:
            report.read.run, report.read.phases_s = number, report.phases_s
            course.reads.append(report.read)
        return report

    def _make_readers(self, load: Load, readers: Load) -> Load:
        """The readers beside writers with this load: for as long."""
        return readers.model_copy(
            update={"duration_s": load.duration_s, "warm_up_s": load.warm_up_s, "role": Role.READ}
        )

    def _keep_failure(self, number: int, rate: float | None, error: RunFailed) -> None:
        quest, reasons = self._course.quest, [error.message]
        failed = {"run": number, "valid": False, "invalid_reasons": reasons}
        workers = quest.writers.workers
        self._course.runs.append(
            InsertRun.model_validate(
                {**failed, "workers": workers, "fill_level": quest.data.prefill}
            )
        )
        if quest.readers is not None:
            self._course.reads.append(
                ReadRun.model_validate({**failed, "workers": quest.readers.workers})
            )
        if rate is not None:
            self._course.steps.append(
                CapacityStep(run=number, rate_per_s=rate, holds=False, reasons=reasons)
            )
