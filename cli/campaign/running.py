"""The work of `campaign`: check all jobs, run those that are left, report."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import click

from simulator.errors import one_line

from ..config import ExecutorName, load_config
from ..errors import EXIT_FAILED, CliError, ConfigError, RunFailed
from ..making import Prepared, only_prepare
from ..output import note, say, write_whole
from ..results.store import StoredResult
from ..show.report import make_report
from ..show.status import format_span
from ..show.tables import Table
from ..signals import Interrupted, Interrupts
from .definition import TARGET, Definition, load_definition
from .folder import CampaignFolder
from .plan import Job, Turn, find_command, list_left, plan_turns
from .ranking import Ranking, rank_candidates

AROUND_RUN_S = {ExecutorName.LOCAL: 1.5, ExecutorName.KUBERNETES: 4.0}
"""What a run takes before and after its window at most, with a database that is empty."""

_SEARCHES = ("capacity", "tune")
"""Steps that end when they have found what they look for."""

_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class Campaign:
    """What is asked for, read and planned."""

    file: Path
    config_file: Path
    folder: CampaignFolder
    definition: Definition
    turns: list[Turn]
    interrupts: Interrupts

    @property
    def jobs(self) -> list[Job]:
        """All, in the plan's order."""
        return list(chain.from_iterable(self.turns))

    def digest_targets(self) -> dict[str, str]:
        """Target of the config file -> what tells whether it was changed."""
        config = load_config(self.config_file)
        named = [options.get(TARGET, label) for label, options in self.definition.targets.items()]
        return {name: config.digest(name) for name in named}

    def arguments_of(self, job: Job) -> list[str]:
        """The whole line of a job, behind the command."""
        own = (f"--config={self.config_file}", f"--output={self.folder.results}")
        return [*job.arguments, *own, f"--label={job.name}"]

    def run(self, job: Job) -> int:
        """Run a job as the command line does; its exit status."""
        command = find_command(job.command)
        status = command.main(
            self.arguments_of(job), job.command, standalone_mode=False, obj=self.interrupts
        )
        return status if isinstance(status, int) else 0


def open_campaign(
    file: Path, config_file: Path, output: Path | None, interrupts: Interrupts
) -> Campaign:
    """Read and plan; ConfigError if the file is wrong."""
    definition = load_definition(file)
    folder = CampaignFolder(output or Path("campaigns") / file.stem)
    try:
        turns = plan_turns(definition)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error.message}") from error
    return Campaign(file, config_file, folder, definition, turns, interrupts)


def prepare(campaign: Campaign) -> dict[str, Prepared]:
    """Job -> what it would make; ConfigError if one can't be made as asked for. Nothing is started."""
    found: dict[tuple[str, ...], Prepared] = {}
    for job in campaign.jobs:
        key = (job.command, *job.arguments)
        if key in found:
            continue
        try:
            with only_prepare() as prepared:
                campaign.run(job)
        except click.ClickException as error:
            text = error.format_message()
            raise ConfigError(f"{campaign.file}: {job.name}: {text}") from error
        (found[key],) = prepared
        _refuse_secrets(campaign, job, found[key])
    return {job.name: found[(job.command, *job.arguments)] for job in campaign.jobs}


def _refuse_secrets(campaign: Campaign, job: Job, prepared: Prepared) -> None:
    """The plan is kept, and shown, as it is."""
    session = prepared.session
    secret = {n for n, field in session.module.options_model.model_fields.items() if not field.repr}
    shown = session.public_options()
    for pair in session.request.extra_options:
        key = pair.partition("=")[0].strip()
        if key in secret or "***" in str(shown.get(key)):
            raise ConfigError(
                f"{campaign.file}: {job.name}: {key} is secret: give it in {campaign.config_file}, as in"
                f" {key}: ${{NAME}}"
            )


