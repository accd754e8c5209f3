"""Data classes as those of the standard library, made several times faster. Pure.

The standard library compiles up to six functions for every data class. A first write of a process imports some 160 data
classes, and making them was two fifths of its processor time. Here one function is compiled, ``__init__``, when it is
first called, and the others are closures. What describes a class to `dataclasses.fields`, `replace` and `asdict` is made
by the standard library when it is first asked for, which takes a millisecond for each class; :func:`replace` of this module
does without. Type checkers see the decorator and the function of the standard library.
"""

from __future__ import annotations

import abc
import dataclasses
import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError
from itertools import islice
from operator import attrgetter
from reprlib import recursive_repr
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Final, get_origin

__all__ = ["dataclass", "replace"]

#: How much of a field's value its text shows: notebooks print whatever a cell ends with.
_MOST_ITEMS: Final = 8
_MOST_CHARACTERS: Final = 240
_MOST_OF_ALL: Final = 1_900
_BRACKETS: Final[dict[type, Sequence[str]]] = {
    tuple: "()",
    list: "[]",
    dict: "{}",
    frozenset: ("frozenset({", "})"),
    set: "{}",
}
_OPTIONS: Final = frozenset(("frozen", "slots", "eq", "repr", "kw_only"))
#: Attributes by which the standard library knows a data class.
_FIELDS: Final = "__dataclass_fields__"
_PARAMETERS: Final = "__dataclass_params__"

Fields = dict[str, Field[Any]]


class _NotGiven:
    """The default that a signature shows where a factory makes the value."""

    def __repr__(self) -> str:
        return "<factory>"


_NOT_GIVEN: Final = _NotGiven()


def _dataclass(cls: type | None = None, /, **options: bool) -> object:
    """Return the class with the methods of a data class.

    `options` are some of `frozen`, `slots`, `eq`, `repr` and `kw_only`, with the meaning and the defaults that they have
    in `dataclasses.dataclass`. Annotations `InitVar` and `KW_ONLY` are not understood.

    Raises TypeError when there are other options.
    """
    if not _OPTIONS.issuperset(options):
        raise TypeError(f"the options of a data class are {sorted(_OPTIONS)}, not {sorted(options)}")
    if cls is None:
        return lambda decorated: _make(decorated, **options)
    return _make(cls, **options)


def _make(
    cls: type,
    *,
    frozen: bool = False,
    slots: bool = False,
    eq: bool = True,
    repr: bool = True,
    kw_only: bool = False,
) -> type:
    given = dict(cls.__dict__)
    own = _own_fields(cls, kw_only=kw_only)
    fields = _inherited_fields(cls) | own
    made = _with_slots(cls, own, fields) if slots else _with_defaults(cls, own)

    methods: dict[str, object] = {
        name: _Description(name, made, fields, frozen=frozen) for name in (_FIELDS, _PARAMETERS)
    }
    methods["__match_args__"] = tuple(name for name, each in fields.items() if each.init and not each.kw_only)
    if repr:
        methods["__repr__"] = _representation([name for name, each in fields.items() if each.repr])
    if eq:
        values = _values([name for name, each in fields.items() if each.compare])
        methods["__eq__"] = _equality(values)
        if given.get("__hash__") is None and ("__hash__" not in given or "__eq__" in given):
            given.pop("__hash__", None)
            methods["__hash__"] = _hash(values) if frozen else None
    if frozen:
        methods["__setattr__"] = _refusal(made, fields, "__setattr__", "cannot assign to field")
        methods["__delattr__"] = _refusal(made, fields, "__delattr__", "cannot delete field")
        if slots:
            methods["__getstate__"], methods["__setstate__"] = _states(list(fields))
    for name, method in methods.items():
        if name not in given:
            setattr(made, name, method)
    made.__init__ = _Initializer(made, fields, frozen=frozen)  # type: ignore[misc]
    abc.update_abstractmethods(made)
    return made


# ------------------------------------------------------------------------------------------------- fields


def _own_fields(cls: type, *, kw_only: bool) -> Fields:
    fields: Fields = {}
    for name, annotation in inspect.get_annotations(cls).items():
        if _is_class_variable(annotation):
            continue
        default = cls.__dict__.get(name, MISSING)
        each = default if isinstance(default, Field) else dataclasses.field(default=default)
        if each.default.__class__.__hash__ is None:
            raise ValueError(f"the default of field {name} can change: use field(default_factory=…)")
        each.name, each.type = name, annotation
        if each.kw_only is MISSING:
            each.kw_only = kw_only
        fields[name] = each
    return fields


