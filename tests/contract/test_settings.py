"""Servers whose settings aren't the defaults: the same is stored and answered, by each client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from simulator.contract import Tables
from simulator.errors import SimulatorError
from simulator.modules.base import connect
from simulator.testing.events import Sundry
from simulator.testing.fixtures import find_official_clients
from simulator.testing.server import ServerUnderTest, new_job
from simulator.testing.suite.test_answers import check_answers
from simulator.testing.suite.test_inserts import check_stored
from simulator.workloads.drawing import bind
from simulator.workloads.queries import Query

from .clickhouse import ClickhouseUnderTest
from .elasticsearch import SearchUnderTest
from .entries import ENTRIES


def check_clients(server: ServerUnderTest) -> None:
    """All that the lean path and the official clients store and are answered is right."""
    workload, module = Sundry(seed=9), server.module_type
    askers = [name for name, client in module.official_clients().items() if client.asker]
    for options in [{}, *({"client": name} for name in askers)]:
        check_answers(server, workload, 1, options)
    entry = next(entry for entry in ENTRIES if entry.module == module.name)
    for official in find_official_clients(entry):
        check_stored(server, official, workload, Tables.SINGLE)


# --- ClickHouse -----------------------------------------------------------------------------------

PROFILE = {
    "limit": "3", "empty_result_for_aggregation_by_empty_set": "1",
    "aggregate_functions_null_for_empty": "1", "join_use_nulls": "1", "transform_null_in": "1",
    "group_by_use_nulls": "1", "data_type_default_nullable": "1", "enable_positional_arguments": "0",
    "insert_deduplicate": "0", "session_timezone": "America/St_Johns",
    "output_format_json_quote_64bit_integers": "1", "date_time_output_format": "iso",
    "date_time_input_format": "best_effort", "input_format_null_as_default": "0",
    "output_format_json_quote_denormals": "1", "result_overflow_mode": "break",
}  # fmt: skip
OF_BLOCKS = {
    "offset": "1",
    "input_format_native_decode_types_in_binary_format": "1",
    "output_format_native_encode_types_in_binary_format": "1",
}


@pytest.mark.module("clickhouse")
def test_a_profile_of_clickhouse(
    server: ClickhouseUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The client's first questions, which it asks by itself, have no settings of ours.
    monkeypatch.setattr(server.proxy, "defaults", urlencode(PROFILE | OF_BLOCKS))
    check_answers(server, Sundry(seed=9), 1, {})
    monkeypatch.setattr(server.proxy, "defaults", urlencode(PROFILE))
    check_clients(server)
    # A limit of the user's ends a question, instead of cutting its answer.
    profile = urlencode({**PROFILE, "max_result_rows": "2"})
    query = Query(name="times", events=(Sundry.schema.time,))
    with connect(server.module(new_job(Sundry.schema))) as module:
        monkeypatch.setattr(server.proxy, "defaults", profile)
        with pytest.raises(SimulatorError, match="Limit for result exceeded"):
            module.fetch(module.compile(bind(query, 0)))


# --- Elasticsearch and OpenSearch -----------------------------------------------------------------

TEMPLATE = {
    "index_patterns": ["*"],
    "priority": 2_000_000,
    "template": {
        "settings": {
            "index": {
                "default_pipeline": "iot-test-drop",
                "final_pipeline": "iot-test-drop",
                "mapping": {"ignore_malformed": True, "coerce": False},
                "max_result_window": 10,
                "max_terms_count": 70,
            }
        },
        "mappings": {
            "_source": {"enabled": False},
            "date_detection": True,
            "numeric_detection": True,
        },
    },
}


@contextmanager
def template(url: str) -> Iterator[None]:
    """A template of the cluster's for all indices."""
    with httpx.Client(base_url=url, timeout=30) as http:
        drop: dict[str, Any] = {"processors": [{"drop": {}}]}
        http.put("/_ingest/pipeline/iot-test-drop", json=drop)
        http.put("/_index_template/iot-test", json=TEMPLATE).raise_for_status()
        try:
            yield
        finally:
            http.delete("/_index_template/iot-test")
            http.delete("/_ingest/pipeline/iot-test-drop")


@pytest.mark.module("elasticsearch")
def test_an_index_template_of_the_cluster(server: SearchUnderTest) -> None:
    with template(server.urls[0]):
        check_clients(server)
