#!/bin/sh
set -eu
umask 077
data=${PGDATA:-/tmp/data}
user=${POSTGRES_USER:-postgres}
if [ ! -s "$data/PG_VERSION" ]; then
  password=${POSTGRES_PASSWORD_FILE:-/tmp/password}
  [ -n "${POSTGRES_PASSWORD_FILE:-}" ] || printf '%s' "$POSTGRES_PASSWORD" >"$password"
  /opt/postgresql/initdb -D "$data" -U "$user" --pwfile "$password" --auth=scram-sha-256 \
    --encoding=UTF8 --no-locale --no-sync >/dev/null
  [ -n "${POSTGRES_PASSWORD_FILE:-}" ] || rm "$password"
  echo "host all all all scram-sha-256" >>"$data/pg_hba.conf"
  if [ "${POSTGRES_DB:-postgres}" != postgres ]; then
    # Without the server's port, so that nobody takes it for ready.
    echo "CREATE DATABASE \"$POSTGRES_DB\"" |
      /opt/postgresql/postgres --single -D "$data" postgres >/dev/null
  fi
fi
exec /opt/postgresql/postgres -D "$data" -c listen_addresses='*' -k /tmp
