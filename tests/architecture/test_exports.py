"""The public names are a promise: the list changes on purpose, and each name explains itself with an example."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
import tomllib
import types
from pathlib import Path

import architecture_rules as rules
import pytest

import lakefmt
from lakefmt import errors

HERE = Path(__file__).parent
SNAPSHOT = HERE / "public_names.txt"
WITHOUT_EXAMPLE = HERE / "exports.toml"


#: The modules a user names: everyone, engines, and who catches errors.
FACES = ("lakefmt", "lakefmt.lowlevel", "lakefmt.errors")


def snapshot() -> list[str]:
    return [line for line in SNAPSHOT.read_text("utf-8").splitlines() if line and not line.startswith("#")]


def promised(faces: dict[str, object]) -> list[str]:
    """Return every public name, dotted: those of the modules, and the verbs of the classes the first one shows."""
    names = {f"{where}.{name}" for where, face in faces.items() for name in face.__all__}
    for where, face in list(faces.items())[:1]:
        for name in face.__all__:
            value = getattr(face, name)
            if inspect.isclass(value) and not issubclass(value, Exception):
                names |= {f"{where}.{name}.{key}" for key in _members(value)}
    return sorted(names)


def _members(value: type) -> dict[str, object]:
    """Return the public members of a class, those of its own bases included; others' (tuples, enums) left out."""
    own = [base for base in value.__mro__ if base is value or base.__module__.startswith("lakefmt.")]
    return {key: member for base in reversed(own) for key, member in vars(base).items() if not key.startswith("_")}


def differences(now: list[str], kept: list[str]) -> list[str]:
    """Return what came and what went, as lines one can put into the snapshot or take out of it."""
    return [f"came: {name}" for name in now if name not in kept] + [f"went: {name}" for name in kept if name not in now]


def undocumented(face: object, names: list[str]) -> list[str]:
    """Return public names, and public methods of public classes, without a docstring."""
    said = []
    for name in names:
        value = getattr(face, name)
        if isinstance(value, str | tuple | types.ModuleType):
            continue
        said += [name] if not inspect.getdoc(value) else []
        if inspect.isclass(value):
            said += [f"{name}.{key}" for key, member in _members(value).items() if _is_mute(member)]
    return said


def _is_mute(member: object) -> bool:
    if isinstance(member, property | classmethod | staticmethod) or inspect.isfunction(member):
        return not inspect.getdoc(member)
    return False


def without_example(face: object, names: list[str]) -> set[str]:
    """Return public functions and classes whose docstring shows no example; errors need none."""
    values = {name: getattr(face, name) for name in names}
    return {
        name
        for name, value in values.items()
        if (inspect.isfunction(value) or inspect.isclass(value))
        and not (inspect.isclass(value) and issubclass(value, Exception))
        and ">>>" not in (inspect.getdoc(value) or "")
    }


def test_public_names_are_those_of_the_snapshot():
    """If a change is meant, change public_names.txt with it, and say so in the changelog."""
    rules.check(differences(promised({name: importlib.import_module(name) for name in FACES}), snapshot()))


@pytest.mark.parametrize("face", FACES)
def test_every_public_name_is_there(face):
    module = importlib.import_module(face)
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


@pytest.mark.parametrize("face", FACES)
def test_every_public_name_has_a_docstring(face):
    module = importlib.import_module(face)
    assert undocumented(module, list(module.__all__)) == []


def test_every_public_name_has_an_example():
    excused = tomllib.loads(WITHOUT_EXAMPLE.read_text("utf-8"))["without_example"]
    assert without_example(lakefmt, list(lakefmt.__all__)) == set(excused)
    assert [name for name, reason in excused.items() if len(reason.split()) < 4] == []


def test_public_modules_that_need_no_other_package_are_there_after_import_lakefmt():
    entries = [path for path in Path(lakefmt.__file__).parent.iterdir() if not path.name.startswith("_")]
    modules = {path.stem for path in entries if path.suffix == ".py" or path.is_dir()}
    code = "import lakefmt; print(*(name for name in dir(lakefmt) if getattr(lakefmt, name)))"
    names = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert modules - {*names} == {"daft", "dlt", "find_tables", "ray", "spark", "testing"}


def test_every_error_is_public():
    defined = {name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, Exception)}
    assert defined == set(errors.__all__)
    assert "errors" in lakefmt.__all__


def test_a_name_that_comes_or_goes_is_seen():
    class Table:
        def read(self):
            return None

        def _hidden(self):
            return None

    face = types.SimpleNamespace(__all__=["Table"], Table=Table)
    now = promised({"lakefmt": face, "lakefmt.x": types.SimpleNamespace(__all__=["y"])})
    assert now == ["lakefmt.Table", "lakefmt.Table.read", "lakefmt.x.y"]
    assert differences(now, ["lakefmt.Table", "lakefmt.x.y", "lakefmt.z"]) == [
        "came: lakefmt.Table.read",
        "went: lakefmt.z",
    ]


def test_a_mute_name_is_seen():
    class Loud:
        """Say something.

        >>> 1
        1
        """

        def mute(self):
            return None

    def quiet():
        """Say something."""

    face = types.SimpleNamespace(Loud=Loud, quiet=quiet)
    assert undocumented(face, ["Loud", "quiet"]) == ["Loud.mute"]
    assert without_example(face, ["Loud", "quiet"]) == {"quiet"}


def test_the_tree_of_errors_names_every_one() -> None:
    tree = re.findall(r"─ (\w+)", errors.__doc__ or "")
    assert sorted(tree) == sorted(name for name in errors.__all__ if name != "LakefmtError")
