import org.apache.hadoop.conf.Configuration;
import org.apache.hudi.common.model.HoodieCommitMetadata;
import org.apache.hudi.common.table.HoodieTableMetaClient;
import org.apache.hudi.common.table.checkpoint.Checkpoint;
import org.apache.hudi.common.table.checkpoint.CheckpointUtils;
import org.apache.hudi.common.table.timeline.HoodieInstant;
import org.apache.hudi.common.table.timeline.HoodieTimeline;
import org.apache.hudi.storage.hadoop.HadoopStorageConfiguration;

/** Prints what Hudi reads as the checkpoint of the newest commit of each table: its class, key and reset key. */
public class StoredCheckpoint {
  public static void main(String[] tables) throws Exception {
    for (String table : tables) {
      HoodieTableMetaClient client =
          HoodieTableMetaClient.builder().setConf(new HadoopStorageConfiguration(new Configuration())).setBasePath(table).build();
      HoodieTimeline commits = client.getActiveTimeline().getCommitsTimeline().filterCompletedInstants();
      HoodieInstant last = commits.lastInstant().get();
      HoodieCommitMetadata metadata = commits.readCommitMetadata(last);
      Checkpoint found = CheckpointUtils.getCheckpoint(metadata);
      System.out.println("answer " + found.getClass().getSimpleName() + " " + found.getCheckpointKey() + " " + found.getCheckpointResetKey());
    }
  }
}
