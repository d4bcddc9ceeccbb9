"""Sentences in English and in French, a small part of those of the translation task of WMT 2014."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeAlias

from .archive import checked, lines, members
from .common import download

__all__ = ["fetch", "gen", "get_dict", "test", "train"]

URL_TRAIN = "http://paddlemodels.bj.bcebos.com/wmt/wmt14.tgz"
MD5_TRAIN = "0791583d57d5beb693b9414c5b36798c"

START = "<s>"
END = "<e>"
UNK = "<unk>"
UNK_IDX = 2
LONGEST = 80

Sentences: TypeAlias = tuple[list[int], list[int], list[int]]
Reader: TypeAlias = Callable[[], Iterator[Sentences]]


def get_dict(
    dict_size: int, reverse: bool = True
) -> tuple[dict[str, int], dict[str, int]] | tuple[dict[int, str], dict[int, str]]:
    """Numbers of the words of both languages, or the words of the numbers."""
    dictionaries = _dictionaries(dict_size)
    if not reverse:
        return dictionaries
    source, target = (
        {number: word for word, number in dictionary.items()} for dictionary in dictionaries
    )
    return source, target


def _dictionaries(size: int) -> tuple[dict[str, int], dict[str, int]]:
    path = download(URL_TRAIN, "wmt14", MD5_TRAIN)
    return _dictionary(path, "src", size), _dictionary(path, "trg", size)


def _dictionary(path: str, side: str, size: int) -> dict[str, int]:
    with checked(path, MD5_TRAIN):
        files = members(path, rf"{side}\.dict$")
        words = [line.decode().strip() for _, file in files for line in islice(lines(file), size)]
        return {word: number for number, word in enumerate(words)}


def reader_creator(tar_file: str, file_name: str, dict_size: int) -> Reader:
    """A reader of pairs of sentences in the files whose names end so, without long ones."""

    def samples() -> Iterator[Sentences]:
        source, target = _dictionaries(dict_size)
        with checked(tar_file, MD5_TRAIN):
            for _, file in members(tar_file, rf"{file_name}$"):
                for pair in (line.decode().strip().split("\t") for line in lines(file)):
                    if len(pair) != 2:
                        continue
                    words = [source.get(word, UNK_IDX) for word in [START, *pair[0].split(), END]]
                    others = [target.get(word, UNK_IDX) for word in pair[1].split()]
                    if max(len(words), len(others)) <= LONGEST:
                        yield words, [target[START], *others], [*others, target[END]]

    return samples


def _reader(file_name: str, dict_size: int) -> Reader:
    return reader_creator(download(URL_TRAIN, "wmt14", MD5_TRAIN), file_name, dict_size)


def train(dict_size: int) -> Reader:
    """A reader of pairs to learn from: the sentence, its translation, and that shifted by one."""
    return _reader("train/train", dict_size)


def test(dict_size: int) -> Reader:
    """A reader of pairs to test with: the sentence, its translation, and that shifted by one."""
    return _reader("test/test", dict_size)


def gen(dict_size: int) -> Reader:
    """A reader of pairs to translate: the sentence, its translation, and that shifted by one."""
    return _reader("gen/gen", dict_size)


def fetch() -> None:
    """Make sure that the file is there."""
    download(URL_TRAIN, "wmt14", MD5_TRAIN)
