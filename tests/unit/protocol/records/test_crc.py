from __future__ import annotations

import subprocess
import sys

from pybroker.protocol.records import crc


def test_the_check_value_of_crc_32c() -> None:
    assert crc.crc32c(b"123456789") == 0xE3069283
    assert crc.crc32c(memoryview(bytearray(b"x123456789"))[1:]) == 0xE3069283


def test_the_package_that_imports_so_much_is_left_alone() -> None:
    program = (
        "import sys; from pybroker.protocol.records import batch, crc; assert 'crc32c' not in sys.modules; "
        "assert crc.crc32c(b'123456789') == 0xE3069283; assert 'importlib.metadata' not in sys.modules; "
        "import crc32c; assert crc32c.crc32c(b'123456789') == 0xE3069283"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
