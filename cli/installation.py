"""How this tool is installed: where the files beside its code lie, what it is called, and how to add
a package that is missing. Nothing else asks where a file of the tool's own is."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

PACKAGES = Path(__file__).resolve().parents[1]
"""The folder of `cli` and `simulator`: a checkout, or site-packages."""

_SHIPPED = Path(__file__).with_name("shipped")
"""In a wheel, what a checkout has in its root (pyproject.toml puts it there)."""

IS_CHECKOUT = not _SHIPPED.is_dir()

COMMAND = "iotbench"
"""The command of the installed package."""

CONFIG_FILE = "config.yaml"
"""The config file if none is named: in the folder from which the tool is run."""

_OWN_PACKAGES = ("cli", "simulator")


def shipped(name: str) -> Path:
    """`deployment`, `dbinstall` or `config.yaml`, as this version has them."""
    return (PACKAGES if IS_CHECKOUT else _SHIPPED) / name


def program() -> str:
    """What the user typed to start the tool, for messages that name another command."""
    return COMMAND if Path(sys.argv[0]).name == COMMAND else "python run.py"


def environment_for_processes(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` for a Python that must find `simulator` from any folder, as this one does."""
    if not IS_CHECKOUT:
        return dict(environment)
    paths = [str(PACKAGES), environment.get("PYTHONPATH", "")]
    return {**environment, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def missing_package(error: ModuleNotFoundError) -> str | None:
    """What to do about a package that isn't installed; None if `error` is about one of our own."""
    name = (error.name or "").partition(".")[0]
    if not name or name in _OWN_PACKAGES:
        return None
    pip = f"{_shortest(Path(sys.executable))} -m pip install"
    if IS_CHECKOUT:
        remedy = f"{pip} -r {_shortest(PACKAGES / 'requirements.txt')}"
    else:
        remedy = f"{pip} --upgrade --force-reinstall iot-database-benchmark"
    return f"the Python package {name} is needed for this and not installed: {remedy}"


def _shortest(path: Path) -> Path:
    """`path` as it may be typed here."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
