import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileReader;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** Runs a Debezium engine for each file of properties and writes its messages to the file beside it, until standard input ends. */
public class Engine {
  static String encoded(Object text) {
    return text == null ? "-" : Base64.getEncoder().encodeToString(text.toString().getBytes(StandardCharsets.UTF_8));
  }

  public static void main(String[] names) throws Exception {
    ExecutorService pool = Executors.newCachedThreadPool();
    List<DebeziumEngine<?>> engines = new ArrayList<>();
    for (String name : names) {
      Properties properties = new Properties();
      try (FileReader reader = new FileReader(name, StandardCharsets.UTF_8)) {
        properties.load(reader);
      }
      PrintWriter out = new PrintWriter(Files.newBufferedWriter(Path.of(name + ".messages")), true);
      DebeziumEngine<?> engine = DebeziumEngine.create(Json.class).using(properties)
          .using((succeeded, message, error) -> out.println("ended " + encoded(message) + " " + encoded(error)))
          .notifying(message -> out.println(
              encoded(message.destination()) + " " + encoded(message.key()) + " " + encoded(message.value())))
          .build();
      engines.add(engine);
      pool.execute(engine);
    }
    while (System.in.read() >= 0) {
      continue;
    }
    System.exit(0); // an engine that failed leaves threads behind
  }
}
