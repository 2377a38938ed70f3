import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Scanner;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java producer for `make bench-transactions`: `BOOTSTRAP` as argument, then a line for each run, answered by a line.
 *
 * <pre>
 * plain TOPIC VALUE_BYTES SECONDS key=value...              sends as fast as the producer takes records
 * transactional TOPIC VALUE_BYTES SECONDS MS key=value...   the same, with a commit every MS (0: after each record)
 * </pre>
 *
 * The answer: records, seconds from the first send until all is acknowledged (and committed), and the nanoseconds of each
 * commit call. One JVM for all runs, so that what the compiler has learnt serves each of them.
 */
public final class TransactionBench {
    public static void main(String[] args) throws Exception {
        try (Scanner lines = new Scanner(System.in)) {
            while (lines.hasNextLine()) {
                String[] words = lines.nextLine().trim().split(" ");
                boolean isTransactional = words[0].equals("transactional");
                Properties settings = new Properties();
                settings.put("bootstrap.servers", args[0]);
                for (int i = isTransactional ? 5 : 4; i < words.length; i++) {
                    String[] pair = words[i].split("=", 2);
                    settings.put(pair[0], pair[1]);
                }
                byte[] value = new byte[Integer.parseInt(words[2])];
                new java.util.Random(1).nextBytes(value);
                long nanos = (long) (Double.parseDouble(words[3]) * 1e9);
                System.out.println(run(settings, words[1], value, nanos, isTransactional ? Long.parseLong(words[4]) : -1));
                System.out.flush();
            }
        }
    }

    private static String run(Properties settings, String topic, byte[] value, long nanos, long transactionMs) {
        AtomicReference<Exception> failure = new AtomicReference<>();
        List<Long> commits = new ArrayList<>();
        long records = 0;
        long took;
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            if (transactionMs >= 0) {
                producer.initTransactions();
            }
            producer.partitionsFor(topic);
            long began = System.nanoTime();
            while (System.nanoTime() - began < nanos) {
                long transactionBegan = System.nanoTime();
                if (transactionMs >= 0) {
                    producer.beginTransaction();
                }
                long lasts = transactionMs >= 0 ? transactionMs * 1_000_000 : nanos;
                do {
                    producer.send(new ProducerRecord<>(topic, value), (metadata, error) -> {
                        if (error != null) {
                            failure.set(error);
                        }
                    });
                    records++;
                } while (System.nanoTime() - transactionBegan < lasts);
                if (transactionMs >= 0) {
                    long commitBegan = System.nanoTime();
                    producer.commitTransaction();
                    commits.add(System.nanoTime() - commitBegan);
                }
            }
            producer.flush();
            took = System.nanoTime() - began;
        }
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
        StringBuilder out = new StringBuilder().append(records).append(' ').append(took / 1e9);
        for (long commit : commits) {
            out.append(' ').append(commit);
        }
        return out.toString();
    }
}
