// Apache Kafka's states of a transaction: id, name and what may come before it, as one JSON array.
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.coordinator.transaction.TransactionState;

public class TransactionStates {
    public static void main(String[] args) throws Exception {
        List<Map<String, Object>> states = new ArrayList<>();
        for (TransactionState state : TransactionState.values()) {
            List<String> before = state.validPreviousStates().stream().map(TransactionState::stateName).sorted().toList();
            states.add(Map.of("id", state.id(), "name", state.stateName(), "before", before));
        }
        System.out.println(new ObjectMapper().writeValueAsString(states));
    }
}
