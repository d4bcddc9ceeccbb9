"""Compression of models: quantization, pruning, distillation and search for networks.

`Compressor` trains with the strategies of a configuration file; `graph`, `prune`, `distillation`,
`searcher` and `nas` can also be called from a training loop.
"""

from compiler.support.lazy_loading import lazy_names
from fluid.contrib.slim import quantization

__all__ = ["quantization"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "fluid.contrib.slim": "core distillation graph nas prune searcher",
        "fluid.contrib.slim.core": "Compressor",
    },
)
