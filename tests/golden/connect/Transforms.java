// Runs Kafka Connect's own transforms and predicates over the cases of cases.json and prints what
// they make of them. With Connect's jars on the class path: `java -cp 'DIR/*' Transforms.java cases.json`
// (tests/golden/README.md says where the recorded answers came from).

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

public class Transforms {
    static final String PACKAGE = "org.apache.kafka.connect.transforms.";

    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        ArrayNode answers = json.createArrayNode();
        for (JsonNode one : json.readTree(new File(args[0]))) {
            ObjectNode answer = answers.addObject();
            try {
                SourceRecord made = applied(one);
                if (made == null) {
                    answer.put("dropped", true);
                } else {
                    answer.put("topic", made.topic());
                    ArrayNode headers = answer.putArray("headers");
                    for (Header header : made.headers()) headers.add(header.key());
                }
            } catch (Exception failed) {
                answer.put("refused", true);
            }
        }
        System.out.println(json.writerWithDefaultPrettyPrinter().writeValueAsString(answers));
    }

    @SuppressWarnings("unchecked")
    static SourceRecord applied(JsonNode one) throws Exception {
        ConnectHeaders headers = new ConnectHeaders();
        for (JsonNode name : one.get("headers")) headers.add(name.asText(), new byte[0], Schema.BYTES_SCHEMA);
        byte[] value = one.get("value").isNull() ? null : one.get("value").asText().getBytes(StandardCharsets.UTF_8);
        SourceRecord record = new SourceRecord(null, null, one.get("topic").asText(), 0,
            Schema.OPTIONAL_BYTES_SCHEMA, null, Schema.BYTES_SCHEMA, value, 1L, headers);
        if (one.has("predicate")) {
            Predicate<SourceRecord> predicate = (Predicate<SourceRecord>)
                Class.forName(PACKAGE + "predicates." + one.get("predicate").asText()).getDeclaredConstructor().newInstance();
            predicate.configure(strings(one.get("predicate_keys")));
            if (predicate.test(record) == one.get("negate").asBoolean()) return record;
        }
        Transformation<SourceRecord> transform = (Transformation<SourceRecord>)
            Class.forName(PACKAGE + one.get("type").asText()).getDeclaredConstructor().newInstance();
        transform.configure(strings(one.get("keys")));
        return transform.apply(record);
    }

    static Map<String, String> strings(JsonNode keys) {
        Map<String, String> found = new HashMap<>();
        keys.fields().forEachRemaining(each -> found.put(each.getKey(), each.getValue().asText()));
        return found;
    }
}
