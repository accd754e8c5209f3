"""Editors and type checkers know every keyword of a public verb: none hides behind ``**kwargs: Any``.

``typed_calls.py`` has calls that are right and calls that are wrong; pyright, which `make types` asks about the public face,
has to tell them apart. The typed dictionaries have to name what the verbs take when they run.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from lakefmt import options
from lakefmt._core.config.settings import SETTINGS
from lakefmt._core.producers.stream.options import NamedStreamSettings, StreamOptions, StreamSettings
from lakefmt._core.table import Table
from lakefmt._core.write.context import ARGUMENTS
from lakefmt.spark.options import (
    ALIASES,
    SparkReadOptions,
    SparkServiceOptions,
    SparkWriteOptions,
    find_option,
)

ROOT = Path(__file__).resolve().parents[2]
CALLS = Path(__file__).with_name("typed_calls.py")

#: Modules whose public functions are verbs.
FACES = ("lakefmt", "lakefmt.lowlevel", "lakefmt.spark", "lakefmt.services", "lakefmt.realtime", "lakefmt.builders")
#: Classes whose public methods are verbs: the table, and what its properties and methods return.
CLASSES = (
    "lakefmt._core.table.Table",
    "lakefmt._core.read.snapshot.Snapshot",
    "lakefmt._core.table_accessors.TableAlter",
    "lakefmt._core.table_accessors.TableIndexes",
    "lakefmt._core.table_verbs.TableMerge",
    "lakefmt._core.producers.append_tags.TableTags",
    "lakefmt._core.producers.stream.stream.Stream",
    "lakefmt._core.producers.stream.stream.AsyncStream",
    "lakefmt._core.consumers.registry.TableConsumers",
    "lakefmt._core.consumers.stream.TableStream",
    "lakefmt._core.compaction.scheduler.BackgroundServices",
    "lakefmt.realtime.connection.Connection",
)
#: What takes any keyword on purpose, and does nothing with it.
TAKES_ANYTHING = {
    "lakefmt.realtime.connect": "the SDK's function takes arguments of its server, which a folder has no use for",
    "Connection.create_bulkload_stream": "refuses every call, whatever it is given",
    "Connection.get_bulkload_stream": "refuses every call, whatever it is given",
}


def verbs() -> dict[str, object]:
    """Return the public functions and methods, by name."""
    found: dict[str, object] = {}
    for path in CLASSES:
        module, _, name = path.rpartition(".")
        kind = getattr(importlib.import_module(module), name)
        members = {key for base in kind.__mro__ if base.__module__.startswith("lakefmt.") for key in vars(base)}
        found |= {f"{name}.{key}": getattr(kind, key) for key in members if not key.startswith("_")}
    for path in FACES:
        module = importlib.import_module(path)
        found |= {f"{path}.{name}": getattr(module, name) for name in module.__all__}
    return {name: verb for name, verb in found.items() if inspect.isfunction(verb) or inspect.ismethod(verb)}


def hidden_keywords(found: dict[str, object]) -> list[str]:
    """Return the verbs with keywords that an editor cannot show: ``**call`` that is no ``Unpack`` of a typed dictionary."""
    said = []
    for name, verb in found.items():
        for parameter in inspect.signature(verb).parameters.values():
            shown = str(parameter.annotation).startswith(("Unpack[", "typing.Unpack["))
            if parameter.kind is parameter.VAR_KEYWORD and not shown:
                said.append(f"{name}(**{parameter.name}: {parameter.annotation})")
    return sorted(said)


def test_no_public_verb_hides_its_keywords():
    found = verbs()
    assert len(found) > 140
    assert hidden_keywords({name: verb for name, verb in found.items() if name not in TAKES_ANYTHING}) == []


def test_what_takes_anything_still_does():
    found = verbs()
    assert len(hidden_keywords({name: found[name] for name in TAKES_ANYTHING})) == len(TAKES_ANYTHING)


def test_a_hidden_keyword_is_seen():
    def hides(data: object, **call: object) -> None: ...
    def shows(data: object, **call: Unpack[options.WriteOptions]) -> None: ...  # noqa: F821 - annotations are texts here

    assert hidden_keywords({"hides": hides, "shows": shows}) == ["hides(**call: object)"]


# ---------------------------------------------------------------------------------------------------- what help() tells

#: Classes of which an example shows the verbs together: what one of them does shows in the next.
SHOWN_TOGETHER = ("Stream", "AsyncStream", "TableStream", "BackgroundServices")


def untold_parameters(found: dict[str, object]) -> list[str]:
    """Return the parameters that no line ``name: …`` of their verb's docstring tells about."""
    return [
        f"{name}: {parameter}"
        for name, verb in sorted(found.items())
        for parameter in inspect.signature(verb).parameters
        if parameter not in ("self", "cls")
        and not re.search(rf"^\s+\**{parameter}: ", inspect.getdoc(verb) or "", re.MULTILINE)
    ]


