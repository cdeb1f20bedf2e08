"""python -m simulator.testing --module NAME [options of pytest]: the contract suite for a module of another
package. Exit status: pytest's; 2 if there is no such module or no server."""

from __future__ import annotations

import argparse
import sys

import pytest

from ..errors import OptionError
from .server import Choice, find_entries


def main() -> int:
    """Run the suite. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m simulator.testing",
        description="Run the contract suite on a database module.",
        epilog="All other arguments go to pytest: -q, -x, -k EXPRESSION, -n 4 (with pytest-xdist).",
    )
    parser.add_argument("--module", required=True, help="name of the module, as in config.yaml")
    arguments, pytest_arguments = parser.parse_known_args()
    try:
        entries = find_entries(arguments.module)
    except OptionError as error:
        parser.error(str(error))
    if not any(entry.is_there for entry in entries):
        needed = " or ".join(", ".join(entry.variables) for entry in entries)
        parser.error(f"no server for module {arguments.module}: set {needed}")
    return pytest.main(
        ["--pyargs", "simulator.testing.suite", *pytest_arguments], plugins=[Choice(entries)]
    )


if __name__ == "__main__":
    sys.exit(main())
