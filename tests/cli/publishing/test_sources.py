"""Which results a site is made of, and what is refused."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from cli.commands.results import write_command
from cli.main import commands
from cli.results.manifest import redact_result, redact_text
from cli.results.sources import MANIFEST, find_sources
from cli.results.store import NOTES
from cli.system.errors import ConfigError

from ..made import inserts
from .published import keep_campaign, keep_result, make_results

IMAGES = Path(__file__).parents[3] / "img" / "results"


def test_a_campaign_gives_its_candidates_and_steps(tmp_path: Path) -> None:
    keep_campaign(tmp_path / "deep" / "night", make_results(), {"beta questions 4": "no room"})
    sources = find_sources([tmp_path])
    assert {(source.candidate, source.test) for source in sources.done} == {
        (name, test) for name in ("alpha", "beta", "gamma") for test in ("load", "questions")
    }
    assert [(source.candidate, source.test, source.failure) for source in sources.failed] == [
        ("beta", "questions", "no room")
    ]
    assert sources.campaigns == {"night": "title: A night\n"}
    assert sources.done[0].command == "iotbench insert --target=alpha"


def test_a_campaign_counts_once_and_two_of_a_name_are_two(tmp_path: Path) -> None:
    for place in ("a", "b"):
        keep_campaign(tmp_path / place / "night", make_results(), {"beta load 4": "no"})
    sources = find_sources([tmp_path / "a", tmp_path])
    assert len(sources.done) == 36 and len(sources.failed) == 2
    assert len({source.name for source in sources.done}) == len(sources.done)
    assert sorted(sources.campaigns) == ["night", "night-"]


def test_notes_say_why_figures_surprise(tmp_path: Path) -> None:
    keep_campaign(tmp_path / "night", make_results())
    notes = tmp_path / "night" / NOTES
    notes.write_text("alpha: |\n  It waits for the disk,\n  see /home/me/why.txt.\n")
    reasons = {source.candidate: source.note for source in find_sources([tmp_path]).done}
    assert (
        reasons["alpha"].startswith("It waits for the disk, see ")
        and "/home/me" not in reasons["alpha"]
    )
    assert reasons["beta"] == ""
    for text, why in [
        ("alhpa: it is slow", "there is no candidate 'alhpa'; did you mean alpha?"),
        ("alpha: {why: slow}", "give each candidate a text, as in alpha: "),
        ("- alpha", "give each candidate a text"),
        ("alpha: [", "notes.yaml"),
        ("findings: alpha leads", "give findings a text each"),
        ("findings: {alpha leads: [by, far]}", "give findings a text each"),
    ]:
        notes.write_text(text)
        with pytest.raises(ConfigError) as caught:
            find_sources([tmp_path])
        assert why in caught.value.message and len(caught.value.message.splitlines()) == 1


def test_what_was_found_is_told_as_it_was_written(tmp_path: Path) -> None:
    keep_campaign(tmp_path / "night", make_results())
    (tmp_path / "night" / NOTES).write_text(
        "alpha: It is new.\nfindings:\n  alpha inserts fastest: |\n    400 instead of\n    100 events/s\n"
    )
    sources = find_sources([tmp_path])
    assert sources.findings == {"alpha inserts fastest": "400 instead of 100 events/s"}
    assert {source.note for source in sources.done} == {"", "It is new."}


def test_results_of_any_name_are_found_once(tmp_path: Path) -> None:
    keep_result(tmp_path / "a", inserts({1: [5.0]}))
    (tmp_path / "kept.json").write_text(inserts({1: [6.0]}, "beta").model_dump_json())
    (tmp_path / "else.json").write_text('{"about": "something else"}')
    sources = find_sources([tmp_path, tmp_path / "a"])
    assert sorted(source.name for source in sources.done) == ["a", "kept"]


def test_what_was_set_aside_and_what_ended_early_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep_result(tmp_path / "whole", inserts({1: [5.0]}))
    keep_result(tmp_path / "half", inserts({1: [5.0]}, complete=False))
    keep_result(tmp_path / "replaced" / "old", inserts({1: [5.0]}))
    keep_result(tmp_path / "site" / "results", inserts({1: [5.0]}))
    (tmp_path / "site" / MANIFEST).write_text("{}")
    assert [source.name for source in find_sources([tmp_path]).done] == ["whole"]
    assert "half/result.json ended early" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ('{"format": 2, "command', "is not valid JSON"),
        ('{"format": 2, "command": "insert"}', "is damaged: target: field required"),
        ('{"format": 7}', "format 7, made by a newer version of this tool"),
    ],
)
def test_what_cannot_be_read_ends_it_with_a_remedy(tmp_path: Path, content: str, why: str) -> None:
    keep_result(tmp_path / "whole", inserts({1: [5.0]}))
    (tmp_path / "whole" / "result.json").write_text(content)
    with pytest.raises(ConfigError) as caught:
        find_sources([tmp_path])
    assert why in caught.value.message
    assert caught.value.message.endswith(
        "Repair it, or remove it from the folder, and publish again."
    )
    assert len(caught.value.message.splitlines()) == 2


def test_no_result_and_no_folder_say_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no complete result in .*: name a folder with"):
        find_sources([tmp_path])
    with pytest.raises(ConfigError, match="nowhere is missing; publish takes campaigns' folders"):
        find_sources([tmp_path / "nowhere"])
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="file is a file: name the folder that it is in"):
        find_sources([tmp_path / "file"])


def test_a_damaged_plan_says_so(tmp_path: Path) -> None:
    folder = keep_campaign(tmp_path / "night", make_results())
    (folder / "plan.json").write_text("[")
    with pytest.raises(ConfigError, match=r"plan.json is damaged: .*; remove the campaign"):
        find_sources([tmp_path])


def test_the_command_that_repeats_a_result_is_one_that_the_tool_takes() -> None:
    """With the options that the result says it had."""
    for source in find_sources([IMAGES]).done:
        program, name, *arguments = shlex.split(write_command(source.result))
        assert program == "iotbench"
        command = commands.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        parameters = command.make_context(name, arguments).params
        options = source.result.options
        for key in ("batch", "rate_per_s", "duration_s", "steps", "workload", "runs"):
            if key in parameters and options.get(key) is not None:
                assert parameters[key] == options[key], (source.name, key)
        assert parameters["target"] == source.result.target


# --- what must not be published -------------------------------------------------------------------


def test_secrets_machines_and_paths_are_replaced() -> None:
    document = {
        "environment": {"client": {"host": "build-7", "cpus": 2}},
        "options": {"module": {"password": "geheim", "token": "abc", "url": "http://u:pw@db:9000"}},
        "runs": [{"node": "build-7", "others": {"/home/me/bin/tool": 0.5}}],
        "label": "see /home/me/notes.txt, password=geheim host=db",
        "note": "PUT /api/v2/write?org=o, application/json, 5 MB/s",
    }
    redacted = redact_result(document)
    assert redacted == {
        "environment": {"client": {"host": "(a host)", "cpus": 2}},
        "options": {"module": {"password": "***", "token": "***", "url": "http://u:***@db:9000"}},
        "runs": [{"node": "(a host)", "others": {"(a path)": 0.5}}],
        "label": "see (a path), password=*** host=db",
        "note": "PUT /api/v2/write?org=o, application/json, 5 MB/s",
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("WITH (password = 'geheim')", "WITH (password = '***')"),
        ('http://u:ge"heim@db', "http://u:***@db"),
        ("http://u'u:geh,\"eim@db", "http://u'u:***@db"),
        ("password=ge}heim", "password=***"),
        ("Bearer geheim-geheim", "Bearer ***"),
        ("-----BEGIN PRIVATE KEY-----\ngeheim\n-----END", "***-----END"),
    ],
)
def test_secrets_in_texts_are_hidden(text: str, shown: str) -> None:
    assert redact_text(text) == shown


@pytest.mark.parametrize(
    "text", ["SELECT a / b FROM events", "events/s", "1/2", "POST /write HTTP/1.1"]
)
def test_other_texts_stay(text: str) -> None:
    assert redact_text(text) == text
