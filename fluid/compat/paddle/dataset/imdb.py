"""Positive and negative reviews of films: 25,000 to learn from, 25,000 to test (Maas et al.).

Words are bytes, as in release 1.8; a sample is the numbers of a review's words, and 0 if it is
positive, 1 if negative.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from .archive import checked, members, whole
from .common import download

__all__ = ["build_dict", "fetch", "test", "train", "word_dict"]

URL = "https://dataset.bj.bcebos.com/imdb%2FaclImdb_v1.tar.gz"
MD5 = "7c2ac02c03563afcf9b574c7e56c153a"
PUNCTUATION = string.punctuation.encode()

Word: TypeAlias = bytes | str
Reader: TypeAlias = Callable[[], Iterator[tuple[list[int], int]]]


def tokenize(pattern: re.Pattern[str]) -> Iterator[list[bytes]]:
    """The words of each review whose file name matches, in lower case and without punctuation."""
    path = download(URL, "imdb", MD5)
    with checked(path, MD5):
        for _, file in members(path, re.compile(f"^(?:{pattern.pattern})")):
            yield whole(file).rstrip(b"\n\r").translate(None, PUNCTUATION).lower().split()


def build_dict(pattern: re.Pattern[str], cutoff: int) -> dict[Word, int]:
    """Word indices of the words that occur more than `cutoff` times, most frequent first.

    The last index is that of `<unk>`, which represents all other words.
    """
    counts = Counter(word for words in tokenize(pattern) for word in words)
    frequent = [(-count, word) for word, count in counts.items() if count > cutoff]
    numbers: dict[Word, int] = {word: number for number, (_, word) in enumerate(sorted(frequent))}
    return {**numbers, "<unk>": len(numbers)}


def reader_creator(
    pos_pattern: re.Pattern[str], neg_pattern: re.Pattern[str], word_idx: Mapping[Word, int]
) -> Reader:
    """A reader of the reviews whose file names match; they are read at once."""
    unknown = word_idx["<unk>"]
    samples = [
        ([word_idx.get(word, unknown) for word in words], label)
        for label, pattern in enumerate((pos_pattern, neg_pattern))
        for words in tokenize(pattern)
    ]
    return lambda: iter(samples)


def train(word_idx: Mapping[Word, int]) -> Reader:
    """A reader of reviews to learn from: numbers of words, and 0 if positive, 1 if negative."""
    return _part("train", word_idx)


def test(word_idx: Mapping[Word, int]) -> Reader:
    """A reader of reviews to test with: numbers of words, and 0 if positive, 1 if negative."""
    return _part("test", word_idx)


def _part(part: str, word_idx: Mapping[Word, int]) -> Reader:
    positive, negative = (
        re.compile(rf"aclImdb/{part}/{label_name}/.*\.txt$") for label_name in ("pos", "neg")
    )
    return reader_creator(positive, negative, word_idx)


def word_dict() -> dict[Word, int]:
    """Numbers for the words found more than 150 times in all reviews."""
    return build_dict(re.compile(r"aclImdb/((train)|(test))/((pos)|(neg))/.*\.txt$"), 150)


def fetch() -> None:
    """Make sure that the file is there."""
    download(URL, "imdb", MD5)
