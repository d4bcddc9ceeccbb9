"""Worker 1 fails; the others wait for ever."""

import os
import time

if os.environ.get("PADDLE_TRAINER_ID") == "1":
    raise RuntimeError("worker 1 has had enough")
time.sleep(600)
