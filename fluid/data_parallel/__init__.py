"""Data-parallel runs: one program on several devices, gradients summed over all of them.

Read in this order: `strategies` (the settings users see), `rewrite` (collectives in a copy of the
program), `sharding` (the Reduce strategy), `split_feeds` and `merge_fetches` (rows to devices and
back), `devices` (worker processes and their state), `runner` (one step on all devices),
`server_trainer` (a trainer of parameter servers).
What runs a program on devices is loaded with the first CompiledProgram that does.
"""

from compiler.support.lazy_loading import lazy_names

__all__: list[str] = []

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "fluid.data_parallel.devices": "Devices",
        "fluid.data_parallel.runner": "DataParallel",
        "fluid.data_parallel.server_trainer": "ServerTrainer",
        "fluid.data_parallel.trainers": "trainers_of",
    },
    exported="*",
)
