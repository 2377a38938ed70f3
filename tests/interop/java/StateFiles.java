// Apache Kafka's small files and its producer state, one JSON request per line of stdin, one JSON answer per line of stdout:
// read-*, write-*  snapshot, transactions, epochs, offsets, topic-id, meta, shutdown: a file into rows and back
// collect, cut     a transaction index asked for a range of offsets, and truncated
// epochs           calls on a LeaderEpochFileCache, with what each answers
// log-*            a real log, whose producer state is what is looked at: open, append, verify, roll, truncate, start, hw,
//                  expire, close, state
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.properties.MetaProperties;
import org.apache.kafka.metadata.properties.MetaPropertiesVersion;
import org.apache.kafka.metadata.properties.PropertiesUtils;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.AbortedTxn;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetMetadata;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.ProducerAppendInfo;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.RecordValidationException;
import org.apache.kafka.storage.internals.log.TransactionIndex;
import org.apache.kafka.storage.internals.log.TxnIndexSearchResult;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.internals.log.VerificationStateEntry;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class StateFiles {
    static final ObjectMapper JSON = new ObjectMapper();
    static final TopicPartition PARTITION = new TopicPartition("topic", 0);
    static final ScheduledThreadPoolExecutor NEVER = new ScheduledThreadPoolExecutor(0);
    static final LogDirFailureChannel FAILURES = new LogDirFailureChannel(10);
    static long now = 0;
    static UnifiedLog log;
    static final List<VerificationGuard> guards = new ArrayList<>();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer(JSON.readTree(line), answer);
            } catch (Throwable e) {
                answer.removeAll();
                answer.put("error", e.getClass().getSimpleName() + ": " + e.getMessage());
            }
            out.println(JSON.writeValueAsString(answer));
        }
        System.exit(0);
    }

    static void answer(JsonNode request, ObjectNode answer) throws Exception {
        String op = request.get("op").asText();
        if (op.startsWith("log-")) {
            logOp(op, request, answer);
            return;
        }
        File file = new File(request.get("path").asText());
        switch (op) {
            case "read-snapshot": readSnapshot(file, answer.putArray("rows")); break;
            case "write-snapshot": writeSnapshot(file, request.get("rows")); break;
            case "read-transactions": case "write-transactions": case "collect": case "cut": transactions(op, file, request, answer); break;
            case "read-epochs": rows(answer, new LeaderEpochCheckpointFile(file, FAILURES).read()); break;
            case "write-epochs": writeEpochs(file, request.get("rows")); break;
            case "read-offsets":
                new OffsetCheckpointFile(file, FAILURES).read().forEach((key, offset) ->
                    answer.withArray("rows").addArray().add(key.topic()).add(key.partition()).add(offset));
                break;
            case "write-offsets":
                Map<TopicPartition, Long> offsets = new LinkedHashMap<>();
                for (JsonNode row : request.get("rows"))
                    offsets.put(new TopicPartition(row.get(0).asText(), row.get(1).asInt()), row.get(2).asLong());
                new OffsetCheckpointFile(file, FAILURES).write(offsets);
                break;
            case "read-topic-id": answer.put("id", new PartitionMetadataFile(file, FAILURES).read().topicId().toString()); break;
            case "write-topic-id":
                PartitionMetadataFile metadata = new PartitionMetadataFile(file, FAILURES);
                metadata.record(Uuid.fromString(request.get("id").asText()));
                metadata.maybeFlush();
                break;
            case "read-meta":
                MetaProperties meta = new MetaProperties.Builder(PropertiesUtils.readPropertiesFile(file.getPath())).build();
                answer.put("version", meta.version().number());
                answer.put("cluster_id", meta.clusterId().get());
                answer.put("node_id", meta.nodeId().getAsInt());
                answer.put("directory_id", meta.directoryId().map(Uuid::toString).orElse(null));
                break;
            case "write-meta": writeMeta(file, request); break;
            case "read-shutdown":
                OptionalLong epoch = new CleanShutdownFileHandler(file.getParent()).read();
                answer.put("epoch", epoch.isPresent() ? Long.valueOf(epoch.getAsLong()) : null);
                break;
            case "write-shutdown": new CleanShutdownFileHandler(file.getParent()).write(request.get("epoch").asLong()); break;
            case "epochs": epochs(file, request, answer); break;
            default: throw new IllegalArgumentException(op);
        }
    }

    // Files.

    static void readSnapshot(File file, ArrayNode rows) throws Exception {
        for (ProducerStateEntry entry : ProducerStateManager.readSnapshot(file)) {
            ArrayNode row = rows.addArray();
            row.add(entry.producerId()).add(entry.producerEpoch());
            BatchMetadata batch = entry.batchMetadata().stream().findFirst().orElse(new BatchMetadata(-1, -1, 0, -1));
            row.add(batch.lastSeq()).add(batch.lastOffset()).add(batch.offsetDelta());
            row.add(entry.lastTimestamp()).add(entry.coordinatorEpoch()).add(entry.currentTxnFirstOffset().orElse(-1));
        }
    }

    static void writeSnapshot(File file, JsonNode rows) throws Exception {
        Map<Long, ProducerStateEntry> entries = new LinkedHashMap<>();
        for (JsonNode row : rows) {
            long producerId = row.get(0).asLong();
            short epoch = (short) row.get(1).asInt();
            long timestamp = row.get(5).asLong();
            long first = row.get(7).asLong();
            ProducerStateEntry entry = new ProducerStateEntry(producerId, epoch, row.get(6).asInt(), timestamp,
                first >= 0 ? OptionalLong.of(first) : OptionalLong.empty());
            long lastOffset = row.get(3).asLong();
            if (lastOffset >= 0) {
                ProducerAppendInfo append = new ProducerAppendInfo(PARTITION, producerId, entry, AppendOrigin.REPLICATION, null);
                append.appendDataBatch(epoch, 0, row.get(2).asInt(), timestamp,
                    new LogOffsetMetadata(lastOffset - row.get(4).asInt()), lastOffset, first >= 0);
                entry = append.toEntry();
            }
            entries.put(producerId, entry);
        }
        ProducerStateManager.writeSnapshot(file, entries, true);
    }

    static void transactions(String op, File file, JsonNode request, ObjectNode answer) throws Exception {
        try (TransactionIndex index = new TransactionIndex(request.get("base_offset").asLong(), file)) {
            switch (op) {
                case "write-transactions":
                    for (JsonNode row : request.get("rows"))
                        index.append(new AbortedTxn(row.get(0).asLong(), row.get(1).asLong(), row.get(2).asLong(), row.get(3).asLong()));
                    index.flush();
                    break;
                case "read-transactions":
                    index.sanityCheck();
                    aborted(answer, index.allAbortedTxns());
                    break;
                case "collect":
                    TxnIndexSearchResult found = index.collectAbortedTxns(request.get("from").asLong(), request.get("to").asLong());
                    aborted(answer, found.abortedTransactions());
                    answer.put("complete", found.isComplete());
                    break;
                default: index.truncateTo(request.get("to").asLong());
            }
        }
    }

    static void aborted(ObjectNode answer, Collection<AbortedTxn> found) {
        ArrayNode rows = answer.putArray("rows");
        for (AbortedTxn each : found)
            rows.addArray().add(each.producerId()).add(each.firstOffset()).add(each.lastOffset()).add(each.lastStableOffset());
    }

    static void writeEpochs(File file, JsonNode rows) throws Exception {
        List<EpochEntry> entries = new ArrayList<>();
        for (JsonNode row : rows)
            entries.add(new EpochEntry(row.get(0).asInt(), row.get(1).asLong()));
        new LeaderEpochCheckpointFile(file, FAILURES).write(entries);
    }

    static void rows(ObjectNode answer, Collection<EpochEntry> entries) {
        ArrayNode rows = answer.putArray("rows");
        for (EpochEntry entry : entries)
            rows.addArray().add(entry.epoch()).add(entry.startOffset());
    }

    static void writeMeta(File file, JsonNode request) throws Exception {
        MetaProperties.Builder meta = new MetaProperties.Builder().setVersion(MetaPropertiesVersion.V1)
            .setClusterId(request.get("cluster_id").asText()).setNodeId(request.get("node_id").asInt());
        if (!request.get("directory_id").isNull())
            meta.setDirectoryId(Uuid.fromString(request.get("directory_id").asText()));
        Properties properties = meta.build().toProperties();
        PropertiesUtils.writePropertiesFile(properties, file.getPath(), true);
    }

    // Leader epochs.

    static void epochs(File file, JsonNode request, ObjectNode answer) throws Exception {
        LeaderEpochFileCache cache = new LeaderEpochFileCache(PARTITION, new LeaderEpochCheckpointFile(file, FAILURES), new Once(true));
        ArrayNode answers = answer.putArray("answers");
        for (JsonNode call : request.get("calls")) {
            long number = call.get(1).asLong();
            switch (call.get(0).asText()) {
                case "assign": cache.assign((int) number, call.get(2).asLong()); answers.addNull(); break;
                case "from_end": cache.truncateFromEndAsyncFlush(number); answers.addNull(); break;
                case "from_start": cache.truncateFromStartAsyncFlush(number); answers.addNull(); break;
                case "end_offset":
                    Map.Entry<Integer, Long> end = cache.endOffsetFor((int) number, call.get(2).asLong());
                    answers.addArray().add(end.getKey()).add(end.getValue());
                    break;
                case "for_offset": answers.add(cache.epochForOffset(number).orElse(-1)); break;
                case "previous": answers.add(cache.previousEpoch((int) number).orElse(-1)); break;
                case "next": answers.add(cache.nextEpoch((int) number).orElse(-1)); break;
                case "in_range":
                    ArrayNode found = answers.addArray();
                    for (EpochEntry entry : cache.epochEntriesInRange(number, call.get(2).asLong()))
                        found.addArray().add(entry.epoch()).add(entry.startOffset());
                    break;
                default: throw new IllegalArgumentException(call.get(0).asText());
            }
        }
        rows(answer, cache.epochEntries());
        answer.put("previous", cache.previousEpoch().orElse(-1));
    }

    // A log.

    static void logOp(String op, JsonNode request, ObjectNode answer) throws Exception {
        if (request.has("now"))
            now = request.get("now").asLong();
        switch (op) {
            case "log-open":
                guards.clear();
                log = UnifiedLog.create(new File(request.get("path").asText()), new LogConfig(new HashMap<>()),
                    request.get("start").asLong(), 0, new Once(false), new BrokerTopicStats(), new Clock(), request.get("timeout").asInt(),
                    new ProducerStateManagerConfig(request.get("expiration").asInt(), request.get("verifies").asBoolean()),
                    Integer.MAX_VALUE, FAILURES, request.get("clean").asBoolean(), Optional.empty());
                break;
            case "log-append": append(request, answer); break;
            case "log-verify":
                try {
                    VerificationGuard guard = log.maybeStartTransactionVerification(request.get("producer_id").asLong(),
                        request.get("sequence").asInt(), (short) request.get("epoch").asInt(), request.get("bump").asBoolean());
                    answer.put("code", "NONE");
                    answer.put("guard", guardNumber(guard));
                } catch (Exception e) {
                    answer.put("code", Errors.forException(e).name());
                }
                break;
            case "log-roll": log.roll(); break;
            case "log-truncate": log.truncateTo(request.get("offset").asLong()); break;
            case "log-start":
                log.maybeIncrementLogStartOffset(request.get("offset").asLong(), LogStartOffsetIncrementReason.ClientRecordDeletion);
                break;
            case "log-hw": log.updateHighWatermark(request.get("offset").asLong()); break;
            case "log-expire": log.removeExpiredProducers(now); break;
            case "log-close": log.close(); break;
            case "log-state": state(answer); break;
            default: throw new IllegalArgumentException(op);
        }
    }

    static int guardNumber(VerificationGuard guard) {
        if (guard == VerificationGuard.SENTINEL)
            return 0;
        if (!guards.contains(guard))
            guards.add(guard);
        return guards.indexOf(guard) + 1;
    }

    static void append(JsonNode request, ObjectNode answer) {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(request.get("hex").asText())));
        AppendOrigin origin = AppendOrigin.valueOf(request.get("origin").asText());
        int guard = request.get("guard").asInt();
        long end = log.logEndOffset();
        try {
            LogAppendInfo info = origin == AppendOrigin.REPLICATION ? log.appendAsFollower(records, 0) :
                log.appendAsLeader(records, 0, origin, RequestLocal.noCaching(),
                    guard == 0 ? VerificationGuard.SENTINEL : guards.get(guard - 1), (short) request.get("version").asInt());
            answer.put("code", log.logEndOffset() == end ? "DUPLICATE" : "NONE");
            answer.put("first_offset", info.firstOffset());
            answer.put("last_offset", info.lastOffset());
        } catch (Throwable e) {
            Throwable shown = e instanceof RecordValidationException rejected ? rejected.invalidException() : e;
            answer.put("code", Errors.forException(shown).name());
            answer.put("message", shown.getClass().getSimpleName() + ": " + shown.getMessage());
        }
    }

    static void state(ObjectNode answer) {
        ProducerStateManager states = log.producerStateManager();
        ArrayNode producers = answer.putArray("producers");
        for (ProducerStateEntry entry : new TreeMap<>(states.activeProducers()).values()) {
            ArrayNode row = producers.addArray();
            row.add(entry.producerId()).add(entry.producerEpoch()).add(entry.coordinatorEpoch()).add(entry.lastTimestamp());
            row.add(entry.currentTxnFirstOffset().orElse(-1));
            ArrayNode batches = row.addArray();
            for (BatchMetadata batch : entry.batchMetadata())
                batches.addArray().add(batch.lastSeq()).add(batch.lastOffset()).add(batch.offsetDelta()).add(batch.timestamp());
            VerificationStateEntry waiting = states.verificationStateEntry(entry.producerId());
            if (waiting == null)
                row.addNull();
            else
                row.addArray().add(waiting.lowestSequence()).add(waiting.epoch()).add(waiting.supportsEpochBump());
        }
        answer.put("first_unstable", states.firstUnstableOffset().map(offset -> offset.messageOffset).orElse(-1L));
        answer.put("first_undecided", states.firstUndecidedOffset().orElse(-1L));
        answer.put("last_stable", log.lastStableOffset());
        answer.put("map_end", states.mapEndOffset());
        answer.put("latest_snapshot", states.latestSnapshotOffset().orElse(-1L));
        answer.put("oldest_snapshot", states.oldestSnapshotOffset().orElse(-1L));
        answer.put("empty", states.isEmpty());
        answer.put("end", log.logEndOffset());
        answer.put("start", log.logStartOffset());
    }

    /** Runs what is to be done once at once, or nothing at all. */
    record Once(boolean runs) implements Scheduler {
        public void startup() { }

        public void shutdown() { }

        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (runs)
                task.run();
            return NEVER.schedule(task, 1, TimeUnit.DAYS);
        }

        public void resizeThreadPool(int newSize) { }
    }

    static class Clock implements Time {
        public long milliseconds() {
            return now;
        }

        public long nanoseconds() {
            return System.nanoTime();
        }

        public void sleep(long ms) { }

        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) { }
    }
}
