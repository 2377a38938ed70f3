from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest

from pybroker.base.value import Value


class Moved(Value):
    """Somewhere."""

    x: int
    y: int = 7
    names: tuple[str, ...] = ()

    @property
    def sum(self) -> int:
        return self.x + self.y


class Turned(Value):
    x: int
    y: int = 7
    names: tuple[str, ...] = ()


class Stopped(Value):
    """Has no fields."""


class Paused(Value):
    pass


def test_fields_by_place_by_name_and_by_default() -> None:
    assert (Moved(1).x, Moved(1).y, Moved(1, y=2).y, Moved(y=3, x=1).sum) == (1, 7, 2, 4)


@pytest.mark.parametrize("args", [(), (1, 2, (), 4)])
def test_too_few_or_too_many_fields_are_refused_every_time(args: tuple[int, ...]) -> None:
    for _ in range(2):  # the first one compiles the constructor
        with pytest.raises(TypeError, match=r"__init__\(\)"):
            Moved(*args)  # type: ignore[arg-type]


def test_values_are_equal_if_type_and_fields_are() -> None:
    assert Moved(1, 2) == Moved(1, 2)
    assert Moved(1, 2) != Moved(1, 3)
    assert Moved(1, 2) != Turned(1, 2)
    assert Stopped() == Stopped()
    assert Stopped() != Paused()
    assert len({Moved(1), Moved(1), Moved(2), Stopped(), Stopped()}) == 3


def test_a_value_does_not_change() -> None:
    moved = Moved(1)
    for name in ("x", "other"):
        with pytest.raises(AttributeError, match=f"{name} cannot be set"):
            setattr(moved, name, 2)
    with pytest.raises(AttributeError, match="x cannot be deleted"):
        del moved.x
    assert moved.x == 1
    assert not hasattr(moved, "__dict__")


def test_a_value_shows_its_fields() -> None:
    assert repr(Moved(1, names=("a",))) == "Moved(x=1, y=7, names=('a',))"
    assert repr(Stopped()) == "Stopped()"


def test_a_value_is_matched_by_place() -> None:
    match Moved(1, 2):
        case Moved(x, 2):
            assert x == 1
        case _:
            pytest.fail("not matched")


@pytest.mark.parametrize("value", [Moved(1, 2, ("a",)), Stopped()])
def test_a_value_survives_copies(value: Value) -> None:
    assert copy.deepcopy(value) == copy.copy(value) == pickle.loads(pickle.dumps(value)) == value


def test_fields_are_not_inherited_by_mistake() -> None:
    with pytest.raises(AssertionError, match="would lose the fields"):

        class Further(Moved):
            z: int


def test_an_import_compiles_no_constructor() -> None:
    """What a start does not use costs it nothing."""
    code = (
        "import pybroker.raft.events as events\n"
        "from pybroker.base.value import Value\n"
        "kinds = [kind for kind in vars(events).values() if isinstance(kind, type) and issubclass(kind, Value)]\n"
        "print(len(kinds) > 20, any('__init__' in vars(kind) for kind in kinds if kind is not Value))\n"
        "events.Flushed(1)\n"
        "print('__init__' in vars(events.Flushed))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False", "True"]
