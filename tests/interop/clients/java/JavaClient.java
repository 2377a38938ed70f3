import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The verbs of driver.py with the Java client; the same source for every version of it. */
public class JavaClient {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int EARLIEST = -2;
    private static final int LATEST = -1;
    private static final Map<String, Class<?>> ASSIGNORS = Map.of(
        "range", RangeAssignor.class, "roundrobin", RoundRobinAssignor.class,
        "sticky", StickyAssignor.class, "cooperative-sticky", CooperativeStickyAssignor.class);

    private final String bootstrap;
    private final Admin admin;
    private final BufferedReader in;
    private final PrintStream out;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

    JavaClient(String bootstrap, BufferedReader in, PrintStream out) {
        this.bootstrap = bootstrap;
        this.in = in;
        this.out = out;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        JavaClient client = new JavaClient(args[0], in, out);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("ok", client.answer(JSON.readTree(line)));
            } catch (Throwable error) {
                answer.put("error", code(error)).put("message", error.toString());
            }
            client.say(answer);
        }
    }

    private void say(JsonNode answer) throws Exception {
        out.println(JSON.writeValueAsString(answer));
        out.flush();
    }

    private JsonNode answer(JsonNode request) throws Exception {
        String topic = request.path("topic").asText();
        TopicPartition place = new TopicPartition(topic, request.path("partition").asInt());
        switch (request.get("op").asText()) {
            case "create_topic": {
                Map<String, String> configs = new HashMap<>();
                request.get("configs").fields().forEachRemaining(entry -> configs.put(entry.getKey(), entry.getValue().asText()));
                NewTopic wanted = new NewTopic(topic, request.get("partitions").asInt(), (short) 1).configs(configs);
                admin.createTopics(List.of(wanted)).all().get();
                return null;
            }
            case "delete_topic":
                admin.deleteTopics(List.of(topic)).all().get();
                return null;
            case "create_partitions":
                admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(request.get("count").asInt()))).all().get();
                return null;
            case "list_topics": {
                ObjectNode counts = JSON.createObjectNode();
                for (TopicDescription found : admin.describeTopics(admin.listTopics().names().get()).allTopicNames().get().values()) {
                    counts.put(found.name(), found.partitions().size());
                }
                return counts;
            }
            case "describe_topic": {
                ArrayNode rows = JSON.createArrayNode();
                TopicDescription found = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
                for (TopicPartitionInfo row : found.partitions()) {
                    rows.addArray().add(row.partition()).add(row.leader().id()).add(ids(row.replicas())).add(ids(row.isr()));
                }
                return rows;
            }
            case "describe_configs": {
                ConfigResource resource = resource(request);
                ObjectNode values = JSON.createObjectNode();
                admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()
                    .forEach(entry -> values.put(entry.name(), entry.value()));
                return values;
            }
            case "alter_config": {
                JsonNode value = request.get("value");
                AlterConfigOp change = new AlterConfigOp(
                    new ConfigEntry(request.get("key").asText(), value.isNull() ? null : value.asText()),
                    value.isNull() ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET);
                admin.incrementalAlterConfigs(Map.of(resource(request), List.of(change))).all().get();
                return null;
            }
            case "delete_records": {
                RecordsToDelete before = RecordsToDelete.beforeOffset(request.get("offset").asLong());
                return JSON.valueToTree(admin.deleteRecords(Map.of(place, before)).lowWatermarks().get(place).get().lowWatermark());
            }
            case "list_offset": {
                long at = request.get("at").asLong();
                OffsetSpec spec = at == EARLIEST ? OffsetSpec.earliest() : at == LATEST ? OffsetSpec.latest() : OffsetSpec.forTimestamp(at);
                return JSON.valueToTree(admin.listOffsets(Map.of(place, spec)).partitionResult(place).get().offset());
            }
            case "produce":
                return produce(topic, request);
            case "tail":
                return tail(place, request);
            case "read_as_group":
                return readAsGroup(topic, request);
            case "member":
                return member(topic, request);
            case "transaction":
                return transaction(place, request);
            case "read_committed":
                return readCommitted(place, request);
            default:
                throw new IllegalArgumentException("no such op: " + request);
        }
    }

    private JsonNode produce(String topic, JsonNode request) throws Exception {
        int patienceMs = request.get("patience_ms").asInt();
        int lingerMs = request.get("linger_ms").asInt();
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("acks", request.get("acks").asText());
        settings.put("compression.type", request.get("codec").asText());
        settings.put("enable.idempotence", request.get("idempotent").asBoolean());
        settings.put("linger.ms", lingerMs);
        settings.put("max.block.ms", patienceMs);
        settings.put("request.timeout.ms", patienceMs);
        settings.put("delivery.timeout.ms", patienceMs + lingerMs);
        settings.put("max.request.size", 100_000_000);
        settings.put("buffer.memory", 200_000_000L);
        ArrayNode acked = JSON.createArrayNode();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode message : request.get("messages")) {
                List<Header> headers = new ArrayList<>();
                for (JsonNode header : message.get("headers")) {
                    headers.add(new RecordHeader(header.get("key").asText(), bytes(header.get("value"))));
                }
                JsonNode partition = message.get("partition");
                JsonNode timestamp = message.get("timestamp");
                sent.add(producer.send(new ProducerRecord<>(
                    topic, partition.isNull() ? null : partition.asInt(), timestamp.isNull() ? null : timestamp.asLong(),
                    bytes(message.get("key")), bytes(message.get("value")), headers)));
            }
            for (Future<RecordMetadata> one : sent) {
                ObjectNode row = acked.addObject();
                try {
                    row.put("partition", one.get().partition()).put("offset", one.get().offset());
                } catch (ExecutionException error) {
                    row.put("partition", -1).put("offset", -1).put("error", code(error));
                }
            }
        }
        return acked;
    }

    private JsonNode tail(TopicPartition place, JsonNode request) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "none");
        settings.put("fetch.max.wait.ms", request.get("max_wait_ms").asInt());
        settings.put("request.timeout.ms", request.get("max_wait_ms").asInt() + 30_000);
        int left = request.get("count").asInt();
        long at = request.get("at").asLong();
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        try {
            consumer.assign(List.of(place));
            if (at == EARLIEST) {
                consumer.seekToBeginning(List.of(place));
            } else if (at == LATEST) {
                consumer.seekToEnd(List.of(place));
            } else {
                consumer.seek(place, at);
            }
            while (left > 0) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(60))) {
                    ObjectNode answer = JSON.createObjectNode();
                    ObjectNode row = answer.putObject("event").put("offset", record.offset()).put("timestamp", record.timestamp());
                    row.put("key", record.key()).put("value", record.value());
                    ArrayNode headers = row.putArray("headers");
                    for (Header header : record.headers()) {
                        headers.addObject().put("key", header.key()).put("value", header.value());
                    }
                    if (left-- > 0) {
                        say(answer);
                    }
                }
            }
        } finally {
            consumer.close(Duration.ZERO);
        }
        return null;
    }

    private Map<String, Object> groupSettings(JsonNode request) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", request.get("group").asText());
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "earliest");
        return settings;
    }

    private JsonNode readAsGroup(String topic, JsonNode request) {
        Map<String, Object> settings = groupSettings(request);
        if (request.has("group_protocol")) {
            settings.put("group.protocol", request.get("group_protocol").asText());
        }
        ArrayNode places = JSON.createArrayNode();
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (places.size() < request.get("count").asInt()) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    places.addArray().add(record.partition()).add(record.offset());
                }
            }
            consumer.commitSync();
        }
        return places;
    }

    /** What group_member.py does, until there are no more requests. */
    private JsonNode member(String topic, JsonNode request) throws Exception {
        Map<String, Object> settings = groupSettings(request);
        settings.put("max.poll.interval.ms", request.get("max_poll_ms").asInt());
        String assignor = request.get("assignor").asText();
        if (assignor.equals("server-side")) {
            settings.put("group.protocol", "consumer");
        } else {
            settings.put("partition.assignment.strategy", List.of(ASSIGNORS.get(assignor)));
            settings.put("session.timeout.ms", request.get("session_ms").asInt());
            settings.put("heartbeat.interval.ms", 300);
        }
        Thread requests = new Thread(() -> {
            try {
                while (in.readLine() != null) { }
            } catch (IOException error) {
                // As good as their end.
            }
        });
        requests.setDaemon(true);
        requests.start();
        boolean isCommitted = true;
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> places) {
                    tell("assigned", places);
                }

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> places) {
                    tell("revoked", places);
                }
            });
            while (requests.isAlive()) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    ObjectNode said = JSON.createObjectNode();
                    said.putArray("record").add(record.partition()).add(record.offset());
                    say(said);
                    isCommitted = false;
                }
                if (!isCommitted) {
                    try {
                        consumer.commitSync();
                        isCommitted = true;
                    } catch (KafkaException error) {
                        say(JSON.createObjectNode().put("refused", error.getClass().getSimpleName()));
                    }
                }
            }
        }
        return null;
    }

    private void tell(String what, Collection<TopicPartition> places) {
        ObjectNode said = JSON.createObjectNode();
        ArrayNode partitions = said.putArray(what);
        places.forEach(place -> partitions.add(place.partition()));
        try {
            say(said);
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }

    /** One step of the producer with that name. */
    private JsonNode transaction(TopicPartition place, JsonNode request) throws Exception {
        String name = request.get("producer").asText();
        KafkaProducer<byte[], byte[]> producer = producers.get(name);
        switch (request.get("step").asText()) {
            case "init":
                producer = new KafkaProducer<>(
                    Map.of("bootstrap.servers", bootstrap, "transactional.id", request.get("id").asText(), "max.block.ms", 20_000),
                    new ByteArraySerializer(), new ByteArraySerializer());
                producers.put(name, producer);
                producer.initTransactions();
                return null;
            case "begin":
                producer.beginTransaction();
                return null;
            case "send":
                producer.send(new ProducerRecord<>(place.topic(), place.partition(), null, bytes(request.get("value")))).get();
                return null;
            case "offsets":
                producer.sendOffsetsToTransaction(
                    Map.of(place, new OffsetAndMetadata(request.get("offset").asLong())),
                    new ConsumerGroupMetadata(request.get("group").asText()));
                return null;
            case "commit":
                producer.commitTransaction();
                return null;
            case "abort":
                producer.abortTransaction();
                return null;
            case "close":
                producers.remove(name).close(Duration.ZERO);
                return null;
            default:
                throw new IllegalArgumentException("no such step: " + request);
        }
    }

    /** Everything that is decided, as far as the last stable offset of this moment. */
    private JsonNode readCommitted(TopicPartition place, JsonNode request) {
        Map<String, Object> settings =
            Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", false, "isolation.level", "read_committed");
        ArrayNode values = JSON.createArrayNode();
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(place));
            consumer.seekToBeginning(List.of(place));
            long end = consumer.endOffsets(List.of(place)).get(place);
            while (consumer.position(place) < end) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    values.add(record.value());
                }
            }
        }
        return values;
    }

    private static ConfigResource resource(JsonNode request) {
        return new ConfigResource(ConfigResource.Type.forId((byte) request.get("type").asInt()), request.get("name").asText());
    }

    private static ArrayNode ids(List<Node> nodes) {
        ArrayNode found = JSON.createArrayNode();
        nodes.forEach(node -> found.add(node.id()));
        return found;
    }

    private static byte[] bytes(JsonNode value) throws Exception {
        return value.isNull() ? null : value.binaryValue();
    }

    private static short code(Throwable error) {
        return Errors.forException(error instanceof ExecutionException ? error.getCause() : error).code();
    }
}
