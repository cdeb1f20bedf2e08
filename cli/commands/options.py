"""Options that several commands share, and their types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from enum import StrEnum
from functools import wraps
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

import click
from pydantic import BaseModel

from simulator.contract import MAX_WORKERS, DataSet, Load, Role

from ..system.installation import CONFIG_FILE
from ..system.signals import END_PATIENCE_S
from .values import (
    Amount,
    Duration,
    Folder,
    Function,
    Label,
    Limit,
    Pair,
    Rate,
    WeightedQueries,
    on_command_line,
)

if TYPE_CHECKING:
    from ..plan.planning import Request
    from ..results.address import Address
    from ..run.experiments.experiment import Experiment
    from ..run.experiments.session import CommonOptions, Session
    from ..run.live import LiveOptions

Model = TypeVar("Model", bound=BaseModel)
AnyRequest = TypeVar("AnyRequest", bound="Request")


def combine(*options: Callable[[Function], Function]) -> Callable[[Function], Function]:
    """Several options as one decorator, in this order."""

    def add(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def config_option(text: str = "Config file with the targets.") -> Callable[[Function], Function]:
    """The file that names the targets."""
    return click.option(
        "-c", "--config", "config_file", default=CONFIG_FILE, show_default=True,
        type=click.Path(path_type=Path), help=text,
    )  # fmt: skip


place_options = combine(
    click.option("--kubeconfig", help="Kubeconfig file; default: $KUBECONFIG, ~/.kube/config."),
    click.option("--context", help="Context of the kubeconfig; default: its current one."),
    click.option("--namespace", help="Kubernetes namespace; default: the config file's."),
)
"""Which cluster and namespace; the same for helm and for this tool."""
debug_option = click.option("--debug", is_flag=True, help="Show a traceback with an error.")
"""Every command has it."""
extra_option = click.option(
    "--extra-option", "extra_options", multiple=True, metavar="KEY=VALUE",
    help="Option for the database module, over the target's own; may be repeated.",
)  # fmt: skip
workload_option = click.option(
    "--workload-option", "workload_pairs", multiple=True, metavar="KEY=VALUE",
    help="Option of the workload, over the target's own; may be repeated.",
)  # fmt: skip
live_options = combine(
    click.option(
        "--live", is_flag=True,
        help="Serve a page on this machine that shows the command while it runs.",
    ),
    click.option(
        "--open", "open_live", is_flag=True, help="Serve that page, and open it in a browser.",
    ),
    click.option(
        "--prometheus", "prometheus_file", type=click.Path(path_type=Path, dir_okay=False),
        help="Serve that page, and write this file for Prometheus' file-based discovery.",
    ),
)  # fmt: skip
"""The page that shows a command while it runs: every command that runs something has it."""


def workers_option(text: str) -> Callable[[Function], Function]:
    """How many workers take part."""
    return click.option(
        "-w", "--workers", default=1, show_default=True, type=click.IntRange(1, MAX_WORKERS), help=text,
    )  # fmt: skip


def runs_option(text: str) -> Callable[[Function], Function]:
    """How often something is done."""
    return click.option(
        "-r", "--runs", default=3, show_default=True, type=click.IntRange(min=1), help=text,
    )  # fmt: skip


def queries_option(function: Function, text: str = "", **changes: Any) -> Function:
    """The queries that readers ask, with their weights. `text`: what comes before their meaning."""
    return click.option(
        "--queries", type=WeightedQueries(),
        help=f"{text}The queries to ask; with --duration also how often in proportion to each other, as in"
        " newest-per-device=3,temperature-stats. Default: the target's, or else the workload's own.",
        **changes,
    )(function)  # fmt: skip


def take_queries(given: dict[str, Any]) -> dict[str, Any]:
    """The fields of `Load` that `queries_option` fills; its value is taken out of `given`."""
    weights = given.pop("queries")
    return {"weights": weights, "queries": list(weights)} if weights else {}


def make_readers(given: dict[str, Any]) -> Load:
    """The load of readers beside writers, from the options of a command that has both; those of
    `queries_option` are taken out of `given`."""
    return Load(
        role=Role.READ,
        workers=given["readers"],
        rate_per_s=given["query_rate"],
        stages=given.get("query_stages", []),
        in_flight=given["reader_in_flight"],
        **{
            name: given[name] for name in ("duration_s", "warm_up_s", "arrivals", "redraw", "check")
        },
        **take_queries(given),
    )


WARM_UP_SHARE = 6
"""The first sixth of each run of a search is warm-up, unless another is asked for."""


def set_warm_up(given: dict[str, Any], flag: str, noun: str) -> None:
    """Fill in the warm-up of a search's runs; UsageError if it leaves nothing of their length. `flag`: the
    option that gives the length; `noun`: what such a run is called."""
    if given["warm_up_s"] is None:
        given["warm_up_s"] = round(given["duration_s"] / WARM_UP_SHARE, 2)
    elif given["warm_up_s"] >= given["duration_s"]:
        raise click.UsageError(
            f"--warm-up {given['warm_up_s']:g}s leaves nothing of {flag} {given['duration_s']:g}s to"
            f" measure: the warm-up is a part of the {noun}"
        )


def limit_option(whose: str, more: str) -> Callable[[Function], Function]:
    """Any number of limits. `whose`: what must keep to them; `more`: what else there is to know."""
    return click.option(
        "--limit", "limits", multiple=True, type=Limit(),
        help=f"What {whose} must keep to: p50, p90, p99, p99_9 (response times) or service_p99, as in"
        f" p99=100ms; error_share=0.1%. May be repeated. {more}",
    )  # fmt: skip


columns_option = click.option(
    "--columns", metavar="all|NAME,...",
    help="Columns of the table of inserts; default: all, or on a terminal those that fit in one table.",
)  # fmt: skip

abort_option = click.option(
    "--abort-on-limit", "abort_on_limit", is_flag=True,
    help="End a run as soon as it can no longer keep a limit.",
)  # fmt: skip
STATUS_3 = "If it is missed or can't be decided, the exit status is 3."

disturb_option = combine(
    click.option(
        "--disturb", "disturb", multiple=True, metavar="'WHEN ACTION ...'",
        help="Do something to the database during the run: '30s restart-server', '30s kill-server',"
        " '30s delete-pods app=db', '30s restart statefulset/db', '30s scale statefulset/db 0',"
        " '30s run COMMAND'; or cut the devices off for a while, and have them send their events afterwards:"
        " '30s pause-fleet 10s'. May be repeated. Default: the target's disturbances.",
    ),
    click.option(
        "--disturb-grace", "disturb_grace_s", default=END_PATIENCE_S, type=Duration(),
        help="How long a `run COMMAND` that outlasts the run, or is interrupted, has to undo what it did:"
        f" it gets SIGTERM, and after this time SIGKILL. Default: {END_PATIENCE_S:g}s.",
    ),
)  # fmt: skip
"""What is done to the database."""


def option_of(
    model: type[BaseModel], name: str, flag: str | None = None, key: str = "", **changes: Any
) -> Callable[[Function], Function]:
    """A field of a message as an option: its name or alias without its unit, type, limits, default and
    meaning. `flag`: another name; `key`: the command's parameter for it, if not the field's name;
    `changes`: what else differs."""
    field = model.model_fields[name]
    word = (field.alias or name).removesuffix("_per_s").removesuffix("_s")
    flag = flag or "--" + word.replace("_", "-")
    kind, optional = _unwrap(field.annotation)
    shared: dict[str, Any] = {
        "default": field.default, "show_default": not optional, "help": field.description,
    }  # fmt: skip
    if kind is bool:
        no = f"--no-{name.replace('_', '-')}"
        return click.option(f"{flag}/{no}", key or name, **shared | changes)
    limits = _find_limits(field.metadata)
    if kind is int:
        shared["type"] = Amount(limits.get("ge"), limits.get("le"))
    elif kind is float and name.endswith("_s") and not name.endswith("_per_s"):
        shared["type"] = Duration(limits.get("ge", limits.get("gt", 0.0)), "gt" in limits)
        shared["show_default"] = False
    elif kind is float:
        shared["type"] = Rate(limits.get("gt"), min_open=True)
    elif isinstance(kind, type) and issubclass(kind, StrEnum):
        shared["type"] = click.Choice([str(member) for member in kind], case_sensitive=False)
        shared["default"] = str(field.default)
    return click.option(flag, key or name, **shared | changes)


def _unwrap(annotation: Any) -> tuple[Any, bool]:
    """The type of `T | None`, and whether None is allowed."""
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    return (kinds[0], True) if len(kinds) == 1 else (annotation, False)


def _find_limits(metadata: Sequence[Any]) -> dict[str, Any]:
    """The limits of a field: bound (`ge`, `gt`, `le`) -> value."""
    return {
        bound: getattr(limit, bound)
        for limit in metadata
        for bound in ("ge", "gt", "le")
        if hasattr(limit, bound)
    }


def options_of(*fields: tuple[type[BaseModel], str]) -> Callable[[Function], Function]:
    """Several fields as options, in this order."""
    return combine(*(option_of(model, name) for model, name in fields))


reader_in_flight_option = option_of(
    Load, "in_flight", "--reader-in-flight", "reader_in_flight", default=1, show_default=True,
    help="Queries that each reader may have in flight.",
)  # fmt: skip
"""Every command that has readers has it: their own, beside the writers'."""


