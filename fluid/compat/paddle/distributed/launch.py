"""`python -m paddle.distributed.launch` of release 1.8: `fluid launch` under its old name.

Run as `fluid run -m paddle.distributed.launch --selected_gpus 0,1 train.py`.
"""

import sys

from fleet.launch.arguments import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
