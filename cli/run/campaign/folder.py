"""A campaign's folder: its plan, results and failures. Only the folder says what is done."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from simulator import __version__
from simulator.errors import printable_line

from ...plan.request import JobId
from ...results.decision import RequirementChange
from ...results.requirements import describe_changes
from ...results.store import (
    CAMPAIGN,
    FAILED,
    FILE_NAME,
    PLAN,
    SET_ASIDE,
    VERDICT,
    WORKLOAD,
    PlannedJob,
    StoredResult,
    list_results,
    now,
    read_document,
    read_jobs,
)
from ...system.errors import ConfigError, RunFailed
from ...system.output import explain, write_whole
from ...system.processes import lock_file
from .definition import Definition
from .plan import Job, Turn

_read = partial(read_document, remedy="start over in another folder with --output")


class CampaignFolder:
    """One folder with all that belongs to a campaign."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.results = path / "results"
        """A folder with results like any other: `--results` may name it."""
        self.report = path / "report.html"
        self.verdict = path / VERDICT
        self.installed = path / "installed.json"
        """Says which database the campaign has installed, while it is there."""
        self.started = path / "started.json"
        """Says whose server the campaign has started, while it runs."""
        self._replaced = path / SET_ASIDE
        self._plan = path / PLAN
        self._failed = path / FAILED
        self._times = path / "times.json"
        self._requirements = path / "requirements.json"
        self._log = path / "campaign.log"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Make the folder, and keep other campaigns out of it; ConfigError if one is at work there."""
        with ExitStack() as stack:
            try:
                self.results.mkdir(parents=True, exist_ok=True)
                stack.enter_context(lock_file(self.path / ".lock"))
            except BlockingIOError as error:
                raise ConfigError(
                    f"another campaign is running in {self.path}: wait for it to end, or name another"
                    " folder with --output"
                ) from error
            except OSError as error:
                raise ConfigError(
                    f"can't write to {self.path}: {error.strerror}; name another folder with --output"
                ) from error
            yield

    def keep_plan(
        self, file: Path, definition: Definition, targets: Mapping[str, str], turns: list[Turn]
    ) -> None:
        """Write the plan, with a copy of the file; candidates of an earlier plan stay. `targets`: target ->
        digest of its part of the config file; and `workload NAME` -> digest of its definition."""
        before = _read(self._plan)
        jobs = {job["name"]: job for job in before.get("jobs", [])}
        jobs |= {
            job.name: PlannedJob(
                name=job.name, **job.id._asdict(), command=job.command, arguments=list(job.arguments)
            ).model_dump()
            for turn in turns
            for job in turn
        }  # fmt: skip
        plan = {
            "version": __version__,
            "made_at": now().isoformat(timespec="seconds"),
            **before,
            "definition": join_definitions(
                before.get("definition", {}), definition.model_dump(mode="json", exclude_unset=True)
            ),
            "targets": before.get("targets", {}) | dict(targets),
            "jobs": list(jobs.values()),
        }
        # The plan comes first: it identifies the folder.
        write_whole(self._plan, json.dumps(plan, indent=1))
        write_whole(self.path / CAMPAIGN, file.read_bytes())

    def list_candidates(self) -> list[str]:
        """All candidates the campaign ever had, in order."""
        return list(dict.fromkeys(job.candidate for job in self._read_jobs().values()))

    def _read_jobs(self) -> dict[str, PlannedJob]:
        """All jobs the campaign ever had, by each of their names."""
        return read_jobs(_read(self._plan))

    def check_plan(self, file: Path, definition: Definition, targets: Mapping[str, str]) -> None:
        """ConfigError, naming the changes, if the folder was begun with another plan, or has foreign files in
        place of a campaign's. Candidates may be added and removed, and repetitions added."""
        if not self._plan.exists():
            self._check_free(file)
            return
        before = _read(self._plan)
        if len(self._read_jobs()) < len(before["jobs"]):
            raise ConfigError(
                f"{self._plan} is from another version of this tool: start over in another folder with"
                " --output"
            )
        now_ = definition.model_dump(mode="json", exclude_unset=True)
        # The sources of derived steps come first.
        changes = [
            f"{name} is defined differently"
            if name.startswith(WORKLOAD)
            else f"target {name} in the config file"
            for name, digest in targets.items()
            if before["targets"].get(name, digest) != digest
        ]
        changes += list_changes(self._keep_measured(before["definition"]), now_)
        if changes:
            more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
            raise ConfigError(
                f"{file} differs from what {self.path} was begun with: {'; '.join(changes[:3])}{more}\n"
                "Undo that to continue, or start over in another folder with --output. You may add targets,"
                " variants and repeats, and leave out targets and variants."
            )

    def _check_free(self, file: Path) -> None:
        """ConfigError if a campaign of this file would replace foreign files."""
        files = (
            self.verdict, self.report, self.installed, self.started, self._failed, self._times,
            self._requirements,
        )  # fmt: skip
        taken = [path.name for path in (*files, self._log) if path.exists()]
        copy = self.path / CAMPAIGN
        if copy.exists() and copy.read_bytes() != file.read_bytes():
            taken.append(CAMPAIGN)
        if taken:
            raise ConfigError(
                f"{self.path} isn't a campaign's folder, and its {', '.join(sorted(taken))} would be"
                " replaced: name another folder with --output"
            )

    def _keep_measured(self, definition: Mapping[str, Any]) -> dict[str, Any]:
        """A definition without the targets left out so far."""
        names = self.list_candidates()
        targets = {
            label: target
            for label, target in (definition.get("targets") or {}).items()
            if any(f"{name} ".startswith(f"{label} ") for name in names)
        }
        return {**definition, "targets": targets}

    def find_done(self, jobs: Collection[Job]) -> dict[str, StoredResult]:
        """Job -> its result, if complete."""
        if not self.results.is_dir():
            return {}
        names = {job.id: job.name for job in jobs}
        return {
            names[id_]: stored
            for stored in list_results(self.results)
            if stored.result.complete and (id_ := stored.result.job) in names
        }

    def find_others(self, jobs: Collection[Job]) -> list[str]:
        """Folders with complete results of candidates that are no longer in the plan."""
        earlier = {job.id for job in self._read_jobs().values()} - {job.id for job in jobs}
        return [
            stored.id
            for stored in list_results(self.results)
            if stored.result.complete and stored.result.job in earlier
        ]

    def find_failed(self, jobs: Collection[Job]) -> dict[str, str]:
        """Job -> why it failed."""
        return self._rename(_read(self._failed), jobs)

    def find_times(self, jobs: Collection[Job]) -> dict[str, float]:
        """Job -> seconds that it took."""
        return self._rename(self._read_times(), jobs)

    def _rename(self, kept: Mapping[str, Any], jobs: Collection[Job]) -> dict[str, Any]:
        """Data stored by job name, mapped to current names."""
        ids: dict[str, JobId] = {name: job.id for name, job in self._read_jobs().items()}
        ids |= {job.name: job.id for job in jobs}
        names = {job.id: job.name for job in jobs}
        return {names[ids[name]]: value for name, value in kept.items() if ids.get(name) in names}

    def _read_times(self) -> dict[str, float]:
        return _read(self._times)

    def keep_time(self, name: str, took_s: float) -> None:
        """Note how long a job took."""
        times = self._read_times() | {name: round(took_s, 3)}
        write_whole(self._times, json.dumps(times, indent=1))

    def keep_requirements(self, definition: Definition, results: int) -> None:
        """Record the current requirements, with the time and the number of results, if they changed after
        results were seen."""
        if definition.requirements is None:
            return
        needed = definition.requirements.model_dump(mode="json", exclude_unset=True)
        kept = self._read_requirements() if results else []
        if not kept or kept[-1]["requirements"] != needed:
            at = now().isoformat(timespec="seconds")
            kept.append({"at": at, "results": results, "requirements": needed})
            write_whole(self._requirements, json.dumps({"history": kept}, indent=1))

    def list_requirement_changes(self) -> list[RequirementChange]:
        """Changes of the requirements after there were results."""
        kept = self._read_requirements()
        return [
            RequirementChange(
                at=now["at"],
                results=now["results"],
                changes=describe_changes(before["requirements"], now["requirements"]),
            )
            for before, now in pairwise(kept)
        ]

    def _read_requirements(self) -> list[dict[str, Any]]:
        """All versions of the requirements, the first from the plan if need be."""
        if self._requirements.exists():
            return list(_read(self._requirements)["history"])
        plan = _read(self._plan)
        needed = plan.get("definition", {}).get("requirements")
        return [{"at": plan["made_at"], "results": 0, "requirements": needed}] if needed else []

    def keep_failed(self, failed: Mapping[str, str]) -> None:
        """Replace the recorded failures."""
        write_whole(self._failed, json.dumps(dict(failed), indent=1))

    def set_aside(self, kept: Collection[str]) -> None:
        """Move away all results except these (folder names): incomplete ones, and those of repeated turns."""
        try:
            for path in sorted(self.results.iterdir()):
                if path.name not in kept:
                    self._replaced.mkdir(exist_ok=True)
                    shutil.move(path, self._replaced / path.name)
        except OSError as error:
            raise RunFailed(f"can't write to {self._replaced}: {explain(error)}") from error

    def list_folders(self) -> set[str]:
        """Names of the folders with a result, complete or not."""
        return {path.name for path in self.results.iterdir() if (path / FILE_NAME).exists()}

    def write_log(self, text: str) -> None:
        """Add a line, with the time in UTC."""
        try:
            with self._log.open("a", encoding="utf-8") as file:
                file.write(f"{now():%Y-%m-%dT%H:%M:%SZ} {printable_line(text)}\n")
        except OSError as error:
            raise RunFailed(f"can't write {self._log}: {explain(error)}") from error


