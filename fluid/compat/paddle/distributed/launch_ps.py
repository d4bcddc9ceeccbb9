"""`python -m paddle.distributed.launch_ps` of release 1.8: `fluid launch_ps` under its old name.

Run as `fluid run -m paddle.distributed.launch_ps --worker_num 2 --server_num 2 train.py`.
"""

import sys

from fleet.launch.servers import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
