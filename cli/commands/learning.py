"""`run.py workloads learn`: describes a recording as a workload definition."""

from __future__ import annotations

from pathlib import Path

import click

from .options import debug_option, output_option


@click.command(short_help="Turn a file of recorded data into a workload definition.")
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
