"""Zones of timestamp based partitions: every name that Java or the zone database knows is read as Java and Joda read it."""

from __future__ import annotations

import json
import zoneinfo
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.keys import build_partition_paths, key_spec_from_properties, plan_key_spec
from lakefmt._core.keys.joda import check_new_zone, find_zone, to_instants, to_local
from lakefmt._core.keys.properties import key_properties
from lakefmt.errors import InvalidInputError, InvalidKey, UnknownSetting, UnsupportedFeature

SAID = json.loads((Path(__file__).parents[1] / "data" / "keys" / "java_zones.json").read_text("ascii"))
MOMENTS = [datetime.fromisoformat(text) for text in SAID["moments"]]
AT = np.array([(moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) for moment in MOMENTS])
OFFSETS: dict[str, list[int]] = {
    name: [int(float(seconds) * 1000) for seconds in text.split(" ")]
    for text, names in SAID["seconds east of Greenwich"].items()
    for name in names
}

#: Zones whose law changed, or whose change became known, after the zone database 2023c that the recorded Joda has.
CHANGED = {
    *("America/Asuncion", "America/Scoresbysund", "Asia/Almaty", "Asia/Gaza", "Asia/Hebron", "Asia/Qostanay"),
}
CHANGED_IN = datetime(2023, 12, 1, tzinfo=UTC)
#: Zones of whose time before 1970 databases tell different things: merged, or corrected since.
PAST_DIFFERS = {
    *("Africa/Maputo", "America/Kralendijk", "America/Lower_Princes", "America/Marigot", "America/Montreal"),
    *("America/St_Barthelemy", "Arctic/Longyearbyen", "Asia/Manila"),
}
#: Zones whose whole history was corrected since.
CORRECTED = {"Antarctica/Casey", "Antarctica/Vostok", "Asia/Choibalsan"}
#: Java of the judge takes these for GMT; other releases know them.
REFUSED = {"America/Coyhaique", "GMT+08:00:00", "Asia/Nowhere", "Etc/GMT+08", "Etc/gmt", "Etc/Nowhere"}


def keeps_the_past() -> bool:
    """Whether this machine's database has the past of zones that were merged (Debian's has)."""
    before = datetime(1900, 1, 1)
    return zoneinfo.ZoneInfo("Europe/Oslo").utcoffset(before) != zoneinfo.ZoneInfo("Europe/Berlin").utcoffset(before)


def test_every_name_that_java_or_the_zone_database_knows_is_read_as_hudi_reads_it() -> None:
    wrong: dict[str, list[str]] = {}
    for name, expected in OFFSETS.items():
        if name in REFUSED | CORRECTED:
            continue
        found = to_local(AT, name) - AT
        for moment, has, said in zip(MOMENTS, found, expected, strict=True):
            exempt = (name in CHANGED and moment > CHANGED_IN) or (
                moment.year < 1970 and (name in PAST_DIFFERS or not keeps_the_past())
            )
            if has != said and not exempt:
                wrong.setdefault(name, []).append(f"{moment}: {has} here, {said} there")
    assert not wrong
    assert len(OFFSETS) > 650


def test_the_vectors_can_say_no() -> None:
    assert {tuple(OFFSETS[name]) for name in ("EST", "America/New_York")} == {tuple(OFFSETS["US/Eastern"])}
    assert OFFSETS["EST"] != OFFSETS["Jamaica"]
    assert OFFSETS["UTC+8"] == [0] * len(MOMENTS)
    assert set(OFFSETS["GMT+8"]) == {8 * 3_600_000}


@pytest.mark.parametrize("name", sorted(REFUSED) + SAID["refused"])
def test_where_engines_differ_or_fail_the_zone_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedFeature, match="time zone"):
        find_zone(name)


@pytest.mark.parametrize(
    "name", ["UTC+8", "+08:00", "UT+3", "Z", "asia/tokyo", "Asia/Tokyo ", "EDT", "GMT+24", "Nowhere"]
)
def test_a_new_table_does_not_get_a_zone_that_hudi_guesses(name: str) -> None:
    settings = {"hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS"}
    for key in ("timezone", "output.timezone", "input.timezone"):
        with pytest.raises(UnknownSetting, match="GMT"):
            plan_key_spec(
                "k", "t:timestamp(yyyy/MM/dd)", properties={**settings, f"hoodie.keygen.timebased.{key}": name}
            )
    check_new_zone("GMT+8")