def _is_class_variable(annotation: object) -> bool:
    if isinstance(annotation, str):
        return annotation.startswith(("ClassVar", "typing.ClassVar"))
    return annotation is ClassVar or get_origin(annotation) is ClassVar


def _inherited_fields(cls: type) -> Fields:
    fields: Fields = {}
    for base in reversed(cls.__mro__[1:]):
        described = base.__dict__.get(_FIELDS)
        if isinstance(described, _Description):
            fields |= described.fields
        elif described is not None:
            fields |= {each.name: each for each in dataclasses.fields(base)}
    return fields


class _Description:
    """An attribute by which the standard library knows a data class, made when it is asked for."""

    def __init__(self, name: str, cls: type, fields: Fields, *, frozen: bool) -> None:
        self.fields = fields
        self._name, self._cls, self._frozen = name, cls, frozen

    def __get__(self, instance: object, owner: type) -> Any:
        fields = [(name, each.type, each) for name, each in self.fields.items()]
        like = dataclasses.make_dataclass(self._cls.__name__, fields, frozen=self._frozen, eq=False, repr=False)
        for name in (_FIELDS, _PARAMETERS):
            setattr(self._cls, name, getattr(like, name))
        return getattr(like, self._name)


# ------------------------------------------------------------------------------------------------ classes


def _with_slots(cls: type, own: Fields, fields: Fields) -> type:
    """Return a class like this one whose instances have places for these fields alone."""
    inherited = {name for base in cls.__mro__[1:] for name in getattr(base, "__slots__", ())}
    namespace = {name: value for name, value in cls.__dict__.items() if name not in own}
    for name in ("__dict__", "__weakref__"):
        namespace.pop(name, None)
    namespace["__slots__"] = tuple(name for name in fields if name not in inherited)
    made = type(cls)(cls.__name__, cls.__bases__, namespace)
    made.__qualname__ = cls.__qualname__
    return made


def _with_defaults(cls: type, own: Fields) -> type:
    """Return the class, with the defaults of its fields as attributes."""
    for name, each in own.items():
        if each.default is not MISSING:
            setattr(cls, name, each.default)
        elif name in cls.__dict__:
            delattr(cls, name)
    return cls


# ------------------------------------------------------------------------------------------------ methods


class _Initializer:
    """``__init__``, compiled when it is first called or looked at: many classes that are imported are not used."""

    def __init__(self, cls: type, fields: Fields, *, frozen: bool) -> None:
        self._cls, self._fields, self._frozen = cls, fields, frozen

    def __get__(self, instance: object, owner: type) -> Callable[..., None]:
        compiled = _compiled(self._cls, self._fields, frozen=self._frozen)
        self._cls.__init__ = compiled  # type: ignore[misc]
        return compiled.__get__(instance, owner)


def _compiled(cls: type, fields: Fields, *, frozen: bool) -> FunctionType:
    """Return ``__init__``, the one method whose arguments have names."""
    positional, by_name = ["self"], list[str]()
    lines: list[str] = []
    names: dict[str, Any] = {"__name__": cls.__module__, "_NOT_GIVEN": _NOT_GIVEN}
    for name, each in fields.items():
        value = name
        if each.default_factory is not MISSING:
            names[f"_make_{name}"] = each.default_factory
            value = f"_make_{name}() if {name} is _NOT_GIVEN else {name}" if each.init else f"_make_{name}()"
        elif not each.init:
            if each.default is MISSING or not _has_slot(cls, name):
                continue  # not set at first, or an attribute of the class
            value = f"_default_{name}"
        if each.default is not MISSING:
            names[f"_default_{name}"] = each.default
        if each.init:
            (by_name if each.kw_only else positional).append(name + _default_text(each))
        lines.append(_assignment(cls, name, value, names, frozen=frozen))
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    arguments = ", ".join([*positional, *(["*", *by_name] if by_name else [])])
    body = "".join(f"\n    {line}" for line in lines or ["pass"])
    # The text holds names of fields, which are Python's own names: nothing that was read is compiled.
    exec(f"def __init__({arguments}):{body}", names)  # noqa: S102
    initializer: FunctionType = names["__init__"]
    initializer.__qualname__ = f"{cls.__qualname__}.__init__"
    initializer.__module__ = cls.__module__
    initializer.__annotations__ = {name: each.type for name, each in fields.items() if each.init} | {"return": None}
    return initializer


