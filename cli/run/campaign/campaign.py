"""A campaign: its file, read and planned, with the config file and its folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from pathlib import Path

import click

from simulator.documents import DocumentError, read_yaml
from simulator.errors import did_you_mean

from ...plan.config import Config, load_config
from ...plan.disturbances import Action
from ...plan.workloads import choose_workload
from ...results.loads import Question
from ...results.store import WORKLOAD
from ...system.errors import ConfigError
from ...system.output import note, print_text
from ...system.processes import Interrupts
from ..experiments import EXPERIMENTS, AnyExperiment
from ..experiments.session import Session, find_module
from .definition import Definition
from .folder import CampaignFolder
from .following import add_steps, make_question
from .installing import Site, add_recipe_options, find_sites
from .plan import Candidate, Job, Turn, list_left, name_target, name_targets, plan_turns
from .reading import load_definition


@dataclass(frozen=True)
class Campaign:
    """A campaign's file, read and planned."""

    file: Path
    config_file: Path
    config: Config
    folder: CampaignFolder
    definition: Definition
    turns: list[Turn]
    sites: Mapping[str, Site]
    """Job -> the database that is installed for it, for jobs that have one."""
    interrupts: Interrupts
    question: Question | None = None
    """What its verdict answers; None without requirements."""
    verbose: bool = False
    """Whether the tables of each job and all that is known about the verdict are printed."""

    @property
    def names(self) -> list[str]:
        """The names of all jobs, in the plan's order."""
        return [job.name for job in self.jobs]

    @property
    def jobs(self) -> list[Job]:
        """All jobs, in the plan's order."""
        return list(chain.from_iterable(self.turns))

    def list_candidates(self) -> list[Candidate]:
        """All candidates, in the file's order."""
        definition = self.definition
        targets, variants = list(definition.targets), [None, *definition.variants]
        return sorted(
            dict.fromkeys(job.candidate for job in self.jobs),
            key=lambda candidate: (
                targets.index(candidate.target), candidate.nodes or 0,
                variants.index(candidate.variant),
            ),
        )  # fmt: skip

    def list_left(self) -> list[Job]:
        """The jobs left to do, judging by the folder."""
        done, failed = self.folder.find_done(self.jobs), self.folder.find_failed(self.jobs)
        return list(chain.from_iterable(list_left(self.turns, done, failed)))

    def digest_targets(self) -> dict[str, str]:
        """Target of the config file -> a digest that reveals changes; and `workload NAME` -> the same for
        each user-defined workload."""
        named = [name_target(self.definition, job.candidate) for job in self.jobs]
        digests = {name: self.config.digest(name) for name in dict.fromkeys(named)}
        requests = [job.request for job in self.jobs]
        named = [request.workload for request in requests if "workload" in request.given]
        for name in dict.fromkeys(named):
            definition = choose_workload(name, self.config).definition
            if definition is not None:
                text = json.dumps(definition, sort_keys=True)
                digests[f"{WORKLOAD}{name}"] = sha256(text.encode()).hexdigest()
        return digests

    def open_job(self, job: Job) -> AnyExperiment:
        """The experiment of a job, checked. ConfigError if it is impossible."""
        own = {
            "config_file": self.config_file, "output": self.folder.results, "label": job.name,
            "job": job.id,
        }  # fmt: skip
        return EXPERIMENTS[job.command].open(job.request.model_copy(update=own))


def open_campaign(
    file: Path,
    config_file: Path,
    output: Path | None,
    interrupts: Interrupts,
    size: str | None = None,
) -> Campaign:
    """Read and plan a campaign; ConfigError if the file is wrong. `size`: one of the file's sizes."""
    definition = load_definition(file, size)
    name = file.stem if size is None else f"{file.stem}-{size}"
    folder = CampaignFolder(output or Path("campaigns") / name)
    config = load_config(config_file)
    _check_targets(definition, config)
    question = make_question(definition, config, file)
    definition = add_steps(definition, question, config)
    turns = plan_turns(definition)
    try:
        turns = _leave_out(turns, definition, config)
        sites = find_sites(turns, definition, config)
    except ConfigError as error:
        raise ConfigError(f"{definition.locate(('targets',))}{error.message}") from error
    turns = add_recipe_options(turns, sites, config)
    return Campaign(
        file, config_file, config, folder, definition, turns, sites, interrupts, question
    )


