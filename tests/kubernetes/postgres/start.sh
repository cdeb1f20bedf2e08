set -eu
umask 077
data=${PGDATA:-/tmp/data}
printf '%s' "$POSTGRES_PASSWORD" >/tmp/password
/opt/postgresql/initdb -D "$data" -U postgres --pwfile /tmp/password --auth=scram-sha-256 \
  --encoding=UTF8 --no-locale --no-sync >/dev/null
rm /tmp/password
echo "host all all all scram-sha-256" >>"$data/pg_hba.conf"
exec /opt/postgresql/postgres -D "$data" -c listen_addresses='*' -k /tmp
