// Apache Kafka's StripedReplicaPlacer: one JSON object per line of stdin (seed, partitions, replicas, and brokers as [id, rack,
// fenced]), the replicas of each partition as one JSON array per line of stdout, or the name of the error as a string.
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Optional;
import java.util.Random;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.metadata.placement.ClusterDescriber;
import org.apache.kafka.metadata.placement.PlacementSpec;
import org.apache.kafka.metadata.placement.StripedReplicaPlacer;
import org.apache.kafka.metadata.placement.UsableBroker;

public class Placements {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(placed(JSON.readTree(line))));
        }
        out.flush();
    }

    static Object placed(JsonNode asked) {
        List<UsableBroker> brokers = new ArrayList<>();
        for (JsonNode one : asked.get("brokers")) {
            Optional<String> rack = one.get(1).isNull() ? Optional.empty() : Optional.of(one.get(1).asText());
            brokers.add(new UsableBroker(one.get(0).asInt(), rack, one.get(2).asBoolean()));
        }
        ClusterDescriber cluster = new ClusterDescriber() {
            @Override
            public Iterator<UsableBroker> usableBrokers() {
                return brokers.iterator();
            }

            @Override
            public Uuid defaultDir(int brokerId) {
                return Uuid.ZERO_UUID;
            }
        };
        PlacementSpec spec = new PlacementSpec(0, asked.get("partitions").asInt(), (short) asked.get("replicas").asInt());
        try {
            return new StripedReplicaPlacer(new Random(asked.get("seed").asLong())).place(spec, cluster).assignments().stream()
                .map(one -> one.replicas()).toList();
        } catch (ApiException e) {
            return Errors.forException(e).name();
        }
    }
}
