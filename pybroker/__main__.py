"""`python -m pybroker` is the `pybroker` command."""

import sys

from pybroker.tools.main import main

if __name__ == "__main__":
    sys.exit(main())
