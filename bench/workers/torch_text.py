"""The models of `texts.py` in torch, eager, for `torch_step.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.support.nets.texts import DIM, HEADS, IDS, STEPS, WIDTH, WORDS

Arrays = Mapping[str, np.ndarray]


class Word2Vec(nn.Module):
    """Four words predict the fifth."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, DIM)
        self.top = nn.Sequential(nn.Linear(4 * DIM, 24), nn.Sigmoid(), nn.Linear(24, WORDS))

    def forward(self, feed: Mapping[str, Tensor]) -> Tensor:
        """The loss of a batch."""
        words = torch.cat([feed[f"w{place}"] for place in range(4)], dim=1)
        return functional.cross_entropy(self.top(self.table(words).flatten(1)), feed["w4"][:, 0])


class WideDeep(nn.Module):
    """Clicks from sparse tables and numbers."""

    def __init__(self, ids: int = IDS) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(ids, 4, sparse=True) for _ in range(3))
        self.deep = nn.Sequential(
            nn.Linear(18, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 2)
        )
        self.wide = nn.Linear(6, 2)

    def forward(self, feed: Mapping[str, Tensor]) -> Tensor:
        """The loss of a batch."""
        vectors = [table(feed[f"c{i}"][:, 0]) for i, table in enumerate(self.tables)]
        hidden = torch.cat([*vectors, feed["dense"]], dim=1)
        scores = self.deep(hidden) + self.wide(feed["dense"])
        return functional.cross_entropy(scores, feed["click"][:, 0])


class Sentiment(nn.Module):
    """Two convolutions over the words of each sentence, padded to the longest."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(30, DIM)
        self.three, self.four = nn.Linear(3 * DIM, 6), nn.Linear(4 * DIM, 6)
        self.top = nn.Linear(12, 2)

    def forward(self, feed: Mapping[str, Tensor]) -> Tensor:
        """The loss of a batch; padding is masked."""
        lengths = feed["lengths"]
        mask = torch.arange(int(lengths.max()))[None, :] < lengths[:, None]
        vectors = torch.zeros(*mask.shape, DIM)
        vectors[mask] = self.table(feed["words"][:, 0])
        first = self._convolved(vectors, self.three, 1, 1) * mask[..., None]
        second = self._convolved(vectors, self.four, 2, 1)
        summed = first.sum(1) / lengths[:, None].sqrt()
        largest = second.masked_fill(~mask[..., None], -torch.inf).amax(1)
        return functional.cross_entropy(
            self.top(torch.cat([summed, largest], dim=1)), feed["label"][:, 0]
        )

    def _convolved(self, vectors: Tensor, weights: nn.Linear, left: int, right: int) -> Tensor:
        padded = functional.pad(vectors, (0, 0, left, right))
        windows = padded.unfold(1, left + right + 1, 1).transpose(2, 3).flatten(2)
        return torch.tanh(weights(windows))


class Encoder(nn.Module):
    """One layer of a transformer's encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.inner, self.outer = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.top = nn.Linear(WIDTH, 5)

    def forward(self, feed: Mapping[str, Tensor]) -> Tensor:
        """The loss of a batch."""
        steps = feed["x"]
        query, key, value = (
            part(steps).reshape(-1, STEPS, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in self.parts
        )
        mixed = functional.scaled_dot_product_attention(query, key, value)
        hidden = self.first(steps + self.out(mixed.transpose(1, 2).flatten(2)))
        hidden = self.second(hidden + self.outer(functional.gelu(self.inner(hidden))))
        return functional.cross_entropy(self.top(hidden.mean(1)), feed["label"][:, 0])


NETWORKS: Mapping[str, Callable[[], nn.Module]] = {
    "word2vec": Word2Vec,
    "ctr_wide_deep": WideDeep,
    "sentiment_conv": Sentiment,
    "transformer_encoder": Encoder,
}


def tensors(feed: Mapping[str, object]) -> dict[str, Tensor]:
    """A batch as torch tensors; sequence lengths are a separate tensor."""
    tensors_by_name: dict[str, Tensor] = {}
    for name, value in feed.items():
        array, lengths = value if isinstance(value, tuple) else (value, None)
        tensors_by_name[name] = torch.from_numpy(array)
        if lengths is not None:
            tensors_by_name["lengths"] = torch.tensor(lengths)
    return tensors_by_name
