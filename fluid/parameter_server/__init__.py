"""Execution of parameter-server jobs: the server loop, and how trainers connect.

`programs` detects the programs of such jobs; the other modules are imported with the first of them.
`serving` runs a server's program, `sessions` connects trainers' programs, `saving` collects
variables, `capacity` computes the traffic and memory of a job.
"""

from compiler.support.lazy_loading import lazy_names
from fluid.parameter_server.programs import exchanges, has_placement, serves, sessions

__all__ = ["exchanges", "has_placement", "serves", "sessions"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "fluid.parameter_server.capacity": "Capacity capacity",
        "fluid.parameter_server.saving": "local_names merged_values parts_of",
        "fluid.parameter_server.serving": "before_serving serve",
        "fluid.parameter_server.sessions": "complete release session_for trainer_step",
    },
    exported="*",
)
