"""Sentences of the Wall Street Journal, for language models (Penn Treebank, prepared by Mikolov).

Words are bytes, as in release 1.8; the marks `<s>`, `<e>` and `<unk>` are texts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import TypeAlias

from .archive import checked, lines, members
from .common import download

__all__ = ["DataType", "build_dict", "fetch", "test", "train"]

URL = "https://dataset.bj.bcebos.com/imikolov%2Fsimple-examples.tgz"
MD5 = "30177ea32e27c525793142b6bf2c8e2d"
TRAIN, TEST = "./simple-examples/data/ptb.train.txt", "./simple-examples/data/ptb.valid.txt"

Word: TypeAlias = bytes | str
Reader: TypeAlias = Callable[[], Iterator[tuple[object, ...]]]


class DataType:
    """Kind of sample: an n-gram, or a sentence as input and shifted target sequence."""

    NGRAM = 1
    SEQ = 2


def word_count(f: Iterable[bytes], word_freq: Counter[Word] | None = None) -> Counter[Word]:
    """How often each word is in some lines, added to `word_freq`; the marks once a line."""
    counts: Counter[Word] = Counter() if word_freq is None else word_freq
    for line in f:
        counts.update([*line.split(), "<s>", "<e>"])
    return counts


def build_dict(min_word_freq: int = 50) -> dict[Word, int]:
    """Word indices of the words that occur more than `min_word_freq` times, most frequent first.

    The last index is that of `<unk>`, which represents all other words.
    """
    counts = word_count(chain(_sentences(TRAIN), _sentences(TEST)))
    words = [word for word, count in counts.items() if count > min_word_freq]
    words.sort(key=lambda word: (-counts[word], _as_bytes(word)))
    return {word: number for number, word in enumerate([*words, "<unk>"])}


def _as_bytes(word: Word) -> bytes:
    return word if isinstance(word, bytes) else word.encode()


def _sentences(name: str) -> Iterator[bytes]:
    path = download(URL, "imikolov", MD5)
    with checked(path, MD5):
        for _, file in members(path, rf"^(\./)?{re.escape(name[2:])}$"):
            yield from lines(file)


def reader_creator(
    filename: str, word_idx: Mapping[Word, int], n: int, data_type: int = DataType.NGRAM
) -> Reader:
    """A reader of the samples that the sentences of a file make, each a tuple.

    Raises AssertionError for another type of data, or an n-gram without a length.
    """
    if data_type not in (DataType.NGRAM, DataType.SEQ):
        raise AssertionError(f"data_type is DataType.NGRAM or DataType.SEQ, not {data_type!r}")
    if data_type == DataType.NGRAM and n < 1:
        raise AssertionError(f"an n-gram has at least one word, not {n}")
    make_samples = _ngrams if data_type == DataType.NGRAM else _pairs

    def samples() -> Iterator[tuple[object, ...]]:
        unknown = word_idx["<unk>"]
        for line in _sentences(filename):
            words = [word_idx.get(word, unknown) for word in line.split()]
            yield from make_samples(words, word_idx, n)

    return samples


def _ngrams(words: list[int], word_idx: Mapping[Word, int], n: int) -> Iterator[tuple[int, ...]]:
    unknown = word_idx["<unk>"]
    marked = [word_idx.get("<s>", unknown), *words, word_idx.get("<e>", unknown)]
    return (tuple(marked[start : start + n]) for start in range(len(marked) - n + 1))


def _pairs(
    words: list[int], word_idx: Mapping[Word, int], n: int
) -> Iterator[tuple[list[int], list[int]]]:
    if n <= 0 or len(words) < n:
        yield [word_idx["<s>"], *words], [*words, word_idx["<e>"]]


def train(word_idx: Mapping[Word, int], n: int, data_type: int = DataType.NGRAM) -> Reader:
    """A reader of sentences to learn from: `n` words in a row, or sentences of at most n words."""
    return reader_creator(TRAIN, word_idx, n, data_type)


def test(word_idx: Mapping[Word, int], n: int, data_type: int = DataType.NGRAM) -> Reader:
    """A reader of sentences to test with: `n` words in a row, or sentences of at most n words."""
    return reader_creator(TEST, word_idx, n, data_type)


def fetch() -> None:
    """Make sure that the file is there."""
    download(URL, "imikolov", MD5)
