"""Hints at errors of old scripts."""

import pytest

from fluid.cli.script_hints import hint_for

LINES = [
    ('print "x"', "this is Python 2; convert it"),
    ("mode = 0644", "this is Python 2"),
    ("try:\n    pass\nexcept IOError, e:\n    pass", "this is Python 2"),
    ("xrange(3)", "this is Python 2"),
    ("{}.has_key(1)", "this is Python 2"),
    ("{}.iteritems()", "this is Python 2"),
    ("get_ipython().system('ls')", "these lines are a notebook's"),
    ("%matplotlib inline", "these lines are a notebook's"),
    ("import matplotlib.no", "pip install matplotlib"),
    ("from .net import x", "fluid run -m work.train"),
    ("xrangee(3)", ""),
    ("x = = 3", ""),
    ("import nothing_like_it", ""),
    ("(3).iteritems", ""),
]


@pytest.mark.parametrize(("source", "hint"), LINES)
def test_the_hint_says_what_to_do(source, hint, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(Exception) as caught:
        exec(compile(source, "train.py", "exec"), {"__name__": "__main__", "__package__": ""})
    found = hint_for(caught.value, "/data/work/train.py")
    assert found if hint else found == ""
    assert hint in found
    if "Python 2" in hint:
        assert found.endswith("train.py")


def test_a_module_of_a_package_is_run_as_one():
    error = ImportError("attempted relative import with no known parent package")
    assert hint_for(error, "/data/work/train.py").startswith("it is part of a package; run it from")
    assert hint_for(error, "work.train", module=True) == ""
