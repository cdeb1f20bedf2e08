"""Options: errors name key and remedy and show no secret, and a refused connection is explained."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from ...contract import PrimaryKey
from ...errors import OptionError, SimulatorError
from ...modules.base import Encoding
from ...modules.options import parse_options
from ...workloads.temperature import Temperature
from ..events import insert_with
from ..server import IN_FLIGHT, Refusal, ServerUnderTest, batch_of, holds_several, new_job

JOB = new_job(Temperature.schema)


def list_required(server: ServerUnderTest) -> list[str]:
    fields = server.module_type.options_model.model_fields
    return [name for name, field in fields.items() if field.is_required()]


def test_in_flight_is_asked_for_by_the_load_or_by_the_modules_own_option(
    server: ServerUnderTest, encoding: Encoding
) -> None:
    batch = batch_of(encoding, 10)
    several = new_job(Temperature.schema, batch=batch, in_flight=IN_FLIGHT)
    if not holds_several(server.module_type, encoding):
        with pytest.raises(OptionError, match="holds one request in flight"):
            server.module(several, encoding)
        return
    single = new_job(Temperature.schema, batch=batch)
    assert server.module(single, encoding).writer().max_in_flight == 1
    assert server.module(several, encoding).writer().max_in_flight == IN_FLIGHT
    name = server.module_type.options_model.IN_FLIGHT
    if name is not None:
        own = {name: IN_FLIGHT}
        for job in (single, several):
            writer = server.module(job, encoding, own).writer()
            assert writer.max_in_flight == IN_FLIGHT
        with pytest.raises(OptionError, match=f"{name}=3 contradict each other: choose one"):
            server.module(several, encoding, {name: 3})


def test_an_unknown_option_names_the_known_ones_and_the_nearest(server: ServerUnderTest) -> None:
    for key in server.module_type.options_model.model_fields:
        with pytest.raises(OptionError) as refused:
            server.module(JOB, options={key + "x": "hush-hush"})
        text = str(refused.value)
        assert f"unknown option '{key}x'; did you mean {key}?" in text
        assert all(option in text for option in server.module_type.options_model.model_fields)
        assert "hush-hush" not in text


def test_errors_begin_with_where_the_key_stands(server: ServerUnderTest) -> None:
    values = {**server.options, "max_retries": "few"}
    model = server.module_type.options_model
    with pytest.raises(OptionError) as refused:
        parse_options(model, values, lambda key: f"config.yaml:7: targets.x.{key}")
    assert str(refused.value).startswith(
        "config.yaml:7: targets.x.max_retries: option max_retries: input should be a valid integer"
    )


def test_a_value_of_the_wrong_type_is_not_shown(server: ServerUnderTest) -> None:
    for key in server.module_type.options_model.model_fields:
        with pytest.raises(OptionError) as refused:
            server.module(JOB, options={key: {"hush": "hush-hush"}})
        assert f"option {key}:" in str(refused.value)
        assert "hush" not in str(refused.value)


def test_a_missing_option_is_named_with_its_meaning(server: ServerUnderTest) -> None:
    model = server.module_type.options_model
    for key in list_required(server):
        values = {name: value for name, value in server.options.items() if name != key}
        with pytest.raises(OptionError, match=f"option {key} is missing") as refused:
            parse_options(model, values, str)
        assert (model.model_fields[key].description or "?") in str(refused.value)


def test_every_option_is_explained(server: ServerUnderTest) -> None:
    for name, field in server.module_type.options_model.model_fields.items():
        assert field.description, name


def test_secrets_are_not_shown(server: ServerUnderTest) -> None:
    """Neither where options are stored with a result, nor where they are printed by mistake."""
    for refusal in server.refusals():
        options = server.module(JOB, options=refusal.options).options
        assert refusal.secret in options.secrets()
        assert refusal.secret not in str(options.public())
        assert refusal.secret not in repr(options)


def test_who_is_not_let_in_learns_why(server: ServerUnderTest) -> None:
    """Within seconds, not after a driver's own minute: where, what, and what to do; no password."""

    def check(refusal: Refusal, connect: Callable[[], object]) -> None:
        began = time.monotonic()
        with pytest.raises(SimulatorError) as refused:
            connect()
        text = str(refused.value)
        assert refusal.names in text
        assert refusal.remedy in text
        assert refusal.secret not in text
        assert "\n" not in text
        assert time.monotonic() - began < 25

    with ThreadPoolExecutor() as threads:
        modules = [
            (refusal, server.module(JOB, options=refusal.options)) for refusal in server.refusals()
        ]
        checks = [
            threads.submit(check, refusal, connect)
            for refusal, module in modules
            for connect in (module.open, module.writer().open)
        ]
        for future in checks:
            future.result()


def test_a_constraint_of_ones_own(server: ServerUnderTest) -> None:
    """It replaces the key mode's, and events are still inserted exactly once."""
    if "primary_key_constraint" not in server.module_type.options_model.model_fields:
        pytest.skip("the module has no such option")
    constraint = {"primary_key_constraint": "PRIMARY KEY (device_id, timestamp, sequence_number)"}
    for key in (PrimaryKey.DB, PrimaryKey.CLIENT, PrimaryKey.NONE):
        job = new_job(Temperature.schema, batch=10, primary_key=key)
        with server.prepare(job, options=constraint) as observer:
            insert_with(server.module(job, options=constraint), Temperature(), 20)
            # Only this constraint recognizes that they are stored already.
            again = server.module(new_job(Temperature.schema, batch=10), options=constraint)
            with pytest.raises(SimulatorError, match="23505"):
                insert_with(again, Temperature(), 10, first=10)
            assert observer.count() == 20


def need_extensions(server: ServerUnderTest) -> None:
    fields = server.module_type.options_model.model_fields
    if "install_extensions" not in fields or not server.extensible:
        pytest.skip("no extensions")


def test_extensions_are_installed_first(server: ServerUnderTest) -> None:
    need_extensions(server)
    # Any that the server has: to the module they are all the same.
    available = server.extensions("available")
    assert available, "the server under test has no extensions to try"
    chosen = "pgcrypto" if "pgcrypto" in available else available[0]
    assert chosen not in server.extensions("installed")
    for _ in range(2):
        with server.prepare(JOB, options={"install_extensions": f" {chosen} ,"}):
            pass
        assert server.extensions("installed") == [chosen]


def test_an_extension_that_there_is_not_is_named(server: ServerUnderTest) -> None:
    need_extensions(server)
    options = {"install_extensions": ["no such extension"]}
    refused = pytest.raises(SimulatorError, match="no such extension")
    with refused, server.prepare(JOB, options=options):
        pass
