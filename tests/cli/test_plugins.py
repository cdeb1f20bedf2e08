"""A broken plug-in of another package: it is named, left out, and an error only for whoever chooses it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from simulator.errors import OptionError, PluginError, load_plugin
from simulator.modules import find_own_problem, load_module, module_names
from simulator.workloads import load_options_model, load_workload, workload_names

from .test_main import Said, said

__all__ = ["said"]

BROKEN = {
    "raises": ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
    "leaves": ("import sys\nsys.exit(3)", "SystemExit: 3"),
    "lacks": ("import no_such_package", "ModuleNotFoundError: No module named 'no_such_package'"),
    "shapeless": ("Thing = 5", "TypeError: it is no subclass of simulator."),
    "other": ("class Thing: pass", "TypeError: it is no subclass of simulator."),
    "empty": ("", "AttributeError: module 'iotb_empty' has no attribute 'Thing'"),
}
"""Name -> what is in its file, and what is said of it."""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with a workload and a module in each of these files."""
    folder = tmp_path / "site"
    about = folder / "iotb_broken-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: iotb-broken\nVersion: 1.0\n")
    points = "".join(f"{name} = iotb_{name}:Thing\n" for name in BROKEN)
    (about / "entry_points.txt").write_text(
        f"[iot_database_benchmark.workloads]\n{points}[iot_database_benchmark.modules]\n{points}"
    )
    for name, (code, _) in BROKEN.items():
        (folder / f"iotb_{name}.py").write_text(code)
    monkeypatch.syspath_prepend(folder)


@pytest.mark.parametrize("load", [load_workload, load_options_model, load_module])
@pytest.mark.parametrize("name", BROKEN)
def test_who_chooses_it_is_told(load: Callable[[str], object], name: str) -> None:
    with pytest.raises(PluginError) as refused:
        load(name)
    text = str(refused.value)
    assert f"{name!r} of the package iotb-broken can't be loaded from iotb_{name}:Thing: " in text
    assert BROKEN[name][1] in text
    assert text.endswith("; repair or uninstall it")
    assert len(text.splitlines()) == 1


def test_names_are_known_without_loading() -> None:
    assert {*BROKEN} <= {*workload_names()} & {*module_names()}
    assert load_plugin("iot_database_benchmark.workloads", "none", object) is None
    with pytest.raises(OptionError, match="there is no workload 'none'"):
        load_workload("none")
    assert find_own_problem("postgres") is None


@pytest.mark.parametrize(
    ("arguments", "status", "kinds"),
    [
        (["workloads"], 0, ["workload"]),
        (["workloads", "temperature", "--types"], 0, ["module"]),
        (["targets"], 0, ["workload"]),
        (["targets", "here"], 0, ["workload"]),
        (["ceiling", "--events", "100", "--batch", "10"], 0, ["module"]),
        (
            [
                "insert",
                "-t",
                "here",
                "-w",
                "1",
                "-r",
                "1",
                "--num-inserts",
                "10",
                "--quiet",
                "--executor",
                "local",
            ],
            0,
            ["workload"],
        ),
        (["insert", "-t", "here", "--workload", "raises"], 2, []),
    ],
)
def test_commands_leave_it_out(
    said: Said, monkeypatch: pytest.MonkeyPatch, arguments: list[str], status: int, kinds: list[str]
) -> None:
    ended, _, err = said.of(monkeypatch, *arguments)
    assert ended == status, err
    for kind in kinds:
        for name in BROKEN:
            assert err.count(f"warning: left out: {kind} {name!r} of the package iotb-broken") == 1
    assert "no licence" in err
    assert "defect" not in err
