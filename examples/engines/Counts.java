// Counts the events of a topic with Kafka Streams, and writes the rows of counts that stream-app reads.
//
//     java -cp 'JARS/*' Counts.java SERVERS EVENTS COUNTS EPOCH
//
// EPOCH is 0. Make it larger each time that the engine begins anew without its state.
// The topic EVENTS has message.timestamp.type=LogAppendTime: the broker says when an event arrived.

import static java.nio.charset.StandardCharsets.UTF_8;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.StreamPartitioner;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

public class Counts {
    static final long BIN_MS = 1_000;
    static final Duration TICK = Duration.ofSeconds(1);
    static final String TICK_VALUE = "{}";  // a stream that counts EVENTS itself refuses it: it has no time
    static final Pattern AT = Pattern.compile("\"at\"\\s*:\\s*(\\d+)");
    static final Pattern PAGE = Pattern.compile("\"page\"\\s*:\\s*\"([^\"\\\\]*)\"");

    /** Counts one partition of origin, and sends what it has counted at each tick. */
    static class Counter implements Processor<String, String, String, String> {
        private ProcessorContext<String, String> context;
        private KeyValueStore<String, Long> counts;  // by bin and page, since the last tick
        private KeyValueStore<String, Long> sequence;
        private final String epoch;
        private String origin;

        Counter(String epoch) {
            this.epoch = epoch;
        }

        @Override
        public void init(ProcessorContext<String, String> context) {
            this.context = context;
            origin = String.valueOf(context.taskId().partition());
            counts = context.getStateStore("counts");
            sequence = context.getStateStore("sequence");
            // The tick returns behind all events that had arrived before it, also those of an outage.
            context.schedule(TICK, PunctuationType.WALL_CLOCK_TIME,
                now -> context.forward(new Record<>(origin, TICK_VALUE, now), "ticks"));
        }

        @Override
        public void process(Record<String, String> record) {
            if (TICK_VALUE.equals(record.value())) {
                flush(record.timestamp());
                return;
            }
            Matcher time = AT.matcher(record.value()), page = PAGE.matcher(record.value());
            if (time.find() && page.find()) {
                long at = Long.parseLong(time.group(1));
                String cell = (at - at % BIN_MS) + " " + page.group(1);
                Long before = counts.get(cell);
                counts.put(cell, before == null ? 1 : before + 1);
            }
        }

        private void flush(long arrivedMs) {
            var cells = new ArrayList<KeyValue<String, Long>>();
            try (var all = counts.all()) {
                all.forEachRemaining(cells::add);
            }
            for (var cell : cells) {
                String[] parts = cell.key.split(" ", 2);
                send(String.format("\"at\": %s, \"page\": \"%s\", \"delta\": %d", parts[0], parts[1], cell.value),
                    arrivedMs);
                counts.delete(cell.key);
            }
            send(String.format("\"at\": %d, \"closed\": true", arrivedMs), arrivedMs);
        }

        private void send(String fields, long nowMs) {
            Long before = sequence.get("");
            long next = before == null ? 1 : before + 1;
            sequence.put("", next);
            String place = String.format(
                "{\"origin\": %s, \"epoch\": %s, \"sequence\": %d, ", origin, epoch, next);
            context.forward(new Record<>(origin, place + fields + "}", nowMs), "rows");
        }
    }

    public static void main(String[] args) {
        String events = args[1], counts = args[2], epoch = args[3];
        StreamPartitioner<String, String> toOrigin =
            (topic, key, value, partitions) -> Optional.of(Set.of(Integer.parseInt(key)));
        Topology topology = new Topology();
        topology.addSource("events", events);
        topology.addProcessor("counter", () -> new Counter(epoch), "events");
        for (String store : new String[] {"counts", "sequence"}) {
            topology.addStateStore(Stores.keyValueStoreBuilder(
                Stores.inMemoryKeyValueStore(store), Serdes.String(), Serdes.Long()), "counter");
        }
        topology.addSink("ticks", events, toOrigin, "counter");
        topology.addSink("rows", counts, "counter");
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, counts + ".engine");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        // Rows, positions and counts change in one transaction: a killed engine repeats nothing.
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 500);
        settings.put("auto.offset.reset", "earliest");
        settings.put("session.timeout.ms", 6_000);  // for how long nobody counts after a crash
        settings.put(StreamsConfig.STATE_DIR_CONFIG, "streams-state");
        KafkaStreams streams = new KafkaStreams(topology, settings);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
