"""Options that Hudi publishes and lakefmt does not have: each is told apart, and all that is wrong is told at once."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.config.hudi_options import OptionClass, find_published, published_options, similar_names
from lakefmt._core.config.settings import SETTINGS, resolve_settings
from lakefmt._core.keys import GENERATOR_KEYS
from lakefmt.errors import InvalidInputError, InvalidKey, UnknownSetting, UnsupportedFeature
from lakefmt.spark.options import SPARK_OPTIONS, parse_read_options, parse_write_options

NUMBERS = itertools.count()
NAMES = sorted(published_options())
ROWS = pa.table({"id": ["a"], "n": pa.array([1], pa.int64())})
PLAIN = st.sampled_from(["hoodie.keep.max.commits", "hoodie.parquet.max.file.size", "hoodie.clean.commits.retained"])
INERT = st.sampled_from([n for n, o in published_options().items() if o.kind is OptionClass.INERT])
REFUSED = st.sampled_from([n for n, o in published_options().items() if o.kind is OptionClass.REFUSED])
LETTERS = "abcdefghijklmnopqrstuvwxyz"
STRANGE = st.text(LETTERS, min_size=12, max_size=20).map(lambda text: f"zz.{text}")


def test_no_name_is_a_setting_as_well():
    assert [name for name in NAMES if name in SETTINGS] == []


@pytest.mark.parametrize("name", [name for name in NAMES if find_published(name).harmless])
def test_a_harmless_value_asks_for_nothing(name):
    option = find_published(name)
    for value in option.harmless:
        assert resolve_settings({name: value}).values == resolve_settings({}).values
    with pytest.raises(UnsupportedFeature, match="is not supported"):
        resolve_settings({name: "another"})


@given(
    st.dictionaries(PLAIN, st.just("2000"), max_size=3),
    st.sets(INERT, max_size=4),
    st.sets(REFUSED, max_size=4),
    st.sets(STRANGE, max_size=3),
)
def test_one_error_names_all_that_is_wrong_and_nothing_else(plain, inert, refused, strange):
    options = {**plain, **dict.fromkeys((*inert, *refused, *strange), "unheard-of")}
    wrong, fine = {*refused, *strange}, {*plain, *inert}
    for parse in (resolve_settings, parse_write_options, parse_read_options):
        if not wrong:
            notes = parse(options).notes
            assert sorted(note.split(" ", 1)[0].lower() for note in notes) == sorted(name.lower() for name in inert)
            continue
        with pytest.raises(UnknownSetting if strange else UnsupportedFeature) as caught:
            parse(options)
        words = {word.strip("'\":;").partition("=")[0].lower() for word in str(caught.value).split()}
        assert {name.lower() for name in wrong} <= words
        assert not {name.lower() for name in fine} & words


@given(st.sampled_from([*NAMES, *SETTINGS]), st.integers(0, 200), st.sampled_from(LETTERS))
def test_a_slip_of_one_letter_is_understood(name, place, letter):
    place %= len(name)
    misspelt = name[:place] + letter + name[place + 1 :]
    near = similar_names(misspelt)
    assert len(near) == 1
    assert sum(a != b for a, b in zip(near[0].ljust(200), misspelt.ljust(200), strict=False)) <= 1 or near == [name]


@given(st.text(LETTERS, min_size=8, max_size=30))
def test_what_is_like_no_name_gets_no_suggestion(text):
    assert similar_names(f"x.{text}") == []


def test_unknown_names_are_warnings_where_that_is_asked():
    table = lakefmt.create_table("memory://unknown", schema=ROWS.schema, record_key="id")
    with pytest.raises(
        UnknownSetting, match=r"hoodie\.clean\.comits\.retained.*did you mean hoodie.clean.commits.retained"
    ):
        table.upsert(ROWS, options={"hoodie.clean.comits.retained": 3})
    result = table.upsert(ROWS, options={"hoodie.clean.comits.retained": 3, "lakefmt.unknown.options": "warn"})
    assert "hoodie.clean.comits.retained has no effect: there is no such setting" in result.warnings
    options = {"hoodie.clean.comits.retained": "3", "lakefmt.unknown.options": "warn"}
    assert parse_write_options(options).notes == (
        "hoodie.clean.comits.retained has no effect: there is no such option",
    )


def test_an_option_without_effect_is_a_warning_of_the_result():
    table = lakefmt.create_table("memory://inert", schema=ROWS.schema, record_key="id")
    (warning,) = table.upsert(ROWS, options={"hoodie.metrics.on": "true"}).warnings
    assert warning.startswith("hoodie.metrics.on has no effect: no metrics are sent")


def test_what_a_table_is_must_be_what_the_option_says():
    table = lakefmt.create_table("memory://stated", schema=ROWS.schema, record_key="id", ordering="n")
    same = {
        "hoodie.table.cdc.enabled": "false",
        "hoodie.table.type": "COPY_ON_WRITE",
        "hoodie.payload.ordering.field": "n",
    }
    assert table.upsert(ROWS, options={**same, "hoodie.table.recordkey.fields": "id"}).num_inserts == 1
    for name, value in (("hoodie.table.cdc.enabled", "true"), ("hoodie.table.type", "MERGE_ON_READ")):
        with pytest.raises(UnknownSetting, match="contradicts the table"):
            table.upsert(ROWS, options={name: value})


@pytest.mark.parametrize("option", GENERATOR_KEYS)
@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_key_generator_must_be_the_table_s_under_every_name_of_the_option(option, version):
    table = lakefmt.create_table(
        f"memory://generator-{next(NUMBERS)}", schema=ROWS.schema, record_key="id", table_version=version
    )
    own, other = ("NON_PARTITION", "COMPLEX")
    if option.endswith("class"):
        package = "org.apache.hudi.keygen."
        own, other = f"{package}NonpartitionedKeyGenerator", f"{package}ComplexKeyGenerator"
    assert table.upsert(ROWS, options={option: own}).num_inserts == 1
    for name, error in ((other, InvalidKey), ("com.example.Mine", UnknownSetting)):
        with pytest.raises(error, match="key generator"):
            table.upsert(ROWS, options={option: name})


def test_an_option_of_the_data_source_is_not_ignored_by_a_verb():
    table = lakefmt.create_table("memory://source", schema=ROWS.schema, record_key="id")
    with pytest.raises(UnsupportedFeature, match="an option of Spark's data source"):
        table.upsert(ROWS, options={"hoodie.datasource.query.type": "incremental"})


def test_names_of_spark_come_in_small_letters():
    name = "hoodie.metrics.cloudwatch.maxDatumsPerRequest"
    assert parse_write_options({name.lower(): "2"}).notes[0].startswith(name.lower())


def test_the_switch_of_all_services_turns_those_of_commits_off():
    off = resolve_settings({"hoodie.table.services.enabled": "false", "hoodie.compact.inline": "true"})
    assert [off.flag(f"hoodie.{name}") for name in ("clean.automatic", "archive.automatic", "compact.inline")] == [
        False
    ] * 3

    def cleans(name: str, **options: object) -> int:
        table = lakefmt.create_table(f"memory://{name}", schema=ROWS.schema, record_key="id")
        for n in range(4):
            rows = ROWS.set_column(1, "n", pa.array([n], pa.int64()))
            table.upsert(rows, options={"hoodie.clean.commits.retained": 1, **options})
        return sum(instant.action == "clean" for instant in table.timeline)

    assert cleans("on") > 0
    assert cleans("off", **{"hoodie.table.services.enabled": False}) == 0


def test_several_problems_of_one_call_are_of_the_worst_type():
    with pytest.raises(InvalidInputError) as caught:
        parse_read_options(
            {
                "as.of.instant": "1",
                "hoodie.datasource.query.type": "incremental",
                "hoodie.datasource.merge.type": "skip_merge",
            }
        )
    assert str(caught.value).startswith("2 options cannot be used:")
    assert "as.of.instant and an incremental query" in str(caught.value)
    assert SPARK_OPTIONS["hoodie.datasource.merge.type"].meaning in str(caught.value)


def test_names_of_flink_say_settings_or_why_not():
    asked = {"clean.retain_commits": "3", "compaction.delta_commits": "7", "write.tasks": "4", "index.type": "BLOOM"}
    settings = resolve_settings(asked)
    assert settings.values["hoodie.clean.commits.retained"] == 3
    assert settings.values["hoodie.compact.inline.max.delta.commits"] == 7
    assert any("write.tasks has no effect" in note for note in settings.notes)
    with pytest.raises(UnknownSetting, match="contradicts"):
        resolve_settings({"clean.retain_commits": "3", "hoodie.clean.commits.retained": "4"})
    for name, value in (("changelog.enabled", "true"), ("read.start-commit", "earliest"), ("write.rate.limit", "9")):
        with pytest.raises(UnsupportedFeature, match=name):
            resolve_settings({name: value})
    resolve_settings({"changelog.enabled": "false", "write.rate.limit": "0", "partition.default_name": ""})
    table = lakefmt.create_table("memory://flink-names", schema=ROWS.schema, record_key="id", ordering="n")
    same = {"table.type": "COPY_ON_WRITE", "precombine.field": "n", "hive_sync.enabled": "false"}
    assert table.upsert(ROWS, options=same).num_inserts == 1
    with pytest.raises(UnknownSetting, match="contradicts the table"):
        table.upsert(ROWS, options={"table.type": "MERGE_ON_READ"})


def test_every_alias_names_a_setting():
    aliases = [option for option in published_options().values() if option.kind is OptionClass.ALIAS]
    assert len(aliases) > 20
    assert [option.name for option in aliases if option.table_key not in SETTINGS] == []


# ------------------------------------------------------------------------------------------------- properties of new tables


def made_with(**properties_and_options):
    """Return a new table with one row, and the warnings of its write."""
    options = {"lakefmt.unknown.options": properties_and_options.pop("unknown", "refuse")}
    made = lakefmt.create_table(
        f"memory://properties/{next(NUMBERS)}",
        schema=ROWS.schema,
        record_key="id",
        options=options,
        properties=properties_and_options["properties"],
    )
    return made, made.upsert(ROWS).warnings


@given(st.sampled_from([*NAMES, *SETTINGS]), st.integers(0, 200), st.sampled_from(LETTERS))
def test_a_slip_in_a_property_is_refused_as_in_an_option(name, place, letter):
    place %= len(name)
    misspelt = name[:place] + letter + name[place + 1 :]
    if misspelt in SETTINGS or find_published(misspelt) is not None:
        return
    with pytest.raises(UnknownSetting) as of_option:
        resolve_settings({misspelt: "1"})
    with pytest.raises(UnknownSetting) as of_property:
        made_with(properties={misspelt: "1"})
    assert str(of_property.value) == str(of_option.value)
    kept, warnings = made_with(properties={misspelt: "1"}, unknown="warn")
    assert f"{misspelt} has no effect: there is no such setting" in warnings
    assert kept.read().num_rows == 1


def test_a_property_under_an_older_name_has_its_effect():
    kept, _ = made_with(properties={"hoodie.cleaner.commits.retained": "3", "team": "maps"})
    assert kept.properties.properties["hoodie.clean.commits.retained"] == "3"
    assert kept.properties.properties["team"] == "maps"
    with pytest.raises(UnknownSetting, match="both"):
        made_with(properties={"hoodie.cleaner.commits.retained": "3", "hoodie.clean.commits.retained": "4"})


@pytest.mark.parametrize(
    ("name", "value", "error", "words"),
    [
        ("hoodie.clean.commits.retained", "abc", UnknownSetting, "does not take 'abc'"),
        ("hoodie.datasource.write.recordkey.field", "n", UnknownSetting, "contradicts the table property"),
        ("hoodie.table.metadata.partitions", "files", InvalidInputError, "indexes= makes a metadata table"),
        ("hoodie.populate.meta.fields", "maybe", InvalidInputError, "takes true or false"),
        ("hoodie.storage.layout.type", "BUCKET", UnsupportedFeature, "is not supported"),
        ("lakefmt.append.bucket", "3", UnknownSetting, "unknown setting"),
        ("lakefmt.table.kind", "append", InvalidInputError, "kind='append'"),
    ],
)
def test_a_property_that_cannot_be_kept_makes_no_table(name, value, error, words):
    path = f"memory://properties/{next(NUMBERS)}"
    with pytest.raises(error, match=words):
        lakefmt.create_table(path, schema=ROWS.schema, record_key="id", properties={name: value})
    with pytest.raises(lakefmt.errors.TableNotFound):
        lakefmt.open_table(path)


def test_a_property_without_effect_is_a_warning_of_the_first_write():
    _, (warning,) = made_with(properties={"hoodie.metrics.on": "true"})
    assert warning.startswith("hoodie.metrics.on has no effect")
