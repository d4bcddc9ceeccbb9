"""Lists of ops that operator tests except from rules, where the checkout has none: all ops are."""


class Everything(list):
    """A list that has whatever one asks for."""

    def __contains__(self, item):
        return True
