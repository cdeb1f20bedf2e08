"""What an experiment is, and how its runs are made: one after the other, each kept.

An experiment says which runs it needs (`plan`), takes each in (`absorb`), and sums up (`summarize`). The
runner does the rest, in the same way for all commands.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Generic, Self, TypeAlias, TypeVar

from simulator.contract import CarriedState, GroupResult, Load, Role, RunLimit, RunResult, Status

from ...plan.disturbances import add_pauses, check_pauses, check_times
from ...plan.planning import PlannedRun, PlannedSeries, share_devices
from ...plan.replaying import follow_recording, require_repetition
from ...plan.request import Request
from ...plan.workloads import check_history
from ...results.answers import Outcome, sum_up
from ...results.model import Result
from ...show.measured import print_measured
from ...show.progress import Display, make_display
from ...system.errors import EXIT_FAILED, EXIT_LIMIT, ConfigError, NotStarted, RunFailed, RunGivenUp
from ...system.output import note, print_text
from ...system.processes import Interrupted, Interrupts
from ..live import live_page, pages, publish_end
from .context import RunContext, new_token, open_context
from .long_runs import UnfinishedRun, coarsen_run
from .session import Session, open_session
from .statements import keep_statements

_MOST_SHARE = 0.02
"""The largest share of a command's time that may go into writing what was made so far."""


Plan = Generator[PlannedSeries, None, None]
AnyRequest = TypeVar("AnyRequest", bound=Request)


class Experiment(ABC, Generic[AnyRequest]):
    """What a command measures. Nothing starts before `run_experiment`."""

    at_most: ClassVar[bool] = False
    """Whether some of its runs may not be needed."""

    def __init__(self, request: AnyRequest, session: Session) -> None:
        """ConfigError if the time at which the queried events began is not known."""
        load, readers = request.load, request.readers
        if session.disturbances:
            load = add_pauses(load, session.disturbances)
        asks = load.role is Role.READ
        data = session.complete(request.data, existing=asks or not request.data.clean)
        if "speed" in type(request).model_fields:
            load = follow_recording(load, share_devices(data, load.workers), request.given)
        elif not asks:
            require_repetition(data, request.command)
        self.request = request.with_work(
            session.choose_queries(load) if asks else load,
            data,
            readers and session.choose_queries(readers),
        )
        self.session = session
        self.runs: list[RunResult] = []
        """The runs made so far, including those that failed."""

    @classmethod
    def open(cls, request: AnyRequest) -> Self:
        """The experiment for a request, with its target, checked. ConfigError if anything is wrong."""
        experiment = cls(request, open_session(request.common, request.disturbed))
        experiment.check()
        return experiment

    @property
    def limits(self) -> Sequence[RunLimit]:
        """The limits that its runs have to keep."""
        return getattr(self.request, "limits", ())

    @property
    def command(self) -> str:
        """Its name."""
        return self.request.command

    @cached_property
    @abstractmethod
    def lengths(self) -> Sequence[Load]:
        """For each run that may be needed, the load that determines its length. ConfigError if the request
        leads to no runs; `check` finds that."""

    def check(self) -> None:
        """ConfigError if parts of the request conflict, or can't be done with the target."""
        request, session, lengths = self.request, self.session, self.lengths
        check_history(share_devices(request.data, request.load.workers))
        for load in lengths if session.disturbances else ():
            # A target's own disturbances are for runs of any length; those of this command are meant to
            # happen.
            if request.disturb:
                check_times(session.disturbances, load.duration_s)
            check_pauses(load)

    @property
    def expected_runs(self) -> int:
        """How many of `lengths` will probably be needed."""
        return len(self.lengths)

    @property
    def prefills(self) -> Sequence[int]:
        """How many events are inserted before each of the runs of `lengths`."""
        return [self.request.data.prefill] * len(self.lengths)

    @property
    def keeps_history(self) -> bool:
        """Whether its first run loads a history that the others keep."""
        data = self.request.data
        return data.has_history and not data.clean

    @property
    def workers(self) -> Sequence[int]:
        """How many workers its runs have in all groups together."""
        groups = (self.request.load, self.request.readers)
        return [sum(load.workers for load in groups if load is not None)]

    @property
    def in_flight(self) -> int:
        """The most requests that one of its workers has in flight."""
        options, loads = self.session.options, [self.request.load, self.request.readers]
        return max(
            load.in_flight or 1 if options is None else options.in_flight(load)
            for load in loads
            if load is not None
        )

    def describe_length(self) -> str | None:
        """How long it will take, shown before the first run; None if that is obvious."""
        return None

    @abstractmethod
    def plan(self) -> Plan:
        """The runs, in order. The next series is requested once the previous one is made, so it may depend on
        the results. A `yield` raises RunFailed if a run of that series gave no figures. A plan that can do
        without them catches it and continues."""

    def absorb(self, planned: PlannedRun, run: RunResult, failure: RunFailed | None) -> str:
        """Take in a run, the last of `runs`. Returns its outcome in a few words. `failure`: why it gave few
        figures or none."""
        return "failed" if failure else describe_outcome(run)

    def list_options(self) -> dict[str, Any]:
        """The options of the command, as the result keeps them."""
        options = self.session.options
        mode = options and options.mode(self.request.load)
        return self.request.list_options() | {"insert_mode": mode}

    def add_unfinished(self, result: Result, run: RunResult) -> None:
        """Put a run that is still under way into a result. An unfinished run of a search is of no use."""

    @abstractmethod
    def summarize(self) -> dict[str, Any]:
        """The fields of the result that only this command has."""

    def show(self, result: Result) -> None:
        """Print what was measured."""
        print_measured(result, self.request.verbose, getattr(self.request, "columns", None))


