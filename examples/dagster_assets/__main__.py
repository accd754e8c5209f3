"""Two assets: rides of a day, which a second run replaces, and what each city has earned, which it updates."""

import sys

import dagster
import pandas as pd
import pyarrow as pa

from examples.dagster_assets.io_manager import LakefmtTables

DAYS = dagster.StaticPartitionsDefinition(["2026-01-01", "2026-01-02"])


@dagster.asset(partitions_def=DAYS, metadata={"partition_column": "day"})  # type: ignore[untyped-decorator,unused-ignore]
def rides(context: dagster.AssetExecutionContext) -> pd.DataFrame:
    """Return the rides of a day."""
    day = context.partition_key
    return pd.DataFrame({"day": day, "city": ["oslo", "rom", "rom"], "fare": [4.0, 5.0, float(day[-1])]})


@dagster.asset(metadata={"record_key": "city"})  # type: ignore[untyped-decorator,unused-ignore]
def earned(rides: pa.Table) -> pa.Table:
    """Return what each city has earned."""
    sums = rides.group_by("city").aggregate([("fare", "sum")])
    return sums.rename_columns(["city", "earned"])


def main(base: str) -> None:
    """Materialize both, the rides of the second day twice."""
    resources = {"io_manager": LakefmtTables(base=base)}
    with dagster.DagsterInstance.ephemeral() as instance:
        for day in (*DAYS.get_partition_keys(), DAYS.get_partition_keys()[-1]):
            dagster.materialize([rides], partition_key=day, resources=resources, instance=instance)
        dagster.materialize([earned, rides], selection=[earned], resources=resources, instance=instance)


if __name__ == "__main__":
    main(sys.argv[1])
