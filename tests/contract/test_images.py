"""The compose file of the official images fits the suite: it can't be tried where there is no Docker."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from simulator.testing.server import Entry

from ..on_images import main, services, suite_of
from .entries import ENTRIES

# No image of Azure Data Explorer would do, and three nodes are more than a test needs. The tree is IoTDB's.
WITHOUT_IMAGE = {"kusto", "iotdb-tree"}
REAL = [
    entry
    for entry in ENTRIES
    if entry.variables and entry.name not in WITHOUT_IMAGE and "three" not in entry.name
]


def test_there_is_an_image_for_each_real_server() -> None:
    assert {entry.name for entry in REAL} == set(services())


@pytest.mark.parametrize("entry", REAL, ids=lambda entry: entry.name)
def test_the_variables_are_those_that_the_suite_asks_for(entry: Entry) -> None:
    service = services()[entry.name]
    assert set(service["x-variables"]) == set(entry.variables)
    # They point at the ports that the service publishes, on this machine only.
    for port in service["ports"]:
        host, published, _ = port.split(":")
        assert host == "127.0.0.1"
        assert published in re.findall(r"\d+", " ".join(service["x-variables"].values()))


@pytest.mark.parametrize("name", services())
def test_versions_are_pinned_and_readiness_is_known(name: str) -> None:
    service = services()[name]
    assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+[\w.-]*", service["image"])
    assert service["healthcheck"]["test"]


def test_no_two_share_a_port() -> None:
    ports = [port for service in services().values() for port in service["ports"]]
    assert len({port.rpartition(":")[0] for port in ports}) == len(ports)


def test_the_command_chooses_the_tests_of_one_server() -> None:
    """Even if its name is part of other names, or is that of a module with other servers."""
    systems = ("postgres", "elasticsearch")
    arguments: list[list[str]] = []
    environment = dict(os.environ)
    for system in systems:
        (_, _, _, *options), variables = suite_of(system)
        # The suite alone: collecting all tests takes seconds.
        options[options.index("tests/contract")] = "tests/contract/test_suite.py"
        arguments.append([*options, "--collect-only", "-n", "0", "-p", "no:cacheprovider"])
        environment |= variables
    # Both in one process, which has seconds of imports before it.
    code = (
        "import json, sys, pytest\n"
        "for arguments in json.load(sys.stdin):\n"
        "    assert pytest.main(arguments) == 0\n"
        "    print('end of one')\n"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(arguments), env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stdout + process.stderr
    *chosen, _ = process.stdout.split("end of one\n")
    for system, text in zip(systems, chosen, strict=True):
        cases = re.findall(r"test_suite\.py::\w+\[([^]]+)\]", text)
        assert len(cases) > 50
        assert all(case.startswith(system) for case in cases), system


def test_an_unknown_system_names_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["oracle"]) == 2
    assert "unknown: oracle (known: postgres, " in capsys.readouterr().err
