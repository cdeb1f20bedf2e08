"""Campaign files that are hostile, or can't be decided: each is refused before its first job, with its line
and what to do instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.run.campaign.campaign import open_campaign
from cli.run.campaign.running import prepare
from cli.system.errors import ConfigError
from cli.system.processes import Interrupts

CONFIG = """\
targets:
  one: {module: postgres, executor: local, connection_string: host=127.0.0.1}
  two: {module: questdb, executor: local, endpoint: "http://127.0.0.1:9000"}
"""
NEEDED = """\
targets: [one]
options: {workload: machines, workers: 2}
requirements:
  devices: 8000
  insert: {p99: 250ms, batch: 50}
  queries:
    range: {rate: 5, p90: 1s}
  history: {events: 1M}
  retention: 90d
  disk: 2TB
  faults:
    pause-fleet 10s: 60s
repeats: 3
"""
STEPS = """\
targets: {one: {}, two: {}}
variants: {a: {batch: 10}}
options: {workload: machines, duration: 60s}
steps:
- insert: {workers: 4, runs: 1}
- query: {queries: [range], duration: 30s}
- mixed: {readers: 2, rate: 100, queries: {range: 1}, prefill: 1M}
  label: both
repeats: 2
"""
FILES = [
    # What YAML makes of it.
    (NEEDED, "repeats: 3", "repeats: [3", 14, "not valid YAML"),
    (NEEDED, "repeats: 3", "repeats: 3\nrepeats: 4", 14, "duplicate key: remove one"),
    (NEEDED, "batch: 50", "batch: 050", 5, "octal to some: write 50"),
    (NEEDED, "batch: 50", "batch: yes", 5, "write a number above 0"),
    (NEEDED, "devices: 8000", "devices: .inf", 4, "no finite number"),
    (NEEDED, "devices: 8000", "devices: true", 4, "write a number above 0"),
    (NEEDED, "repeats: 3", "repeats: true", 13, "true is not a number: write one"),
    (NEEDED, "repeats: 3", "title: no", 13, "put it in quotes"),
    (NEEDED, "retention: 90d", "retention: 1M", 9, "with its unit"),
    (STEPS, "repeats: 2", "settle: 010", 9, "octal to some: write 10"),
    (STEPS, "workload: machines", "workload: on", 3, "there is no workload 'true'"),
    (NEEDED, "history: {events: 1M}", "history: &a {events: *a}", 8, "contains itself"),
    (NEEDED, "repeats: 3", "repeats: !!python/object/apply:os.system [ls]", 13, "python"),
    (NEEDED, "repeats: 3", f"repeats: {'9' * 200}", 13, "is too long"),
    (NEEDED, "repeats: 3", f"title: {'[' * 50}{']' * 50}", 13, "levels deep"),
    (NEEDED, "targets: [one]", "\ttargets: [one]", 1, "indent by spaces"),
    (STEPS, "a: {batch: 10}", "on: {batch: 10}", 2, "a key isn't text to YAML"),
    # Keys.
    (NEEDED, "targets: [one]", "target: [one]", 1, "did you mean targets?"),
    (NEEDED, "retention: 90d", "retenton: 90d", 9, "did you mean retention?"),
    (NEEDED, "p99: 250ms", "p98: 250ms", 5, "did you mean p99?"),
    (NEEDED, "p90: 1s", "p95: 1s", 7, "did you mean p9"),
    (NEEDED, "{events: 1M}", "{evens: 1M}", 8, "did you mean events?"),
    (STEPS, "- mixed:", "- mxed:", 7, "did you mean mixed?"),
    (STEPS, "readers: 2", "reader: 2", 7, "did you mean readers?"),
    (STEPS, "{batch: 10}", "{bach: 10}", 2, "did you mean batch?"),
    (STEPS, "one: {}", "one: {instal: true}", 1, "did you mean install?"),
    (STEPS, "duration: 60s}", "output: x}", 3, "give --output to the campaign"),
    # Names of what there isn't.
    (NEEDED, "[one]", "[oen]", 1, "has no target 'oen'; did you mean one?"),
    (NEEDED, "range:", "rnge:", 7, "did you mean range?"),
    (NEEDED, "workload: machines", "workload: machine", 2, "did you mean machines?"),
    (NEEDED, "pause-fleet", "pause-flet", 12, "did you mean pause-fleet?"),
    (STEPS, "two: {}", "two: {variants: [b]}", 1, "there is no variant 'b'"),
    (STEPS, "[range]", "[rnge]", 6, "did you mean range?"),
    (STEPS, "{range: 1}", "{range: -1}", 7, "write a weight as in"),
    (STEPS, "{range: 1}", "{range: 0}", 7, "at least one weight must be above 0"),
    # Kinds and units.
    (NEEDED, "[one]", "one", 1, "needs keys with values below it"),
    (NEEDED, "[one]", "[]", 1, "at least 1"),
    (NEEDED, "[one]", "[one, one]", 1, "listed twice"),
    (NEEDED, "p99: 250ms", "p99: 250", 5, "with its unit, as in 250ms"),
    (NEEDED, "p99: 250ms", "p99: 0ms", 5, "a time above 0"),
    (NEEDED, "retention: 90d", "retention: 90GB", 9, "with its unit"),
    (NEEDED, "disk: 2TB", "disk: 90d", 10, "a size with its unit"),
    (NEEDED, "devices: 8000", "devices: 1e30", 4, "write a number above 0"),
    (NEEDED, "rate: 5", "rate: -5", 7, "write a number above 0"),
    (STEPS, "workers: 4", "workers: 0", 5, "from 1 to"),
    (STEPS, "rate: 100", "rate: fast", 7, "write a number"),
    (STEPS, "steps:", "steps: []\nold:", 4, "at least 1 item, not 0"),
    (STEPS, "label: both", "label: ../../both", 8, "isn't a label"),
    (STEPS, "repeats: 2", "settle: -1s", 9, "a time as in"),
    (STEPS, "repeats: 2", "repeats: 1000000", 9, "1000"),
    # What doesn't go together, or can't be decided.
    (NEEDED, "repeats: 3", "repeats: 1", 13, "give repeats: 3"),
    (NEEDED, "  retention: 90d\n", "", 3, "disk needs `retention`"),
    (NEEDED, "devices: 8000", "devices: 8000\n  events_per_s: 5", 3, "give either devices or"),
    (NEEDED, "  history: {events: 1M}\n  retention: 90d\n  disk: 2TB\n", "", 7, "add `history` to"),
    (NEEDED, "workers: 2", "rate: 5", 2, "leave it out"),
    (NEEDED, "rate: 5, p90: 1s", "rate: 5", 7, "give a limit"),
    (NEEDED, "{events: 1M}", "{span: 5m, every: 1h}", 8, "give a longer one"),
    (STEPS, "runs: 1}\n- query", "warm-up: 90s}\n- query", 5, "leaves nothing of --duration"),
    (STEPS, "workers: 4", "num-inserts: 5", 5, "both say when a run ends"),
    (STEPS, "workers: 4", "steps: 3", 5, "give a single number to --workers"),
    (STEPS, ", prefill: 1M", "", 7, "add --prefill"),
    (STEPS, "label: both", "label: query", 7, "give each a `label`"),
    (STEPS, "readers: 2", "in-flight: 1000000", 7, "10000"),
    (STEPS, "one: {}", "one: {start: ./up.sh}", 1, "start and stop belong together"),
    (STEPS, "one: {}", "one: {nodes: [1, 3]}", 1, "add `install: true`"),
    (STEPS, "a: {batch: 10}", "a: {primary-key: sql}", 5, "--primary-key sql"),
    (STEPS, "runs: 1}\n- query", "limit: [p99=0ms]}\n- query", 5, "above 0"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "old", "new", "line", "remedy"), FILES, ids=[new[:30] for _, _, new, _, _ in FILES]
)
def test_it_is_refused(
    tmp_path: Path, text: str, old: str, new: str, line: int, remedy: str
) -> None:
    assert text.count(old) == 1
    file, config = tmp_path / "c.yaml", tmp_path / "config.yaml"
    file.write_text(text.replace(old, new))
    config.write_text(CONFIG)
    with pytest.raises(ConfigError) as refused:
        prepare(open_campaign(file, config, tmp_path / "out", Interrupts()))
    told = refused.value.message
    assert told.startswith(f"{file}:{line}: ") and remedy in told.splitlines()[0], told
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", [NEEDED, STEPS])
def test_without_the_mistake_it_is_not(tmp_path: Path, text: str) -> None:
    file, config = tmp_path / "c.yaml", tmp_path / "config.yaml"
    file.write_text(text)
    config.write_text(CONFIG)
    assert prepare(open_campaign(file, config, tmp_path / "out", Interrupts()))
