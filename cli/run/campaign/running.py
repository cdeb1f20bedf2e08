"""The work of `campaign`: check all jobs, run those left to do, report."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from itertools import chain
from typing import NamedTuple

from simulator.errors import list_names, one_line
from simulator.units import format_count, format_span

from ...show.tables import Table
from ...system.errors import EXIT_LIMIT, CliError, ConfigError, RunFailed
from ...system.output import NO_ROOM, note, print_prose, print_text, terminal_width
from ...system.processes import Interrupted
from ..exclusion import Lease, claim_databases
from ..experiments import AnyExperiment, run_experiment
from ..install import Consent
from ..live import LiveOptions, pages, serve_live
from ..live.state import JobState
from .campaign import Campaign, ask_permission, list_permissions
from .deciding import check_decidable, describe_reach
from .definition import Definition, normalize
from .installing import Installer, TurnServer
from .plan import Job, Turn, check_durability, check_schemas, find_origin, list_left, read_pairs
from .reporting import report_campaign, write_report
from .timing import Estimate, add_up, estimate_jobs, model_job


def prepare(campaign: Campaign) -> dict[str, AnyExperiment]:
    """Job -> its experiment; ConfigError if one is impossible. Starts nothing."""
    definition = campaign.definition
    if campaign.question is not None:
        check_decidable(campaign.question, definition.repeats, campaign.turns, campaign.file)
    experiments: dict[tuple[str, ...], AnyExperiment] = {}
    found: dict[tuple[str, str], dict[str, None]] = {}
    """Place and problem -> the candidates concerned; empty if it isn't about candidates."""
    for job in campaign.jobs:
        key = (job.command, *job.arguments)
        if key in experiments:
            continue
        try:
            experiments[key] = campaign.open_job(job)
            _refuse_secrets(campaign, experiments[key])
        except CliError as error:
            for text in error.problems if isinstance(error, ConfigError) else (error.message,):
                placed = _find_place(definition, job, text + _suggest_variants(campaign, job, text))
                names = found.setdefault(placed[:2], {})
                if placed.of_candidate:
                    names[str(job.candidate)] = None
    if found:
        raise ConfigError(
            *(
                f"{where}{f'{list_names(names, 3)}: ' if names else ''}{text}"
                for (where, text), names in found.items()
            )
        )
    jobs = {job.name: experiments[(job.command, *job.arguments)] for job in campaign.jobs}
    try:
        check_schemas(campaign.turns, jobs)
        needed = definition.requirements
        if needed is not None and needed.durability is not None:
            check_durability(campaign.turns, jobs)
    except ConfigError as error:
        raise ConfigError(f"{definition.locate(('steps',))}{error.message}") from error
    return jobs


_PLACE, _FLAG = re.compile(r"\S+:\d+: "), re.compile(r"--([\w-]+)(?:: )?")


class _Placed(NamedTuple):
    """A problem of a job, with its place."""

    where: str
    text: str
    of_candidate: bool = False
    """Whether it names neither line nor key."""


def _find_place(definition: Definition, job: Job, text: str) -> _Placed:
    """The place of the option that a problem begins with, or of the step. A problem that already names a line
    is unchanged."""
    if _PLACE.match(text):
        return _Placed("", text)
    flag = _FLAG.match(text)
    if flag and (way := find_origin(definition, job, flag[1])):
        return _Placed(definition.locate(way), text.removeprefix(f"--{flag[1]}: "))
    return _Placed(definition.locate_step(job.step), text, of_candidate=True)


def _suggest_variants(campaign: Campaign, job: Job, message: str) -> str:
    """How to exclude a variant for a target that doesn't support it, if the message names one of its
    options."""
    label, variant = job.candidate.target, job.candidate.variant
    options = normalize(campaign.definition.variants[variant]) if variant else {}
    extra = read_pairs(options.pop("extra-option", None))
    if not any(re.search(rf"\b{re.escape(key)}\b", message) for key in [*options, *extra]):
        return ""
    others = [name for name in campaign.definition.list_variants(label) if name != variant]
    return (
        f"\nTo leave variant {variant} out for this target: targets: {{{label}: {{variants:"
        f" [{', '.join(filter(None, others))}]}}}}"
    )


def _refuse_secrets(campaign: Campaign, prepared: AnyExperiment) -> None:
    """ConfigError if an option is secret: the plan is stored and shown in clear."""
    session = prepared.session
    secret = {
        name for name, field in session.module.options_model.model_fields.items() if not field.repr
    }
    shown = session.public_options()
    for pair in session.request.extra_options:
        key = pair.partition("=")[0].strip()
        if key in secret or "***" in str(shown.get(key)):
            raise ConfigError(
                f"{key} is secret: give it in {campaign.config_file}, as in {key}: ${{NAME}}"
            )


