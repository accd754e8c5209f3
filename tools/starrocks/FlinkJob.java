import java.util.*;
import org.apache.flink.configuration.*;
import org.apache.flink.streaming.api.environment.*;
import org.apache.flink.table.api.bridge.java.*;

/**
 * A job of Flink made of SQL: its inserts are one job. Arguments: folder for its checkpoints; the checkpoint that it goes on from, or nothing; statements.
 * "submitted" is said as soon as the job does not need its process's first requests any more, "ended" behind a job that ends.
 */
public class FlinkJob {
    public static void main(String[] given) throws Exception {
        var settings = new Configuration();
        settings.setString("execution.checkpointing.interval", "1500 ms");
        settings.setString("execution.checkpointing.tolerable-failed-checkpoints", "1000");
        settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", "1000");
        settings.setString("restart-strategy.fixed-delay.delay", "1 s");
        settings.setString("taskmanager.memory.network.fraction", "0.1");
        settings.setString("state.checkpoints.dir", "file://" + given[0]);
        settings.setString("state.checkpoints.num-retained", "3");
        if (!given[1].isEmpty()) settings.setString("execution.savepoint.path", "file://" + given[1]);
        settings.setString("rest.port", "0");
        settings.setString("rest.bind-address", "127.0.0.1");
        var environment = StreamExecutionEnvironment.createLocalEnvironment(1, settings);
        var tables = StreamTableEnvironment.create(environment);
        var inserts = tables.createStatementSet();
        for (String statement : Arrays.asList(given).subList(2, given.length)) {
            if (statement.startsWith("insert")) inserts.addInsertSql(statement);
            else tables.executeSql(statement);
        }
        var job = inserts.execute();
        System.out.println("submitted");
        job.await();
        System.out.println("ended");
        System.exit(0);
    }
}
