"""`run.py workloads`: the workloads, and what their events look like."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..plan.request import Request
from ..plan.values import Duration, WorkerCounts
from .options import Parsed, debug_option, find_given, options_of, output_option, whole

if TYPE_CHECKING:
    from simulator.modules.sending import Encoder
    from simulator.workloads.base import Workload


class _ShowByDefault(click.Group):
    """Makes `workloads machines` mean `workloads show machines`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in {"--help", *self.commands}:
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ShowByDefault)
def workloads() -> None:
    """List the workloads, show one of them, or learn one from a file of recorded data.

    Without a subcommand: show.
    """


@workloads.command(short_help="List the workloads, or show one.")
@click.argument("workload", required=False)
@options_of(Request, "config_file", help="Config file with further workloads.")
@options_of(Request, "workload_pairs")
@click.option("--seed", default=0, type=whole(0, 2**64 - 1), help="Seed of the events shown.")
@click.option("--plot", is_flag=True, help="Draw the values of some devices over time instead.")
@click.option(
    "--span",
    "span_s",
    default="1h",
    show_default=True,
    type=Parsed(Duration(above=True)),
    help="With --plot: the time span to draw.",
)
@click.option(
    "--types",
    is_flag=True,
    help="Show its types in each database, and the bytes per event in requests.",
)
@output_option(None, "With --plot: file to write, .svg or .png. Default: NAME.svg here.")
@click.option(
    "--show-queries",
    is_flag=True,
    help="Show the schema and the statement of each query as --target's module sends them, without"
    " connecting.",
)
@options_of(
    Request,
    "target",
    required=False,
    default=None,
    help="With --show-queries: name of the target in the config file.",
)
@options_of(Request, "extra_options")
@debug_option
@click.pass_context
def show(
    ctx: click.Context,
    workload: str | None,
    config_file: Path,
    workload_pairs: tuple[str, ...],
    seed: int,
    plot: bool,
    span_s: float,
    types: bool,
    output: Path | None,
    show_queries: bool,
    target: str | None,
    extra_options: tuple[str, ...],
    debug: bool,
) -> None:
    """List the workloads: built-in ones, and those under `workloads` in the config file. With a WORKLOAD (a
    name, or a file with a definition), show its columns with a few events, and its queries; with --types, its
    column types in each database; with --show-queries, the statements sent to a target.
    """  # fmt: skip
    from ..plan.workloads import find_config, make_workload
    from ..show.workloads import describe_workload, list_workloads
    from ..system.errors import ConfigError
    from ..system.output import note, print_text

    if show_queries:
        if workload is None or target is None:
            raise ConfigError("--show-queries needs a WORKLOAD and a --target")
        if plot:
            raise ConfigError("--show-queries and --plot: choose one")
        request = Request(
            target=target,
            config_file=config_file,
            extra_options=extra_options,
            workload=workload,
            workload_pairs=workload_pairs,
        )
        print_text(_describe_queries(request, seed))
        return
    if target is not None or extra_options:
        raise ConfigError("--target and --extra-option go with --show-queries")
    config = find_config(config_file)
    about_plot = find_given(ctx).keys() & {"span_s", "output"}
    if about_plot and not plot:
        raise ConfigError("--span and --output go with --plot")
    if workload is None:
        if plot or workload_pairs:
            raise ConfigError("--plot and --workload-option need a WORKLOAD")
        print_text(list_workloads(config))
        return
    instance = make_workload(workload, config, workload_pairs, seed)
    if not plot:
        print_text(describe_workload(instance, types))
        return
    from ..show.report import write_workload_plot

    note(f"Written: {write_workload_plot(instance, round(span_s * 1000), output)}")


def _describe_queries(request: Request, seed: int) -> str:
    """The statements of a target's module for the workload; ConfigError if it can't store or query it."""
    from simulator.contract import DataSet, Load, Role
    from simulator.errors import OptionError

    from ..plan.planning import check_workload
    from ..run.experiments.session import open_session
    from ..run.experiments.statements import collect_statements, make_module
    from ..show.workloads import describe_statements
    from ..system.errors import ConfigError

    session = open_session(request)
    data = session.complete(DataSet(seed=seed))
    load = session.choose_queries(Load(role=Role.READ))
    kind = session.module
    try:
        if not kind.CAPABILITIES.queries:
            raise OptionError(f"module {kind.name} stores nothing to query")
        check_workload(load, data, kind)
        module, workload = make_module(session, data, load)
        heading = f"Target {request.target}, module {kind.name}, workload {workload.name}: schema"
        return describe_statements(collect_statements(module, workload), heading)
    except OptionError as error:
        raise ConfigError(str(error)) from error


