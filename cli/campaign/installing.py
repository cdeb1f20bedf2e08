"""Databases that a campaign installs before their turns, and removes with their data after them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from simulator.documents import DocumentError, read_json
from simulator.errors import one_line
from simulator.units import format_count

from ..cluster import Place
from ..config import Config
from ..errors import CliError, ConfigError
from ..experiments.experiment import AnyExperiment
from ..install.recipes import Choice, choose, recipe_of
from ..install.work import Consent, Database, Installed, confirm, removal_arguments
from ..output import note, write_whole
from ..signals import Interrupts
from ..target import ExecutorName
from .definition import Definition
from .plan import Job, Turn, name_target


@dataclass(frozen=True)
class Site:
    """A database as it is installed."""

    recipe: str
    choice: Choice
    target: str
    """One of those by which it is reached."""
    timeout_s: float

    @property
    def key(self) -> str:
        """The same for whoever can share it."""
        return f"{self.recipe}: {self.choice}" + (
            f", image {self.choice.image}" if self.choice.image else ""
        )

    def __str__(self) -> str:
        return f"{self.recipe} with {format_count(self.choice.nodes, 'node')}"


def find_sites(turns: Sequence[Turn], definition: Definition, config: Config) -> dict[str, Site]:
    """Job -> what is installed for it, of those for which something is. ConfigError if its recipe doesn't
    have that."""
    found: dict[str, Site] = {}
    for turn in turns:
        for job in turn:
            if job.install is None:
                continue
            target = name_target(definition, job.candidate)
            recipe = recipe_of(config, target)
            wanted = job.install
            choice = choose(
                recipe, wanted.variant, job.candidate.nodes, wanted.size, wanted.image,
                wanted.storage_class,
            )  # fmt: skip
            found[job.name] = Site(recipe.name, choice, target, wanted.timeout)
    return found


def add_recipe_options(
    turns: Sequence[Turn], sites: Mapping[str, Site], config: Config
) -> list[Turn]:
    """The turns, with what a module must be told for so many nodes, unless the file says something else."""
    return [
        [
            replace(job, arguments=_complete(job, sites[job.name], config))
            if job.name in sites
            else job
            for job in turn
        ]
        for turn in turns
    ]


def _complete(job: Job, site: Site, config: Config) -> tuple[str, ...]:
    module = config.place_of(site.target)[0]
    extra = recipe_of(config, site.target).extra_options(module, site.choice.nodes)
    given = [f"--extra-option={one}" for one in extra]
    kept = [
        one
        for one in given
        if not any(text.startswith(f"{one.rpartition('=')[0]}=") for text in job.arguments)
    ]
    return (*job.arguments, *kept)


class Installer:
    """Has at most one database installed: the one that the next turn needs.

    What it has installed is noted in the campaign's folder, so that whoever goes on with a campaign knows
    what is its own; a database that somebody else has installed is never touched.
    """

    def __init__(
        self,
        config: Config,
        note_file: Path,
        sites: Mapping[str, Site],
        prepared: Mapping[str, AnyExperiment],
        interrupts: Interrupts,
    ) -> None:
        """`note_file`: where it is kept what is installed."""
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
        """The key of the site that was installed last and not removed since."""
        return self._read_note().get("site")

    def check(self, consent: Consent, jobs: Iterable[Job]) -> bool:
        """Whether the user means this cluster. ConfigError if a database is there already that isn't the
        campaign's own: it would be removed with its data."""
        databases: dict[tuple[str, Place], tuple[Site, Place]] = {}
        for job in jobs:
            if job.name in self._sites:
                site, place = self._sites[job.name], self._places[job.name]
                databases.setdefault((site.recipe, place), (site, place))
        for site, place in databases.values():
            database = self._open(site, place)
            database.check()
            found = database.read_state()
            if _is_there(found) and self._read_note().get("recipe") != site.recipe:
                raise ConfigError(
                    f"{site.recipe} is in namespace {place.namespace} already ({found.state}): this"
                    " campaign would remove it with its data. Uninstall it first, or say `install:"
                    " false` at its target"
                )
        for place in dict.fromkeys(place for _, place in databases.values()):
            own = ", ".join(site.recipe for site, where in databases.values() if where == place)
            if not confirm(
                place, consent, f"Install {own}, and remove each with its data after its turns"
            ):
                return False
        return True

    def is_ready(self, job: Job) -> bool:
        """Whether a job's database is the one that is there, so that data of the job before are, too."""
        site = self._sites.get(job.name)
        if site is None:
            return True
        if self.present != site.key:
            return False
        return self._open(site, self._places[job.name]).read_state().state == "ready"

    def provide(self, job: Job) -> str | None:
        """Have the job's database there, and the one of the turn before gone; why that can't be done, or
        None."""
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
        self._write_note({"site": site.key, "recipe": site.recipe, "target": site.target,
                          "namespace": place.namespace, "kubeconfig": place.kubeconfig,
                          "context": place.context})  # fmt: skip
        try:
            self._open(site, place).install(site.choice, self._interrupts)
        except CliError as error:
            why = f"{site} can't be installed: {one_line(error.message, 300)}"
            self._failed[site.key] = why
            self.remove()
            return why
        return None

    def remove(self) -> None:
        """Remove what is there of the campaign's own, with its data. What fails is kept in `left`."""
        noted = self._read_note()
        if not noted:
            return
        place = Place(noted["namespace"], noted["kubeconfig"], noted["context"])
        try:
            database = Database(self._config, noted["target"], place, _REMOVAL_TIMEOUT_S)
            found = database.read_state()
            if _is_there(found):
                note(f"removing {noted['recipe']} with its data")
                database.remove(removal_arguments(found, delete_volumes=True))
        except CliError as error:
            self.left.append(f"{noted['recipe']} was not removed: {one_line(error.message, 300)}")
            note(self.left[-1])
        self._note_file.unlink(missing_ok=True)

    def _open(self, site: Site, place: Place) -> Database:
        return Database(self._config, site.target, place, round(site.timeout_s))

    def _read_note(self) -> dict[str, str]:
        try:
            found = read_json(self._note_file)
        except (FileNotFoundError, DocumentError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write_note(self, noted: Mapping[str, str | None]) -> None:
        write_whole(self._note_file, json.dumps(noted))


_REMOVAL_TIMEOUT_S = 900


def _is_there(found: Installed) -> bool:
    return bool(found.choice or found.pods or found.volumes)
