"""Entry point of `python -m fluid`, the same as the installed command `fluid`."""

import sys

from fluid.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
