"""Modules of release 1.8 that only old scripts import, as `paddle.fluid.<module>`.

Each file is a module of that name. They are loaded when a script asks for them, or calls what needs
them, as `Executor._prepare_trainer` does.
"""

from compiler.support.lazy_loading import lazy_names

__getattr__, __dir__ = lazy_names(__name__, {"fluid.compat.old_names": "trainer_factory"})