def _check_targets(definition: Definition, config: Config) -> None:
    """ConfigError, with the lines, if the config file lacks targets."""
    known = config.target_names
    if unknown := [
        f"{definition.locate(('targets', label))}{config.path} has no target {name!r}"
        f"{did_you_mean(name, known)} (it has: {', '.join(known)})"
        for label in definition.targets
        for name in name_targets(definition, label)
        if name not in known
    ]:
        raise ConfigError(*unknown)


def _leave_out(turns: list[Turn], definition: Definition, config: Config) -> list[Turn]:
    """The turns without `clients` for databases that have no official client: a note says so, and the others
    are still compared. ConfigError if no database has one."""
    lacking: dict[str, str] = {}
    jobs = [job for turn in turns for job in turn if job.command == "clients"]
    for job in jobs:
        target = config.target(name_target(definition, job.candidate))
        clients = find_module(config, target).official_clients()
        asks = job.request.readers is not None
        if not any(client.asker if asks else client.ways for client in clients.values()):
            lacking[job.name] = target.module
    if not lacking:
        return turns
    if len(lacking) == len(jobs):
        raise ConfigError("step clients: none of these databases has an official client")
    modules = {job.candidate.target: lacking[job.name] for job in jobs if job.name in lacking}
    for label, module in modules.items():
        note(f"left out: {label} clients: module {module} has no official client")
    return [[job for job in turn if job.name not in lacking] for turn in turns]


# --- what needs the permission of the user, who may not have read the file ---------------------


def list_permissions(campaign: Campaign, sessions: Iterable[Session]) -> list[str]:
    """A line for each command that a campaign's file runs on this machine, for each kubeconfig, with the
    programs it starts, and for each option that decides where a target's secrets go. The config file is
    trusted."""
    commands: dict[str, None] = {}
    diversions: dict[str, None] = {}
    for label in dict.fromkeys(candidate.target for candidate in campaign.list_candidates()):
        target = campaign.definition.targets[label]
        if target.start is not None:
            commands[f"start of {label}: {target.start}"] = None
            commands[f"stop of {label}: {target.stop}"] = None
    for session in sessions:
        if session.request.disturb:
            for disturbance in session.disturbances:
                if disturbance.action is Action.RUN:
                    commands[str(disturbance)] = None
        if session.request.kubeconfig:
            commands.update(dict.fromkeys(_describe_kubeconfig(session.request.kubeconfig)))
        if diverted := session.list_diversions():
            diversions[f"sends secrets of {session.target.name} with {', '.join(diverted)}"] = None
    return [*(f"runs on this machine: {command}" for command in commands), *diversions]


def _describe_kubeconfig(path: str) -> Iterator[str]:
    yield f"kubeconfig {path}, which may run programs"
    try:
        _, document = read_yaml(Path(path).expanduser())
    except (FileNotFoundError, DocumentError):
        return  # reported on use
    users = document.get("users") if isinstance(document, dict) else None
    for entry in users if isinstance(users, list) else ():
        user = entry.get("user") if isinstance(entry, dict) else None
        program = user.get("exec") if isinstance(user, dict) else None
        if isinstance(program, dict):
            words = [program.get("command"), *(program.get("args") or ())]
            yield f"kubeconfig {path} runs: {' '.join(map(str, words))}"


def ask_permission(file: Path, permissions: list[str], allowed: bool) -> bool:
    """Show what the file needs permission for, and return whether it has it: `allowed` beforehand, or
    confirmed on a terminal. ConfigError without a terminal."""
    if not permissions:
        return True
    listed = "".join(f"\n  {line}" for line in permissions)
    if not allowed and not sys.stdin.isatty():
        raise ConfigError(
            f"{file} needs your permission: read these lines, and add --allow-run to give it:{listed}"
        )
    print_text(f"{file} needs your permission:{listed}")
    return allowed or click.confirm("Allow it?")
