"""`python -m fleet.launch` and `fluid launch` are the same command."""

import sys

from fleet.launch.arguments import main

if __name__ == "__main__":
    sys.exit(main())
