"""N-way K-shot episodes: a few classes, a few labelled images of each, and query images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from compiler.ir.types import Array
from compiler.support.dataclass import dataclass
from fleet.openks.few_shot.classes import ImageClass
from fleet.openks.few_shot.images import ImageDataError

__all__ = ["Episode", "episode_reader", "sample_episode"]


@dataclass(frozen=True)
class Episode:
    """One task of `ways` classes, labelled 0 to ways - 1 in the order of `classes`.

    Images are float32 [count, *shape of an image], labels int64 [count, 1]; no image is in both
    sets.
    """

    classes: tuple[str, ...]
    support_images: Array
    support_labels: Array
    query_images: Array
    query_labels: Array


def sample_episode(
    classes: Sequence[ImageClass],
    ways: int,
    shots: int,
    queries: int = 1,
    generator: np.random.Generator | None = None,
) -> Episode:
    """Sample `ways` classes, and for each `shots` support images and `queries` other images.

    Raises ImageDataError if there are fewer classes, or a class has fewer images.
    """
    random = generator or np.random.default_rng()
    if not 1 <= ways <= len(classes):
        raise ImageDataError(f"an episode of {ways} classes, but the data set has {len(classes)}")
    order: list[int] = random.permutation(len(classes)).tolist()
    chosen = [classes[index] for index in order[:ways]]
    images = np.stack([class_.sample(shots + queries, random) for class_ in chosen])
    support, query = images[:, :shots], images[:, shots:]
    names = tuple(class_.name for class_ in chosen)
    return Episode(
        names, _rows(support), _labels(ways, shots), _rows(query), _labels(ways, queries)
    )


def _rows(images: Array) -> Array:
    """Reshape [ways, count, …] to [ways * count, …]."""
    return images.reshape(-1, *images.shape[2:])


def _labels(ways: int, count: int) -> Array:
    return np.repeat(np.arange(ways, dtype=np.int64), count)[:, np.newaxis]


def episode_reader(
    classes: Sequence[ImageClass],
    ways: int,
    shots: int,
    queries: int = 1,
    episodes: int = 100,
    seed: int = 0,
) -> Callable[[], Iterator[tuple[Array, Array, Array, Array]]]:
    """A reader of episodes for `DataLoader.set_batch_generator`, deterministic for a seed.

    A batch is (support images, support labels, query images, query labels).
    """

    def read() -> Iterator[tuple[Array, Array, Array, Array]]:
        random = np.random.default_rng(seed)
        for _ in range(episodes):
            episode = sample_episode(classes, ways, shots, queries, random)
            yield (
                episode.support_images,
                episode.support_labels,
                episode.query_images,
                episode.query_labels,
            )

    return read