def show_plan(campaign: Campaign) -> None:
    """Print all jobs with their options, what of them is done, and how long the others take."""
    prepared = prepare(campaign)
    folder = campaign.folder
    folder.check_plan(campaign.file, campaign.definition, campaign.digest_targets())
    done, failed = folder.find_done(_list_names(campaign)), folder.find_failed()
    left = list(chain.from_iterable(list_left(campaign.turns, done, failed)))
    again = {job.name for job in left}
    rows = [
        [
            number,
            job.name,
            "failed" if job.name in failed else "to do" if job.name in again else "done",
            " ".join([job.command, *job.arguments]),
        ]
        for number, job in enumerate(campaign.jobs, 1)
    ]
    left_of = ("Job", "State", "Command")
    say(Table(["No.", *left_of], rows, left_of).text())
    say(describe_time(left, prepared, campaign.definition.settle))


def describe_time(jobs: Sequence[Job], prepared: Mapping[str, Prepared], settle_s: float) -> str:
    """How long these jobs take, as far as that can be said before them."""
    known_s, open_runs = settle_s * max(0, len(jobs) - 1), 0
    for job in jobs:
        one = prepared[job.name]
        for load in one.lengths:
            known_s += (load.duration_s or 0.0) + AROUND_RUN_S[one.session.executor]
            open_runs += load.duration_s is None
    most = " at most" if any(job.command in _SEARCHES for job in jobs) else ""
    count = f"{len(jobs)} job{'' if len(jobs) == 1 else 's'}"
    text = f"{count} to do: about {format_span(known_s)}{most}"
    if open_runs:
        runs = f"{open_runs} run{'' if open_runs == 1 else 's'}"
        text += f", and {runs} until the last event or query"
    return f"{text}; filling tables comes on top"


def run_campaign(campaign: Campaign, stop_on_error: bool, debug: bool) -> int:
    """Run what is left, and report; the exit status."""
    _need_packages_of_report()
    prepared = prepare(campaign)
    folder, targets = campaign.folder, campaign.digest_targets()
    with folder.lock():
        folder.check_plan(campaign.file, campaign.definition, targets)
        folder.keep_plan(campaign.file, campaign.definition, targets, campaign.turns)
        try:
            _Course(campaign, stop_on_error, debug).run(prepared)
        except Interrupted as end:
            end.left += "; the same command goes on behind the last whole run"
            raise
        return _report(campaign)


class _Course:
    """A campaign under way."""

    def __init__(self, campaign: Campaign, stop_on_error: bool, debug: bool) -> None:
        self._campaign = campaign
        self._stop_on_error = stop_on_error
        self._debug = debug
        self._folder = campaign.folder
        self._failed = self._folder.find_failed()

    def run(self, prepared: Mapping[str, Prepared]) -> None:
        """Make all jobs that are left."""
        names = _list_names(self._campaign)
        done = self._folder.find_done(names)
        turns = list_left(self._campaign.turns, done, self._failed)
        jobs = list(chain.from_iterable(turns))
        again = {job.name for job in jobs}
        self._folder.set_aside([one.id for name, one in done.items() if name not in again])
        if not jobs:
            note(f"all {len(names)} jobs are done: only the report is made anew")
        elif len(jobs) < len(names):
            note(f"{len(names) - len(jobs)} of {len(names)} jobs are done: the others follow")
        if jobs:
            note(describe_time(jobs, prepared, self._campaign.definition.settle))
        number = len(names) - len(jobs)
        for turn in turns:
            self._forget_failures(turn)
            for place, job in enumerate(turn):
                if job is not jobs[0]:
                    time.sleep(self._campaign.definition.settle)
                note(f"job {number + place + 1} of {len(names)}: {job.name}")
                if not self._make(job):
                    if self._stop_on_error:
                        return
                    for other in turn[place + 1 :]:
                        self._tell(f"{other.name}: left out, since its data would be another's")
                    break
            number += len(turn)

    def _forget_failures(self, turn: Turn) -> None:
        """They are tried again."""
        kept = {job.name for job in turn} & set(self._failed)
        if kept:
            self._failed = {name: why for name, why in self._failed.items() if name not in kept}
            self._folder.keep_failed(self._failed)

    def _make(self, job: Job) -> bool:
        """Make one job; whether it gave a whole result. RunFailed if the disk is full."""
        self._folder.write_log(f"{job.name}: begins: {' '.join([job.command, *job.arguments])}")
        before = self._folder.list_folders()
        try:
            status = self._campaign.run(job)
        except click.ClickException as error:
            if isinstance(error, CliError) and self._debug:
                raise
            if _is_full(error):
                raise RunFailed(
                    f"{job.name}: {error.format_message()}\n"
                    "Make room; the same command goes on behind the last whole run."
                ) from error
            return self._keep_failure(job, error.format_message())
        except Exception as error:
            # One job's defect must not cost the night.
            if self._debug:
                raise
            return self._keep_failure(job, f"unexpected {type(error).__name__}: {error}")
        if not self._folder.list_folders() - before:
            return self._keep_failure(job, "it has kept no result")
        self._tell(f"{job.name}: {'done' if status == 0 else 'done, but not valid'}")
        return True

    def _keep_failure(self, job: Job, why: str) -> bool:
        self._failed[job.name] = one_line(why)
        self._folder.keep_failed(self._failed)
        self._tell(f"{job.name}: failed: {one_line(why)}")
        return False

    def _tell(self, text: str) -> None:
        self._folder.write_log(text)
        note(text)


