"""Programs of jobs with parameter servers, run: what servers serve and how trainers reach them.

`serving` runs the program of a server, `sessions` connects the programs of trainers, `capacity`
computes what a job moves and holds.
"""

from fluid.parameter_server.capacity import Capacity, capacity
from fluid.parameter_server.serving import before_serving, serve, serves
from fluid.parameter_server.sessions import complete, release, session_for, trainer_step

__all__ = [
    "Capacity",
    "before_serving",
    "capacity",
    "complete",
    "release",
    "serve",
    "serves",
    "session_for",
    "trainer_step",
]
