"""`paddle.dataset`: the data sets that scripts of release 1.8 read, from the usual cache folder.

Nothing is ever downloaded: where a file is missing, the error says which, where it comes from and
where to put it. Samples are those of release 1.8, in the same order, save where that is chance.
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
    "wmt14",
    "wmt16",
]
