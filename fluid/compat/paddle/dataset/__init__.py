"""`paddle.dataset`: the data sets of release 1.8, read from the usual cache folder.

Nothing is ever downloaded: for a missing file, the error names it, its source and its target path.
Samples are those of release 1.8, in the same order, except where the order is random.
"""

from . import (
    cifar,
    common,
    conll05,
    flowers,
    image,
    imdb,
    imikolov,
    mnist,
    movielens,
    sentiment,
    uci_housing,
    voc2012,
    wmt14,
    wmt16,
)

__all__ = [
    "cifar",
    "common",
    "conll05",
    "flowers",
    "image",
    "imdb",
    "imikolov",
    "mnist",
    "movielens",
    "sentiment",
    "uci_housing",
    "voc2012",
    "wmt14",
    "wmt16",
]
