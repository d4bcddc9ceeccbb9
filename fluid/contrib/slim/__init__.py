"""Compression of models: quantization, and parts for pruning, distillation and search.

What drives these parts by a configuration file in release 1.8.5 (`Compressor` and its strategies)
is not here: call `graph`, `prune`, `distillation`, `searcher` and `nas` from a training loop.
"""

from compiler.support.lazy_loading import lazy_names
from fluid.contrib.slim import quantization

__all__ = ["quantization"]

__getattr__, __dir__ = lazy_names(
    __name__, {"fluid.contrib.slim": "distillation graph nas prune searcher"}
)
