from __future__ import annotations

import pytest

from pybroker.protocol.message import Message, Struct, col
from pybroker.protocol.schema import NO_VERSIONS, Versions


@pytest.mark.parametrize("text", ["0", "3", "3-13", "9+", "none"])
def test_versions_read_and_write_kafkas_notation(text: str) -> None:
    assert str(Versions.parse(text)) == text


def test_versions_contain_their_range() -> None:
    assert [version for version in range(20) if version in Versions.parse("3-5")] == [3, 4, 5]
    assert 32767 in Versions.parse("9+")
    assert 8 not in Versions.parse("9+")
    assert 0 not in NO_VERSIONS


class Shelf(Message, key=7, versions="1-3", flexible="3+", unstable=True):
    name:      str             = col("string")
    books:     list[Book]      = col("[]Book", "2+", default=[])
    inventory: int             = col("int32", default=-1)


class Book(Struct):
    title_in_full: str = col("string")


def test_the_class_line_holds_the_facts_of_the_message() -> None:
    assert (Shelf.KEY, str(Shelf.VERSIONS), str(Shelf.FLEXIBLE), Shelf.UNSTABLE) == (7, "1-3", "3+", True)


def test_columns_stand_in_wire_order_and_have_kafkas_names() -> None:
    assert [column.name for column in Shelf.COLUMNS] == ["name", "books", "inventory"]
    assert Book.COLUMNS[0].json_name == "titleInFull"
    assert Shelf.struct_of(Shelf.COLUMNS[1]) is Book


def test_an_instance_takes_defaults_and_misses_what_has_none() -> None:
    shelf = Shelf(name="top")
    assert (shelf.name, shelf.books, shelf.inventory, shelf.unknown_tagged_fields) == ("top", [], -1, None)
    with pytest.raises(TypeError, match="name"):
        Shelf()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="titel"):
        Book(titel="x")  # type: ignore[call-arg]


def test_two_instances_do_not_share_a_default_list() -> None:
    first, second = Shelf(name="a"), Shelf(name="b")
    first.books.append(Book(title_in_full="Middlemarch"))
    assert second.books == []


def test_instances_have_slots_and_compare_by_value() -> None:
    assert Shelf(name="a") == Shelf(name="a")
    assert Shelf(name="a") != Shelf(name="b")
    assert Book(title_in_full="a") != Shelf(name="a")
    with pytest.raises(AttributeError):
        Shelf(name="a").colour = "red"  # type: ignore[attr-defined]


def test_an_instance_shows_its_fields() -> None:
    shelf = Shelf(name="a", books=[Book(title_in_full="b")])
    assert repr(shelf) == "Shelf(name='a', books=[Book(title_in_full='b')], inventory=-1)"
