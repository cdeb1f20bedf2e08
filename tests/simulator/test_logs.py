"""No secret gets into a log line or a message, and all else stays readable."""

from __future__ import annotations

import base64
import json
import logging
import re
import sys

import psycopg2
import pytest

from simulator.errors import RedactingFormatter, Redactor

LONG = "geheim-4711"


def test_secrets_are_starred_out_of_messages_and_tracebacks() -> None:
    formatter = RedactingFormatter(Redactor([LONG, ""]))
    try:
        raise ValueError(f"password={LONG} refused")
    except ValueError:
        record = logging.LogRecord(
            "x", logging.ERROR, "file", 1, "can't log in with %s", (LONG,), sys.exc_info()
        )
    text = formatter.format(record)
    assert "geheim" not in text
    assert "can't log in with ***" in text
    assert "ValueError: password=*** refused" in text


@pytest.mark.parametrize(
    "text",
    [
        "the connection was lost: [Errno 111] Connection refused",
        "password authentication failed for user eve",
        "option password: must not be empty",
        "a token expires; secret: escape it",
        "http://host:8080/e?x=e answered 404",
        "primary_key=e",
        "authorization failed; see Permissions",
    ],
)
@pytest.mark.parametrize("secret", ["e", "8080", "connect"])
def test_a_short_secret_stars_out_no_part_of_a_message(text: str, secret: str) -> None:
    """With the password `e`, messages once read `conn***ct`."""
    assert Redactor([secret])(text) == text


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("host=db password={} dbname=x", "host=db password=*** dbname=x"),
        ("host=db password = '{}' dbname=x", "host=db password = '***' dbname=x"),
        ("sslpassword={}", "sslpassword=***"),
        ("postgresql://me:{}@db/x", "postgresql://me:***@db/x"),
        ("http://:{}@db", "http://:***@db"),
        (
            "postgresql://db/x?user=me&password={}&port=1",
            "postgresql://db/x?user=me&password=***&port=1",
        ),
        ('{{"password": "{}", "user": "e"}}', '{{"password": "***", "user": "e"}}'),
        ("{{'adx_app_key': '{}'}}", "{{'adx_app_key': '***'}}"),
        ("('api_key', '{}')", "('api_key', '***')"),
        ("X-Run-Token: {}", "X-Run-Token: ***"),
        ("ALTER ROLE me PASSWORD '{}'", "ALTER ROLE me PASSWORD '***'"),
        ("Authorization: Token {}", "Authorization: Token ***"),
    ],
)
@pytest.mark.parametrize("secret", ["e", "4711", "pa$$", LONG, "long-and/with@all:of?it"])
def test_where_secrets_stand_each_is_starred_out(written: str, shown: str, secret: str) -> None:
    assert Redactor([secret])(written.format(secret)) == shown.format("")


@pytest.mark.parametrize("secret", ["pä ss", "it's \\ 5%", 'say "no"', "a'b"])
def test_secrets_are_known_in_every_spelling(secret: str) -> None:
    dsn = psycopg2.extensions.make_dsn("host=db", password=secret)
    for text in (dsn, repr({"password": secret}), json.dumps({"password": secret})):
        shown = Redactor([secret])(text)
        assert shown == re.sub(r"(password\W+).*?(['\"]?\}?)$", r"\1***\2", text)


def test_a_header_shows_no_login_even_in_another_form() -> None:
    login = base64.b64encode(f"me:{LONG}".encode()).decode()
    redact = Redactor([LONG])
    for text in (
        f"{{'authorization': 'Basic {login}', 'accept': '*/*'}}",
        repr(f"POST / HTTP/1.1\r\nauthorization: Basic {login}\r\nhost: db".encode()),
        f'"Authorization": "Bearer {login}"',
    ):
        shown = redact(text)
        assert login not in shown
        assert "***" in shown
        assert "accept" in shown or "host" in shown or "Bearer" in shown


def test_a_url_shows_no_password_even_one_that_is_not_known() -> None:
    assert Redactor([])("at https://me:other@db:9200/x") == "at https://me:***@db:9200/x"
    assert Redactor([])("at https://db:9200/x, mail@db") == "at https://db:9200/x, mail@db"


def test_a_long_secret_is_starred_out_as_a_word_alone() -> None:
    redact = Redactor(["postgres"])
    assert redact("role postgres, module postgresql") == "role ***, module postgresql"
    assert redact('missing "=" after "postgres"') == 'missing "=" after "***"'


def test_of_two_secrets_the_longer_goes_first() -> None:
    assert Redactor(["geheim-1", "geheim-1-2"])("was geheim-1-2.") == "was ***."


def test_what_libpq_quotes_of_a_connection_string_is_starred_out() -> None:
    """It quotes the part that it doesn't understand, which may be the password."""
    with pytest.raises(psycopg2.ProgrammingError) as refused:
        psycopg2.extensions.parse_dsn(f"host=db password=x {LONG}")
    assert LONG in str(refused.value)
    assert LONG not in Redactor([LONG])(str(refused.value))
    with pytest.raises(psycopg2.OperationalError) as failed:
        psycopg2.connect(f"host=127.0.0.1 port={LONG} password=e")
    assert LONG not in Redactor([LONG])(str(failed.value))


def test_a_password_that_is_a_word_of_the_address_does_not_star_out_the_address() -> None:
    redact = Redactor(
        ["postgres"], public='{"connection_string": "host=postgres.iot user=postgres"}'
    )
    text = (
        "could not translate host name postgres.iot; password=postgres, pg://postgres:postgres@db"
    )
    assert redact(text) == (
        "could not translate host name postgres.iot; password=***, pg://postgres:***@db"
    )


@pytest.mark.parametrize("user", ["", "m", "me", "someone"])
@pytest.mark.parametrize("form", ["{}", "-> [{}]", "x-echo: Basic%20{}", '\\"{}\\"', "auth='{}"])
def test_no_part_of_a_login_is_shown_as_base64(user: str, form: str) -> None:
    """A server may echo headers, cut off, and in a quoting of its own."""
    login = base64.b64encode(f"{user}:{LONG}".encode()).decode()
    for part in (login, login[:-4], login[4:], login.rstrip("=")):
        shown = Redactor([LONG])(form.format(part))
        assert part not in shown
        assert "***" in shown


def test_a_login_that_is_not_known_is_starred_out() -> None:
    login = base64.b64encode(b"me:other").decode()
    for text in (f'said: ["Basic", "{login}"]', f"basic {login}", f"Basic: '{login[:-4]}'"):
        assert login[:8] not in Redactor([])(text)
    text = "basic authentication failed; the basic understanding of /usr/lib/python3"
    assert Redactor([LONG])(text) == text
