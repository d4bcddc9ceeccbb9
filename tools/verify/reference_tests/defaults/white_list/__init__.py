"""Ops exempt from rules of operator tests, if a checkout has no lists: all, not from LoD levels."""


class Everything(list):
    """A list that contains everything."""

    def __contains__(self, item):
        return True
