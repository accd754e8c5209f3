import org.apache.flink.configuration.*;
import org.apache.flink.streaming.api.environment.*;
import org.apache.flink.table.api.bridge.java.*;

/** A job of Flink that writes the numbers from 1 on, exactly once, by StarRocks' sink. Arguments: HTTP address, MySQL port, rows, format, folder. */
public class FlinkJob {
    public static void main(String[] given) throws Exception {
        var settings = new Configuration();
        settings.setString("execution.checkpointing.interval", "1500 ms");
        settings.setString("execution.checkpointing.tolerable-failed-checkpoints", "1000");
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", "1000");
        settings.setString("restart-strategy.fixed-delay.delay", "1 s");
        settings.setString("taskmanager.memory.network.fraction", "0.1");
        settings.setString("state.checkpoints.dir", "file://" + given[4]);
        settings.setString("rest.port", "0");
        settings.setString("rest.bind-address", "127.0.0.1");
        var environment = StreamExecutionEnvironment.createLocalEnvironment(1, settings);
        var tables = StreamTableEnvironment.create(environment);
        tables.executeSql("create table source (id bigint, v string) with ('connector'='datagen','rows-per-second'='200',"
            + "'fields.id.kind'='sequence','fields.id.start'='1','fields.id.end'='" + given[2] + "','fields.v.length'='5')");
        String json = given[3].equals("json") ? ",'sink.properties.strip_outer_array'='true'" : "";
        tables.executeSql("create table sink (id bigint, v string) with ('connector'='starrocks',"
            + "'jdbc-url'='jdbc:mysql://127.0.0.1:" + given[1] + "?useSSL=false','load-url'='" + given[0] + "','database-name'='db',"
            + "'table-name'='t','username'='root','password'='','sink.semantic'='exactly-once','sink.label-prefix'='flink',"
            + "'sink.buffer-flush.interval-ms'='2000','sink.properties.format'='" + given[3] + "'" + json + ")");
        tables.executeSql("insert into sink select * from source").await();
        System.out.println("ended");
        System.exit(0);
    }
}
