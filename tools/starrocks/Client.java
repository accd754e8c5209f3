import com.starrocks.data.load.stream.*;
import com.starrocks.data.load.stream.properties.*;
import com.starrocks.data.load.stream.v2.*;
import java.io.*;
import java.nio.charset.StandardCharsets;

/** StarRocks' own client, driven by lines: write ROW, flush, prepare, commit, abort, quit. Arguments: url, format, database, table, columns, prefix. */
public class Client {
    public static void main(String[] given) throws Exception {
        String url = given[0], format = given[1], database = given[2], table = given[3], columns = given[4], prefix = given[5];
        var of = StreamLoadTableProperties.builder().database(database).table(table).columns(columns);
        of.enableUpsertDelete(columns.contains("__op"));
        // The client names the format to the server only where its user does.
        if (format.equals("json")) {
            of.streamLoadDataFormat(StreamLoadDataFormat.JSON).addProperty("format", "json");
        } else if (format.equals("csv")) {
            of.streamLoadDataFormat(new StreamLoadDataFormat.CSVFormat("\n")).addProperty("column_separator", ",");
        }
        if (format.equals("lz4")) {
            of.streamLoadDataFormat(StreamLoadDataFormat.JSON).addProperty("format", "json").addProperty("compression", "lz4_frame");
        }
        if (given.length > 6) {
            of.maxBufferRows(Integer.parseInt(given[6]));
        }
        var made = of.build();
        var properties = StreamLoadProperties.builder().loadUrls(url).jdbcUrl("jdbc:mysql://127.0.0.1:9030").username("root").password("secret")
            .version("3.2.0").enableTransaction().labelPrefix(prefix).defaultTableProperties(made).addTableProperties(made)
            .expectDelayTime(300000).cacheMaxBytes(90L << 20).connectTimeout(5000).waitForContinueTimeoutMs(3000).ioThreadCount(1)
            .maxRetries(3).retryIntervalInMs(200);
        var manager = new StreamLoadManagerV2(properties.build(), false);
        manager.init();
        StreamLoadSnapshot snapshot = null;
        var out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null && !line.equals("quit"); line = in.readLine()) {
            try {
                String answer = "done";
                if (line.startsWith("write ")) {
                    manager.write(null, database, table, line.substring(6));
                } else if (line.equals("flush")) {
                    manager.flush();
                    answer = String.valueOf(manager.getException());
                } else if (line.equals("prepare")) {
                    manager.flush();
                    snapshot = manager.snapshot();
                    answer = String.valueOf(manager.prepare(snapshot));
                } else if (line.equals("commit")) {
                    answer = String.valueOf(manager.commit(snapshot));
                } else if (line.equals("abort")) {
                    answer = String.valueOf(manager.abort(snapshot));
                }
                out.println("> " + answer);
            } catch (Throwable error) {
                out.println("> error " + String.valueOf(error).replace("\n", " "));
            }
        }
        manager.close();
        System.exit(0);
    }
}
