import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.File;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.HashMap;
import java.util.Map;
import java.util.jar.JarFile;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.Readable;

/**
 * Apache Kafka's message classes behind lines of text.
 *
 *   encode NAME VERSION JSON   the bytes, in hex
 *   decode NAME VERSION HEX    the JSON, a tab, and the bytes of the message encoded again
 *   errors                     every error code as NAME:CODE:RETRIABLE
 *   apis                       every API as KEY:NAME:OLDEST:LATEST, stable versions only
 *
 * NAME is the name of a schema. What cannot be done is answered with ERROR and the exception.
 */
public class MessageLines {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();
    private static final Map<String, String> CONVERTERS = new HashMap<>();

    public static void main(String[] args) throws Exception {
        findConverters();
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = answer(line.split(" ", 4));
            } catch (InvocationTargetException e) {
                answer = "ERROR " + e.getCause();
            } catch (Exception e) {
                answer = "ERROR " + e;
            }
            out.write(answer.replace('\n', ' '));
            out.newLine();
            if (!in.ready())
                out.flush();
        }
        out.flush();
    }

    /** A schema called X is the class X or XData, beside which stands its JSON converter. */
    private static void findConverters() throws Exception {
        for (String path : System.getProperty("java.class.path").split(File.pathSeparator)) {
            if (!new File(path).getName().startsWith("kafka-"))
                continue;
            try (JarFile jar = new JarFile(path)) {
                jar.stream().map(entry -> entry.getName()).filter(name -> name.endsWith("JsonConverter.class")).forEach(name -> {
                    String converter = name.substring(0, name.length() - ".class".length()).replace('/', '.');
                    String message = converter.substring(converter.lastIndexOf('.') + 1).replace("JsonConverter", "");
                    CONVERTERS.put(message, converter);
                    if (message.endsWith("Data"))
                        CONVERTERS.put(message.substring(0, message.length() - 4), converter);
                });
            }
        }
    }

    private static String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "errors": return errors();
            case "apis": return apis();
        }
        Class<?> converter = Class.forName(CONVERTERS.get(words[1]));
        Class<?> message = Class.forName(converter.getName().replace("JsonConverter", ""));
        short version = Short.parseShort(words[2]);
        String payload = words.length > 3 ? words[3] : "";
        if (words[0].equals("encode")) {
            Object object = converter.getMethod("read", JsonNode.class, short.class).invoke(null, JSON.readTree(payload), version);
            return hex((Message) object, version);
        }
        var bytes = new ByteBufferAccessor(ByteBuffer.wrap(HEX.parseHex(payload)));
        Object object = message.getConstructor(Readable.class, short.class).newInstance(bytes, version);
        if (bytes.remaining() != 0)
            return "ERROR " + bytes.remaining() + " bytes left over";
        Object json = converter.getMethod("write", message, short.class, boolean.class).invoke(null, object, version, true);
        return JSON.writeValueAsString(json) + "\t" + hex((Message) object, version);
    }

    private static String hex(Message message, short version) {
        ByteBuffer buffer = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return HEX.formatHex(bytes);
    }

    private static String errors() {
        var out = new StringBuilder();
        for (Errors error : Errors.values())
            out.append(error.name()).append(':').append(error.code()).append(':')
                .append(error.exception() instanceof RetriableException).append(' ');
        return out.toString().trim();
    }

    private static String apis() {
        var out = new StringBuilder();
        for (ApiKeys api : ApiKeys.values())
            if (api.hasValidVersion())
                out.append(api.id).append(':').append(api.name).append(':').append(api.oldestVersion()).append(':')
                    .append(api.latestVersion(false)).append(' ');
        return out.toString().trim();
    }
}
