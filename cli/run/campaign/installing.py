"""Databases that a campaign installs for its turns and removes with their data, and servers that its file's
commands start and stop. At most one exists at a time, and the campaign's folder records which, so that a
resumed campaign knows what is its own. All of this is outside of measured times."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from simulator.documents import DocumentError, read_json
from simulator.errors import one_line
from simulator.units import format_count

from ...plan.config import Config
from ...plan.target import ExecutorName
from ...system.errors import CliError, ConfigError, RunFailed
from ...system.output import note, write_whole
from ...system.processes import Interrupts
from ..cluster import Place
from ..diagnosis import check_database
from ..experiments import AnyExperiment
from ..faults import run_command
from ..install import Consent, Database, Installed, confirm, removal_arguments
from ..install.recipes import Choice, choose, recipe_of
from .definition import Definition
from .plan import Job, Turn, name_target

_REMOVAL_TIMEOUT_S = 900
START_TIMEOUT_S, STOP_TIMEOUT_S = 600.0, 120.0
"""Time limits for a server to start and answer, and to stop."""
_PAUSE_S = 1.0
"""The pause between checks whether it answers."""


@dataclass(frozen=True)
class Site:
    """An installed database."""

    recipe: str
    choice: Choice
    target: str
    """One of the targets that reach it."""
    timeout_s: float

    @property
    def key(self) -> str:
        """Equal for all jobs that can share the database."""
        return f"{self.recipe}: {self.choice}" + (
            f", image {self.choice.image}" if self.choice.image else ""
        )

    def __str__(self) -> str:
        return f"{self.recipe} with {format_count(self.choice.nodes, 'node')}"


def find_sites(turns: Sequence[Turn], definition: Definition, config: Config) -> dict[str, Site]:
    """Job -> the database to install for it, if any. ConfigError if the recipe lacks it."""
    sites: dict[str, Site] = {}
    for turn in turns:
        for job in turn:
            if job.install is None:
                continue
            target = name_target(definition, job.candidate)
            recipe = recipe_of(config, target)
            installation = job.install
            choice = choose(
                recipe, installation.variant, job.candidate.nodes, installation.size,
                installation.image, installation.storage_class,
            )  # fmt: skip
            sites[job.name] = Site(recipe.name, choice, target, installation.timeout)
    return sites


def add_recipe_options(
    turns: Sequence[Turn], sites: Mapping[str, Site], config: Config
) -> list[Turn]:
    """The turns, with the module options needed for the number of nodes, unless the file sets them."""
    return [
        [_complete(job, sites[job.name], config) if job.name in sites else job for job in turn]
        for turn in turns
    ]


def _complete(job: Job, site: Site, config: Config) -> Job:
    module = config.place_of(site.target)[0]
    extra = recipe_of(config, site.target).extra_options(module, site.choice.nodes)
    present = job.request.extra_options
    added = [
        option
        for option in extra
        if not any(text.startswith(f"{option.partition('=')[0]}=") for text in present)
    ]
    request = job.request.model_copy(update={"extra_options": (*present, *added)})
    words = [f"--extra-option={option}" for option in added]
    return replace(job, request=request, arguments=(*job.arguments, *words))


class Installer:
    """Keeps at most one database installed: the one that the next turn needs. Never touches anyone else's
    database."""

    def __init__(
        self,
        config: Config,
        note_file: Path,
        sites: Mapping[str, Site],
        prepared: Mapping[str, AnyExperiment],
        interrupts: Interrupts,
    ) -> None:
        """`note_file`: the file that records what is installed."""
        self._config = config
        self._note_file = note_file
        self._sites = dict(sites)
        self._interrupts = interrupts
        self._places = {name: prepared[name].session.place for name in sites}
        for name, site in sites.items():
            if prepared[name].session.executor is not ExecutorName.KUBERNETES:
                raise ConfigError(
                    f"{name}: databases are installed on Kubernetes, and target {site.target} has"
                    " executor local"
                )
        self._failed: dict[str, str] = {}
        """Site -> why it couldn't be installed."""
        self.left: list[str] = []
        """What couldn't be removed, and why."""

    @property
    def present(self) -> str | None:
        """The key of the last site that was installed and not removed."""
        return _read_note(self._note_file).get("site")

    def check(self, consent: Consent, jobs: Iterable[Job]) -> bool:
        """Whether the user confirms this cluster. ConfigError if a foreign database already exists, which
        would be removed with its data."""
        databases: dict[tuple[str, Place], tuple[Site, Place]] = {}
        for job in jobs:
            if job.name in self._sites:
                site, place = self._sites[job.name], self._places[job.name]
                databases.setdefault((site.recipe, place), (site, place))
        for site, place in databases.values():
            database = self._open(site, place)
            database.check()
            installed = database.read_state()
            if _is_there(installed) and _read_note(self._note_file).get("recipe") != site.recipe:
                raise ConfigError(
                    f"{site.recipe} is in namespace {place.namespace} already ({installed.state}):"
                    " this campaign would remove it with its data. Uninstall it first, or set"
                    " `install: false` at its target"
                )
        for place in dict.fromkeys(place for _, place in databases.values()):
            names = ", ".join(site.recipe for site, other in databases.values() if other == place)
            if not confirm(
                place, consent, f"Install {names}, and remove each with its data after its turns"
            ):
                return False
        return True

    def is_ready(self, job: Job) -> bool:
        """Whether the job's database is the installed one, still with the data of the previous job."""
        site = self._sites.get(job.name)
        if site is None:
            return True
        if self.present != site.key:
            return False
        return self._open(site, self._places[job.name]).read_state().state == "ready"

    def provide(self, job: Job) -> str | None:
        """Make sure that the job's database is installed, and the previous turn's is removed; return why that
        failed, or None."""
        site = self._sites.get(job.name)
        if site is None:
            self.remove()
            return None
        if site.key in self._failed:
            return self._failed[site.key]
        if self.is_ready(job):
            return None
        self.remove()
        place = self._places[job.name]
        note(f"installing {site}: variant {site.choice.variant}, size {site.choice.size}")
        noted = {
            "site": site.key, "recipe": site.recipe, "target": site.target,
            "namespace": place.namespace, "kubeconfig": place.kubeconfig, "context": place.context,
        }  # fmt: skip
        write_whole(self._note_file, json.dumps(noted))
        try:
            self._open(site, place).install(site.choice)
        except CliError as error:
            why = f"{site} can't be installed: {one_line(error.message, 300)}"
            self._failed[site.key] = why
            self.remove()
            return why
        return None

    def remove(self) -> None:
        """Remove the campaign's own database, if any, with its data. Failures go to `left`."""
        noted = _read_note(self._note_file)
        if not noted:
            return
        place = Place(noted["namespace"], noted["kubeconfig"], noted["context"])
        try:
            database = Database(
                self._config, noted["target"], place, _REMOVAL_TIMEOUT_S, self._interrupts
            )
            installed = database.read_state()
            if _is_there(installed):
                note(f"removing {noted['recipe']} with its data")
                database.run("uninstall.sh", removal_arguments(installed, delete_volumes=True))
        except CliError as error:
            self.left.append(f"{noted['recipe']} was not removed: {one_line(error.message, 300)}")
            note(self.left[-1])
        self._note_file.unlink(missing_ok=True)

    def _open(self, site: Site, place: Place) -> Database:
        return Database(self._config, site.target, place, round(site.timeout_s), self._interrupts)


def _is_there(installed: Installed) -> bool:
    return bool(installed.choice or installed.pods or installed.volumes)


class TurnServer:
    """Keeps at most one server running: that of the turn, started for each turn."""

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
        """Make sure that the server of the job's turn answers, and the previous turn's is stopped; return why
        that failed, or None."""
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
        """Stop the running server, even if interrupted. Failures go to `left`."""
        with self._interrupts.shield():
            self._turn = None
            label = _read_note(self._note_file).get("target")
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
        request = self._prepared[job.name].session.request.model_copy(update={"disturb": ()})
        noted = None
        while not (finding := check_database(request, self._interrupts)).ok:
            if time.monotonic() + _PAUSE_S > deadline:
                raise RunFailed(f"it doesn't answer: {finding.text}")
            if finding.text != noted:
                noted = finding.text
                note(f"it doesn't answer yet: {one_line(noted, 300)}")
            time.sleep(_PAUSE_S)


def _read_note(file: Path) -> dict[str, str]:
    """What exists of the campaign's own; empty if nothing."""
    try:
        document = read_json(file)
    except (FileNotFoundError, DocumentError):
        return {}
    return document if isinstance(document, dict) else {}
