// Apache Kafka's PartitionChangeBuilder: a partition and what is wanted of it as one JSON object per line of stdin, the
// PartitionChangeRecord that follows as one per line of stdout, {} where nothing changes.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.controller.PartitionChangeBuilder;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;

public class PartitionChanges {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Uuid TOPIC = new Uuid(1, 2);

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(changed(JSON.readTree(line))));
        }
        out.flush();
    }

    static ObjectNode changed(JsonNode asked) {
        JsonNode old = asked.get("partition");
        PartitionRegistration partition = new PartitionRegistration.Builder()
            .setReplicas(array(old.get("replicas")))
            .setDirectories(uuids(old.get("directories")).toArray(new Uuid[0]))
            .setIsr(array(old.get("isr")))
            .setAddingReplicas(array(old.get("adding_replicas")))
            .setRemovingReplicas(array(old.get("removing_replicas")))
            .setElr(array(old.get("eligible_leader_replicas")))
            .setLastKnownElr(array(old.get("last_known_elr")))
            .setLeader(old.get("leader").asInt())
            .setLeaderRecoveryState(LeaderRecoveryState.of((byte) old.get("leader_recovery_state").asInt()))
            .setLeaderEpoch(5)
            .setPartitionEpoch(7)
            .build();
        Set<Integer> leaders = Set.copyOf(list(asked.get("leaders")));
        PartitionChangeBuilder builder = new PartitionChangeBuilder(partition, TOPIC, 0, leaders::contains,
            MetadataVersion.fromFeatureLevel((short) asked.get("level").asInt()), asked.get("min_isr").asInt(),
            asked.get("elr").asBoolean());
        builder.setElection(PartitionChangeBuilder.Election.valueOf(asked.get("election").asText()));
        builder.setDefaultDirProvider(broker -> Uuid.fromString(asked.get("default_directories").get("" + broker).asText()));
        if (asked.has("isr")) {
            builder.setTargetIsr(list(asked.get("isr")));
        }
        if (asked.has("replicas")) {
            builder.setTargetReplicas(list(asked.get("replicas")));
        }
        if (asked.has("adding")) {
            builder.setTargetAdding(list(asked.get("adding")));
        }
        if (asked.has("removing")) {
            builder.setTargetRemoving(list(asked.get("removing")));
        }
        if (asked.has("recovery_state")) {
            builder.setTargetLeaderRecoveryState(LeaderRecoveryState.of((byte) asked.get("recovery_state").asInt()));
        }
        if (asked.has("unclean_shutdowns")) {
            builder.setUncleanShutdownReplicas(list(asked.get("unclean_shutdowns")));
        }
        if (asked.has("directory")) {
            builder.setDirectory(asked.get("directory").get(0).asInt(), Uuid.fromString(asked.get("directory").get(1).asText()));
        }
        return builder.build().map(PartitionChanges::told).orElseGet(JSON::createObjectNode);
    }

    static ObjectNode told(ApiMessageAndVersion change) {
        PartitionChangeRecord record = (PartitionChangeRecord) change.message();
        ObjectNode told = JSON.createObjectNode();
        told.put("leader", record.leader());
        told.put("leader_recovery_state", record.leaderRecoveryState());
        told.set("isr", JSON.valueToTree(record.isr()));
        told.set("replicas", JSON.valueToTree(record.replicas()));
        told.set("adding_replicas", JSON.valueToTree(record.addingReplicas()));
        told.set("removing_replicas", JSON.valueToTree(record.removingReplicas()));
        told.set("eligible_leader_replicas", JSON.valueToTree(record.eligibleLeaderReplicas()));
        told.set("last_known_elr", JSON.valueToTree(record.lastKnownElr()));
        List<Uuid> directories = record.directories();
        told.set("directories", JSON.valueToTree(directories == null ? null : directories.stream().map(Uuid::toString).toList()));
        return told;
    }

    static List<Integer> list(JsonNode numbers) {
        List<Integer> list = new ArrayList<>();
        numbers.forEach(number -> list.add(number.asInt()));
        return list;
    }

    static int[] array(JsonNode numbers) {
        return list(numbers).stream().mapToInt(Integer::intValue).toArray();
    }

    static List<Uuid> uuids(JsonNode texts) {
        List<Uuid> list = new ArrayList<>();
        texts.forEach(text -> list.add(Uuid.fromString(text.asText())));
        return list;
    }
}
