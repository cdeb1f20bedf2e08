#!/bin/sh
set -eu
home=/opt/cassandra
data=/var/lib/cassandra
# Java and its libraries unpack native code there.
mkdir -p "$data" /tmp/cassandra
address=$(hostname -i | cut -d' ' -f1)

cat >/tmp/cassandra/cassandra.yaml <<YAML
cluster_name: ${CASSANDRA_CLUSTER_NAME:-cassandra}
num_tokens: 4
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: ${CASSANDRA_ENDPOINT_SNITCH:-SimpleSnitch}
authenticator: AllowAllAuthenticator
authorizer: AllowAllAuthorizer
listen_address: $address
rpc_address: $address
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters:
      - seeds: "${CASSANDRA_SEEDS:-$address}"
data_file_directories: [$data/data]
commitlog_directory: $data/commitlog
saved_caches_directory: $data/saved_caches
hints_directory: $data/hints
cdc_raw_directory: $data/cdc_raw
commitlog_sync: periodic
commitlog_sync_period: 10000ms
auto_snapshot: false
# The defaults are a share of the heap and too large for one of 512 MB.
memtable_heap_space: 64MiB
memtable_offheap_space: 64MiB
concurrent_reads: 8
concurrent_writes: 16
concurrent_compactors: 1
# Three nodes on a busy machine are slow to answer.
write_request_timeout: 20s
read_request_timeout: 20s
range_request_timeout: 20s
request_timeout: 20s
YAML
printf 'dc=%s\nrack=%s\n' "${CASSANDRA_DC:-datacenter1}" "${CASSANDRA_RACK:-rack1}" \
  >/tmp/cassandra/cassandra-rackdc.properties

heap=${MAX_HEAP_SIZE:-512M}
# A new node waits ring_delay_ms before it joins: 30 s, for networks where news travel slowly.
# Tests end before Java's second compiler, which takes half of the CPU, pays.
# shellcheck disable=SC2086 # Options are separate words.
exec java "-Xms$heap" "-Xmx$heap" -Xss512k -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
  -Djava.awt.headless=true -Djava.io.tmpdir=/tmp/cassandra -Djna.tmpdir=/tmp/cassandra \
  "-javaagent:$(echo $home/lib/jamm-*.jar)" "@$home/jvm17.options" \
  -Dcassandra.config=file:///tmp/cassandra/cassandra.yaml \
  "-Dlogback.configurationFile=file://$home/logback.xml" \
  "-Dcassandra.storagedir=$data" -Dcassandra.logdir=/tmp/cassandra -Dcassandra-foreground=yes \
  -Dcassandra.ring_delay_ms=5000 -Dcassandra.skip_wait_for_gossip_to_settle=0 \
  ${JVM_EXTRA_OPTS:-} \
  -cp "/tmp/cassandra:$home/lib/*" org.apache.cassandra.service.CassandraDaemon