write_options = options_of(
    (Load, "batch"), (Load, "in_flight"), (Load, "patience_s"), (Load, "primary_key"), (Load, "tables")
)  # fmt: skip
"""How events are sent."""


def fill_model(model: type[Model], given: Mapping[str, Any], **more: Any) -> Model:
    """A message from those of the given values that are its fields."""
    own = {name: given[name] for name in model.model_fields if name in given}
    return model(**(own | more))


def fill_request(
    ctx: click.Context, kind: type[AnyRequest], given: Mapping[str, Any], **more: Any
) -> AnyRequest:
    """The request of a command that measures, from those of the given values that are fields of it, of its
    load or of its data set."""
    names = {field.name for field in fields(kind)} & given.keys()
    own = {
        # `runs` is how often the whole run is made; only for readers alone it's the load's, too.
        "load": fill_model(Load, {k: v for k, v in given.items() if k != "runs"}, role=Role.WRITE),
        "data": fill_model(DataSet, given),
        "given": on_command_line(ctx),
    }
    return kind(**({name: given[name] for name in names} | own | more))


def take_live(given: Mapping[str, Any]) -> LiveOptions | None:
    """The values of `live_options`."""
    from ..run.live import LiveOptions

    live, open_it, file = (given.get(name) for name in ("live", "open_live", "prometheus_file"))
    return LiveOptions(bool(open_it), file) if live or open_it or file else None