def without_example(found: dict[str, object]) -> list[str]:
    return [name for name, verb in sorted(found.items()) if "Example:" not in (inspect.getdoc(verb) or "")]


def verbs_of_tables() -> dict[str, object]:
    """Return the public verbs but those that have the names and the arguments of the real-time SDK."""
    return {name: verb for name, verb in verbs().items() if not name.startswith(("Connection.", "lakefmt.realtime"))}


def test_every_parameter_of_a_verb_is_told():
    assert untold_parameters(verbs_of_tables()) == []


def test_every_verb_has_an_example():
    alone = {name: verb for name, verb in verbs_of_tables().items() if name.partition(".")[0] not in SHOWN_TOGETHER}
    assert without_example(alone) == []
    kinds = [path.rpartition(".") for path in CLASSES if path.rpartition(".")[2] in SHOWN_TOGETHER]
    assert without_example({name: getattr(importlib.import_module(module), name) for module, _, name in kinds}) == []


def test_an_untold_parameter_is_seen():
    def tells(rows: object, mode: str) -> None:
        """Write.

        Args:
            rows: what is written.
        """

    assert untold_parameters({"tells": tells}) == ["tells: mode"]
    assert without_example({"tells": tells}) == ["tells"]


# --------------------------------------------------------------------------------------------------- right and wrong calls


@pytest.mark.slow
def test_type_checkers_refuse_exactly_the_wrong_calls(tmp_path):
    lines = CALLS.read_text("utf-8").splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if "# type: ignore[" in line}
    assert len(wrong) > 40
    bare = [re.sub(r"  # type: ignore\[.*\]", "", line) for line in lines if "# pyright:" not in line]
    moved = {number - sum("# pyright:" in line for line in lines[:number]) for number in wrong}
    (tmp_path / "calls.py").write_text("\n".join(bare), "utf-8")
    settings = {
        "include": ["calls.py"],
        "extraPaths": [str(ROOT)],
        "typeCheckingMode": "basic",
        "pythonVersion": "3.11",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), "utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(tmp_path)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    told = json.loads(ran.stdout)["generalDiagnostics"]
    errors = {each["range"]["start"]["line"] + 1 for each in told if each["severity"] == "error"}
    assert {bare[number - 1].strip() for number in errors ^ moved} == set(), ran.stdout


# ------------------------------------------------------------------------- the dictionaries name what the verbs take


def test_the_options_of_a_write_are_those_that_are_checked():
    assert options.WriteOptions.__optional_keys__ == ARGUMENTS
    assert options.WriteOptions.__optional_keys__ - options.CommitOptions.__optional_keys__ == {"dry_run"}


def test_write_table_takes_what_its_verbs_take():
    own = options.WriteTableOptions.__optional_keys__ - options.WriteOptions.__optional_keys__
    taken = {
        name for verb in (Table.upsert, Table.insert, Table.bulk_insert) for name in inspect.signature(verb).parameters
    }
    assert own == taken - {"self", "data", "call"}


def test_reading_into_other_libraries_takes_what_read_takes():
    assert options.ReadOptions.__optional_keys__ == inspect.signature(Table.read).parameters.keys() - {"self"}


def test_the_settings_of_a_stream_are_the_fields_of_its_options():
    assert StreamSettings.__optional_keys__ == {field.name for field in fields(StreamOptions)}
    assert NamedStreamSettings.__optional_keys__ - StreamSettings.__optional_keys__ == {"writer_id"}


@pytest.mark.parametrize("family", [SparkReadOptions, SparkWriteOptions, SparkServiceOptions])
def test_the_options_of_spark_are_known(family):
    of_queries = {"queryName"}  # Spark's own, which a stream's sink leaves out
    names = family.__optional_keys__ - of_queries
    assert [name for name in names if not (find_option(name.lower()) or name in SETTINGS or name in ALIASES)] == []


def test_every_shared_keyword_is_explained():
    families = [getattr(options, name) for name in options.__all__]
    told = "\n".join(inspect.getdoc(family) for family in families)
    names = {name for family in families for name in family.__optional_keys__}
    assert [name for name in sorted(names) if f"\n    {name}: " not in told] == []