def _is_full(error: BaseException) -> bool:
    """Whether a full disk is at the bottom of it."""
    return any(isinstance(one, OSError) and one.errno in _FULL for one in _list_causes(error))


def _list_causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _list_names(campaign: Campaign) -> list[str]:
    return [job.name for job in campaign.jobs]


def _need_packages_of_report() -> None:
    """Before the night, not after it."""
    for name in ("jinja2", "vl_convert"):
        if find_spec(name) is None:
            raise ModuleNotFoundError(name=name)


def _report(campaign: Campaign) -> int:
    """Write the report and print the ranking; the exit status."""
    folder, definition = campaign.folder, campaign.definition
    done, failed = folder.find_done(_list_names(campaign)), folder.find_failed()
    if done:
        rankings = rank(campaign, done)
        ordered = [one for name in _order_results(campaign) if (one := done.get(name))]
        page = make_report(ordered, definition.title, {one.step: one.lines for one in rankings})
        write_whole(folder.report, page)
        for ranking in rankings:
            say(f"\nRanking by {ranking.step}")
            for line in ranking.lines:
                say(line)
        say(f"\nReport: {folder.report}\nResults: {folder.results}")
    if failed:
        name, why = next(iter(failed.items()))
        more = f" (and {len(failed) - 1} more, see {folder.path})" if len(failed) > 1 else ""
        raise RunFailed(
            f"{len(failed)} of {len(campaign.jobs)} jobs failed: {name}: {why}{more}\n"
            "The same command tries them again."
        )
    return 0 if all(one.result.valid for one in done.values()) else EXIT_FAILED


def rank(campaign: Campaign, done: Mapping[str, StoredResult]) -> list[Ranking]:
    """A ranking by each step that can have one: there are two candidates, and its figures compare."""
    found = []
    for step in campaign.definition.steps:
        measured: dict[str, list[StoredResult]] = {}
        for job in sorted(campaign.jobs, key=lambda job: job.repeat):
            if job.step == step.name and step.command != "tune":
                own = measured.setdefault(str(job.candidate), [])
                own += [done[job.name]] if job.name in done else []
        if len(measured) > 1:
            results = {name: [one.result for one in own] for name, own in measured.items()}
            found.append(rank_candidates(step.name, results, campaign.definition.repeats))
    return found


def _order_results(campaign: Campaign) -> list[str]:
    """Names of the jobs as the report has them: by step, then as the file has the candidates."""
    definition = campaign.definition
    steps = [step.name for step in definition.steps]
    targets, variants = list(definition.targets), [None, *definition.variants]
    jobs = sorted(
        campaign.jobs,
        key=lambda job: (
            steps.index(job.step),
            targets.index(job.candidate.target),
            variants.index(job.candidate.variant),
            job.repeat,
        ),
    )
    return [job.name for job in jobs]
