"""TimescaleDB, and a stand-in for it: PostgreSQL with functions of the documented signatures, which check
their arguments, for everything that the module asks of TimescaleDB.

What the stand-in can't show: that chunks are made and excluded, columnar storage, speed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest

from .postgres import PostgresUnderTest, quoted
from .postgres_proxy import proxy_to

# https://www.tigerdata.com/docs/reference/timescaledb/hypertables/create_hypertable,
# …/show_chunks, https://www.tigerdata.com/docs/reference/timescaledb/hypercore/convert_to_columnstore
_FUNCTIONS = """
CREATE SCHEMA _timescaledb_internal;
CREATE TYPE _timescaledb_internal.dimension_info AS (column_name name, interval_length bigint);
CREATE TABLE _timescaledb_internal.hypertable (
    id int GENERATED ALWAYS AS IDENTITY, relation oid PRIMARY KEY, column_name name,
    interval_length bigint, columnstore bool DEFAULT FALSE, segmentby text, orderby text);
CREATE TABLE _timescaledb_internal.chunk (relation oid, hypertable oid, columnstore bool);

CREATE SCHEMA timescaledb_information;
CREATE VIEW timescaledb_information.dimensions AS
    SELECT relnamespace::regnamespace::name AS hypertable_schema, relname AS hypertable_name,
           1::bigint AS dimension_number, column_name, interval_length AS integer_interval
    FROM _timescaledb_internal.hypertable JOIN pg_class ON oid = relation;
CREATE VIEW timescaledb_information.hypertables AS
    SELECT relnamespace::regnamespace::name AS hypertable_schema, relname AS hypertable_name,
           columnstore AS compression_enabled
    FROM _timescaledb_internal.hypertable JOIN pg_class ON oid = relation;
CREATE VIEW timescaledb_information.chunks AS
    SELECT relname AS hypertable_name, c.columnstore AS is_compressed
    FROM _timescaledb_internal.chunk AS c JOIN pg_class ON oid = c.hypertable;

CREATE FUNCTION hypertable_index_size(index_name regclass) RETURNS bigint LANGUAGE sql
AS 'SELECT pg_table_size($1)';

CREATE FUNCTION hypertable_detailed_size(relation regclass)
RETURNS TABLE (table_bytes bigint, index_bytes bigint, toast_bytes bigint, total_bytes bigint,
               node_name name) LANGUAGE sql AS $$
    SELECT pg_relation_size(relation), pg_indexes_size(relation), 0::bigint,
           pg_total_relation_size(relation), NULL::name
$$;

CREATE FUNCTION by_range(column_name name, partition_interval anyelement DEFAULT NULL::bigint,
                         partition_func regproc DEFAULT NULL)
RETURNS _timescaledb_internal.dimension_info LANGUAGE plpgsql AS $$
BEGIN
    IF pg_typeof(partition_interval) NOT IN ('bigint'::regtype, 'integer', 'smallint') THEN
        RAISE EXCEPTION 'invalid interval type for integer dimension';
    END IF;
    IF partition_interval <= 0 THEN
        RAISE EXCEPTION 'invalid interval: must be between 1 and 9223372036854775807';
    END IF;
    RETURN (column_name, partition_interval);
END $$;

CREATE FUNCTION create_hypertable(
    relation regclass, dimension _timescaledb_internal.dimension_info,
    create_default_indexes boolean DEFAULT TRUE, if_not_exists boolean DEFAULT FALSE,
    migrate_data boolean DEFAULT FALSE)
RETURNS TABLE (hypertable_id int, created boolean) LANGUAGE plpgsql AS $$
DECLARE
    known _timescaledb_internal.hypertable := (
        SELECT h FROM _timescaledb_internal.hypertable AS h WHERE h.relation = $1);
    place smallint := (SELECT attnum FROM pg_attribute WHERE attrelid = $1
                       AND attname = dimension.column_name AND atttypid = 'bigint'::regtype);
    filled boolean;
