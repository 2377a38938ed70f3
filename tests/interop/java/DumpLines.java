// Apache Kafka's command line tools, many runs in one JVM: one JSON array per line of stdin (the main class, then its
// arguments), one JSON answer per line of stdout: exit, out, err. Hex is a decoder for DumpLogSegments that loses nothing.
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.tools.api.Decoder;

public class DumpLines {
    static final ObjectMapper JSON = new ObjectMapper();

    /** Stands in for the end of the JVM; whatever a tool that catches it does then is of no account. */
    static class Ended extends Error { }

    public static class Hex implements Decoder<String> {
        @Override
        public String fromBytes(byte[] bytes) {
            return HexFormat.of().formatHex(bytes);
        }
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        ObjectNode[] answer = new ObjectNode[1];
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        Exit.Procedure end = (status, message) -> {
            if (answer[0] == null) {
                answer[0] = answer(status, out, err);
            }
            throw new Ended();
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        Exit.setShutdownHookAdder((name, hook) -> { });
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = JSON.readValue(line, String[].class);
            answer[0] = null;
            out.reset();
            err.reset();
            int status = 0;
            try {
                run(words[0], Arrays.copyOfRange(words, 1, words.length));
            } catch (Throwable e) {
                if (!(e instanceof Ended)) {
                    e.printStackTrace();
                }
                status = 1;
            }
            answers.println(JSON.writeValueAsString(answer[0] == null ? answer(status, out, err) : answer[0]));
        }
    }

    static ObjectNode answer(int status, ByteArrayOutputStream out, ByteArrayOutputStream err) {
        System.out.flush();
        System.err.flush();
        ObjectNode answer = JSON.createObjectNode();
        answer.put("exit", status);
        answer.put("out", out.toString(StandardCharsets.UTF_8));
        answer.put("err", err.toString(StandardCharsets.UTF_8));
        return answer;
    }

    static void run(String mainClass, String[] args) throws Throwable {
        try {
            Class.forName(mainClass).getMethod("main", String[].class).invoke(null, (Object) args);
        } catch (InvocationTargetException e) {
            throw e.getCause();
        }
    }
}