AnyExperiment: TypeAlias = Experiment[Any]


def describe_outcome(run: RunResult) -> str:
    """A run's outcome, in a few words."""
    words = {Role.WRITE: ("inserts/s", ",.0f"), Role.READ: ("queries/s", ",.1f")}
    outcome = " beside ".join(
        f"{group.rate_per_s:{words[group.role][1]}} {words[group.role][0]}"
        if group.rate_per_s
        else "no figure"
        for group in run.groups
    )
    if run.aborted is not None and not run.failures:
        return f"{run.aborted}: {outcome}"
    return outcome if run.valid else f"invalid ({'; '.join(run.invalid_reasons)}): {outcome}"


def run_experiment(
    experiment: AnyExperiment, interrupts: Interrupts, show_tables: bool = True
) -> int:
    """Make the runs of a checked experiment, write the result and show it, as tables or as one line for each
    run. Returns the exit status. If something goes wrong, what was done by then is kept."""
    session = experiment.session
    stopped: RunFailed | Interrupted | None = None
    with (
        open_context(session, experiment.command, interrupts) as context,
        make_display(
            experiment.lengths, live_page.get(), experiment.keeps_history, session.request.quiet
        ) as display,
    ):
        for page in pages():
            page.note_limits(experiment.limits)
        runner = Runner(experiment, context, display)
        try:
            runner.make_all()
        except (RunFailed, Interrupted) as error:
            stopped = error
            publish_end(error)
        with interrupts.shield():
            complete = stopped is None or runner.has_made_all
            result = runner.make_result(complete)
            if stopped is not None and not complete:
                was_run = isinstance(stopped, RunFailed)
                result.ended_by = "a run that failed" if was_run else str(stopped)
            if isinstance(stopped, Interrupted):
                runner.add_unfinished(result, str(stopped))
            unwritten = context.write(result, finished=True) if result.runs else None
    if show_tables and experiment.runs:
        experiment.show(result)
    if show_tables and result.runs and unwritten is None:
        print_text(f"\nResult: {context.folder.path}")
    unsent: RunFailed | None = None
    try:
        if not unwritten and (address := context.folder.send()):
            print_text(f"Copied to: {address}")
    except RunFailed as error:
        unsent = error
    if unsent and stopped:
        note(f"warning: {unsent}")
    if isinstance(stopped, Interrupted):
        raise stopped
    for problem in (unwritten, stopped, unsent):
        if problem:
            raise problem
    return choose_status(result)


def choose_status(result: Result) -> int:
    """The exit status of a command that made all its runs: 0 only if everything is valid and all limits are
    kept."""
    if not result.verdicts:
        return 0 if result.valid else EXIT_FAILED
    if not result.valid and any(run.failures for run in result.all_runs):
        return EXIT_FAILED
    outcome = sum_up([verdict.outcome for verdict in result.verdicts])
    return 0 if outcome is Outcome.KEPT else EXIT_LIMIT


