#!/bin/sh
# Start the broker of compose.yaml: fill in server.properties, format the folder once, become the broker.
# The jars are Apache Kafka's own, wherever they are; the tests run this script too.
#   JARS       folder of the jars            /opt/kafka/libs in Kafka's image
#   LOG_DIR    where records are kept        must outlive the container
#   HOST PORT  how clients reach the broker  LISTEN: the address it listens on
#   CLUSTER_ID made once by `kafka.tools.StorageTool random-uuid`, and never changed
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
settings=$(mktemp -d)/server.properties
sed -e "s|\${HOST}|$HOST|g" -e "s|\${LISTEN}|$LISTEN|g" -e "s|\${PORT}|$PORT|g" \
    -e "s|\${CONTROLLER_PORT}|$CONTROLLER_PORT|g" -e "s|\${LOG_DIR}|$LOG_DIR|g" \
    "$here/server.properties" > "$settings"
java -cp "$JARS/*" kafka.tools.StorageTool format -t "$CLUSTER_ID" -c "$settings" --standalone --ignore-formatted
# shellcheck disable=SC2086  # options are words
exec java ${JAVA_OPTIONS:-} -cp "$JARS/*" kafka.Kafka "$settings"