def test_the_zones_of_a_stored_table_are_kept_as_they_stand_there() -> None:
    stored = {
        "hoodie.table.recordkey.fields": "k",
        "hoodie.table.partition.fields": "t",
        "hoodie.table.keygenerator.type": "TIMESTAMP",
        "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
        "hoodie.keygen.timebased.output.dateformat": "yyyy-MM-dd HH",
        "hoodie.datasource.write.hive_style_partitioning": "false",
    }
    table = pa.table({"k": ["a"], "t": [1_700_000_000_000]})
    for zone, path in (
        ("EST", "2023-11-14 17"),
        ("JST", "2023-11-15 07"),
        ("UTC+8", "2023-11-14 22"),
        ("GMT+8", "2023-11-15 06"),
        ("Asia/Tokyo ", "2023-11-14 22"),
        ("Asia/Tokyo", "2023-11-15 07"),
    ):
        spec = key_spec_from_properties({**stored, "hoodie.keygen.timebased.output.timezone": zone})
        assert build_partition_paths(spec, table).to_pylist() == [path]
        assert key_properties(spec, 8)["hoodie.keygen.timebased.output.timezone"] == zone
    # The setting for both counts even where it is empty.
    both = {"hoodie.keygen.timebased.timezone": " ", "hoodie.keygen.timebased.output.timezone": "EST"}
    assert key_spec_from_properties({**stored, **both}).partition_fields[0].timestamp.zones == ()
    spec = key_spec_from_properties({**stored, "hoodie.keygen.timebased.output.timezone": "SystemV/EST5"})
    assert "SystemV/EST5" in spec.unsupported


ZONES = [
    "America/New_York",
    "Europe/Dublin",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "America/Santiago",
    "Asia/Gaza",
]


@pytest.mark.parametrize("zone", ZONES)
@given(moments=st.lists(st.datetimes(datetime(2035, 1, 1), datetime(9998, 12, 1)), min_size=1, max_size=8))
def test_rules_hold_after_the_last_year_that_arrow_knows(zone: str, moments: list[datetime]) -> None:
    at = np.array([(moment - datetime(1970, 1, 1)) // timedelta(milliseconds=1) for moment in moments])
    local = to_local(at, zone)
    there = [moment.replace(tzinfo=UTC).astimezone(zoneinfo.ZoneInfo(zone)).replace(tzinfo=None) for moment in moments]
    shown = [(moment - datetime(1970, 1, 1)) // timedelta(milliseconds=1) for moment in there]
    assert local.tolist() == shown
    back = to_instants(local, zone)
    assert (to_local(back, zone) == local).all()
    assert (back <= at).all(), "of two instants the earlier one"


def test_a_late_time_that_the_clocks_leap_over_is_refused() -> None:
    leap = (datetime(2050, 3, 13, 2, 30) - datetime(1970, 1, 1)) // timedelta(milliseconds=1)
    with pytest.raises(InvalidKey, match="does not exist"):
        to_instants(np.array([leap]), "America/New_York")


UNITS = ("NANOSECONDS", "MICROSECONDS", "MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS")


@pytest.mark.parametrize("spelled", [str.lower, str.upper, str.capitalize])
@pytest.mark.parametrize("unit", UNITS)
def test_a_time_unit_is_taken_in_any_case(unit: str, spelled: Callable[[str], str]) -> None:
    """Hudi's documentation has them in lower case, and Hudi reads them so."""
    url = f"memory://unit-{unit}-{spelled.__name__}"
    stated = {"timestamp.type": "SCALAR", "timestamp.scalar.time.unit": spelled(unit)}
    table = lakefmt.create_table(
        url,
        schema=pa.schema([("k", pa.string()), ("t", pa.int64())]),
        record_key="k",
        partition_by="t:timestamp(yyyy)",
        properties={f"hoodie.keygen.timebased.{key}": value for key, value in stated.items()},
    )
    assert table.client.load_config().properties["hoodie.keygen.timebased.timestamp.scalar.time.unit"] == unit
    table.insert(pa.table({"k": ["a"], "t": [1]}))
    assert lakefmt.open_table(url).read().num_rows == 1
    with pytest.raises(InvalidInputError, match="contradict"):
        lakefmt.create_table(
            f"{url}-2",
            schema=pa.schema([("k", pa.string()), ("t", pa.int64())]),
            record_key="k",
            partition_by="t:timestamp(yyyy, EPOCHMILLISECONDS)",
            properties={f"hoodie.keygen.timebased.{key}": value for key, value in stated.items()},
        )
