"""Positive and negative reviews of films: the 2,000 that NLTK brings as `movie_reviews`."""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from itertools import chain

from .archive import checked, whole
from .common import download

__all__ = ["fetch", "get_word_dict", "test", "train"]

URL = "https://corpora.bj.bcebos.com/movie_reviews%2Fmovie_reviews.zip"
MD5 = "155de2b77c6834dd8eea7cbe88e93acb"
NUM_TRAINING_INSTANCES = 1600
NUM_TOTAL_INSTANCES = 2000

Sample = tuple[list[int], int]


def _reviews(category: str) -> list[list[str]]:
    """Words and punctuation of each review of a category, in the order of the files' names."""
    path = download(URL, "corpora", MD5, "movie_reviews.zip")
    with checked(path, MD5), zipfile.ZipFile(path) as package:
        names = [name for name in package.namelist() if re.search(rf"/{category}/.*\.txt$", name)]
        if not names:
            raise ValueError(f"it holds no reviews in a folder {category}")
        reviews: list[list[str]] = []
        for name in sorted(names):
            with package.open(name) as file:
                reviews.append(re.findall(r"\w+|[^\w\s]+", whole(file).decode("latin1")))
    return reviews


def get_word_dict() -> list[tuple[str, int]]:
    """The words of all reviews and their numbers, the most frequent first."""
    return _word_dict(_reviews("neg") + _reviews("pos"))


def _word_dict(reviews: list[list[str]]) -> list[tuple[str, int]]:
    counts = Counter(chain.from_iterable(reviews))
    return [(word, number) for number, (word, _) in enumerate(counts.most_common())]


def load_sentiment_data() -> list[Sample]:
    """All reviews, alternating negative and positive: word indices, and 0 or 1."""
    negative, positive = _reviews("neg"), _reviews("pos")
    numbers = dict(_word_dict(negative + positive))
    alternating = chain.from_iterable(zip(negative, positive, strict=False))
    return [
        ([numbers[word.lower()] for word in review], index % 2)
        for index, review in enumerate(alternating)
    ]


def train() -> Iterator[Sample]:
    """The first 1,600 reviews, as in release 1.8: samples, not a reader."""
    return iter(load_sentiment_data()[:NUM_TRAINING_INSTANCES])


def test() -> Iterator[Sample]:
    """The other reviews, as in release 1.8: samples, not a reader."""
    return iter(load_sentiment_data()[NUM_TRAINING_INSTANCES:])


def fetch() -> None:
    """Make sure that the file is there."""
    download(URL, "corpora", MD5, "movie_reviews.zip")