BEGIN
    IF known.id IS NOT NULL THEN
        IF NOT if_not_exists THEN
            RAISE EXCEPTION 'table "%" is already a hypertable', relation USING ERRCODE = 'TS110';
        END IF;
        RETURN QUERY SELECT known.id, FALSE;
        RETURN;
    END IF;
    IF place IS NULL THEN
        RAISE EXCEPTION 'column "%" does not exist', dimension.column_name USING ERRCODE = '42703';
    END IF;
    IF EXISTS (SELECT FROM pg_index WHERE indrelid = $1 AND indisunique
               AND NOT place = ANY (indkey)) THEN
        RAISE EXCEPTION 'cannot create a unique index without the column "%" (used in partitioning)',
            dimension.column_name USING ERRCODE = 'TS103';
    END IF;
    EXECUTE format('SELECT EXISTS (SELECT FROM %s)', relation) INTO filled;
    IF filled AND NOT migrate_data THEN
        RAISE EXCEPTION 'table "%" is not empty', relation USING ERRCODE = '0A000';
    END IF;
    EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET NOT NULL', relation, dimension.column_name);
    IF create_default_indexes THEN
        EXECUTE format('CREATE INDEX ON %s (%I DESC)', relation, dimension.column_name);
    END IF;
    RETURN QUERY INSERT INTO _timescaledb_internal.hypertable AS h
        (relation, column_name, interval_length)
        VALUES ($1, dimension.column_name, dimension.interval_length) RETURNING h.id, TRUE;
END $$;

-- A chunk is an empty table, made when asked for: as many as the times of the events need.
CREATE FUNCTION show_chunks(relation regclass) RETURNS SETOF regclass LANGUAGE plpgsql AS $$
DECLARE
    known _timescaledb_internal.hypertable := (
        SELECT h FROM _timescaledb_internal.hypertable AS h WHERE h.relation = $1);
    number bigint;
    name text;
BEGIN
    IF known.id IS NULL THEN
        RAISE EXCEPTION 'table "%" is not a hypertable', relation USING ERRCODE = 'TS001';
    END IF;
    FOR number IN EXECUTE format('SELECT DISTINCT %I / %s FROM %s ORDER BY 1',
                                 known.column_name, known.interval_length, relation) LOOP
        name := format('_timescaledb_internal._hyper_%s_%s_chunk', known.id, number);
        IF to_regclass(name) IS NULL THEN
            EXECUTE format('CREATE TABLE %s ()', name);
            INSERT INTO _timescaledb_internal.chunk VALUES (name::regclass, relation, FALSE);
        END IF;
        RETURN NEXT name::regclass;
    END LOOP;
END $$;

CREATE FUNCTION drop_chunks(relation regclass, older_than anyelement)
RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    known _timescaledb_internal.hypertable := (
        SELECT h FROM _timescaledb_internal.hypertable AS h WHERE h.relation = $1);
BEGIN
    IF known.id IS NULL THEN
        RAISE EXCEPTION 'table "%" is not a hypertable', relation USING ERRCODE = 'TS001';
    END IF;
    -- Whole chunks go, and no others.
    EXECUTE format('DELETE FROM %s WHERE (%I / %s + 1) * %s <= %s', relation, known.column_name,
                   known.interval_length, known.interval_length, older_than);
END $$;

CREATE PROCEDURE convert_to_columnstore(
    chunk regclass, if_not_columnstore boolean DEFAULT TRUE, recompress boolean DEFAULT FALSE)
LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM _timescaledb_internal.chunk AS c
                   JOIN _timescaledb_internal.hypertable AS h ON h.relation = c.hypertable
                   WHERE c.relation = $1 AND h.columnstore) THEN
        RAISE EXCEPTION 'columnstore not enabled on the hypertable of "%"', chunk;
    END IF;
    UPDATE _timescaledb_internal.chunk SET columnstore = TRUE WHERE relation = $1;
END $$;

CREATE FUNCTION _timescaledb_internal.enable_columnstore(
    relation regclass, segmentby name, orderby name) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT unnest(ARRAY[segmentby, orderby]) EXCEPT
               (SELECT attname FROM pg_attribute WHERE attrelid = $1 UNION SELECT NULL)) THEN
        RAISE EXCEPTION 'column does not exist' USING ERRCODE = '42703';
    END IF;
    UPDATE _timescaledb_internal.hypertable AS h
        SET columnstore = TRUE, segmentby = $2, orderby = $3 WHERE h.relation = $1;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'table "%" is not a hypertable', relation USING ERRCODE = 'TS001';
    END IF;
