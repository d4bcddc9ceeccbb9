"""A million ratings of films by 6,000 people, who and what they are (MovieLens 1M, GroupLens)."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import TypeAlias

import numpy as np

from compiler.support.dataclass import dataclass

from .archive import checked, lines
from .common import download

__all__ = [
    "MovieInfo",
    "UserInfo",
    "age_table",
    "fetch",
    "get_movie_title_dict",
    "max_job_id",
    "max_movie_id",
    "max_user_id",
    "movie_categories",
    "movie_info",
    "test",
    "train",
    "user_info",
]

URL = "https://dataset.bj.bcebos.com/movielens%2Fml-1m.zip"
MD5 = "c4d9eecfca2ab87c1945afe126590906"
age_table = [1, 18, 25, 35, 45, 50, 56]
"""The lower bound of each age group; a sample contains the index of the group."""

Features: TypeAlias = list[int | list[int] | list[float]]
Reader: TypeAlias = Callable[[], Iterator[Features]]


@dataclass(frozen=True)
class MovieInfo:
    """A film: its number, its categories, its title without the year."""

    index: int
    categories: list[str]
    title: str

    def value(self) -> Features:
        """Its number, the numbers of its categories and of the words of its title."""
        genres, words = movie_categories(), get_movie_title_dict()
        title = [words[word] for word in self.title.lower().split()]
        return [self.index, [genres[category] for category in self.categories], title]


@dataclass(frozen=True)
class UserInfo:
    """A person: number, sex, group of ages, number of the occupation."""

    index: int
    is_male: bool
    age: int
    job_id: int

    def value(self) -> list[int]:
        """Number, 0 for a man or 1, number of the group of ages, number of the occupation."""
        return [self.index, 0 if self.is_male else 1, self.age, self.job_id]


def _records(name: str) -> Iterator[list[str]]:
    """The fields of each line of a file of the archive."""
    path = download(URL, "movielens", MD5)
    with checked(path, MD5), zipfile.ZipFile(path) as package, package.open(name) as file:
        yield from (line.decode("latin1").strip().split("::") for line in lines(file))


@lru_cache(maxsize=1)
def _movies(path: str) -> dict[int, MovieInfo]:
    movies_by_number: dict[int, MovieInfo] = {}
    with checked(path, MD5):
        for number, title, categories in _records("ml-1m/movies.dat"):
            name = re.sub(r"\(\d+\)$", "", title)
            movies_by_number[int(number)] = MovieInfo(int(number), categories.split("|"), name)
    return movies_by_number


@lru_cache(maxsize=1)
def _users(path: str) -> dict[int, UserInfo]:
    users_by_number: dict[int, UserInfo] = {}
    with checked(path, MD5):
        for number, sex, age, job, _ in _records("ml-1m/users.dat"):
            group = age_table.index(int(age))
            users_by_number[int(number)] = UserInfo(int(number), sex == "M", group, int(job))
    return users_by_number


def _numbered(words: set[str]) -> dict[str, int]:
    return {word: number for number, word in enumerate(sorted(words))}


def movie_info() -> dict[int, MovieInfo]:
    """The films by their numbers."""
    return _movies(download(URL, "movielens", MD5))


def user_info() -> dict[int, UserInfo]:
    """The people by their numbers."""
    return _users(download(URL, "movielens", MD5))


def movie_categories() -> dict[str, int]:
    """Numbers of the categories, in the order of the alphabet."""
    return _categories(download(URL, "movielens", MD5))


@lru_cache(maxsize=1)
def _categories(path: str) -> dict[str, int]:
    return _numbered({category for film in _movies(path).values() for category in film.categories})


def get_movie_title_dict() -> dict[str, int]:
    """Numbers of the words of titles, in lower case, in the order of the alphabet."""
    return _title_words(download(URL, "movielens", MD5))


@lru_cache(maxsize=1)
def _title_words(path: str) -> dict[str, int]:
    titles = [film.title.lower() for film in _movies(path).values()]
    return _numbered({word for title in titles for word in title.split()})


def max_movie_id() -> int:
    """The largest number of a film."""
    return max(movie_info())


def max_user_id() -> int:
    """The largest number of a person."""
    return max(user_info())


def max_job_id() -> int:
    """The largest number of an occupation."""
    return max(user.job_id for user in user_info().values())


def _ratings(rand_seed: int, test_ratio: float, is_test: bool) -> Iterator[Features]:
    """What is known of person and film and the rating, -3 to 5, of one part of the ratings."""
    path = download(URL, "movielens", MD5)
    users, movies, draw = user_info(), movie_info(), np.random.RandomState(rand_seed)
    with checked(path, MD5):
        for user, movie, stars, _ in _records("ml-1m/ratings.dat"):
            if (draw.random_sample() < test_ratio) == is_test:
                about = users[int(user)].value(), movies[int(movie)].value()
                yield [*about[0], *about[1], [float(stars) * 2 - 5.0]]


def _reader(rand_seed: int = 0, test_ratio: float = 0.1, is_test: bool = False) -> Reader:
    return lambda: _ratings(rand_seed, test_ratio, is_test)


train = partial(_reader, is_test=False)
test = partial(_reader, is_test=True)


def fetch() -> None:
    """Make sure that the file is there."""
    download(URL, "movielens", MD5)