def show_plan(campaign: Campaign) -> None:
    """Print the jobs of each candidate and step, what of them is done, and how long the others take; if
    `campaign` is verbose with their options."""
    prepared = prepare(campaign)
    folder = campaign.folder
    folder.check_plan(campaign.file, campaign.definition, campaign.digest_targets())
    failed, left = folder.find_failed(campaign.jobs), campaign.list_left()
    estimates = estimate_campaign(left, prepared, campaign)
    alike: dict[tuple[str, str], list[Job]] = {}
    for job in campaign.jobs:
        alike.setdefault((str(job.candidate), job.step), []).append(job)
    rows: list[list[object]] = []
    installs: dict[str, None] = {}
    for (candidate, step), jobs in alike.items():
        site = campaign.sites.get(jobs[0].name)
        if site is not None:
            installs[f"install {site}: {site.key}; removed with its data afterwards"] = None
        states = Counter(
            "failed" if job.name in failed else "to do" if job.name in estimates else "done"
            for job in jobs
        )
        times = [estimates[job.name] for job in jobs if job.name in estimates]
        rows.append([
            f"{candidate} {step}",
            ", ".join(f"{count} {state}" for state, count in states.items()),
            show_time(add_up(times)) if times else "",
            " ".join([jobs[0].command, *jobs[0].arguments]),
        ])  # fmt: skip
    left_of = ("Jobs", "State", "Command")
    headers = ["Jobs", "State", "Time", "Command"]
    table = Table(headers, rows, left_of)
    shown = table if campaign.verbose else table.choose(headers[:-1])
    print_text(shown.text(width=terminal_width()))
    for line in installs:
        print_prose(line)
    for line in list_permissions(campaign, [made.session for made in prepared.values()]):
        print_text(line)
    for line in describe_times(left, estimates, campaign):
        print_prose(line)


def show_time(estimate: Estimate) -> str:
    """`6 min`, `40 s`, `more than 40 s`."""
    more = "more than " if estimate.open_runs else ""
    return more + format_span(estimate.known_s)


def _format_estimate(estimate: Estimate) -> str:
    """`about 6 min`, `more than 40 s`."""
    return show_time(estimate) if estimate.open_runs else f"about {show_time(estimate)}"


def describe_times(
    jobs: Sequence[Job],
    estimates: Mapping[str, Estimate],
    campaign: Campaign,
) -> Iterator[str]:
    """How long these jobs take, as far as known in advance: per candidate, and in total."""
    candidates = list(dict.fromkeys(job.candidate for job in jobs))
    alike: dict[str, list[str]] = {}
    for candidate in candidates if len(candidates) > 1 else ():
        own = [estimates[job.name] for job in jobs if job.candidate == candidate]
        text = f"{format_count(len(own), 'job')}, {_format_estimate(add_up(own))}"
        alike.setdefault(text, []).append(str(candidate))
    for text, names in alike.items():
        yield f"{', '.join(names)}: {text}{' each' if len(names) > 1 else ''}"
    times = campaign.folder.find_times(campaign.jobs)
    estimate = add_up(estimates.values(), campaign.definition.settle)
    text = f"{format_count(len(jobs), 'job')} to do: about {format_span(estimate.known_s)}"
    if estimate.open_runs:
        runs = format_count(estimate.open_runs, "run")
        text += f", plus {runs} of unknown length, until the last event or query"
    if any(job.name in campaign.sites for job in jobs):
        text += "; installing databases takes extra time"
    if not times and any(campaign.definition.targets[job.candidate.target].start for job in jobs):
        text += "; starting servers takes extra time"
    question = campaign.question
    if question is not None and (reach := describe_reach(question)):
        yield reach
    if jobs and not times:
        text += "; from the second repetition, the first one's times count"
    yield text


def estimate_campaign(
    left: Sequence[Job], prepared: Mapping[str, AnyExperiment], campaign: Campaign
) -> dict[str, Estimate]:
    """How long each of these jobs takes, by name, judging by measured jobs, if any."""
    modelled = {
        name: model_job(
            experiment.lengths[: experiment.expected_runs],
            experiment.prefills[: experiment.expected_runs],
            experiment.session.executor,
        )
        for name, experiment in prepared.items()
    }
    times = campaign.folder.find_times(campaign.jobs)
    measured_s = {job: times[job.name] for job in campaign.jobs if job.name in times}
    return estimate_jobs(left, modelled, measured_s)