common = combine(
    click.option("-t", "--target", required=True, help="Name of the target in the config file."),
    config_option(),
    extra_option,
    click.option(
        "--timeout", "timeout_s", default=0.0, show_default=True, type=Duration(),
        help="How long one run may take: 10m, or a number of seconds; 0: no limit.",
    ),
    option_of(DataSet, "workload"),
    workload_option,
    click.option(
        "--executor", type=click.Choice(["local", "kubernetes"]),
        help="Where collector and workers run; default: the target's, or else kubernetes.",
    ),
    place_options,
    click.option(
        "--output", default="results", show_default=True, type=Folder(), metavar="FOLDER|URL",
        help="Folder in which a new folder with the result is made; or an address such as"
        " s3://bucket/folder, to which it is copied from results/.",
    ),
    click.option(
        "--label", type=Label(),
        help="Name of the result, usable wherever its ID is.",
    ),
    click.option(
        "--tag", "tags", multiple=True, type=Pair(), metavar="KEY=VALUE",
        help="Tag stored with the result, to filter by; may be repeated.",
    ),
    click.option(
        "--json", "json_file", type=click.Path(path_type=Path, dir_okay=False),
        help="Write a copy of result.json to this file.",
    ),
    live_options,
    click.option("--quiet", is_flag=True, help="Print no progress: only the result, warnings and errors."),
    debug_option,
)  # fmt: skip
"""Options of every command that runs something against a target."""


def results_option(function: Function) -> Function:
    """Where results are kept: every command that reads them has it."""

    @wraps(function)
    def call(*args: Any, results_folder: Path | Address, **values: Any) -> Any:
        # Fetched when the command runs, not when its line is read: an address takes a while.
        if not isinstance(results_folder, Path):
            results_folder = results_folder.fetch()
        return function(*args, results_folder=results_folder, **values)

    return click.option(
        "--results", "results_folder", default="results", show_default=True, type=Folder(),
        metavar="FOLDER|URL", help="Folder with the stored results, or its address.",
    )(cast(Function, call))  # fmt: skip


def output_option(default: str | None, text: str) -> Callable[[Function], Function]:
    """The file to write."""
    return click.option(
        "--output", default=default, show_default=default is not None,
        type=click.Path(path_type=Path, dir_okay=False), help=text,
    )  # fmt: skip


def run(
    ctx: click.Context,
    kind: Callable[[AnyRequest, Session], Experiment[AnyRequest]],
    request: AnyRequest,
    given: dict[str, Any],
) -> None:
    """Make an experiment of this kind, and end with its exit status."""
    from ..run.experiments.experiment import run_experiment
    from ..run.experiments.session import open_session

    common = replace(request_of(given), job=ctx.meta.get("job"))
    ctx.exit(run_experiment(kind(request, open_session(common)), ctx.obj))


def request_of(given: Mapping[str, Any]) -> CommonOptions:
    """The values of those of `common`'s options that a command has."""
    from ..run.experiments.session import CommonOptions

    names = {field.name for field in fields(CommonOptions)} & given.keys()
    own = {
        "tags": dict(given.get("tags", ())),
        "live": take_live(given),
        "workload_options": given["workload_pairs"],
    }
    return CommonOptions(**({name: given[name] for name in names} | own))
