"""`lakefmt.data_classes`: the methods that the standard library's data classes have, and who uses it."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
from dataclasses import MISSING, FrozenInstanceError, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakefmt
from lakefmt._core.data_classes import _dataclass, _replace

ROOT = Path(lakefmt.__file__).parent
FLAGS = ("init", "repr", "compare")


@st.composite
def bodies(draw: st.DrawFn, name: str = "field") -> dict[str, dict[str, Any]]:
    """Fields of a class, name → arguments of `dataclasses.field`."""
    fields = {}
    has_default = False
    for number in range(draw(st.integers(0, 5))):
        arguments: dict[str, Any] = {flag: draw(st.booleans()) for flag in FLAGS if draw(st.booleans())}
        arguments |= {"kw_only": True} if draw(st.booleans()) else {}
        has_default |= draw(st.booleans()) or not arguments.get("init", True)
        if has_default:
            arguments |= draw(st.sampled_from(({"default": number}, {"default_factory": list})))
        fields[f"{name}_{number}"] = arguments
    return fields


options = st.fixed_dictionaries({name: st.booleans() for name in ("frozen", "slots", "eq", "repr", "kw_only")})


def made(decorator: Any, fields: dict[str, dict[str, Any]], chosen: dict[str, bool], *bases: type) -> type:
    """Return a data class with these fields; one with a default alone gets it as a plain value."""
    namespace: dict[str, Any] = {
        "__annotations__": {"shared": "ClassVar[int]", **dict.fromkeys(fields, "object")},
        "__module__": __name__,
        "__doc__": "A class.",
        "shared": 1,
    }
    for name, arguments in fields.items():
        if set(arguments) == {"default"}:
            namespace[name] = arguments["default"]
        elif arguments:
            namespace[name] = field(**arguments)
    return decorator(type("Made", bases, namespace), **chosen)


def standard(cls: type, **chosen: bool) -> type:
    return dataclasses.dataclass(**chosen)(cls)


@given(bodies(), bodies("own"), options, options, st.lists(st.integers(), min_size=10, max_size=10), st.data())
def test_replace_is_that_of_the_standard_library(
    fields: dict[str, dict[str, Any]],
    own: dict[str, dict[str, Any]],
    of_base: dict[str, bool],
    chosen: dict[str, bool],
    values: list[int],
    data: st.DataObject,
) -> None:
    chosen = {**chosen, "eq": True, "repr": True, "frozen": of_base["frozen"]}
    cls = outcome(lambda: made(_dataclass, own, chosen, made(_dataclass, fields, of_base)))
    if not isinstance(cls, type) or issubclass(cls, Exception):
        return  # a field without a default behind one that has one
    names = list(fields | own)
    taken = [name for name in names if (fields | own)[name].get("init", True)]
    one = outcome(lambda: cls(**dict(zip(taken, values, strict=False))))
    if not isinstance(one, cls):
        return
    changes = data.draw(st.dictionaries(st.sampled_from([*names, "unknown"]), st.integers(), max_size=3))
    ours = outcome(lambda: _replace(one, **changes))
    theirs = outcome(lambda: dataclasses.replace(one, **changes))
    assert outcome(lambda: repr(ours)) == outcome(lambda: repr(theirs))
    assert type(ours) is type(theirs)


def test_replace_makes_no_class_of_the_standard_library(monkeypatch: pytest.MonkeyPatch) -> None:
    @_dataclass
    class Point:
        x: int
        y: int = 0

    @dataclasses.dataclass
    class Plain:
        x: int

    point = Point(1, 2)
    monkeypatch.setattr(dataclasses, "make_dataclass", None)
    moved = _replace(point, x=3)
    assert (moved.x, moved.y, _replace(Plain(1), x=2).x) == (3, 2, 2)
    with pytest.raises(TypeError):
        _replace(3, x=1)


def outcome(call: Any) -> object:
    """Return what a call gives, or the type of its error."""
    try:
        return call()
    except Exception as error:
        return type(error)


def behaviour(cls: type, values: list[int]) -> list[object]:
    """What can be seen of a class and two of its instances."""
    taken = [each for each in dataclasses.fields(cls) if each.init]
    arguments = {each.name: value for each, value in zip(taken, values, strict=False)}
    one, same = cls(**arguments), cls(**arguments)
    other = outcome(lambda: dataclasses.replace(one, **dict.fromkeys([each.name for each in taken][:1], -1)))
    names = [each.name for each in dataclasses.fields(cls)]

    # With slots, the standard library fails with TypeError here: its method knows the class without slots only.
    stray = ["shared"] if hasattr(one, "__dict__") else []

    def assigned(instance: Any, name: str) -> object:
        setattr(instance, name, 9)
        return getattr(instance, name)

    def deleted(instance: Any, name: str) -> object:
        delattr(instance, name)
        return hasattr(instance, name)

    return [
        str(inspect.signature(cls)),
        cls.__match_args__,
        [(each.name, each.type, each.init, each.repr, each.compare, each.kw_only) for each in dataclasses.fields(cls)],
        [(each.default, each.default_factory) for each in dataclasses.fields(cls)],
        re.sub("0x[0-9a-f]+", "", repr(one)),
        one == same,
        one == other,
        one == 3,
        outcome(lambda: hash(one) == hash(same)),
        cls.__hash__ is None,
        [getattr(one, name) for name in names],
        dataclasses.asdict(one),
        outcome(lambda: [getattr(other, name) for name in names]),
        outcome(lambda: [getattr(copy.copy(one), name) for name in names]),
        outcome(lambda: [getattr(copy.deepcopy(one), name) for name in names]),
        hasattr(one, "__dict__"),
        cls.shared,
        [outcome(lambda name=name: assigned(one, name)) for name in [*names, *stray]],
        [outcome(lambda name=name: deleted(same, name)) for name in names],
        outcome(lambda: cls(*values, *range(20))),
        outcome(lambda: cls()) if any(each.default is MISSING is each.default_factory for each in taken) else None,
    ]


@given(bodies(), options, st.lists(st.integers(), min_size=5, max_size=5))
def test_a_class_behaves_as_one_of_the_standard_library(
    fields: dict[str, dict[str, Any]], chosen: dict[str, bool], values: list[int]
) -> None:
    assert behaviour(made(_dataclass, fields, chosen), values) == behaviour(made(standard, fields, chosen), values)


@given(bodies("base"), bodies("own"), options, st.lists(st.integers(), min_size=10, max_size=10))
def test_a_subclass_behaves_as_one_of_the_standard_library(
    base: dict[str, dict[str, Any]], own: dict[str, dict[str, Any]], chosen: dict[str, bool], values: list[int]
) -> None:
    def both(outer: Any, inner: Any) -> object:
        return outcome(lambda: behaviour(made(outer, own, chosen, made(inner, base, chosen)), values))

    expected = both(standard, standard)
    assert both(_dataclass, _dataclass) == expected
    assert both(standard, _dataclass) == expected
    assert both(_dataclass, standard) == expected


@_dataclass(frozen=True, slots=True)
class Kept:
    """A class that can be pickled: it is an attribute of its module."""

    number: int
    names: list[str] = field(default_factory=list)
    size: int = field(init=False, default=0)
    shared: ClassVar[int] = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", len(self.names))


def test_an_instance_is_pickled_with_what_it_worked_out() -> None:
    kept = Kept(3, ["a", "b"])
    assert (kept.size, kept) == (2, pickle.loads(pickle.dumps(kept)))
    assert pickle.loads(pickle.dumps(kept)).size == 2
    assert copy.deepcopy(kept).names is not kept.names


def test_own_methods_stay() -> None:
    class Plain:
        """A class with methods of its own."""

        number: int

        def __eq__(self, other: object) -> bool:
            return True

        def __repr__(self) -> str:
            return "own"

    cls = _dataclass(Plain, frozen=True)
    assert (repr(cls(1)), cls(1) == 2, hash(cls(1)) == hash(cls(1))) == ("own", True, True)


def test_a_subclass_without_fields_has_attributes_of_its_own() -> None:
    class Wider(_dataclass(type("Base", (), {"__annotations__": {"number": int}}), frozen=True)):
        pass

    wider = Wider(1)
    wider.extra = 2
    assert wider.extra == 2
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'number'"):
        wider.number = 3
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'number'"):
        del wider.number


def test_a_default_that_can_change_and_another_option_are_refused() -> None:
    with pytest.raises(ValueError, match="field names can change"):
        made(_dataclass, {"names": {"default": []}}, {})
    with pytest.raises(TypeError, match="options of a data class"):
        _dataclass(order=True)


def test_nothing_is_compiled_for_a_class_that_is_not_used() -> None:
    cls = made(_dataclass, {"number": {}}, {"frozen": True, "slots": True})
    assert not inspect.isfunction(cls.__dict__["__init__"])
    assert not isinstance(cls.__dict__["__dataclass_fields__"], dict)
    cls(1)
    assert inspect.isfunction(cls.__dict__["__init__"])
    assert dataclasses.replace(cls(1), number=2).number == 2
    assert isinstance(cls.__dict__["__dataclass_fields__"], dict)
    assert dataclasses.fields(cls)[0].default is MISSING


def test_every_module_takes_this_decorator() -> None:
    pattern = re.compile(r"^ *from dataclasses import .*\bdataclass\b|dataclasses\.dataclass\(", re.MULTILINE)
    assert pattern.search("from dataclasses import dataclass, field")
    found = [
        path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if pattern.search(path.read_text("utf-8"))
    ]
    assert found == ["_core/data_classes.py"]  # under TYPE_CHECKING