def report_only(campaign: Campaign) -> int:
    """Make the report on existing results; return the exit status. ConfigError if there are none."""
    _need_charts()
    folder = campaign.folder
    folder.check_plan(campaign.file, campaign.definition, campaign.digest_targets())
    if not folder.find_done(campaign.jobs):
        raise ConfigError(f"{folder.results} has no result of this campaign yet: run it first")
    return report_campaign(campaign, [])


def run_campaign(
    campaign: Campaign,
    consent: Consent,
    stop_on_error: bool,
    debug: bool,
    live: LiveOptions | None = None,
    allow_run: bool = False,
) -> int:
    """Run what is left, report, and return the exit status. `allow_run`: the file has the permissions it
    needs."""
    _need_charts()
    prepared = prepare(campaign)
    permissions = list_permissions(campaign, [made.session for made in prepared.values()])
    if not ask_permission(campaign.file, permissions, allow_run):
        return 0
    folder, targets = campaign.folder, campaign.digest_targets()
    title = campaign.definition.title
    page = (
        nullcontext() if live is None else serve_live(live, "campaign", title, campaign.interrupts)
    )
    with folder.lock(), page:
        folder.check_plan(campaign.file, campaign.definition, targets)
        left = campaign.list_left()
        claims = [claim for job in left for claim in prepared[job.name].session.list_claims()]
        with claim_databases(claims, f"campaign {folder.path.resolve()}") as leases:
            installer = Installer(
                campaign.config, folder.installed, campaign.sites, prepared, campaign.interrupts
            )
            to_install = any(job.name in campaign.sites for job in left)
            if (to_install or installer.present) and not installer.check(consent, campaign.jobs):
                return 0
            folder.keep_requirements(campaign.definition, len(folder.find_done(campaign.jobs)))
            folder.keep_plan(campaign.file, campaign.definition, targets, campaign.turns)
            server = TurnServer(campaign.definition, folder.started, prepared, campaign.interrupts)
            try:
                _CampaignRun(
                    campaign, installer, server, leases, stop_on_error, debug, prepared
                ).run()
            except (Interrupted, RunFailed) as end:
                _show_time_left(end, installer)
                if isinstance(end, Interrupted):
                    with campaign.interrupts.shield():
                        write_report(campaign)
                raise
        return report_campaign(campaign, [*installer.left, *server.left])


def _show_time_left(end: Interrupted | RunFailed, installer: Installer) -> None:
    """Print what is left installed, and how to continue."""
    left = f"; {installer.present} is left installed" if installer.present else ""
    if isinstance(end, Interrupted):
        end.left += f"{left}; the same command resumes after the last completed run"
    elif left:
        note(f"{left.removeprefix('; ')}: run the same command to continue with it")