class Runner:
    """Makes the runs of an experiment."""

    def __init__(self, experiment: AnyExperiment, context: RunContext, display: Display) -> None:
        self._experiment, self._context, self._display = experiment, context, display
        self._environment: dict[str, Any] = {}
        self._carried: CarriedState | None = None
        """What the last run left behind. Only writers can continue from it, or runs with a history."""
        self._next_checkpoint_s = 0.0
        self._unfinished: UnfinishedRun | None = None
        """The run under way."""
        self._unmade = 0
        """How many runs of the series under way are still to be made."""
        self.has_made_all = False
        """Whether all runs were made when something went wrong: only the clean-up was left."""
        request = experiment.request
        readers = request.load if request.load.role is Role.READ else request.readers
        self._statements = keep_statements(experiment.session, request.data, readers)

    def make_all(self) -> None:
        """Make all runs. RunFailed if one gave no figures and the experiment can't do without it."""
        experiment = self._experiment
        self._context.executor.check_capacity(experiment.workers, experiment.in_flight)
        length = experiment.describe_length()
        if length and not experiment.session.request.quiet:
            note(length)
        if experiment.at_most:
            self._display.expect(experiment.lengths, at_most=True)
        plan = experiment.plan()
        series = next(plan, None)
        while series is not None:
            try:
                self._make_series(series)
            except (RunFailed, Interrupted) as error:
                if self._unmade == 0:
                    self.has_made_all = next(plan, None) is None
                if self._unmade == 0 or isinstance(error, Interrupted):
                    raise
                try:
                    series = plan.throw(error)
                except StopIteration:
                    series = None
            else:
                series = next(plan, None)

    def _make_series(self, series: PlannedSeries) -> None:
        """Make runs with one collector. RunFailed if one gave no figures: then the others can't be made."""
        token, context, display = new_token(), self._context, self._display
        settings = [context.make_settings(planned, token) for planned in series.runs]
        settings[0].after = self._carried
        remaining = list(zip(series.runs, settings, strict=True))
        self._unmade = len(remaining)
        if series.left is not None:
            display.expect(series.left, at_most=True)
        display.begin(series.runs[0].label)
        try:
            logs = context.folder.logs(series.name)
            with context.executor.open_series(settings, logs) as opened:
                while remaining:
                    planned, own = remaining[0]
                    if planned is not series.runs[0]:
                        display.begin(planned.label)
                    own.after = self._carried
                    report = context.run(opened, own, self._follow(planned))
                    with context.interrupts.shield():  # the run is made, so it is kept
                        del remaining[0]
                        self._environment = join_environments(self._environment, report.environment)
                        if len(planned.loads) == 1 or report.carried.next_events is not None:
                            self._carried = report.carried
                        self._take_in(planned, report.run)
                        self._unmade = len(remaining)
        except RunFailed as error:
            if isinstance(error, NotStarted) and not self._experiment.runs:
                raise ConfigError(error.message) from error
            if remaining:
                self._take_in(remaining[0][0], self._make_failed(remaining[0][0], error), error)
            self._carried = None  # what the run has stored is unknown
            raise

    def _follow(self, planned: PlannedRun) -> Callable[[Status], None]:
        """Shows the run's progress and saves it once a minute, so that a killed command loses no more than
        that."""
        unfinished = self._unfinished = UnfinishedRun(planned)

        def follow(status: Status) -> None:
            self._display.update(status)
            if unfinished.follow(status):
                with self._context.interrupts.shield():
                    result = self.make_result(complete=False)
                    self.add_unfinished(result)
                    if result.runs:
                        self._context.write(result, finished=False)

        return follow

    def add_unfinished(self, result: Result, ended_by: str | None = None) -> None:
        """Put what is known of the run under way into a result. `ended_by`: why the command ends."""
        if self._unfinished is None or (run := self._unfinished.make_run(ended_by)) is None:
            return
        coarsen_run(run)
        self._experiment.add_unfinished(result, run)

    def _make_failed(self, planned: PlannedRun, error: RunFailed) -> RunResult:
        """A run that failed: with what was measured by then, or else only the reason."""
        if isinstance(error, RunGivenUp):
            latest = error.report.environment
            self._environment = join_environments(self._environment, latest)
            return error.report.run
        if self._unfinished is not None and (run := self._unfinished.make_run(error.message)):
            run.marks, run.undone = list(error.marks), list(error.undone)
            return run
        level = planned.prefill
        if not planned.data.clean and self._carried:
            level += self._carried.stored or 0
        return RunResult(
            fill_level=level if any(load.role is Role.WRITE for load in planned.at_work) else None,
            marks=list(error.marks),
            undone=list(error.undone),
            groups=[
                GroupResult(role=load.role, workers=load.workers, invalid_reasons=[error.message])
                for load in planned.at_work
            ],
        )

    def _take_in(
        self, planned: PlannedRun, run: RunResult, failure: RunFailed | None = None
    ) -> None:
        """Keep a run, and show its outcome."""
        self._unfinished = None
        run.run = planned.run
        self._experiment.runs.append(run)
        outcome = self._experiment.absorb(planned, run, failure)
        self._keep()
        self._display.end(outcome)

    def _keep(self) -> None:
        """Write what was made so far, so that a killed command loses at most a minute of the run under way.
        If runs are so short that writing would take much of their time, some wait for the next. If writing
        fails, the command reports that at its end."""
        began = time.monotonic()
        if began < self._next_checkpoint_s:
            return
        with self._context.interrupts.shield():
            self._context.write(self.make_result(complete=False), finished=False)
        ended = time.monotonic()
        self._next_checkpoint_s = ended + (ended - began) / _MOST_SHARE

    def make_result(self, complete: bool) -> Result:
        """All runs so far. `complete`: none is missing."""
        experiment = self._experiment
        measured = {
            "runs": experiment.runs,
            "statements": self._statements,
            **experiment.summarize(),
        }
        return self._context.make_result(
            experiment.list_options(), self._environment, complete=complete, **measured
        )


def join_environments(earlier: Mapping[str, Any], latest: Mapping[str, Any]) -> dict[str, Any]:
    """The environment of all runs so far: the latest one, with all packages, pods, nodes and images."""
    joined = dict(latest)
    client, before = latest.get("client"), earlier.get("client")
    if client and before:
        packages = {**before.get("packages", {}), **client.get("packages", {})}
        joined["client"] = {**client, "packages": packages}
    cluster, before = latest.get("kubernetes"), earlier.get("kubernetes")
    if cluster and before:
        joined["kubernetes"] = {
            **cluster,
            "placement": before["placement"] | cluster["placement"],
            "nodes": before["nodes"] | cluster["nodes"],
            "images": sorted({*before["images"], *cluster["images"]}),
        }
    return joined
