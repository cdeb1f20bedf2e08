"""Events that are deleted when they are too old, while others come in and are asked about."""

from __future__ import annotations

from .tool import Tool


def test_old_events_go_while_others_come_in(tool: Tool) -> None:
    done = tool.run(
        "insert", "-t", "embedded", "-w", 2, "--batch", 50, "--rate", 2000, "--duration", "6s",
        "--retention", "90d", "--runs", 1,
    ).ok()  # fmt: skip
    result = tool.result()
    (run,) = result["runs"]
    assert run["valid"], run["invalid_reasons"]
    retention = run["retention"]
    # A later query is given what the options show.
    assert result["options"]["module"]["clock_factor"] == retention["clock_factor"] > 1
    assert (retention["period_s"], retention["step_s"]) == (90 * 86_400, 4 * 86_400)
    assert retention["deletions"]
    limits = [deletion["before_ms"] for deletion in retention["deletions"]]
    assert limits == sorted(set(limits))
    assert retention["kept_from_ms"] >= limits[-1]
    # In two retentions about half goes, whatever else the machine has to do.
    (group,) = run["groups"]
    verification = group["verification"]
    assert 0.3 * group["count"] < retention["deleted"] < 0.6 * group["count"]
    assert (
        verification["stored"] == verification["expected"] == group["count"] - retention["deleted"]
    )
    assert retention["remaining"] == 0
    cost = group["deletion_cost"]
    assert sum(stretch["seconds"] for stretch in cost.values()) >= 4
    assert "retention: 90 d kept, in steps of 4 d, at " in done.out
    shown = tool.run_here("results", "show", tool.folder().name).ok().out
    assert "Deletions" in shown
    assert group["storage"]["total_bytes"] > 0


def test_questions_are_about_what_stays(tool: Tool) -> None:
    tool.run(
        "mixed", "-t", "embedded", "-w", 1, "--readers", 1, "--batch", 50, "--rate", 1000,
        "--query-rate", 20, "--queries", "point,range,count-events", "--duration", "4s",
        "--prefill", 10_000, "--retention", "90d", "--runs", 1,
    ).ok()  # fmt: skip
    (run,) = tool.result()["runs"]
    assert run["valid"], run["invalid_reasons"]
    assert run["retention"]["deletions"]
    # What was too old before the run was deleted before it.
    assert run["retention"]["deleted"] > 0
    (readers,) = (group for group in run["groups"] if group["role"] == "read")
    assert readers["answers"]["wrong"] == []
    assert readers["answers"]["checked"] == 2
    assert all(query["errors"] == 0 for query in readers["queries"])
    assert sum(stretch["seconds"] for stretch in readers["deletion_cost"].values()) >= 3


def test_what_can_not_be_done_is_refused_in_a_line(tool: Tool) -> None:
    for arguments, message in (
        (["-t", "blackhole", "--rate", 100, "--duration", "2s"], "it stores nothing"),
        (["-t", "embedded", "--duration", "2s"], "with --retention give --rate"),
        (["-t", "embedded", "--no-clean"], "leave --no-clean and --steps out"),
    ):
        done = tool.run_here("insert", "-w", 1, "--runs", 1, "--retention", "90d", *arguments)
        assert message in done.error(2)
