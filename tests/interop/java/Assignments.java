import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/** What Apache Kafka's assignors choose: a group on each line of stdin, its assignment on each line of stdout, as JSON. */
public class Assignments {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(JSON.writeValueAsString(assigned(JSON.readTree(line))));
        }
    }

    private static JsonNode assigned(JsonNode group) throws Exception {
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        group.get("members").fields().forEachRemaining(entry -> {
            JsonNode member = entry.getValue();
            Set<Uuid> topics = new HashSet<>();
            member.get("topics").forEach(topic -> topics.add(Uuid.fromString(topic.asText())));
            Map<Uuid, Set<Integer>> assigned = new HashMap<>();
            member.get("assigned").fields().forEachRemaining(row -> {
                Uuid topic = Uuid.fromString(row.getKey());
                java.util.List<Integer> partitions = new java.util.ArrayList<>();
                row.getValue().forEach(partition -> {
                    partitions.add(partition.asInt());
                    owners.computeIfAbsent(topic, key -> new HashMap<>()).put(partition.asInt(), entry.getKey());
                });
                assigned.put(topic, Collections.unmodifiableSet(new HashSet<>(partitions)));
            });
            members.put(entry.getKey(), new MemberSubscriptionAndAssignmentImpl(Optional.empty(), Optional.empty(), topics,
                new Assignment(Collections.unmodifiableMap(assigned))));
        });
        SubscribedTopicDescriber topics = new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topic) {
                JsonNode count = group.get("counts").get(topic.toString());
                return count == null ? -1 : count.asInt();
            }

            @Override
            public Set<String> racksForPartition(Uuid topic, int partition) {
                return Set.of();
            }
        };
        SubscriptionType type = group.get("is_homogeneous").asBoolean() ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        ConsumerGroupPartitionAssignor assignor = group.get("assignor").asText().equals("range") ? new RangeAssignor() : new UniformAssignor();
        GroupAssignment assignment = assignor.assign(new GroupSpecImpl(members, type, owners), topics);
        ObjectNode out = JSON.createObjectNode();
        assignment.members().forEach((member, share) -> {
            ObjectNode rows = out.putObject(member);
            share.partitions().forEach((topic, partitions) -> {
                ArrayNode row = rows.putArray(topic.toString());
                new TreeSet<>(partitions).forEach(row::add);
            });
        });
        return out;
    }
}
