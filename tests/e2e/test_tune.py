"""A search for settings, from the command line to the figure."""

from __future__ import annotations

from .tool import Tool


def test_a_search_and_what_is_made_of_it(tool: Tool) -> None:
    tool.add_target("fast", module="blackhole")
    done = tool.run_here(
        "tune", "-t", "fast", "-w", 1, "--over", "batch=1,1000", "--run-duration", "800ms", "-r", 1, "-v",
    )  # fmt: skip
    tuning = tool.result()["tuning"]
    assert [own["batch"] for own in tuning["candidates"]] == [1, 1000, 0]
    assert "No best is shown; batch=1000 measured highest: " in done.out
    assert "short: start-up and shutdown dominate a run of 1.3 s" in done.out
    assert "To use it: python run.py insert --target fast --batch 1000" in done.out
    # Each combination once, then both and the defaults.
    tried = [(trial["stage"], trial["candidate"]) for trial in tuning["trials"]]
    assert sorted(tried[:2]) == [(1, 0), (1, 1)] and tried[2:] == [(2, 1), (2, 0), (2, 2)]
    # Runs have seeds of their own, and what they were made with is in the export.
    assert [run for trial in tuning["trials"] for run in trial["runs"]] == [1, 2, 3, 4, 5]
    name = tool.folder().name
    assert "Combinations" in tool.run_here("results", "show", name).ok().out
    tool.run_here("plot", name, "--kind", "tuning").ok()
    assert "batch=1000" in (tool.place / "tuning.svg").read_text()
    exported = tool.run_here("results", "export", name).ok().out
    assert '""tuned"": {""batch"": 1000}' in exported
    wrong = tool.run_here("tune", "-t", "fast", "--over", "bach=1,2")
    assert "did you mean batch?" in wrong.error(2)
    assert "tunings can't be compared" in tool.run_here("compare", name, name).error(2)
