"""The public names are a promise: the list changes on purpose, and each name explains itself with an example."""

from __future__ import annotations

import inspect
import tomllib
import types
from pathlib import Path

import lakefmt

HERE = Path(__file__).parent
SNAPSHOT = HERE / "public_names.txt"
WITHOUT_EXAMPLE = HERE / "exports.toml"


def snapshot() -> list[str]:
    return [line for line in SNAPSHOT.read_text("utf-8").splitlines() if line and not line.startswith("#")]


def undocumented(face: object, names: list[str]) -> list[str]:
    """Return public names, and public methods of public classes, without a docstring."""
    said = []
    for name in names:
        value = getattr(face, name)
        if isinstance(value, str | tuple | types.ModuleType):
            continue
        said += [name] if not inspect.getdoc(value) else []
        if inspect.isclass(value):
            own = {key: member for key, member in vars(value).items() if not key.startswith("_")}
            said += [f"{name}.{key}" for key, member in own.items() if _is_mute(member)]
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
    assert sorted(lakefmt.__all__) == snapshot(), (
        f"a public name came or went: if that is meant, change {SNAPSHOT.name}"
    )


def test_every_public_name_is_there():
    assert [name for name in lakefmt.__all__ if not hasattr(lakefmt, name)] == []


def test_every_public_name_has_a_docstring():
    assert undocumented(lakefmt, list(lakefmt.__all__)) == []


def test_every_public_name_has_an_example():
    excused = tomllib.loads(WITHOUT_EXAMPLE.read_text("utf-8")).get("without_example", {})
    assert without_example(lakefmt, list(lakefmt.__all__)) == set(excused)


def test_every_error_is_public():
    from lakefmt import errors

    assert set(errors.__all__) <= set(lakefmt.__all__)


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
