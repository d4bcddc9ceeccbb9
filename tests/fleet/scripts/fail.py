"""Worker 1 fails; the others wait for ever."""

import os
import sys
import time

assert "torch" not in sys.modules, "a process of a job starts without it"
if os.environ.get("PADDLE_TRAINER_ID") == "1":
    raise RuntimeError("worker 1 has had enough")
time.sleep(600)