@workloads.command(short_help="Turn a file of recorded data into a workload definition.")
@click.argument("recording")
@output_option(None, "YAML file to write; default: standard output.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="HTML page to write: recorded and generated values in one plot.",
)
@click.option(
    "--anonymous",
    is_flag=True,
    help="Keep names, texts, times and extremes of the data out of the definition.",
)
@debug_option
def learn(
    recording: str, output: Path | None, plot: Path | None, anonymous: bool, debug: bool
) -> None:
    """Turn a RECORDING into a workload definition that generates similar events. RECORDING is anything

    --workload takes: a file, a folder, an address, or a definition with `recorded:`. Each line of the
    definition says what it is based on; a table compares recorded with generated events.
    """  # fmt: skip
    from simulator.errors import OptionError

    from ..plan.learning.comparing import compare
    from ..plan.learning.describing import learn as describe
    from ..plan.learning.samples import take_sample
    from ..plan.learning.writing import write_definition
    from ..plan.workloads import choose_recording
    from ..show.learning import ABOUT, make_learning_page, tabulate_comparison
    from ..system.errors import ConfigError
    from ..system.output import note, print_text, terminal_width, write_whole

    for file, ending in ((output, ".yaml"), (plot, ".html")):
        if file is not None and file.suffix.lower() != ending:
            raise ConfigError(f"{file}: name a file that ends in {ending}")
    try:
        name, opened = choose_recording(recording)
        learnt = describe(take_sample(opened), name=name, anonymous=anonymous)
    except OptionError as error:
        raise ConfigError(*error.problems) from error
    comparison = compare(learnt)
    text = write_definition(learnt)
    tables = "\n\n".join(
        table.text(width=terminal_width()) for table in tabulate_comparison(comparison)
    )
    if output is None:
        print_text(text.rstrip("\n"))
        note(f"{tables}\n\n{ABOUT}")
    else:
        write_whole(output, text)
        print_text(f"{tables}\n\n{ABOUT}")
        note(f"Written: {output}")
    if plot is not None:
        write_whole(plot, make_learning_page(learnt, comparison))
        note(f"Written: {plot}")


# `run.py ceiling`: how fast this machine could generate and encode events if databases took no time.


@click.command()
@click.option("--module", "chosen", help="Only this module; default: all that encode.")
@options_of(Request, "workload", "workload_pairs")
@options_of(Request, "config_file", help="Config file with further workloads.")
@click.option(
    "--batch",
    "batches",
    default="1000,10000",
    show_default=True,
    type=Parsed(WorkerCounts()),
    help="Events per request to try, separated by commas.",
)
@click.option(
    "--events",
    default=200_000,
    show_default=True,
    type=whole(1),
    help="Events to generate and encode for each line; the best of three rounds counts.",
)
@debug_option
def ceiling(
    chosen: str | None,
    workload: str,
    workload_pairs: tuple[str, ...],
    config_file: Path,
    batches: tuple[int, ...],
    events: int,
    debug: bool,
) -> None:
    """Print events per second, CPU and bytes per event for generating and encoding, on one core, without a
    database. A run that reaches half of its line's rate per worker measures the client; `--target blackhole`

    does the same with collector, workers and measurement.
    """  # fmt: skip
    from tabulate import tabulate

    from simulator.contract import Load
    from simulator.errors import OptionError
    from simulator.modules import load_module, module_names
    from simulator.modules.base import Job, Support
    from simulator.modules.options import parse_payload_options

    from ..plan.workloads import find_config, make_workload
    from ..system.errors import ConfigError
    from ..system.installation import load_installed
    from ..system.output import note, print_text

    try:
        if chosen:
            modules, left_out = [load_module(chosen)], None
        else:
            modules, left_out = load_installed(module_names())
    except OptionError as error:
        raise ConfigError(f"--module: {error}") from error
    instance = make_workload(workload, find_config(config_file), workload_pairs, seed=0)
    if chosen:
        try:
            modules[0].CAPABILITIES.require_workload(instance.schema, instance.name, chosen)
        except OptionError as error:
            raise ConfigError(f"--workload: {error}") from error
    rows: list[list[str]] = []
    for module in modules:
        if module.CAPABILITIES.workload(instance.schema) is not Support.FULL:
            continue
        for encoding in module.ENCODINGS:
            for batch in batches if encoding.batched else (0,):
                options = parse_payload_options(module.options_model, encoding.options)
                encoder = module.encoder(options, Job(instance.schema, Load(batch=batch)))
                generate_s, encode_s, octets = measure_encoder(instance, encoder, events)
                both = generate_s + encode_s
                micros = [f"{seconds * 1e6:.3f}" for seconds in (generate_s, encode_s, both)]
                rows.append(
                    [
                        module.name,
                        encoding.label,
                        str(encoder.size),
                        f"{1 / both:,.0f}",
                        *micros,
                        f"{octets:,.0f}",
                    ]
                )
    if not rows:
        raise ConfigError(f"module {chosen} encodes nothing")
    costs = ["Generate µs", "Encode µs", "CPU µs/event", "Bytes/event"]
    headers = ["Module", "Mode", "Batch", "Events/s", *costs]
    align = ["left", "left", *["right"] * 6]
    print_text(tabulate(rows, headers, tablefmt="plain", colalign=align, disable_numparse=True))
    if left_out:
        note(left_out)


def measure_encoder(
    workload: Workload, encoder: Encoder, events: int, rounds: int = 3
) -> tuple[float, float, float]:
    """CPU seconds per event for generating and for encoding, and bytes per event in requests: the best of
    `rounds`, since other activity on the machine can only add time."""
    from simulator.worker.feed import Feed

    from ..show.workloads import count_bytes

    costs = []
    octets = 0
    for number in range(rounds):
        feed = Feed(lambda first, count: workload.block(0, first, count), encoder, 0, events)
        for payload in feed:
            if number == 0:
                octets += count_bytes(payload.data)
        costs.append((feed.generate_s / events, feed.encode_s / events))
    return *min(costs, key=sum), octets / events
