"""`run.py workloads learn`: a recording described as a definition."""

from __future__ import annotations

from pathlib import Path

import click

from .options import debug_option, output_option


@click.command(short_help="Describe a file of recorded data as a definition.")
@click.argument("recording")
@output_option(None, "YAML file to write; printed if left out.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path, dir_okay=False),
    help="HTML page to write: recorded and made values over each other.",
)
@click.option(
    "--anonymous",
    is_flag=True,
    help="No names, texts, times or extremes of the data in the definition.",
)
@debug_option
def learn(
    recording: str, output: Path | None, plot: Path | None, anonymous: bool, debug: bool
) -> None:
    """Describe a RECORDING as a definition, whose events are like the recorded ones.

    RECORDING is what --workload takes: a file, a folder, an address, or a definition with `recorded:`. Each
    line of the definition says what it was read from; a table compares recorded events with made ones.
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
