"""What to do about an error that ended an old script, where the error itself does not say."""

from __future__ import annotations

import re
from pathlib import Path

from fluid.compat.old_python.arrays import converts

__all__ = ["hint_for"]

BROUGHT_BY_WHEEL = {
    "cv2": "opencv-python", "PIL": "pillow", "google": "protobuf", "yaml": "pyyaml",
    **{name: name for name in (
        "astor", "decorator", "funcsigs", "gast", "graphviz", "matplotlib", "nltk", "objgraph",
        "prettytable", "rarfile", "requests", "scipy",
    )},
}  # fmt: skip
"""Modules that the wheel of release 1.8.5 brought along, and the packages that have them now."""

ONE_ELEMENT = re.compile("only 0-dimensional arrays can|number is required, not numpy.ndarray")
ONE_ELEMENT_HINT = """\
since NumPy 2.4 an array of shape [1] does not convert to a number, and `fluid run` cannot
change that in this build of Python. Fetched arrays still do; for others install 'numpy<2.4'."""

PYTHON_2_SYNTAX = re.compile(
    "Missing parentheses in call|leading zeros in decimal integer|multiple exception types must be"
    "|inconsistent use of tabs|invalid decimal literal"
)
PYTHON_2_NAMES = frozenset(
    "basestring cmp execfile file long raw_input reduce reload unichr unicode xrange".split()
)
PYTHON_2_METHODS = re.compile("'(dict|OrderedDict)' object has no attribute '(has_key|iter|view)")
SHELL_LINE = re.compile(r"^\s*[%!]")


def hint_for(error: BaseException, script: str, module: bool = False) -> str:
    """Return what to do, or an empty string; `script` is the script's path, or a module's name."""
    if isinstance(error, TypeError) and ONE_ELEMENT.search(str(error)) and not converts():
        return ONE_ELEMENT_HINT
    if isinstance(error, ModuleNotFoundError):
        package = BROUGHT_BY_WHEEL.get((error.name or "").partition(".")[0])
        return (package and f"Paddle's own wheel brought it along: pip install {package}") or ""
    if isinstance(error, ImportError) and "no known parent package" in str(error) and not module:
        path = Path(script).resolve()
        name, above = f"{path.parent.name}.{path.stem}", path.parent.parent
        return f"it is part of a package; run it from {above} as: fluid run -m {name}"
    if _is_of_notebook(error):
        return (
            "these lines are a notebook's: remove those with get_ipython(), and with % or ! first"
        )
    if _is_python_2(error):
        file = (isinstance(error, SyntaxError) and error.filename) or script
        convert = f"python -m fissix -w -n {file}"
        return f"this is Python 2; convert it: pip install fissix, then: {convert}"
    return ""


def _is_of_notebook(error: BaseException) -> bool:
    if isinstance(error, SyntaxError):
        return SHELL_LINE.match(error.text or "") is not None
    return isinstance(error, NameError) and error.name == "get_ipython"


def _is_python_2(error: BaseException) -> bool:
    if isinstance(error, SyntaxError):
        return PYTHON_2_SYNTAX.search(str(error.msg)) is not None
    if isinstance(error, NameError):
        return error.name in PYTHON_2_NAMES
    return isinstance(error, AttributeError) and bool(PYTHON_2_METHODS.match(str(error)))
