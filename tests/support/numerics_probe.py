"""Whether two machines compute the same floating point numbers, to the last bit.

They need not: which instructions a CPU has decides in which order sums are taken, and how functions are approximated.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from tests.support.digests import HEX_DIGITS, Digest


@functools.cache
def probe_numerics() -> dict[str, Any]:
    """Return what this CPU is taken for, how many threads there are, and a hash of results of small computations."""
    content = hashlib.sha256()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for value in _compute():
            content.update(repr(Digest.of(value)).encode())
    return {
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "results": content.hexdigest()[:HEX_DIGITS],
    }


def _compute() -> Iterator[Any]:
    """What small models do: products of several sizes, elementwise functions, a transformer that learns."""
    for rows, inner, columns in [(4, 4, 16), (8, 16, 1), (32, 32, 40), (7, 33, 65)]:
        a, b = torch.randn(rows, inner), torch.randn(inner, columns)
        yield a @ b
        yield a.bfloat16() @ b.bfloat16()
        yield a.numpy() @ b.numpy()
    x = torch.randn(5, 37)
    for function in (torch.exp, torch.tanh, torch.sigmoid, torch.erf, F.gelu, F.silu, torch.rsqrt):
        yield function(x.abs())
        yield function(x.abs().bfloat16())
    yield from (
        x.sum(),
        x.mean(0),
        x.var(1),
        x.norm(),
        x.cumsum(1),
        F.softmax(x, -1),
        F.log_softmax(x, -1),
        F.layer_norm(x, (37,)),
    )
    yield from (
        np.exp(x.numpy()),
        np.log(np.abs(x.numpy())),
        np.atleast_1d(x.numpy().sum()),
        np.tanh(x.double().numpy()),
    )
    yield F.conv2d(torch.randn(2, 3, 8, 8), torch.randn(4, 3, 4, 4), stride=4)
    for dtype in (torch.float32, torch.bfloat16):
        yield from _train_transformer(dtype)


def _train_transformer(dtype: torch.dtype) -> Iterator[Any]:
    embedding, head = nn.Embedding(40, 32), nn.Linear(32, 40)
    layer = nn.TransformerEncoderLayer(32, 2, 32, dropout=0.1, activation="gelu", batch_first=True)
    model = nn.Sequential(embedding, layer, head)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    ids = torch.randint(40, (4, 9))
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype is torch.bfloat16):
            logits = model(ids)
        loss = F.cross_entropy(logits.float().flatten(0, 1), ids.flatten())
        loss.backward()
        yield nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        yield loss
    yield from model.state_dict().values()
