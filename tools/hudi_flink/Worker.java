import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.*;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.*;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.*;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;

/**
 * Statements for Hudi on Flink: a line of JSON in, a line of JSON out, until the input ends.
 *
 * A request has "statements", whose INSERTs are waited for and whose SELECTs give "rows"; "streaming" chooses the mode. With "changes",
 * rows that each begin with their kind, and the "types" of their columns, a view "changes" stands for that changelog. "options" asks for the
 * names of all options.
 */
public class Worker {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err); // what libraries print is no answer
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("rows", run(JSON.readTree(line)));
            } catch (Throwable error) {
                StringWriter trace = new StringWriter();
                error.printStackTrace(new PrintWriter(trace));
                answer.put("error", trace.toString());
            }
            out.println("> " + JSON.writeValueAsString(answer));
        }
        System.exit(0);
    }

    static ArrayNode run(JsonNode request) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("rest.bind-address", "127.0.0.1");
        settings.setString("rest.bind-port", "0");
        settings.setString("execution.checkpointing.interval", "1 s");
        settings.setString("taskmanager.memory.managed.size", "128m");
        settings.setString("table.local-time-zone", "UTC");
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(1, settings);
        boolean streaming = request.path("streaming").asBoolean();
        EnvironmentSettings mode = streaming
            ? EnvironmentSettings.inStreamingMode() : EnvironmentSettings.inBatchMode();
        StreamTableEnvironment tables = StreamTableEnvironment.create(environment, mode);
        tables.getConfig().getConfiguration().addAll(settings);
        if (request.has("changes")) {
            giveChanges(environment, tables, request);
        }
        ArrayNode rows = JSON.createArrayNode();
        if (request.has("options")) {
            for (var field : org.apache.hudi.configuration.FlinkOptions.class.getFields()) {
                if (field.get(null) instanceof org.apache.flink.configuration.ConfigOption<?> option) {
                    rows.add(option.key());
                    option.fallbackKeys().forEach(older -> rows.add(older.getKey()));
                }
            }
        }
        for (JsonNode statement : request.get("statements")) {
            TableResult result = tables.executeSql(statement.asText());
            if (statement.asText().startsWith("SELECT")) {
                try (var found = result.collect()) {
                    found.forEachRemaining(row -> rows.add(encode(row)));
                }
            } else if (statement.asText().startsWith("INSERT")) {
                result.await();
            }
        }
        return rows;
    }

    static void giveChanges(StreamExecutionEnvironment environment, StreamTableEnvironment tables, JsonNode request) {
        Schema.Builder schema = Schema.newBuilder();
        List<String> names = new ArrayList<>();
        List<org.apache.flink.api.common.typeinfo.TypeInformation<?>> kinds = new ArrayList<>();
        request.get("types").fields().forEachRemaining(column -> {
            String type = column.getValue().asText();
            names.add(column.getKey());
            kinds.add(type.startsWith("STRING") ? org.apache.flink.api.common.typeinfo.Types.STRING
                : org.apache.flink.api.common.typeinfo.Types.LONG);
            schema.column(column.getKey(), type);
        });
        if (request.has("key")) {
            schema.primaryKey(request.get("key").asText());
        }
        List<Row> changes = new ArrayList<>();
        for (JsonNode change : request.get("changes")) {
            Row row = Row.ofKind(kindOf(change.get(0).asText()), new Object[names.size()]);
            for (int column = 0; column < names.size(); column++) {
                JsonNode value = change.get(column + 1);
                row.setField(column, value.isNull() ? null : value.isTextual() ? value.asText() : (Object) value.asLong());
            }
            changes.add(row);
        }
        var stream = environment.fromCollection(changes, org.apache.flink.api.common.typeinfo.Types.ROW_NAMED(
            names.toArray(new String[0]), kinds.toArray(new org.apache.flink.api.common.typeinfo.TypeInformation<?>[0])));
        tables.createTemporaryView("changes", tables.fromChangelogStream(stream, schema.build(), ChangelogMode.all()));
    }

    static RowKind kindOf(String letters) {
        for (RowKind kind : RowKind.values()) {
            if (kind.shortString().equals(letters)) {
                return kind;
            }
        }
        throw new IllegalArgumentException(letters);
    }

    static ArrayNode encode(Row row) {
        ArrayNode node = JSON.createArrayNode().add(row.getKind().shortString());
        for (int column = 0; column < row.getArity(); column++) {
            node.add(value(row.getField(column)));
        }
        return node;
    }

    static JsonNode value(Object given) {
        if (given == null) {
            return NullNode.instance;
        }
        if (given instanceof Boolean flag) {
            return BooleanNode.valueOf(flag);
        }
        if (given instanceof Integer || given instanceof Long || given instanceof Short || given instanceof Byte) {
            return LongNode.valueOf(((Number) given).longValue());
        }
        if (given instanceof Float || given instanceof Double) {
            return DoubleNode.valueOf(((Number) given).doubleValue());
        }
        if (given instanceof byte[] bytes) {
            return TextNode.valueOf(HexFormat.of().formatHex(bytes));
        }
        if (given instanceof Row row) {
            ArrayNode node = encode(row);
            node.remove(0);
            return node;
        }
        if (given instanceof Object[] items) {
            ArrayNode node = JSON.createArrayNode();
            Arrays.stream(items).forEach(item -> node.add(value(item)));
            return node;
        }
        if (given instanceof Map<?, ?> map) {
            ObjectNode node = JSON.createObjectNode();
            new TreeMap<Object, Object>(map).forEach((key, item) -> node.set(key.toString(), value(item)));
            return node;
        }
        return TextNode.valueOf(given.toString());
    }
}
