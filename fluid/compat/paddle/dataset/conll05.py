"""Who did what to whom: sentences with the roles their words play for each verb (CoNLL 2005).

What there is to read is the test part, as only that is public.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from .archive import checked, lines, members, whole
from .common import download

__all__ = ["fetch", "get_dict", "get_embedding", "test"]

DATA_URL = "http://paddlemodels.bj.bcebos.com/conll05st/conll05st-tests.tar.gz"
DATA_MD5 = "387719152ae52d60422c016e92a742fc"
WORDDICT_URL = "http://paddlemodels.bj.bcebos.com/conll05st%2FwordDict.txt"
WORDDICT_MD5 = "ea7fb7d4c75cc6254716f0177a506baa"
VERBDICT_URL = "http://paddlemodels.bj.bcebos.com/conll05st%2FverbDict.txt"
VERBDICT_MD5 = "0d2977293bbb6cbefab5b0f97db1e77c"
TRGDICT_URL = "http://paddlemodels.bj.bcebos.com/conll05st%2FtargetDict.txt"
TRGDICT_MD5 = "d8c7f03ceb5fc2e5a0fa7503a4353751"
EMB_URL = "http://paddlemodels.bj.bcebos.com/conll05st%2Femb"
EMB_MD5 = "bf436eb0faa1f6f9103017f8be57cdb7"

UNK_IDX = 0
CONTEXT = range(-2, 3)

Corpus = Callable[[], Iterator[tuple[list[str], str, list[str]]]]


def load_dict(filename: str) -> dict[str, int]:
    """Numbers of the lines of a file, from 0 on."""
    with checked(filename), Path(filename).open("rb") as file:
        return {line.decode().strip(): number for number, line in enumerate(lines(file))}


def load_label_dict(filename: str) -> dict[str, int]:
    """Numbers of `B-` and `I-` each role, in the order in which a file has them, and of `O`."""
    marks = [line for line in load_dict(filename) if line.startswith(("B-", "I-"))]
    roles = dict.fromkeys(mark[2:] for mark in marks)
    labels = [f"{place}-{role}" for role in roles for place in "BI"]
    return {label: number for number, label in enumerate([*labels, "O"])}


def get_dict() -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Numbers of words, of verbs and of labels."""
    words = load_dict(download(WORDDICT_URL, "conll05st", WORDDICT_MD5))
    verbs = load_dict(download(VERBDICT_URL, "conll05st", VERBDICT_MD5))
    return words, verbs, load_label_dict(download(TRGDICT_URL, "conll05st", TRGDICT_MD5))


def get_embedding() -> str:
    """Where the file of word vectors lies: 16 bytes, then float32 values."""
    return download(EMB_URL, "conll05st", EMB_MD5)


Sample: TypeAlias = tuple[list[int | None], ...]


def corpus_reader(data_path: str, words_name: str, props_name: str) -> Corpus:
    """A reader of sentences: the words, one of the verbs, and the label of each word for it."""

    def sentences() -> Iterator[tuple[list[str], str, list[str]]]:
        with checked(data_path, DATA_MD5):
            texts = {name: whole(file) for name, file in members(data_path, r"\.gz$")}
            for words, rows in _sentences(*map(_lines, (texts[words_name], texts[props_name]))):
                targets, *columns = zip(*rows, strict=True)
                verbs = [target for target in targets if target != "-"]
                for verb, column in zip(verbs, columns, strict=False):
                    yield words, verb, _labels(column)

    return sentences


def _lines(data: bytes) -> Iterator[str]:
    with gzip.open(io.BytesIO(data)) as file:
        yield from (line.decode().strip() for line in lines(file))


def _sentences(
    words: Iterator[str], props: Iterator[str]
) -> Iterator[tuple[list[str], list[list[str]]]]:
    """The lines of both files up to each empty one."""
    sentence: list[str] = []
    rows: list[list[str]] = []
    for word, row in zip(words, props, strict=False):
        if row:
            sentence.append(word)
            rows.append(row.split())
        elif rows:
            yield sentence, rows
            sentence, rows = [], []


def _labels(column: Sequence[str]) -> list[str]:
    """Labels of words from brackets around roles; ValueError for what is neither.

    >>> _labels(["(A0*", "*)", "*", "(V*)"])
    ['B-A0', 'I-A0', 'O', 'B-V']
    """
    labels: list[str] = []
    role, inside = "O", False
    for cell in column:
        if "(" in cell:
            role, inside = cell[1 : cell.find("*")], ")" not in cell
            labels.append(f"B-{role}")
        elif cell in ("*", "*)"):
            labels.append(f"I-{role}" if inside or cell == "*)" else "O")
            inside = inside and cell == "*"
        else:
            raise ValueError(f"unexpected label {cell!r}")
    return labels


def reader_creator(
    corpus_reader: Corpus,
    word_dict: Mapping[str, int],
    predicate_dict: Mapping[str, int],
    label_dict: Mapping[str, int],
) -> Callable[[], Iterator[Sample]]:
    """A reader of nine lists a sentence, all of its length.

    They are: words, the five words around the verb (each the same all along), the verb, whether a
    word is among those five, and labels.
    """

    def samples() -> Iterator[Sample]:
        for words, predicate, labels in corpus_reader():
            count, verb = len(words), labels.index("B-V")
            padded = ["bos"] * 2 + words + ["eos"] * 2
            around = [padded[verb + 2 + offset] for offset in CONTEXT]
            yield (
                [word_dict.get(word, UNK_IDX) for word in words],
                *([word_dict.get(word, UNK_IDX)] * count for word in around),
                [predicate_dict.get(predicate)] * count,
                [int(place - verb in CONTEXT) for place in range(count)],
                [label_dict.get(label) for label in labels],
            )

    return samples


def test() -> Callable[[], Iterator[Sample]]:
    """A reader of the sentences of the test part, nine lists a sentence and verb."""
    folder = "conll05st-release/test.wsj"
    corpus = corpus_reader(
        download(DATA_URL, "conll05st", DATA_MD5),
        words_name=f"{folder}/words/test.wsj.words.gz",
        props_name=f"{folder}/props/test.wsj.props.gz",
    )
    return reader_creator(corpus, *get_dict())


def fetch() -> None:
    """Make sure that the files are there."""
    get_dict()
    get_embedding()
    download(DATA_URL, "conll05st", DATA_MD5)
