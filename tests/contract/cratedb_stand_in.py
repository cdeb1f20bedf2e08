"""A stand-in for CrateDB: its HTTP endpoint, strictly as documented, on PostgreSQL.

https://cratedb.com/docs/crate/reference/en/latest/interfaces/http.html

Whatever isn't in the documentation is refused: other paths, methods, parameters, headers, fields of the
body, bulk arguments of another length, a SELECT that isn't in the grammar of CrateDB's own parser
(cratedb-sqlparse), and any other statement that isn't known here in CrateDB's own form. What is left
runs on PostgreSQL, so answers are computed, not made up; that shows nothing about CrateDB's planner, its
shards, or its speed. A table's segments are as large as PostgreSQL's table was when it was last flushed.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import cratedb_sqlparse
import psycopg2
import psycopg2.errors
import psycopg2.extensions
from psycopg2.extras import Json

_HEADERS = {
    "host", "accept", "accept-encoding", "authorization", "connection", "content-length",
    "content-encoding", "content-type", "default-schema", "user-agent", "x-user",
}  # fmt: skip
_PARAMETERS = {"types", "error_trace", "pretty"}
_FIELDS = {"stmt", "args", "bulk_args"}

PASSWORD = "the-right-passw0rd"
"""The password of every user except `crate`, who needs none, and users that were created, who have their
own and no privileges."""

# https://github.com/crate/crate/pull/16629
_BIGINT_ENDS = (-(2**63), 2**63 - 1)

_TYPES = {
    "TIMESTAMP WITH TIME ZONE": "bigint",
    "BIGINT": "bigint",
    "INTEGER": "integer",
    "REAL": "real",
    "DOUBLE PRECISION": "double precision",
    "BOOLEAN": "boolean",
    "TEXT": "text",
}

# What PostgreSQL lacks, and what the system tables hold.
_SETUP = """
    CREATE SCHEMA crate;
    CREATE FUNCTION crate.gen_random_text_uuid() RETURNS text LANGUAGE sql
        AS 'SELECT translate(gen_random_uuid()::text, ''-'', '''')';
    CREATE FUNCTION crate.now_ms() RETURNS bigint LANGUAGE sql
        AS 'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint';
    CREATE FUNCTION crate.date_bin(interval, bigint, bigint) RETURNS bigint LANGUAGE sql
        AS $$ SELECT $2 - mod($2 - $3, (extract(epoch FROM $1) * 1000)::bigint) $$;
    CREATE TABLE crate.jobs (id bigserial, stmt text, started bigint);
    CREATE TABLE crate.settings (stats_enabled bool);
    INSERT INTO crate.settings VALUES (TRUE);
    CREATE TABLE crate.users (name text PRIMARY KEY, password text);
    CREATE TABLE crate.nodes (version jsonb);
    INSERT INTO crate.nodes VALUES ('{"number": "5.10.0"}');
    CREATE TABLE crate.tables (table_schema text, table_name text, number_of_shards int,
        number_of_replicas text, settings jsonb, table_type text, PRIMARY KEY (table_schema, table_name));
    CREATE TABLE crate.columns (table_schema text, table_name text, column_name text, data_type text,
        ordinal_position bigserial);
    CREATE TABLE crate.segments (table_schema text, table_name text, size bigint, num_docs bigint);
    CREATE VIEW crate.shards AS SELECT table_schema AS schema_name, table_name, 'STARTED' AS state,
        TRUE AS "primary" FROM crate.tables, generate_series(1, number_of_shards);
"""
_SETTINGS = {
    "refresh_interval": 1000,
    "translog": {"durability": "REQUEST", "sync_interval": 5000},
    "codec": "default",
}

_NAME = r'"((?:[^"]|"")+)"'
_CREATE = re.compile(
    rf"CREATE TABLE IF NOT EXISTS {_NAME} \((.+?)\)"
    r"(?: PARTITIONED BY \((\w+)\))?"
    r"(?: CLUSTERED INTO (\d+) SHARDS)?(?: WITH \(number_of_replicas = '(\d+(?:-\w+)?)'\))?"
)
_COLUMN = re.compile(
    rf"{_NAME} (TIMESTAMP WITH TIME ZONE|BIGINT|INTEGER|REAL|DOUBLE PRECISION|BOOLEAN|TEXT"
    rf"|OBJECT\(DYNAMIC\) AS \({_NAME} TEXT\))( DEFAULT gen_random_text_uuid\(\))?( PRIMARY KEY)?(?:, |$)"
)
_GENERATED = re.compile(
    rf"(\w+) BIGINT GENERATED ALWAYS AS \((CAST\({_NAME} AS BIGINT\) / \d+)\)(?:, |$)"
)
_KEY = re.compile(rf"PRIMARY KEY \({_NAME}, (\w+)\)$")
_DELETE = re.compile(rf"DELETE FROM {_NAME} WHERE \w+ < \d+")
_DROP = re.compile(rf"DROP TABLE IF EXISTS {_NAME}")
_REFRESH = re.compile(rf"REFRESH TABLE {_NAME}")
_OPTIMIZE = re.compile(
    rf"OPTIMIZE TABLE ({_NAME}(?:, {_NAME})*) WITH \((max_num_segments|only_expunge_deletes) = (\w+)\)"
)
_INSERT = re.compile(rf"INSERT INTO {_NAME} \(((?:{_NAME}(?:, )?)+)\) (.+)")
_STATS = re.compile(r'SET GLOBAL "stats\.enabled" = (TRUE|FALSE)')
_CREATE_USER = re.compile(r"CREATE USER (\w+) WITH \(password = '([^']+)'\)")
_DROP_USER = re.compile(r"DROP USER (\w+)")
_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*\"""")
_NUMBER = re.compile(r"\d+")
_CALL = re.compile(r"(\w+)\(")
# https://cratedb.com/docs/crate/reference/en/latest/general/builtins/: those that are used here.
_FUNCTIONS = {
    "any", "avg", "cast", "count", "date_bin", "has_schema_privilege", "max", "max_by", "min", "percentile",
    "sum",
}  # fmt: skip
_SUBSCRIPT = re.compile(r'("?\b\w+"?)((?:\[\'\w+\'\])+)')


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def _syntax_error(text: str) -> Refused:
    return Refused(400, 4000, f"SQLParseException[{text}]")


@lru_cache(maxsize=500)
def check_select(statement: str) -> None:
    """Raise Refused unless the statement fits the grammar of CrateDB's own parser and calls only CrateDB's
    functions."""
    check_statement(statement)
    called = set(_CALL.findall(_QUOTED.sub("x", statement)))
    if unknown := {name.lower() for name in called} - _FUNCTIONS:
        text = f"UnsupportedFunctionException[Unknown function: {', '.join(sorted(unknown))}]"
        raise Refused(400, 4000, text)


@lru_cache(maxsize=100)
def check_statement(statement: str) -> None:
    """Raise Refused unless the statement fits the grammar of CrateDB's own parser."""
    try:
        # This parser fails on letters that are two in capitals.
        (parsed,) = cratedb_sqlparse.sqlparse(re.sub(r"[^\0-\x7f]", "x", statement))
    except ValueError as error:
        raise _syntax_error("one statement at a time") from error
    if parsed.exception is not None:
        raise _syntax_error(str(parsed.exception))


def _subscripted(match: re.Match[str]) -> str:
    """object['a']['b'] in PostgreSQL's syntax."""
    *outer, last = re.findall(r"'\w+'", match[2])
    return f"({match[1]}{''.join(f' -> {key}' for key in outer)} ->> {last})"


def translated_select(statement: str) -> str:
    """A SELECT in PostgreSQL's syntax."""
    sql = _SUBSCRIPT.sub(_subscripted, statement).replace("%", "%%").replace("?", "%s")
    for name in ("jobs", "nodes", "segments", "shards"):
        sql = sql.replace(f"sys.{name}", f"crate.{name}")
    sql = sql.replace("information_schema.", "crate.")
    sql = re.sub(rf"max_by\(({_NAME}), ({_NAME})\)", r"(array_agg(\1 ORDER BY \3 DESC))[1]", sql)
    sql = re.sub(
        rf"\bpercentile\(({_NAME}), ([\d.]+)\)",
        r"percentile_cont(\3) WITHIN GROUP (ORDER BY \1)",
        sql,
    )
    return sql.replace("CURRENT_TIMESTAMP", "crate.now_ms()")


class _Session:
    """One HTTP connection's connection to PostgreSQL."""

    def __init__(self, dsn: str) -> None:
        self._connection = psycopg2.connect(dsn)
        self._connection.autocommit = True

    def close(self) -> None:
        self._connection.close()

    def password_of(self, user: str) -> str | None:
        """The password of a user who was created; None if there is no such user."""
        with self._connection.cursor() as cursor:
            cursor.execute("SELECT password FROM crate.users WHERE name = %s", [user])
            row = cursor.fetchone()
        return row[0] if row else None

    def run_without_privileges(self, schema: str, body: dict[str, Any]) -> dict[str, Any]:
        """Answer a user without privileges, who sees nothing: https://github.com/crate/crate/issues/11638"""
        if body["stmt"].startswith("SELECT ") and " FROM " not in body["stmt"]:
            if "has_schema_privilege" in body["stmt"]:
                return {"cols": ["has_schema_privilege"], "rows": [[False]], "rowcount": 1}
            return self.run(schema, body)
        name = "sys" if " sys." in body["stmt"] else schema
        raise Refused(404, 4045, f"SchemaUnknownException[Schema '{name}' unknown]")

    def run(self, schema: str, body: dict[str, Any]) -> dict[str, Any]:
        """A request's answer."""
        statement, args, bulk = body["stmt"], body.get("args", []), body.get("bulk_args")
        with self._connection.cursor() as cursor:
            cursor.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
            cursor.execute(f'SET search_path TO "{schema}", crate')
            cursor.execute(
                "INSERT INTO crate.jobs (stmt, started)"
                " SELECT %s, crate.now_ms() FROM crate.settings WHERE stats_enabled RETURNING id",
                [statement],
            )
            (job,) = cursor.fetchone() or (None,)
            try:
                return self._run(cursor, schema, statement, args, bulk)
            except psycopg2.errors.UndefinedTable as error:
                text = f"RelationUnknown[{' '.join(str(error).split())}]"
                raise Refused(404, 4041, text) from error
            except psycopg2.errors.UniqueViolation as error:
                raise Refused(409, 4091, "DuplicateKeyException[A document exists]") from error
            except psycopg2.Error as error:
                raise _syntax_error(" ".join(str(error).split())) from error
            finally:
                cursor.execute("DELETE FROM crate.jobs WHERE id = %s", [job])

    def _run(
        self, cursor: Any, schema: str, statement: str, args: Any, bulk: Any
    ) -> dict[str, Any]:
        if match := _INSERT.fullmatch(statement):
            return self._insert(cursor, match, args, bulk)
        if bulk is not None:
            raise _syntax_error("Bulk operations are for INSERT, UPDATE and DELETE")
        if match := _CREATE.fullmatch(statement):
            self._create(cursor, schema, match)
        elif match := _DROP.fullmatch(statement):
            cursor.execute(statement)
            for table in ("tables", "columns", "segments"):
                cursor.execute(
                    f"DELETE FROM crate.{table} WHERE table_schema = %s AND table_name = %s",
                    [schema, match[1]],
                )
        elif match := _OPTIMIZE.fullmatch(statement):
            for name in re.findall(_NAME, match[1]):
                self._optimize(cursor, schema, name, match[4] == "max_num_segments")
        elif _DELETE.fullmatch(statement):
            cursor.execute(statement)
        elif _REFRESH.fullmatch(statement):
            cursor.execute(statement.replace("REFRESH TABLE", "SELECT FROM") + " LIMIT 0")
        elif statement.startswith("SELECT "):
            if statement.count("?") != len(args):
                raise _syntax_error("Wrong number of arguments")
            # Whatever the numbers: parsing takes a while.
            check_select(_NUMBER.sub("1", statement))
            cursor.execute(translated_select(statement), args)
            names = [column[0] for column in cursor.description]
            rows = cursor.fetchall()
            return {"cols": names, "rows": rows, "rowcount": len(rows)}
        else:
            self._administer(cursor, statement)
        return {"cols": [], "rows": [[]], "rowcount": 1}

    def _administer(self, cursor: Any, statement: str) -> None:
        if match := _STATS.fullmatch(statement):
            cursor.execute("UPDATE crate.settings SET stats_enabled = %s", [match[1]])
        elif match := _CREATE_USER.fullmatch(statement):
            cursor.execute("INSERT INTO crate.users VALUES (%s, %s)", [match[1], match[2]])
        elif match := _DROP_USER.fullmatch(statement):
            cursor.execute("DELETE FROM crate.users WHERE name = %s", [match[1]])
        else:
            raise _syntax_error(f"line 1:1: mismatched input: {statement}")

    def _optimize(self, cursor: Any, schema: str, name: str, merge: bool) -> None:
        if merge:
            cursor.execute(f'VACUUM "{name}"')
        cursor.execute(
            "DELETE FROM crate.segments WHERE table_schema = %s AND table_name = %s", [schema, name]
        )
        cursor.execute(
            "INSERT INTO crate.segments SELECT %s, %s, pg_total_relation_size(%s::regclass), count(*)"
            f' FROM "{name}"',
            [schema, name, f'"{name}"'],
        )

    def _create(self, cursor: Any, schema: str, match: re.Match[str]) -> None:
        columns, position = [], 0
        kinds: dict[str, str] = {}
        while position < len(match[2]):
            column = _COLUMN.match(match[2], position)
            if column is None and (generated := _GENERATED.match(match[2], position)):
                columns.append(f"{generated[1]} bigint GENERATED ALWAYS AS ({generated[2]}) STORED")
                kinds[generated[1]] = "bigint"
                position = generated.end()
                continue
            if column is None and (key := _KEY.match(match[2], position)) and key[2] == match[3]:
                columns.append(key[0])
                break
            if column is None:
                raise _syntax_error(f"no column definition: {match[2][position:]}")
            kinds[column[1]] = column[2].partition("(")[0].lower()
            default = " DEFAULT crate.gen_random_text_uuid()" if column[4] else ""
            columns.append(
                f'"{column[1]}" {_TYPES.get(column[2], "jsonb")}{default}{column[5] or ""}'
            )
            position = column.end()
        cursor.execute(f'CREATE TABLE IF NOT EXISTS "{match[1]}" ({", ".join(columns)})')
        cursor.execute(
            "INSERT INTO crate.tables VALUES (%s, %s, %s, %s, %s, 'BASE TABLE') ON CONFLICT DO NOTHING",
            [schema, match[1], int(match[4] or 4), match[5] or "0-1", Json(_SETTINGS)],
        )
        for name, kind in kinds.items() if cursor.rowcount else ():
            cursor.execute(
                "INSERT INTO crate.columns VALUES (%s, %s, %s, %s)", [schema, match[1], name, kind]
            )

    def _insert(self, cursor: Any, match: re.Match[str], args: Any, bulk: Any) -> dict[str, Any]:
        table, names = match[1], re.findall(_NAME, match[2])
        marks = ", ".join("?" * len(names))
        cursor.execute(
            "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute"
            " WHERE attrelid = %s::regclass AND attnum > 0",
            [f'"{table}"'],
        )
        types = dict(cursor.fetchall())
        insert = f'INSERT INTO "{table}" ({match[2].replace("%", "%%")})'
        if match[4] == f"(SELECT * FROM UNNEST({marks}))" and bulk is None:
            if len(args) != len(names) or len({len(values) for values in args}) != 1:
                raise _syntax_error("UNNEST takes arrays of the same length")
            arrays = ", ".join(f"%s::{types[name]}[]" for name in names)
            lists = [[_plain(value) for value in values] for values in args]
            # Rows that are out of range are left out, and nothing says why.
            stored = [
                number
                for number, row in enumerate(zip(*args, strict=True))
                if out_of_range(row, names, types) is None
            ]
            lists = [[values[number] for number in stored] for values in lists]
            cursor.execute(f"{insert} SELECT * FROM UNNEST({arrays}) ON CONFLICT DO NOTHING", lists)
            return {"cols": [], "rows": [[]], "rowcount": cursor.rowcount}
        may_be_there = match[4] == f"VALUES ({marks}) ON CONFLICT DO NOTHING"
        if may_be_there:
            check_statement(match[0])
        elif match[4] != f"VALUES ({marks})":
            raise _syntax_error(f"mismatched input: {match[4]}")
        values = ", ".join(f"CAST(%s AS {types[name]})" for name in names)
        rows = [args] if bulk is None else bulk
        if any(len(row) != len(names) for row in rows):
            raise _syntax_error("Wrong number of arguments")
        results: list[dict[str, Any]] = []
        for row in rows:
            beyond = out_of_range(row, names, types)
            if beyond is not None:
                text = f"Value {beyond} exceeds allowed range for column of type bigint"
                if bulk is None:
                    raise Refused(500, 5000, text)
                results.append({"rowcount": -2, "error": {"code": 5000, "message": text}})
                continue
            try:
                statement = f"{insert} VALUES ({values})"
                statement += " ON CONFLICT DO NOTHING" if may_be_there else ""
                cursor.execute(statement, [_plain(value) for value in row])
                results.append({"rowcount": cursor.rowcount})
            except psycopg2.errors.UniqueViolation:
                if bulk is None:
                    raise
                error = {"code": 4091, "message": "DuplicateKeyException[A document exists]"}
                results.append({"rowcount": -2, "error": error})
        return {"cols": [], "rows": [[]], "rowcount": 1} if bulk is None else {
            "cols": [], "results": results
        }  # fmt: skip


def out_of_range(row: Any, names: list[str], types: dict[str, str]) -> int | None:
    """The first value that a bigint can't have since CrateDB 5.9."""
    return next(
        (
            value
            for name, value in zip(names, row, strict=True)
            if types[name] == "bigint" and value in _BIGINT_ENDS
        ),
        None,
    )


def _number(value: Any) -> int | float:
    """What PostgreSQL computes as `numeric`: sums of whole numbers are bigint, means double precision."""
    assert isinstance(value, Decimal)
    return float(value) if value.as_tuple().exponent else int(value)


def _plain(value: Any) -> Any:
    """A JSON value as psycopg2 takes it."""
    return json.dumps(value) if isinstance(value, dict) else value


class StandIn(ThreadingHTTPServer):
    """Listens on a port of its own of 127.0.0.1."""

    daemon_threads = True

    def __init__(self, dsn: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.dsn = dsn
        self.url = f"http://127.0.0.1:{self.server_port}"
        session = psycopg2.connect(dsn)
        with session, session.cursor() as cursor:
            cursor.execute(_SETUP)
        session.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is what tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: StandIn

    def setup(self) -> None:
        super().setup()
        self._session = _Session(self.server.dsn)

    def finish(self) -> None:
        self._session.close()
        super().finish()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as it is overridden
        """Nobody reads it."""

    def do_GET(self) -> None:
        """The node's name and version, which CrateDB's client asks for: undocumented, but always there."""
        content = b'{"ok":true,"name":"stand-in","version":{"number":"5.10.0"}}'
        self.send_response(200 if urlsplit(self.path).path == "/" else 404)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        began = time.monotonic()
        try:
            privileged = self._authenticate()
            run = self._session.run if privileged else self._session.run_without_privileges
            answer = run(self.headers.get("default-schema", "doc"), self._checked(body))
            status = 200
        except Refused as refused:
            answer = {"error": {"message": str(refused), "code": refused.code}}
            status = refused.status
        else:
            answer["duration"] = (time.monotonic() - began) * 1000
        content = json.dumps(answer, separators=(",", ":"), default=_number).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json; charset=UTF-8")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _checked(self, body: bytes) -> dict[str, Any]:
        """The request's body, if everything about the request is as documented."""
        parts = urlsplit(self.path)
        if parts.path != "/_sql":
            raise Refused(404, 4040, f"no such path: {parts.path}")
        names = {name.lower() for name in self.headers}
        if unknown := (names - _HEADERS) | (set(parse_qs(parts.query)) - _PARAMETERS):
            raise Refused(400, 4000, f"undocumented: {sorted(unknown)}")
        if self.headers.get("content-type") != "application/json":
            raise Refused(400, 4000, "content-type must be application/json")
        content = json.loads(body)
        if not isinstance(content, dict) or not set(content) <= _FIELDS:
            raise Refused(400, 4000, f"undocumented fields in {sorted(content)}")
        if not isinstance(content.get("stmt"), str) or {"args", "bulk_args"} <= set(content):
            raise Refused(400, 4000, "stmt, and either args or bulk_args")
        return content

    def _authenticate(self) -> bool:
        """Whether the user may do everything, or nothing."""
        kind, _, text = self.headers.get("authorization", "Basic Y3JhdGU6").partition(" ")
        user, _, password = base64.b64decode(text).decode().partition(":")
        created = self._session.password_of(user)
        if kind == "Basic" and (user == "crate" or (password == PASSWORD and created is None)):
            return True
        if kind == "Basic" and password == created:
            return False
        raise Refused(401, 4010, f'password authentication failed for user "{user}"')


@contextmanager
def stand_in(dsn: str) -> Iterator[StandIn]:
    """The stand-in on an empty database."""
    server = StandIn(dsn)
    threading.Thread(target=server.serve_forever, args=[0.02], daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