# --- comparing with the folder's plan -----------------------------------------------------------


def describe_change(before: Any, now: Any, place: str = "") -> list[str]:
    """Differences between two definitions as plain values: `variants.small.batch: 100 is now 200`."""
    if isinstance(before, dict) and isinstance(now, dict):
        keys = dict.fromkeys([*before, *now])
        return [
            text
            for key in keys
            for text in describe_change(
                before.get(key), now.get(key), f"{place}.{key}" if place else str(key)
            )
        ]
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        return [
            text
            for number, (old, new) in enumerate(zip(before, now, strict=True), 1)
            for text in describe_change(old, new, f"{place}[{number}]")
        ]
    if before == now:
        return []
    if isinstance(before, list) and isinstance(now, list):
        return [f"{place}: there are {len(now)} now, not {len(before)}"]
    if before is None or now is None:
        return [f"{place} is {'new' if before is None else 'gone'}"]
    return [f"{place}: {before} is now {now}"]


def list_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Forbidden differences between two definitions. Requirements and prices may change as long as the
    measurements stay the same: the verdict is given again. If steps follow from requirements, these are named
    instead of the steps."""
    old, new = keep_common(before, now)
    for definition in (old, new):
        definition.pop("price", None)
    required = describe_change(
        old.pop("requirements", None), new.pop("requirements", None), "requirements"
    )
    steps = describe_change(old.pop("steps", None), new.pop("steps", None), "steps")
    if steps and required and before.get("requirements") and now.get("requirements"):
        steps = required
    return steps + describe_change(old, new)


def keep_common(
    before: Mapping[str, Any], now: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two definitions as plain values without what may change during a campaign: targets and variants that
    only one of them has, and added repetitions."""
    kept_before, kept_now = dict(before), dict(now)
    for key in ("targets", "variants"):
        old, new = before.get(key) or {}, now.get(key) or {}
        # A target's variants are also candidates.
        kept_before[key], kept_now[key] = (
            {name: _without(part, "variants") for name, part in own.items() if name in other}
            for own, other in ((old, new), (new, old))
        )
    if now.get("repeats", 1) >= before.get("repeats", 1):
        kept_before["repeats"] = kept_now["repeats"] = None
    return kept_before, kept_now


def _without(part: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name != key}


def join_definitions(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """A definition, together with the targets and variants of an earlier one, which have results."""
    joined = dict(now)
    for key in ("targets", "variants"):
        if before.get(key) or now.get(key):
            joined[key] = {**(before.get(key) or {}), **(now.get(key) or {})}
    return joined