END $$;
"""

# PostgreSQL refuses options with a prefix. https://www.tigerdata.com/docs/api/latest/hypercore/alter_table/
_ALTER = re.compile(
    rb"ALTER TABLE (?P<table>\"\w+\") SET \(timescaledb\.enable_columnstore = true,"
    rb"(?: timescaledb\.segmentby = '\"(?P<segmentby>\w+)\"',)?"
    rb" timescaledb\.orderby = '\"(?P<orderby>\w+)\" (?:ASC|DESC)'\)"
)
_VERSION = b"SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'"
_INSTALL = b"CREATE EXTENSION IF NOT EXISTS timescaledb"
STAND_IN_VERSION = "2.0-stand-in"


def _translated(statement: bytes) -> bytes:
    # The stand-in has this schema once the extension is made.
    if statement == _VERSION:
        return (
            f"SELECT '{STAND_IN_VERSION}' FROM pg_namespace"
            " WHERE nspname = 'timescaledb_information'"
        ).encode()
    if statement == _INSTALL:
        return b"CALL public.make_timescaledb()"
    if match := _ALTER.fullmatch(statement):
        segmentby = b"'%b'" % match["segmentby"] if match["segmentby"] else b"NULL"
        return b"SELECT _timescaledb_internal.enable_columnstore('%b', %b, '%b')" % (
            match["table"],
            segmentby,
            match["orderby"],
        )
    return statement


class TimescaleUnderTest(PostgresUnderTest):
    """A database of its own on a server with TimescaleDB, where the module makes the extension."""

    def indices(self, table: str) -> set[str]:
        """All but the index that every hypertable has on its time column."""
        own = {f"{table}_{name}_idx" for name in self.columns(table)}
        return super().indices(table) - own

    def extensions(self, which: Literal["available", "installed"]) -> list[str]:
        # It can't be made anew by a connection that has used it.
        return [name for name in super().extensions(which) if name != "timescaledb"]

    def size_on_disk(self, table: str) -> int | None:
        """The events are in chunks, which only the extension knows."""
        return None

    @contextmanager
    def licensed(self, licence: str) -> Iterator[None]:
        """Connections made within it find this edition. Only the configuration file of a real server
        changes its edition, for all its databases: with another one the test is skipped."""
        [(edition,)] = self.ask("SHOW timescaledb.license")
        if edition != licence:
            pytest.skip(f"the server's timescaledb.license is {edition}")
        yield

    def chunk_intervals(self) -> dict[str, int]:
        """Hypertable -> the length of its chunks."""
        return dict(
            self.ask(
                "SELECT hypertable_name, integer_interval FROM timescaledb_information.dimensions"
            )
        )

    def chunks(self, table: str) -> list[bool]:
        """For each chunk of a table, whether it is in the columnstore."""
        return [
            row[0]
            for row in self.ask(
                "SELECT is_compressed FROM timescaledb_information.chunks"
                " WHERE hypertable_name = %s",
                table,
            )
        ]


class TimescaleStandIn(TimescaleUnderTest):
    """PostgreSQL with functions that stand in for those of TimescaleDB."""

    @classmethod
    @contextmanager
    def started(cls, module: str, dsn: str, data: Path | None) -> Iterator[PostgresUnderTest]:
        with (
            super().started(module, dsn, data) as adapter,
            proxy_to(adapter.dsn, _translated) as proxy,
        ):
            assert isinstance(adapter, cls)
            adapter._license("timescale")
            adapter.ask(
                "CREATE PROCEDURE make_timescaledb() LANGUAGE plpgsql"
                f" AS $make$ BEGIN {_FUNCTIONS} END $make$"
            )
            adapter.reach_by(proxy.dsn)
            yield adapter

    @contextmanager
    def licensed(self, licence: str) -> Iterator[None]:
        self._license(licence)
        try:
            yield
        finally:
            self._license("timescale")

    def _license(self, licence: str) -> None:
        [(database,)] = self.ask("SELECT current_database()")
        self.ask(f"ALTER DATABASE {quoted(database)} SET timescaledb.license = {licence}")
