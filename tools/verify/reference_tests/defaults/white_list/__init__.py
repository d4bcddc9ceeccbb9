"""Ops exempt from rules of operator tests, if the checkout has no lists: all, but from LoD levels."""


class Everything(list):
    """A list that contains everything."""

    def __contains__(self, item):
        return True
