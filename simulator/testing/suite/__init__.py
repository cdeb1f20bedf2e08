"""The tests. `conftest.py` runs them for each server; elsewhere, `collect_tests` finds them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules


def collect_tests() -> dict[str, Callable[..., None]]:
    """Name -> function of all tests. AssertionError if two have the same name."""
    functions: dict[str, Callable[..., None]] = {}
    for module in iter_modules(__path__):
        if module.name.startswith("test_"):
            members = vars(import_module(f".{module.name}", __name__))
            tests = {name: member for name, member in members.items() if name.startswith("test_")}
            assert functions.keys().isdisjoint(tests), functions.keys() & tests.keys()
            functions |= tests
    return functions
