"""Image captions in English and German (Multi30K, of the multimodal task of WMT 2016)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from .archive import checked, lines, members
from .common import download

__all__ = ["fetch", "get_dict", "test", "train", "validation"]

DATA_URL = "http://paddlemodels.bj.bcebos.com/wmt/wmt16.tar.gz"
DATA_MD5 = "0c38be43600334966403524a40dcd81e"

TOTAL_EN_WORDS = 11250
TOTAL_DE_WORDS = 19220
START_MARK = "<s>"
END_MARK = "<e>"
UNK_MARK = "<unk>"
MARKS = [START_MARK, END_MARK, UNK_MARK]
COLUMNS = {"en": 0, "de": 1}
MOST = {"en": TOTAL_EN_WORDS, "de": TOTAL_DE_WORDS}

Sentences: TypeAlias = tuple[list[int], list[int], list[int]]
Reader: TypeAlias = Callable[[], Iterator[Sentences]]


def get_dict(lang: str, dict_size: int, reverse: bool = False) -> dict[str, int] | dict[int, str]:
    """Indices of the most frequent words of a language, marks first; with `reverse`, the inverse.

    A dictionary that release 1.8 stored next to the archive is used. Raises ValueError for
    languages other than `en` and `de`.
    """
    numbers = _numbers(lang, dict_size)
    return {number: word for word, number in numbers.items()} if reverse else numbers


def _numbers(lang: str, dict_size: int) -> dict[str, int]:
    _expect_language(lang)
    archive, size = _archive(), min(dict_size, MOST[lang])
    left = Path(archive).with_name(f"{lang}_{size}.dict")
    words = left.read_text("utf-8").splitlines() if left.is_file() else []
    words = words if len(words) == size else _frequent(archive, lang, size)
    return {word: number for number, word in enumerate(words)}


def _frequent(archive: str, lang: str, size: int) -> list[str]:
    pairs = _pairs(archive, "wmt16/train")
    counts = Counter(word for pair in pairs for word in pair[COLUMNS[lang]].split())
    return [*MARKS, *(word for word, _ in counts.most_common(max(size - len(MARKS), 0)))]


def _pairs(archive: str, name: str) -> Iterator[list[str]]:
    """Each sentence of a file of the archive in both languages."""
    with checked(archive, DATA_MD5):
        for _, file in members(archive, f"^{name}$"):
            pairs = (line.decode().strip().split("\t") for line in lines(file))
            yield from (pair for pair in pairs if len(pair) == 2)


def _archive() -> str:
    return download(DATA_URL, "wmt16", DATA_MD5, "wmt16.tar.gz")


def _expect_language(lang: str) -> None:
    if lang not in COLUMNS:
        raise ValueError(f"the languages are en (English) and de (German), not {lang!r}")


def _reader(name: str, src_dict_size: int, trg_dict_size: int, src_lang: str) -> Reader:
    _expect_language(src_lang)
    archive = _archive()
    trg_lang = "de" if src_lang == "en" else "en"

    def samples() -> Iterator[Sentences]:
        source, target = _numbers(src_lang, src_dict_size), _numbers(trg_lang, trg_dict_size)
        start, end, unknown = (source[mark] for mark in MARKS)
        for pair in _pairs(archive, name):
            words = [source.get(word, unknown) for word in pair[COLUMNS[src_lang]].split()]
            others = [target.get(word, unknown) for word in pair[COLUMNS[trg_lang]].split()]
            yield [start, *words, end], [start, *others], [*others, end]

    return samples


def train(src_dict_size: int, trg_dict_size: int, src_lang: str = "en") -> Reader:
    """A reader of pairs to learn from: the sentence, its translation, and that shifted by one.

    Raises ValueError for another source language than `en` and `de`.
    """
    return _reader("wmt16/train", src_dict_size, trg_dict_size, src_lang)


def test(src_dict_size: int, trg_dict_size: int, src_lang: str = "en") -> Reader:
    """A reader of test pairs, in the format of `train`."""
    return _reader("wmt16/test", src_dict_size, trg_dict_size, src_lang)


def validation(src_dict_size: int, trg_dict_size: int, src_lang: str = "en") -> Reader:
    """A reader of validation pairs, in the format of `train`."""
    return _reader("wmt16/val", src_dict_size, trg_dict_size, src_lang)


def fetch() -> None:
    """Make sure that the file is there."""
    _archive()