def _default_text(each: Field[object]) -> str:
    if each.default_factory is not MISSING:
        return "=_NOT_GIVEN"
    return "" if each.default is MISSING else f"=_default_{each.name}"


def _assignment(cls: type, name: str, value: str, names: dict[str, object], *, frozen: bool) -> str:
    """Return the line that sets a field: by its slot, which takes a third of the time of `object.__setattr__`."""
    if not frozen:
        return f"self.{name} = {value}"
    if _has_slot(cls, name):
        names[f"_set_{name}"] = getattr(cls, name).__set__
        return f"_set_{name}(self, {value})"
    names["_set"] = object.__setattr__
    return f"_set(self, {name!r}, {value})"


def _has_slot(cls: type, name: str) -> bool:
    return inspect.ismemberdescriptor(getattr(cls, name, None))


def _values(names: list[str]) -> Callable[[object], object]:
    """Return what reads the values of these fields as a tuple."""
    if not names:
        return lambda instance: ()
    return attrgetter(*names) if len(names) > 1 else attrgetter(*names, *names)


def _equality(values: Callable[[object], object]) -> Callable[[object, object], object]:
    def __eq__(self: object, other: object) -> object:  # noqa: N807
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return __eq__


def _hash(values: Callable[[object], object]) -> Callable[[object], int]:
    def __hash__(self: object) -> int:  # noqa: N807
        return hash(values(self))

    return __hash__


def _representation(names: list[str]) -> Callable[[object], str]:
    @recursive_repr()
    def __repr__(self: object) -> str:  # noqa: N807
        fields_text = ", ".join(f"{name}={_shortened(getattr(self, name))}" for name in names)
        return f"{type(self).__qualname__}({fields_text if len(fields_text) <= _MOST_OF_ALL else f'{fields_text[:_MOST_OF_ALL]}…'})"

    return __repr__


def _shortened(value: object) -> str:
    """Return the text of a field's value: whole where it is short, else its beginning and how much is missing."""
    value_type = type(value)
    if value_type in _BRACKETS and isinstance(value, Collection) and len(value) > _MOST_ITEMS:
        first, last = _BRACKETS[value_type]
        items = list(islice(value.items() if isinstance(value, dict) else value, _MOST_ITEMS))
        texts = (
            [f"{_shortened(key)}: {_shortened(item)}" for key, item in items]
            if isinstance(value, dict)
            else [*map(_shortened, items)]
        )
        representation = f"{first}{', '.join(texts)}, … {len(value) - _MOST_ITEMS:,} more{last}"
    else:
        representation = repr(value)
    return representation if len(representation) <= _MOST_CHARACTERS else f"{representation[:_MOST_CHARACTERS]}…"


def _refusal(cls: type, fields: Collection[str], method: str, reason: str) -> Callable[..., None]:
    """Return the method that refuses to change a field, and any attribute but one that a subclass adds."""

    def refuse(self: object, name: str, *value: object) -> None:
        if type(self) is cls or name in fields:
            raise FrozenInstanceError(f"{reason} {name!r}")
        getattr(super(cls, self), method)(name, *value)

    return refuse


def _states(names: list[str]) -> tuple[Callable[[object], list[object]], Callable[[object, list[object]], None]]:
    """Return the two methods that pickle and copy: without them, a frozen class with slots refuses its own values."""

    def __getstate__(self: object) -> list[object]:  # noqa: N807
        return [getattr(self, name) for name in names]

    def __setstate__(self: object, state: list[object]) -> None:  # noqa: N807
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    return __getstate__, __setstate__


# ----------------------------------------------------------------------------------------------- replace


def _replace(instance: Any, /, **changes: Any) -> object:
    """Return a new instance with some fields changed, as `dataclasses.replace` does."""
    for base in type(instance).__mro__:
        described = base.__dict__.get(_FIELDS)
        if described is not None:
            break
    else:
        described = None
    if not isinstance(described, _Description):
        return dataclasses.replace(instance, **changes)
    for name, each in described.fields.items():
        if not each.init and name in changes:
            raise ValueError(f"field {name} is declared with init=False, it cannot be specified with replace()")
        if each.init and name not in changes:
            changes[name] = getattr(instance, name)
    return instance.__class__(**changes)


if TYPE_CHECKING:
    from dataclasses import dataclass, replace
else:
    dataclass = _dataclass
    replace = _replace
