"""CRC-32C, loaded at the first use.

Call it through the module, `crc.crc32c(view)`: the name starts as a loader and is then the C function itself, which
takes any buffer without a copy and drops the GIL for large ones. The package's `__init__` imports importlib.metadata and
argparse for its version and command line, 41 ms of a start; the extension beside it, found by its spec, takes 4 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

Crc32c = Callable[[bytes | bytearray | memoryview], int]


def _native() -> Crc32c:
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    package = PathFinder.find_spec("crc32c")
    if package is not None:
        extension = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
        if extension is not None and extension.loader is not None:
            module = module_from_spec(extension)
            extension.loader.exec_module(module)
            if hasattr(module, "crc32c"):
                return cast(Crc32c, module.crc32c)
    from crc32c import crc32c as public

    return public


def _load(data: bytes | bytearray | memoryview) -> int:
    global crc32c
    crc32c = _native()
    return crc32c(data)


crc32c: Crc32c = _load
