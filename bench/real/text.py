"""Chinese text for LAC's models: words to ids, and tags back to words.

A sentence is segmented into the words of a small dictionary, by the path with the best score;
out-of-vocabulary text is split into characters. The models tag each piece with a kind and whether
it begins a word (B), continues it (I), ends it (E) or is a single one (S). Modelled on the package
`lac`, whose dictionaries are read from its folders `conf`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path

SENTENCES = (
    "百度是一家高科技公司",
    "我今天早上从北京坐高铁去上海参加人工智能大会",
    "LAC是个优秀的分词工具",
    "他买了3本关于机器学习的书，花了150元。",
    "李明的妈妈昨天在协和医院做了手术",
)


@dataclass(frozen=True)
class Lexicon:
    """The contents of `conf`: word ids, spelling normalisation, tag names, and dictionary words.

    `longest` is the maximum length of a word, `log_total` the logarithm of the total word count.
    """

    numbers: Mapping[str, int]
    simpler: Mapping[str, str]
    tags: Mapping[int, str]
    words: frozenset[str]
    longest: int
    log_total: float

    @classmethod
    def load(cls, conf: Path) -> Lexicon:
        """Read the dictionaries of a model's folder `conf`."""
        counted = [line.split(" ") for line in _lines(conf / "small_seg.dic")]
        total = sum(int(count) for _, count in counted)
        numbers = {word: int(number) for number, word in _pairs(conf / "word.dic")}
        tags = {int(number): tag for number, tag in _pairs(conf / "tag.dic")}
        words = frozenset(word for word, _ in counted)
        simpler, longest = dict(_pairs(conf / "q2b.dic")), max(map(len, words))
        return cls(numbers, simpler, tags, words, longest, log(total))

    def cut(self, text: str) -> list[str]:
        """Segment a sentence into words; consecutive letters and digits stay together."""
        best: list[tuple[float, int]] = [(0.0, 0)] * (len(text) + 1)
        for start in reversed(range(len(text))):
            best[start] = max(
                (log(self._weight(text[start:end])) - self.log_total + best[end][0], end)
                for end in self._ends(text, start)
            )
        pieces = _along(text, [end for _, end in best])
        return list(_joined(pieces))

    def _weight(self, word: str) -> int:
        return len(word) if word in self.words else 1

    def _ends(self, text: str, start: int) -> list[int]:
        longer = range(start + 1, min(len(text), start + self.longest) + 1)
        return [start + 1, *(end for end in longer if text[start:end] in self.words)]

    def number(self, word: str) -> int:
        """The id of a word, in its normalised spelling; that of OOV for an unknown word."""
        return self.numbers.get(self.simpler.get(word, word), self.numbers["OOV"])

    def pieces(self, text: str, by_words: bool) -> list[str]:
        """The model's input pieces of a sentence: known words, else characters."""
        if not by_words:
            return list(text)
        words = self.cut(text)
        return [piece for w in words for piece in ([w] if w in self.numbers else list(w))]


def tagged(pieces: Sequence[str], tags: Sequence[str]) -> list[tuple[str, str]]:
    """Words and their kinds from pieces and their tags.

    >>> tagged(["我", "爱", "天安门", "。"], ["r-B", "v-B", "LOC-B", "w-B"])
    [('我', 'r'), ('爱', 'v'), ('天安门', 'LOC'), ('。', 'w')]
    >>> tagged(["北", "京", "人"], ["-B", "-E", "-S"])
    [('北京', ''), ('人', '')]
    """
    words: list[tuple[str, str]] = []
    for piece, tag in zip(pieces, tags, strict=True):
        kind, _, place = tag.rpartition("-")
        if not words or place in ("B", "S"):
            words.append((piece, kind))
        else:
            words[-1] = words[-1][0] + piece, kind
    return words


def _along(text: str, ends: Sequence[int]) -> Iterator[str]:
    start = 0
    while start < len(text):
        yield text[start : ends[start]]
        start = ends[start]


def _joined(pieces: Iterator[str]) -> Iterator[str]:
    """Join consecutive single letters and digits."""
    run = ""
    for piece in pieces:
        if len(piece) == 1 and piece.isascii() and piece.isalnum():
            run += piece
            continue
        if run:
            yield run
        yield piece
        run = ""
    if run:
        yield run


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _pairs(path: Path) -> Iterator[tuple[str, str]]:
    """The two columns of a file, skipping lines with another number of columns."""
    for line in path.read_text(encoding="utf-8").split("\n"):
        first, tab, second = line.partition("\t")
        if tab and "\t" not in second:
            yield first, second
