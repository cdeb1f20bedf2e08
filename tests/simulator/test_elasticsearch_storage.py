"""What the answer of a cluster to `_segments` says of the size on disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from simulator.contract import MIB, Level
from simulator.errors import Retryable, SimulatorError
from simulator.modules.elasticsearch.server import add_segments


def _shard(primary: bool, *sizes: int) -> dict[str, Any]:
    segments = {
        f"_{number}": {"size_in_bytes": size, "num_docs": size // 5}
        for number, size in enumerate(sizes)
    }
    return {"routing": {"state": "STARTED", "primary": primary}, "segments": segments}


def _answer(*shards: Sequence[dict[str, Any]], failed: int = 0) -> dict[str, Any]:
    copies = {str(number): list(shard) for number, shard in enumerate(shards)}
    return {"_shards": {"failed": failed}, "indices": {"events": {"shards": copies}}}


def test_all_segments_of_primaries_and_replicas_count() -> None:
    first = [_shard(True, 100, 20), _shard(False, 110)]
    second = [_shard(False), _shard(True, 5)]
    storage = add_segments(_answer(first, second))
    assert (storage.total_bytes, storage.copies, storage.index_bytes) == (235, 2, None)
    # The documents of both copies are the same events, and each shard merges segments of its own.
    assert storage.level == Level(size_bytes=235, events=23)
    assert storage.allocation is not None
    assert storage.allocation.unit_bytes == 4 * 2 * MIB


def test_a_sum_that_lacks_shards_is_not_told() -> None:
    with pytest.raises(Retryable, match="2 shards"):
        add_segments(_answer([_shard(True, 100)], failed=2))
    with pytest.raises(SimulatorError, match="no started shards"):
        add_segments(_answer())
