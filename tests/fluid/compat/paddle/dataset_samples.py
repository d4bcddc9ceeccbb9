"""What is asked of the tiny data sets: the same questions that release 1.8.5 was asked.

`tests/data/dataset_samples.json` has its answers; it read the files that `dataset_files` writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

WORDS = {b"so": 0, b"good": 1, b"bad": 2, "<unk>": 3}
REVIEWS = re.compile(r"aclImdb/((train)|(test))/((pos)|(neg))/.*\.txt$")


def plain(value: Any) -> Any:
    """A value as JSON can say it: bytes marked, dicts as sorted pairs."""
    if isinstance(value, bytes):
        return "b:" + value.decode("latin1")
    if isinstance(value, dict):
        return sorted(([plain(key), plain(each)] for key, each in value.items()), key=str)
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def questions(data: ModuleType) -> dict[str, Callable[[], Any]]:
    """What to ask of the package `paddle.dataset`, by name; readers are read to their end."""
    return {**_reviews(data), **_sentences(data), **_films(data), **_roles(data), **_pairs(data)}


def _reviews(data: ModuleType) -> dict[str, Callable[[], Any]]:
    imdb, sentiment = data.imdb, data.sentiment
    return {
        "imdb dict": lambda: imdb.build_dict(REVIEWS, 0),
        "imdb frequent": lambda: imdb.build_dict(REVIEWS, 2),
        "imdb train": lambda: list(imdb.train(WORDS)()),
        "imdb test": lambda: list(imdb.test(WORDS)()),
        "sentiment words": sentiment.get_word_dict,
        "sentiment train": lambda: list(sentiment.train()),
        "sentiment test": lambda: list(sentiment.test()),
    }


def _sentences(data: ModuleType) -> dict[str, Callable[[], Any]]:
    imikolov = data.imikolov
    numbers = imikolov.build_dict(0)
    asked: dict[str, Callable[[], Any]] = {
        "imikolov dict": lambda: imikolov.build_dict(0),
        "imikolov frequent": lambda: imikolov.build_dict(1),
    }
    for n in (1, 2, 4, 6):
        asked[f"imikolov {n}"] = lambda n=n: list(imikolov.train(numbers, n)())
    for n in (0, 3, 4, 5, -1):
        asked[f"imikolov test {n}"] = lambda n=n: list(imikolov.test(numbers, n, 2)())
        asked[f"imikolov whole {n}"] = lambda n=n: list(imikolov.train(numbers, n, 2)())
    return asked


def _films(data: ModuleType) -> dict[str, Callable[[], Any]]:
    films = data.movielens

    def ratings(reader: Any) -> Any:
        """The numbers of words and genres are chance in 1.8.5: only how many there are counts."""
        return [[*row[:5], len(row[5]), len(row[6]), row[7]] for row in reader()]

    return {
        "movielens users": lambda: {k: each.value() for k, each in films.user_info().items()},
        "movielens films": lambda: {
            k: [each.index, each.categories, each.title] for k, each in films.movie_info().items()
        },
        "movielens most": lambda: [films.max_movie_id(), films.max_user_id(), films.max_job_id()],
        "movielens genres": lambda: sorted(films.movie_categories()),
        "movielens words": lambda: sorted(films.get_movie_title_dict()),
        "movielens train": lambda: ratings(films.train()),
        "movielens test": lambda: ratings(films.test()),
        "movielens half": lambda: ratings(films.train(rand_seed=7, test_ratio=0.5)),
    }


def _roles(data: ModuleType) -> dict[str, Callable[[], Any]]:
    conll05 = data.conll05

    def labelled() -> Any:
        """The numbers of labels are chance in 1.8.5: their names count."""
        names = {number: name for name, number in conll05.get_dict()[2].items()}
        return [[*row[:8], [names[number] for number in row[8]]] for row in conll05.test()()]

    return {
        "conll05 dicts": lambda: conll05.get_dict()[:2],
        "conll05 labels": lambda: sorted(conll05.get_dict()[2]),
        "conll05 test": labelled,
    }


def _pairs(data: ModuleType) -> dict[str, Callable[[], Any]]:
    wmt14, wmt16, flowers = data.wmt14, data.wmt16, data.flowers
    asked: dict[str, Callable[[], Any]] = {
        "wmt14 words": lambda: wmt14.get_dict(5),
        "wmt14 dict": lambda: wmt14.get_dict(6, False),
        "wmt16 dict": lambda: wmt16.get_dict("en", 6),
        "wmt16 words": lambda: wmt16.get_dict("de", 7, True),
    }
    for name in ("train", "test", "gen"):
        for size in (5, 30):
            asked[f"wmt14 {name} {size}"] = lambda n=name, s=size: list(getattr(wmt14, n)(s)())
    for name in ("train", "test", "validation"):
        for lang in ("en", "de"):
            asked[f"wmt16 {name} {lang}"] = lambda n=name, lang=lang: list(
                getattr(wmt16, n)(6, 7, lang)()
            )
        asked[f"wmt16 {name} all"] = lambda n=name: list(getattr(wmt16, n)(60, 70)())
    for name in ("train", "test", "valid"):
        asked[f"flowers {name}"] = lambda n=name: list(
            getattr(flowers, n)(lambda sample: sample, 8, False)()
        )
    return asked
