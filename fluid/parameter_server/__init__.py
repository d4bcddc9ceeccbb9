"""Programs of jobs with parameter servers, run: what servers serve and how trainers reach them.

`programs` says which programs are of such jobs; the other files are loaded with the first of them.
`serving` runs the program of a server, `sessions` connects the programs of trainers, `saving`
collects variables, `capacity` computes what a job moves and holds.
"""

from compiler.lazy_loading import lazy_names
from fluid.parameter_server.programs import exchanges, has_placement, serves, sessions

__all__ = [
    "Capacity",
    "before_serving",
    "capacity",
    "complete",
    "exchanges",
    "has_placement",
    "local_names",
    "merged_values",
    "parts_of",
    "release",
    "serve",
    "serves",
    "session_for",
    "sessions",
    "trainer_step",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "fluid.parameter_server.capacity": "Capacity capacity",
        "fluid.parameter_server.saving": "local_names merged_values parts_of",
        "fluid.parameter_server.serving": "before_serving serve",
        "fluid.parameter_server.sessions": "complete release session_for trainer_step",
    },
)
