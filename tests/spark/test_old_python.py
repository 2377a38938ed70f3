"""The jobs run on the Python of a Spark cluster, which may be as old as Spark 4.0 allows: 3.9."""

from __future__ import annotations

import ast

import pytest
from spark.driver_process import ROOT

OLDEST = (3, 9)
# What came later, as far as one would use it here.
LATER_NAMES = {
    "typing": {"Self", "TypeAlias", "ParamSpec", "Never", "assert_never", "override", "NotRequired", "Unpack", "LiteralString"},
    "datetime": {"UTC"},
    "enum": {"StrEnum"},
    "itertools": {"pairwise", "batched"},
    "contextlib": {"chdir", "aclosing"},
    "types": {"NoneType", "UnionType"},
    "tomllib": {"*"},
}
LATER_OPTIONS = {"zip": {"strict"}, "dataclass": {"slots", "kw_only"}, "field": {"kw_only"}}


def too_new(source: str) -> list[str]:
    tree = ast.parse(source, feature_version=OLDEST)
    unread = {id(inside) for node in ast.walk(tree) for part in _unread(node) for inside in ast.walk(part)}
    found = []
    for node in ast.walk(tree):
        if id(node) in unread:
            continue
        if isinstance(node, ast.ImportFrom):
            later = LATER_NAMES.get(str(node.module), set())
            found += [f"{node.module}.{name.name}" for name in node.names if name.name in later or "*" in later]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in LATER_NAMES.get(node.value.id, set()):
                found.append(f"{node.value.id}.{node.attr}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            later = LATER_OPTIONS.get(node.func.id, set())
            found += [f"{node.func.id}({option.arg}=)" for option in node.keywords if option.arg in later]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and (_is_type(node.left) and _is_type(node.right)):
            found.append(ast.unparse(node))
        elif isinstance(node, ast.Match):
            found.append("match")
    return found


def _unread(node: ast.AST) -> list[ast.AST]:
    """Annotations, which `from __future__ import annotations` leaves alone, and what only a type checker looks at."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return list(node.body)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return [node.returns] if node.returns else []
    if isinstance(node, (ast.arg, ast.AnnAssign)):
        return [node.annotation] if node.annotation else []
    return []


def _is_type(node: ast.AST) -> bool:
    name = node.value if isinstance(node, ast.Subscript) else node
    names = {"int", "float", "str", "bytes", "bool", "dict", "list", "tuple", "set", "type", "None"}
    return ast.unparse(name) in names


@pytest.mark.parametrize("path", sorted((ROOT / "spark_jobs").rglob("*.py")), ids=lambda path: path.stem)
def test_a_module_has_nothing_that_python_3_9_does_not(path: object) -> None:
    with open(str(path)) as source:
        assert too_new(source.read()) == []


def test_what_is_too_new_is_found() -> None:
    assert too_new("from datetime import UTC\nfrom typing import Any, Self") == ["datetime.UTC", "typing.Self"]
    assert too_new("import datetime\ndatetime.UTC") == ["datetime.UTC"]
    assert too_new("zip(a, b, strict=True)\n@dataclass(slots=True)\nclass A: pass") == ["zip(strict=)", "dataclass(slots=)"]
    assert too_new("isinstance(a, int | float)\nSchema = dict[str, int] | bool") == ["dict[str, int] | bool", "int | float"]
    assert too_new("def f(a: int | None) -> str | None: ...") == []
    assert too_new("if TYPE_CHECKING:\n    from typing import Self") == []
    with pytest.raises(SyntaxError):
        too_new("match a:\n    case 1: pass")
