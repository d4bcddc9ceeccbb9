"""`python -m fluid` and the installed command `fluid` are the same."""

import sys

from fluid.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
