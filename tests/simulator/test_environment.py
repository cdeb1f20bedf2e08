"""What the result says of the machine and of the software that made the load."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from simulator.machine import client_environment
from simulator.modules import load_module, module_names


@pytest.mark.parametrize("name", module_names())
def test_a_result_lists_the_versions_of_its_modules_driver(name: str) -> None:
    """And of no other module's, which had no part in it."""
    own = load_module(name).PACKAGES
    # One sends nothing, one speaks Thrift by itself, and some only HTTP.
    alone = ("blackhole", "iotdb", "clickhouse", "cratedb", "victoriametrics")
    assert own or name in alone, "the module names no driver"
    listed = client_environment(own)["packages"]
    assert list(listed) == [*own, "numpy", "orjson"]
    assert listed == {package: version(package) for package in listed}


def test_a_package_that_is_not_installed_has_no_version() -> None:
    assert client_environment(["no-such-driver"])["packages"]["no-such-driver"] is None
