"""`run.py ceiling`: how fast this machine could generate and encode, if databases took no time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..plan.requests import Request
from ..plan.values import WorkerCounts
from .options import Parsed, debug_option, options_of, whole

if TYPE_CHECKING:
    from simulator.modules.sending import Encoder
    from simulator.workloads.base import Workload


@click.command()
@click.option("--module", "chosen", help="Only this module; default: all that encode something.")
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
    """Print events per second, CPU and bytes per event of generating and encoding, on one core.

    No database is used. A run that reaches half of its line's rate per worker measures the
    client; `--target blackhole` runs the same with collector, workers and measuring.
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
    """CPU seconds per event of generating and of encoding, and an event's bytes in the requests: the best
    of `rounds`, since whatever else the machine does can only add to the time."""
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
