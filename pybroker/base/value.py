"""Values that cost next to nothing to declare: immutable, with slots, equal if type and fields are, as a frozen dataclass.

`@dataclass` compiles six functions for each class when its module is imported, half a millisecond that every start pays for
every event and effect of every machine. Here the constructor is compiled when the first value is made, and the rest is shared.
Fields are the class's own annotations; they are not inherited.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, dataclass_transform


@dataclass_transform(frozen_default=True)
class _Declared(type):
    __match_args__: tuple[str, ...]
    _defaults: dict[str, Any]

    def __new__(mcs, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> _Declared:
        fields = tuple(space.get("__annotations__", ()))
        defaults = {field: space.pop(field) for field in fields if field in space}
        space |= {"__slots__": fields, "__match_args__": fields, "_defaults": defaults}
        made = super().__new__(mcs, name, bases, space)
        assert not any(getattr(base, "__match_args__", ()) for base in bases), f"{name} would lose the fields of its bases"
        return made


class Value(metaclass=_Declared):
    def __init__(self, *args: Any, **named: Any) -> None:
        kind = type(self)
        constructor = _constructor(kind)
        kind.__init__ = constructor  # type: ignore[method-assign]
        constructor(self, *args, **named)

    def __setattr__(self, name: str, _: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is a value: {name} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is a value: {name} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return _values(self) == _values(other)

    def __hash__(self) -> int:
        return hash(_values(self))

    def __repr__(self) -> str:
        kind = type(self)
        shown = zip(kind.__match_args__, _values(self), strict=True)
        return f"{kind.__qualname__}({', '.join(f'{field}={value!r}' for field, value in shown)})"

    def __reduce__(self) -> tuple[type[Value], tuple[Any, ...]]:
        return type(self), _values(self)


def _values(value: Any) -> tuple[Any, ...]:
    return tuple([getattr(value, field) for field in type(value).__match_args__])


def _constructor(kind: type[Value]) -> Callable[..., None]:
    """`__init__` of the fields; the slots' own setters know nothing of `__setattr__`."""
    space: dict[str, Any] = {f"set_{field}": getattr(kind, field).__set__ for field in kind.__match_args__}
    space |= {f"default_{field}": value for field, value in kind._defaults.items()}
    taken = ", ".join(f"{field}=default_{field}" if field in kind._defaults else field for field in kind.__match_args__)
    body = "".join(f"  set_{field}(self, {field})\n" for field in kind.__match_args__) or "  pass\n"
    exec(f"def __init__(self, {taken}):\n{body}", space)  # noqa: S102
    made: Callable[..., None] = space["__init__"]
    made.__qualname__ = f"{kind.__qualname__}.__init__"
    return made
