"""`targets`: what can be done with each target of a config file, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from cli.commands.targets import cell, targets
from simulator.modules.base import Support

WRONG = """
targets:
  a:
    module: postgres
    executr: local
    connection_strin: host=x
  b:
    module: blackhole
    executor: local
    encoder: cratedb
    insert_mode: unnest
    use_values_lists: true
  c:
    modul: blackhole
  d:
    module: blackhole
    kubernetes: {run: {}}
  e:
    module: of_another_version
    whatever: 1
"""


def test_every_wrong_key_of_the_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(WRONG)
    done = CliRunner().invoke(targets, ["-c", str(file)])
    assert done.exit_code == 2
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["Target", "a", "b", "d", "e"]
    messages = [
        line.removeprefix("Error: ").replace(str(file), "FILE") for line in done.stderr.splitlines()
    ]
    for line, begin in zip(
        messages,
        (
            "FILE:5: targets.a.executr: unknown option 'executr'; did you mean executor?",
            "FILE:6: targets.a.connection_strin: unknown option 'connection_strin'; did you mean",
            "FILE:12: targets.b.use_values_lists: unknown option",
            "FILE:13: targets.c: key `module` is missing; is 'modul' a misspelling?",
            "FILE:17: targets.d.kubernetes.run: unknown key",
        ),
        strict=True,
    ):
        assert line.startswith(begin)


def test_a_targets_options_are_listed_though_it_has_a_wrong_key(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(WRONG)
    done = CliRunner().invoke(targets, ["a", "-c", str(file)])
    assert done.exit_code == 2
    assert "connection_string" in done.stdout
    assert "'executr'" in done.stderr
    assert "targets.c" not in done.stderr


def test_what_a_target_can_do_fits_its_cell() -> None:
    """What holds for most stands for all that isn't named."""
    full, unsupported, missing = Support.FULL, Support.UNSUPPORTED, Support.MISSING
    assert cell({"a": full, "b": full}) == "full"
    assert cell({"a": full, "b": unsupported, "c": full}) == "full; unsupported: b"
    assert cell({"a": full, "b": unsupported, "c": unsupported}) == "unsupported; full: a"
    assert cell({"a": full, "b": missing}) == "full; missing: b"


def test_the_shipped_file_is_right() -> None:
    done = CliRunner().invoke(
        targets, ["-c", str(Path(__file__).resolve().parents[2] / "config.yaml")]
    )
    assert (done.exit_code, done.stderr) == (0, "")
