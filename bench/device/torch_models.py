"""The models of `gpu_models.py` in torch, on the GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from bench.workers import torch_step, torch_text
from bench.workers.torch_resnet import resnet50
from tests.support.nets import bert

Arrays = Mapping[str, np.ndarray]
Step = Callable[[], np.ndarray]


class Layer(nn.Module):
    """Attention and feed-forward of BERT, each with its residual norm."""

    def __init__(self, size: bert.Size) -> None:
        super().__init__()
        self.heads, width = size.heads, size.width
        self.parts = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, found: torch.Tensor, away: torch.Tensor) -> torch.Tensor:
        """float[n, tokens, width]."""
        n, tokens, width = found.shape
        parts = self.parts(found).reshape(n, tokens, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=away)
        found = self.first(found + self.out(mixed.transpose(1, 2).reshape(n, tokens, width)))
        return self.second(found + self.outer(functional.gelu(self.inner(found))))


class Bert(nn.Module):
    """BERT's encoder, with the weights of query, key and value in one matrix."""

    def __init__(self, size: bert.Size) -> None:
        super().__init__()
        counts = size.words, bert.SEGMENTS, size.positions
        self.tables = nn.ModuleList(nn.Embedding(count, size.width) for count in counts)
        self.norm = nn.LayerNorm(size.width)
        self.layers = nn.ModuleList(Layer(size) for _ in range(size.depth))

    def forward(
        self, words: torch.Tensor, segments: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        """float[n, tokens, width]."""
        places = torch.arange(words.shape[1], device=words.device)
        embeddings = zip(self.tables, (words, segments, places), strict=True)
        hidden = self.norm(sum(table(ids) for table, ids in embeddings))
        away = ((mask - 1) * bert.MASKED)[:, None, None, :].to(hidden.dtype)
        for layer in self.layers:
            hidden = layer(hidden, away)
        return hidden


class Uploads:
    """Copies of batches to the GPU through pinned memory, as fast loaders make them."""

    def __init__(self) -> None:
        self._pinned: dict[str, torch.Tensor] = {}

    def __call__(self, name: str, given: torch.Tensor) -> torch.Tensor:
        """The tensor on the GPU."""
        if name not in self._pinned:
            self._pinned[name] = torch.empty_like(given, pin_memory=True)
        return self._pinned[name].copy_(given).cuda(non_blocking=True)


def compile_with_graphs(function: Any) -> Any:
    """Compile with torch.compile, whose launches are CUDA graphs."""
    called = torch.compile(function, mode="reduce-overhead")

    def step(*given: Any) -> Any:
        torch.compiler.cudagraph_mark_step_begin()
        return called(*given)

    return step


def predicts(name: str, dtype: str, feed: Arrays, compiled: bool) -> Step:
    """A function that copies a batch to the GPU, runs a model on it, and returns the result."""
    net: Any = resnet50() if name == "resnet50" else Bert(bert.BASE)
    net = net.cuda().eval().requires_grad_(False)
    net = net.bfloat16() if dtype == "bf16" else net
    images = "img" in feed
    net = net.to(memory_format=torch.channels_last) if images else net
    called, uploads = compile_with_graphs(net) if compiled else net, Uploads()

    def step() -> np.ndarray:
        with torch.inference_mode():
            inputs = [uploads(name, torch.from_numpy(array)) for name, array in feed.items()]
            if images:
                inputs = [tensor.to(memory_format=torch.channels_last) for tensor in inputs]
                inputs = [tensor.bfloat16() if dtype == "bf16" else tensor for tensor in inputs]
            return called(*inputs).float().cpu().numpy()

    return step


def trains(name: str, dtype: str, feed: Arrays, compiled: bool) -> Step:
    """A function that makes a training step on a batch and returns the loss."""
    net, loss_of = _TRAINED.get(name, _with_loss)(name)
    optimizer = _optimizer_of(name, net)
    called, uploads = compile_with_graphs(loss_of) if compiled else loss_of, Uploads()

    def step() -> np.ndarray:
        tensors = {key: uploads(key, tensor) for key, tensor in torch_text.tensors(feed).items()}
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=dtype == "bf16"):
            loss = called(tensors)
        loss.backward()
        optimizer.step()
        return loss.detach().float().cpu().numpy()

    return step


Loss = Callable[[Mapping[str, torch.Tensor]], torch.Tensor]


def _with_loss(name: str) -> tuple[nn.Module, Loss]:
    """A network that returns its loss."""
    net = torch_step.network(name).cuda().train()
    return net, net


def _resnet50(name: str) -> tuple[nn.Module, Loss]:
    net: Any = resnet50().cuda().train().to(memory_format=torch.channels_last)

    def loss(given: Mapping[str, torch.Tensor]) -> torch.Tensor:
        logits = net(given["img"].to(memory_format=torch.channels_last))
        return functional.cross_entropy(logits, given["label"][:, 0])

    return net, loss


def _bert(name: str) -> tuple[nn.Module, Loss]:
    net = Bert(bert.BASE).cuda().train()
    return net, lambda given: net(given["words"], given["segments"], given["mask"]).square().mean()


_TRAINED: Mapping[str, Callable[[str], tuple[nn.Module, Loss]]] = {
    "resnet50": _resnet50, "bert": _bert,
}  # fmt: skip


def _optimizer_of(name: str, net: nn.Module) -> torch.optim.Optimizer:
    """The optimizer of a model, as in fluid, in one kernel."""
    if name == "bert":
        return torch.optim.Adam(net.parameters(), lr=0.001, fused=True)
    if name == "resnet50":
        return torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, fused=True)
    return torch_step.optimizer_of(name, net)
