"""Start-up file of every Python process that a script under `fluid run` starts.

It runs in interpreters of any version, so its syntax is that of Python 2.7. In the interpreter of
`fluid run` it installs `fluid.compat.startup.children`; in others, such as those of another
virtual environment, nothing. Then it runs the `sitecustomize` that Python would have run.
"""

import os
import sys

_folder = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [
    each for each in sys.path if each != _folder and not each.startswith(_folder + os.sep)
]
for _entry in os.environ.get("PYTHONPATH", "").split(os.pathsep):
    _name, _, _value = _entry[len(_folder) + 1 :].partition("=")
    if _entry.startswith(_folder + os.sep) and _name.startswith("FLUID_RUN_"):
        os.environ.setdefault(_name, _value)
_tag = getattr(getattr(sys, "implementation", None), "cache_tag", None) or ""
_interpreter = _tag + "=" + os.path.realpath(sys.prefix)

if os.environ.get("FLUID_RUN_INTERPRETER") == _interpreter:
    from importlib import import_module

    # A package of this name, so that those below it are loaded without `fluid` and its imports.
    # The statement `from fluid.compat.x import y` imports `fluid` if it has to import `x`.
    _compat = type(sys)("fluid.compat")
    _compat.__path__ = [os.path.dirname(os.path.dirname(_folder))]
    sys.modules["fluid.compat"] = _compat
    import_module("fluid.compat.old_python")
    import_module("fluid.compat.startup")
    import_module("fluid.compat.startup.children").install()
    del sys.modules["fluid.compat"]

_this = sys.modules.pop(__name__)
try:
    __import__("sitecustomize")
except ImportError:
    if getattr(sys.exc_info()[1], "name", "sitecustomize") != "sitecustomize":
        raise
finally:
    sys.modules.setdefault(__name__, _this)
