"""Paddle 1.8 as old scripts and their tests know it; no program needs this package to run.

`as_paddle` is `import paddle`: the modules besides `paddle.fluid` are in `paddle/`, other names of
1.8 in `old_names/`, and `missing` has the reasons of what is absent. `old_python/` gives Python 3.7
names back to scripts. `proto` and `descs` are the descriptions of programs that 1.8 exposes
(`framework_pb2`, `op.desc`), `op_protos` those of ops; `inference` has `AnalysisConfig` and its
predictors.
"""

from compiler.support.lazy_loading import lazy_names

__getattr__, __dir__ = lazy_names(__name__, {"fluid.compat": "graphs"})
