#!/bin/sh
# Start the broker of compose.yaml: fill in server.properties, format the folder once, become the broker.
# The jars are Apache Kafka's own, wherever they are; the tests run this script too.
#   JARS       folder of the jars            /opt/kafka/libs in Kafka's image
#   LOG_DIR    where records are kept        must outlive the container
#   HOST PORT  how clients reach the broker  LISTEN: the address it listens on
#   CLUSTER_ID made once by `kafka.tools.StorageTool random-uuid`, and never changed
#   SECRETS    folder of make_secrets.py     if it is given, clients need TLS and a password
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
settings=$(mktemp -d)/server.properties
secured=
if [ -n "${SECRETS:-}" ]; then
    secured="$here/secured.properties"
    JAVA_OPTIONS="${JAVA_OPTIONS:-} -Djava.security.auth.login.config=$SECRETS/kafka.jaas"
fi
# shellcheck disable=SC2086  # no second file, or one whose folder has no spaces
cat "$here/server.properties" $secured | sed -e "s|\${HOST}|$HOST|g" -e "s|\${LISTEN}|$LISTEN|g" \
    -e "s|\${PORT}|$PORT|g" -e "s|\${CONTROLLER_PORT}|$CONTROLLER_PORT|g" -e "s|\${LOG_DIR}|$LOG_DIR|g" \
    -e "s|\${SECRETS}|${SECRETS:-}|g" > "$settings"
java -cp "$JARS/*" kafka.tools.StorageTool format -t "$CLUSTER_ID" -c "$settings" --standalone --ignore-formatted
# shellcheck disable=SC2086  # options are words
exec java ${JAVA_OPTIONS:-} -cp "$JARS/*" kafka.Kafka "$settings"
