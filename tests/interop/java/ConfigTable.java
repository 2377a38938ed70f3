import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.StringReader;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import kafka.server.ConfigHelper;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.message.DescribeConfigsRequestData.DescribeConfigsResource;
import org.apache.kafka.common.message.DescribeConfigsResponseData.DescribeConfigsResourceResult;
import org.apache.kafka.common.message.DescribeConfigsResponseData.DescribeConfigsResult;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.metadata.ConfigRepository;
import org.apache.kafka.metadata.MetadataCache;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;
import scala.jdk.javaapi.CollectionConverters;

/**
 * What Apache Kafka knows of its configs, as JSON lines.
 *   table              one line per key: scope, name, type, default, validator, update mode, synonyms, documentation
 *   properties         for each line of stdin, a JSON string: the map java.util.Properties reads from it, or its complaint
 *   broker|topic|group for each line of stdin, a JSON object of configs: null if Apache Kafka takes them, or its complaint
 *   dynamic-broker|dynamic-cluster  the same for changes of a running broker's configs
 *   describe           for each line of stdin, an object of static, cluster, broker, topic and group configs: what
 *                      DescribeConfigs answers for a broker, a topic and a group under them
 */
public class ConfigTable {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    public static void main(String[] args) throws Exception {
        if (args[0].equals("table")) {
            table("broker", KafkaConfig.configDef());
            table("topic", LogConfig.configDefCopy());
            table("group", GroupConfig.CONFIG_DEF);
            table("client-metrics", ClientMetricsConfigs.configDef());
        } else {
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                Object answer = switch (args[0]) {
                    case "properties" -> parse(line);
                    case "describe" -> describe(line);
                    default -> complaint(args[0], line);
                };
                OUT.println(JSON.writeValueAsString(answer));
            }
        }
        OUT.flush();
    }

    private static void table(String scope, ConfigDef def) throws Exception {
        Map<String, String> modes = DynamicBrokerConfig.dynamicConfigUpdateModes();
        for (ConfigDef.ConfigKey key : new TreeMap<>(def.configKeys()).values()) {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("scope", scope);
            row.put("name", key.name);
            row.put("type", key.type.name());
            row.put("required", key.defaultValue == ConfigDef.NO_DEFAULT_VALUE);
            row.put("default", key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null);
            row.put("validator", key.validator == null ? null : key.validator.toString());
            row.put("validatorClass", key.validator == null ? null : key.validator.getClass().getSimpleName());
            row.put("emptyAllowed", flag(key.validator, "isEmptyAllowed"));
            row.put("nullAllowed", flag(key.validator, "isNullAllowed"));
            row.put("importance", key.importance.name());
            row.put("internal", key.internalConfig);
            row.put("documentation", key.documentation);
            if (scope.equals("broker")) {
                row.put("mode", modes.getOrDefault(key.name, "read-only"));
                row.put("synonyms", DynamicBrokerConfig.brokerConfigSynonyms(key.name, true));
            } else if (scope.equals("topic")) {
                List<Object> synonyms = new ArrayList<>();
                for (ConfigSynonym s : ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.getOrDefault(key.name, List.of())) {
                    synonyms.add(List.of(s.name(), s.converter().apply("1")));
                }
                row.put("synonyms", synonyms);
            } else if (scope.equals("group")) {
                Optional<String> synonym = GroupConfig.brokerSynonym(key.name);
                row.put("synonyms", synonym.map(List::of).orElse(List.of()));
            }
            OUT.println(JSON.writeValueAsString(row));
        }
    }

    private static Boolean flag(ConfigDef.Validator validator, String name) throws Exception {
        if (!(validator instanceof ConfigDef.ValidList)) {
            return null;
        }
        Field field = ConfigDef.ValidList.class.getDeclaredField(name);
        field.setAccessible(true);
        return field.getBoolean(validator);
    }

    private static Map<String, Object> parse(String line) throws Exception {
        Properties properties = new Properties();
        Map<String, Object> result = new LinkedHashMap<>();
        try {
            properties.load(new StringReader(JSON.readValue(line, String.class)));
            result.put("entries", new TreeMap<Object, Object>(properties));
        } catch (IllegalArgumentException e) {
            result.put("error", String.valueOf(e.getMessage()));
        }
        return result;
    }

    private static String complaint(String scope, String line) throws Exception {
        Map<String, String> configs = JSON.readValue(line, new TypeReference<Map<String, String>>() { });
        try {
            if (scope.equals("broker")) {
                KafkaConfig.fromProps(properties(configs), false);
            } else if (scope.startsWith("dynamic-")) {
                DynamicBrokerConfig.validateConfigs(properties(configs), scope.equals("dynamic-broker"));
            } else if (scope.equals("topic")) {
                KafkaConfig broker = KafkaConfig.fromProps(minimal(), false);
                LogConfig.validate(Map.of(), configs, broker.extractLogConfigMap(), false);
            } else {
                KafkaConfig broker = KafkaConfig.fromProps(minimal(), false);
                GroupConfig.validate(configs, broker.groupCoordinatorConfig(), broker.shareGroupConfig());
            }
            return null;
        } catch (Exception e) {
            return e.getClass().getSimpleName() + ": " + e.getMessage();
        }
    }

    private static Map<String, Object> describe(String line) throws Exception {
        Map<String, Map<String, String>> levels = JSON.readValue(line, new TypeReference<>() { });
        Properties fixed = minimal();
        fixed.putAll(levels.get("static"));
        KafkaConfig config = KafkaConfig.fromProps(fixed, false);
        config.dynamicConfig().initialize(scala.Option.empty());
        config.dynamicConfig().updateDefaultConfig(properties(levels.get("cluster")), false);
        config.dynamicConfig().updateBrokerConfig(config.brokerId(), properties(levels.get("broker")), false);
        InvocationHandler yes = (proxy, method, arguments) -> true;
        MetadataCache cache = (MetadataCache) Proxy.newProxyInstance(
            ConfigTable.class.getClassLoader(), new Class<?>[] {MetadataCache.class}, yes);
        ConfigRepository repository = resource -> properties(levels.get(resource.type() == ConfigResource.Type.TOPIC ? "topic" : "group"));
        ConfigHelper helper = new ConfigHelper(cache, config, repository);
        Map<String, Object> result = new LinkedHashMap<>();
        for (ConfigResource.Type type : List.of(ConfigResource.Type.BROKER, ConfigResource.Type.TOPIC, ConfigResource.Type.GROUP)) {
            DescribeConfigsResource resource = new DescribeConfigsResource().setResourceType(type.id())
                .setResourceName(type == ConfigResource.Type.BROKER ? "1" : "x").setConfigurationKeys(null);
            DescribeConfigsResult answer = helper.describeConfigs(
                CollectionConverters.asScala(List.of(resource)).toList(), true, false).head();
            if (answer.errorCode() != 0) {
                throw new IllegalStateException(answer.errorMessage());
            }
            Map<String, Object> rows = new TreeMap<>();
            for (DescribeConfigsResourceResult row : answer.configs()) {
                List<Object> synonyms = new ArrayList<>();
                row.synonyms().forEach(s -> synonyms.add(Arrays.asList(s.name(), s.value(), s.source())));
                rows.put(row.name(), Arrays.asList(
                    row.value(), row.configSource(), row.readOnly(), row.isSensitive(), row.configType(), synonyms));
            }
            result.put(type.name().toLowerCase(Locale.ROOT), rows);
        }
        return result;
    }

    private static Properties properties(Map<String, String> configs) {
        Properties properties = new Properties();
        properties.putAll(configs);
        return properties;
    }

    private static Properties minimal() {
        return properties(Map.of(
            "process.roles", "broker,controller", "node.id", "1", "controller.quorum.voters", "1@localhost:9093",
            "listeners", "PLAINTEXT://:9092,CONTROLLER://:9093", "controller.listener.names", "CONTROLLER",
            "listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"));
    }
}
