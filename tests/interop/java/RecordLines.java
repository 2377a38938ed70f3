// Apache Kafka's record batches, one JSON request per line of stdin, one JSON answer per line of stdout:
// read    a run of batches (hex) into its header fields and records
// build   a batch with MemoryRecordsBuilder; marker, leaderChange: control batches; empty: a header without records
// filter  what compaction leaves of a batch when the records of the given offsets are kept, with the delete horizon that
//         a batch with tombstones then gets
// produce a partition's bytes as a broker takes them: ProduceRequest.validateRecords, then a real log; the answer is
//         the error that the client gets, or the bytes that the log holds
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
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.ByteBufferOutputStream;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.RecordValidationException;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class RecordLines {
    static final ObjectMapper JSON = new ObjectMapper();
    static final HexFormat HEX = HexFormat.of();
    static final KafkaScheduler SCHEDULER = new KafkaScheduler(1);

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        SCHEDULER.startup();
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
        SCHEDULER.shutdown();
        System.exit(0);
    }

    static void answer(JsonNode request, ObjectNode answer) throws Exception {
        switch (request.get("op").asText()) {
            case "read": read(records(request), answer.putArray("batches")); break;
            case "build": answer.put("hex", hex(build(request))); break;
            case "marker": answer.put("hex", hex(marker(request))); break;
            case "leaderChange": answer.put("hex", hex(leaderChange(request))); break;
            case "empty": answer.put("hex", hex(empty(request))); break;
            case "filter": answer.put("hex", hex(filter(request))); break;
            case "produce": produce(request, answer); break;
            default: throw new IllegalArgumentException(request.get("op").asText());
        }
    }

    static MemoryRecords records(JsonNode request) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(HEX.parseHex(request.get("hex").asText())));
    }

    static void read(MemoryRecords records, ArrayNode batches) {
        for (MutableRecordBatch each : records.batches()) {
            DefaultRecordBatch batch = (DefaultRecordBatch) each;
            batch.ensureValid();
            ObjectNode row = batches.addObject();
            row.put("base_offset", batch.baseOffset());
            row.put("last_offset", batch.lastOffset());
            row.put("size_bytes", batch.sizeInBytes());
            row.put("partition_leader_epoch", batch.partitionLeaderEpoch());
            row.put("magic", batch.magic());
            row.put("crc", batch.checksum());
            row.put("codec", batch.compressionType().id);
            row.put("timestamp_type", batch.timestampType().id);
            row.put("base_timestamp", batch.baseTimestamp());
            row.put("max_timestamp", batch.maxTimestamp());
            row.put("producer_id", batch.producerId());
            row.put("producer_epoch", batch.producerEpoch());
            row.put("base_sequence", batch.baseSequence());
            row.put("last_sequence", batch.lastSequence());
            row.put("count", batch.countOrNull());
            row.put("is_transactional", batch.isTransactional());
            row.put("is_control", batch.isControlBatch());
            if (batch.deleteHorizonMs().isPresent())
                row.put("delete_horizon_ms", batch.deleteHorizonMs().getAsLong());
            else
                row.putNull("delete_horizon_ms");
            ArrayNode rows = row.putArray("records");
            for (Record record : batch) {
                ArrayNode fields = rows.addArray();
                fields.add(record.offset());
                fields.add(record.timestamp());
                fields.add(hex(record.key()));
                fields.add(hex(record.value()));
                ArrayNode headers = fields.addArray();
                for (Header header : record.headers()) {
                    ArrayNode pair = headers.addArray();
                    pair.add(header.key());
                    pair.add(header.value() == null ? null : HEX.formatHex(header.value()));
                }
            }
        }
    }

    static MemoryRecords build(JsonNode request) {
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(
            new ByteBufferOutputStream(1024), RecordBatch.MAGIC_VALUE_V2,
            Compression.of(CompressionType.forId(request.get("codec").asInt())).build(),
            request.get("append_time_ms").isNull() ? TimestampType.CREATE_TIME : TimestampType.LOG_APPEND_TIME,
            request.get("base_offset").asLong(), request.get("append_time_ms").asLong(),
            request.get("producer_id").asLong(), (short) request.get("producer_epoch").asInt(),
            request.get("base_sequence").asInt(), request.get("transactional").asBoolean(), false,
            request.get("partition_leader_epoch").asInt(), Integer.MAX_VALUE,
            request.get("delete_horizon_ms").isNull() ? RecordBatch.NO_TIMESTAMP : request.get("delete_horizon_ms").asLong());
        for (JsonNode row : request.get("records")) {
            List<Header> headers = new ArrayList<>();
            for (JsonNode pair : row.get(4))
                headers.add(new RecordHeader(pair.get(0).asText(), bytes(pair.get(1))));
            builder.appendWithOffset(row.get(0).asLong(), row.get(1).asLong(), bytes(row.get(2)), bytes(row.get(3)),
                headers.toArray(new Header[0]));
        }
        return builder.build();
    }

    static MemoryRecords marker(JsonNode request) {
        return MemoryRecords.withEndTransactionMarker(
            request.get("base_offset").asLong(), request.get("timestamp").asLong(),
            request.get("partition_leader_epoch").asInt(), request.get("producer_id").asLong(),
            (short) request.get("producer_epoch").asInt(),
            new EndTransactionMarker(ControlRecordType.fromTypeId((short) request.get("kind").asInt()),
                request.get("coordinator_epoch").asInt()));
    }

    static MemoryRecords leaderChange(JsonNode request) {
        List<LeaderChangeMessage.Voter> voters = new ArrayList<>();
        for (JsonNode voter : request.get("voters"))
            voters.add(new LeaderChangeMessage.Voter().setVoterId(voter.asInt()));
        return MemoryRecords.withLeaderChangeMessage(
            request.get("base_offset").asLong(), request.get("timestamp").asLong(),
            request.get("partition_leader_epoch").asInt(), ByteBuffer.allocate(1024),
            new LeaderChangeMessage().setVersion((short) 0).setLeaderId(request.get("leader").asInt()).setVoters(voters));
    }

    static ByteBuffer empty(JsonNode request) {
        ByteBuffer buffer = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(buffer, RecordBatch.MAGIC_VALUE_V2, request.get("producer_id").asLong(),
            (short) request.get("producer_epoch").asInt(), request.get("base_sequence").asInt(),
            request.get("base_offset").asLong(), request.get("last_offset").asLong(),
            request.get("partition_leader_epoch").asInt(), TimestampType.CREATE_TIME, request.get("timestamp").asLong(),
            request.get("transactional").asBoolean(), false);
        buffer.flip();
        return buffer;
    }

    static ByteBuffer filter(JsonNode request) {
        Set<Long> kept = new HashSet<>();
        for (JsonNode offset : request.get("keep"))
            kept.add(offset.asLong());
        MemoryRecords.RecordFilter filter = new MemoryRecords.RecordFilter(request.get("horizon").asLong(), 0) {
            @Override
            protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                return new BatchRetentionResult(BatchRetention.RETAIN_EMPTY, false);
            }

            @Override
            protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                return kept.contains(record.offset());
            }
        };
        ByteBuffer destination = ByteBuffer.allocate(1024);
        MemoryRecords.FilterResult result = records(request).filterTo(filter, destination, BufferSupplier.NO_CACHING);
        ByteBuffer output = result.outputBuffer();
        output.flip();
        return output;
    }

    static void produce(JsonNode request, ObjectNode answer) throws Exception {
        File parent = Files.createTempDirectory("records").toFile();
        File dir = new File(parent, "topic-0");
        dir.mkdirs();
        Map<String, String> config = new HashMap<>();
        request.get("config").properties().forEach(entry -> config.put(entry.getKey(), entry.getValue().asText()));
        UnifiedLog log = UnifiedLog.create(dir, new LogConfig(config), 0, 0, SCHEDULER, new BrokerTopicStats(), Time.SYSTEM,
            3600000, new ProducerStateManagerConfig(86400000, false), 600000, new LogDirFailureChannel(1), true,
            Optional.empty());
        try {
            MemoryRecords records = records(request);
            ProduceRequest.validateRecords((short) request.get("version").asInt(), records);
            log.appendAsLeader(records, request.get("leader_epoch").asInt(), AppendOrigin.CLIENT, RequestLocal.noCaching(),
                VerificationGuard.SENTINEL, (short) 2);
            answer.put("code", "NONE");
            FileRecords stored = (FileRecords) log.read(0, Integer.MAX_VALUE, FetchIsolation.LOG_END, true).records;
            ByteBuffer buffer = ByteBuffer.allocate(stored.sizeInBytes());
            stored.readInto(buffer, 0);
            answer.put("hex", hex(buffer));
        } catch (Throwable e) {
            Throwable shown = e instanceof RecordValidationException rejected ? rejected.invalidException() : e;
            answer.put("code", Errors.forException(shown).name());
            answer.put("message", shown.getClass().getSimpleName() + ": " + shown.getMessage());
        } finally {
            log.close();
            Utils.delete(parent);
        }
    }

    static byte[] bytes(JsonNode hex) {
        return hex.isNull() ? null : HEX.parseHex(hex.asText());
    }

    static String hex(MemoryRecords records) {
        return hex(records.buffer());
    }

    static String hex(ByteBuffer buffer) {
        return buffer == null ? null : HEX.formatHex(Utils.toArray(buffer));
    }
}