class _CampaignRun:
    """A running campaign."""

    def __init__(
        self,
        campaign: Campaign,
        installer: Installer,
        server: TurnServer,
        leases: Sequence[Lease],
        stop_on_error: bool,
        debug: bool,
        prepared: Mapping[str, AnyExperiment],
    ) -> None:
        self._campaign = campaign
        self._prepared = prepared
        self._left: list[Job] = []
        self._installer = installer
        self._server = server
        self._leases = leases
        self._stop_on_error = stop_on_error
        self._debug = debug
        self._folder = campaign.folder
        self._failed = self._folder.find_failed(campaign.jobs)

    def run(self) -> None:
        """Run all jobs left to do."""
        names = self._campaign.names
        done = self._folder.find_done(self._campaign.jobs)
        turns = self._list_turns(done)
        jobs = list(chain.from_iterable(turns))
        again = {job.name for job in jobs}
        folders = [stored.id for name, stored in done.items() if name not in again]
        self._folder.set_aside([*folders, *self._folder.find_others(self._campaign.jobs)])
        self._left = jobs
        if not jobs:
            note(f"all {len(names)} jobs are done: only the report is made again")
        elif len(jobs) < len(names):
            note(f"{len(names) - len(jobs)} of {len(names)} jobs are done: the others follow")
        if jobs:
            estimates = estimate_campaign(jobs, self._prepared, self._campaign)
            for line in describe_times(jobs, estimates, self._campaign):
                note(line)
        question = self._campaign.question
        limits = question.needed.list_limits() if question else ()
        for page in pages():
            page.plan_jobs(names, set(names) - again, limits)
        number = len(names) - len(jobs)
        try:
            for turn in turns:
                self._forget_failures(turn)
                first = turn is turns[0]
                if not self._make_turn(turn, number, first) and self._stop_on_error:
                    break
                number += len(turn)
        finally:
            self._server.stop()
        self._installer.remove()

    def _check_leases(self) -> None:
        """RunFailed if someone else has taken a database meanwhile."""
        for lease in self._leases:
            lease.check()

    def _list_turns(self, done: Collection[str]) -> list[Turn]:
        """The turns left to do. An interrupted turn restarts if its database, and so its data, is gone."""
        whole = {job.name: turn for turn in self._campaign.turns for job in turn}
        left = list_left(self._campaign.turns, done, self._failed)
        return [turn if self._installer.is_ready(turn[0]) else whole[turn[0].name] for turn in left]

    def _make_turn(self, turn: Turn, number: int, first: bool) -> bool:
        """Run the jobs of a turn, whose first job comes after `number` others; return whether all
        succeeded."""
        for place, job in enumerate(turn):
            self._check_leases()
            if place or not first:
                time.sleep(self._campaign.definition.settle)
            expected = self._show_time(job, number + place + 1)
            for page in pages():
                page.note_job(job.name, JobState.RUNNING)
            why = self._installer.provide(job)
            # A server starts in each turn, a database is installed only in the first.
            began = time.monotonic()
            why = why or self._server.provide(job)
            if why is None and self._make(job):
                took_s = time.monotonic() - began
                self._folder.keep_time(job.name, took_s)
                self._folder.write_log(
                    f"{job.name}: took {format_span(took_s)}, expected {show_time(expected)}"
                )
                self._left = [other for other in self._left if other is not job]
                continue
            self._left = [other for other in self._left if other not in turn[place:]]
            if why is not None:
                self._keep_failure(job, why)
            for other in turn[place + 1 :]:
                self._log(f"{other.name}: skipped, since its data would be another job's")
            return False
        return True

    def _show_time(self, job: Job, number: int) -> Estimate:
        """Print the next job, and how long it and all the rest take, as far as known; return the job's
        time."""
        estimates = estimate_campaign(self._left, self._prepared, self._campaign)
        estimate = add_up(estimates.values(), self._campaign.definition.settle)
        open_runs = ", plus runs until the last event or query," if estimate.open_runs else ""
        left = f"about {format_span(estimate.known_s)}{open_runs} left of the campaign"
        for page in pages():
            page.note_time_left(left)
        own = estimates[job.name]
        note(
            f"job {number} of {len(self._campaign.names)}: {job.name}, {_format_estimate(own)}; {left}"
        )
        return own

    def _forget_failures(self, turn: Turn) -> None:
        """Forget the failures of a turn's jobs, which are tried again."""
        names = {job.name for job in turn} & set(self._failed)
        if names:
            self._failed = {name: why for name, why in self._failed.items() if name not in names}
            self._folder.keep_failed(self._failed)

    def _make(self, job: Job) -> bool:
        """Run one job; return whether it gave a complete result. RunFailed if the disk is full, or if another
        campaign has taken the database meanwhile."""
        self._folder.write_log(f"{job.name}: begins: {' '.join([job.command, *job.arguments])}")
        before = self._folder.list_folders()
        try:
            status = run_experiment(
                self._campaign.open_job(job), self._campaign.interrupts, self._campaign.verbose
            )
        except CliError as error:
            if self._debug:
                raise
            causes = _list_causes(error)
            if any(isinstance(cause, OSError) and cause.errno in NO_ROOM for cause in causes):
                raise RunFailed(
                    f"{job.name}: {error.message}\n"
                    "When there is room again, the same command resumes after the last completed run."
                ) from error
            return self._keep_failure(job, error.message)
        except Exception as error:
            # A defect in one job must not ruin the night.
            if self._debug:
                raise
            return self._keep_failure(job, f"unexpected {type(error).__name__}: {error}")
        try:
            self._check_leases()
        except RunFailed:
            # Its figures can't be trusted.
            self._folder.set_aside(before)
            raise
        if not self._folder.list_folders() - before:
            return self._keep_failure(job, "it stored no result")
        doubt = {0: None, EXIT_LIMIT: "limits not kept"}.get(status, "not valid")
        outcome = f"done, but {doubt}" if doubt else "done"
        for page in pages():
            page.note_job(job.name, JobState.DONE, doubt)
        self._log(f"{job.name}: {outcome}")
        return True

    def _keep_failure(self, job: Job, why: str) -> bool:
        self._failed[job.name] = one_line(why)
        for page in pages():
            page.note_job(job.name, JobState.FAILED, one_line(why))
        self._folder.keep_failed(self._failed)
        self._log(f"{job.name}: failed: {one_line(why)}")
        return False

    def _log(self, text: str) -> None:
        self._folder.write_log(text)
        note(text)


def _list_causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _need_charts() -> None:
    """A missing package for the report must fail before the night, not after it."""
    if find_spec("vl_convert") is None:
        raise ModuleNotFoundError(name="vl_convert")
