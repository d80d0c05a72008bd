"""Two towers that share an encoder: one vector for each text of a row, and losses that compare them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy, mse_loss, normalize

from ostinato import DataCollatorForMultipleChoice, Trainer

from .pooling import Pooling


class Comparison(Protocol):
    """The loss of a row's vectors `(rows, towers, size)`, and what evaluation keeps of them."""

    def compute_loss(self, vectors: Tensor, labels: Tensor) -> Tensor:
        """Return one number for a micro-batch: a mean over its rows."""
        ...

    def compute_output(self, vectors: Tensor) -> Tensor:
        """Return what metrics and predictions are made of."""
        ...


@dataclass(frozen=True)
class CosineToScore:
    """A loss that fits the cosine of two texts to their score: the mean of squared differences."""

    def compute_loss(self, vectors: Tensor, labels: Tensor) -> Tensor:
        return mse_loss(self.compute_output(vectors), labels.to(torch.float32))

    def compute_output(self, vectors: Tensor) -> Tensor:
        return cosine_similarity(vectors[:, 0].float(), vectors[:, 1].float(), dim=-1)


@dataclass(frozen=True)
class InBatchNegatives:
    """A loss that moves the second text of a row nearer to the first than the negatives.

    The negatives are the second texts of the other rows of a micro-batch, and the third texts, the hard negatives, of
    all its rows. `labels` (rows, towers) number the texts: equal texts have equal numbers.
    """

    scale: float = 20.0
    symmetric: bool = False

    def compute_loss(self, vectors: Tensor, labels: Tensor) -> Tensor:
        unit = normalize(vectors.float(), dim=-1)
        rows, towers = labels.shape
        candidates = torch.cat([unit[:, tower] for tower in range(1, towers)])  # every second text, then every third
        scores = unit[:, 0] @ candidates.T * self.scale
        scores = scores.masked_fill(find_false_negatives(labels), -torch.inf)
        right = torch.arange(rows, device=scores.device)
        loss = cross_entropy(scores, right)
        if not self.symmetric:
            return loss
        return (loss + cross_entropy(scores[:, :rows].T, right)) / 2

    def compute_output(self, vectors: Tensor) -> Tensor:
        return vectors.float()


def find_false_negatives(texts: Tensor) -> Tensor:
    """Return which candidates, besides a row's own second text, are no negatives for its first.

    These are texts equal to one of the two, and the second text of a row with the same first.

    >>> find_false_negatives(
    ...     torch.tensor([[1, 2], [3, 4], [5, 2]])
    ... ).int().tolist()  # rows 0 and 2 have the same second text
    [[0, 0, 1], [0, 0, 0], [1, 0, 0]]
    """
    rows = len(texts)
    first, second = texts[:, 0], texts[:, 1]
    candidates = texts[:, 1:].T.reshape(-1)
    equal = (second[:, None] == candidates) | (first[:, None] == candidates)
    equal[:, :rows] |= first[:, None] == first
    equal[:, :rows].fill_diagonal_(False)
    return equal


class TwoTowerTrainer(Trainer):
    """A trainer whose model is the encoder alone, so that it is saved and loaded like any encoder."""

    def __init__(self, *args: Any, pooling: Pooling, comparison: Comparison, max_length: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pooling, self.comparison, self.max_length = pooling, comparison, max_length
        self.label_names = ["labels"]

    def compute_vectors(self, model: nn.Module, inputs: Mapping[str, Any]) -> Tensor:
        """Return a vector for each text, `(rows, towers, size)`.

        All texts go through the encoder at once: replicas on several processes expect one forward for a backward.
        """
        rows, towers, _ = inputs["input_ids"].shape
        flat = {name: value.flatten(0, 1) for name, value in inputs.items() if name != "labels"}
        return self.pooling(model(**flat)[0], flat["attention_mask"]).view(rows, towers, -1)

    def compute_loss(
        self, model: nn.Module, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        vectors = self.compute_vectors(model, inputs)
        loss = self.comparison.compute_loss(vectors, inputs["labels"])
        return (loss, {"loss": loss, "outcome": self.comparison.compute_output(vectors)}) if return_outputs else loss

    def prediction_step(
        self, model: nn.Module, inputs: Any, prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> tuple[Tensor | None, Any, Any]:
        if "labels" in inputs:
            return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        with torch.no_grad():
            return (
                None,
                self.comparison.compute_output(self.compute_vectors(model, self._prepare_inputs(inputs))),
                None,
            )

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        super()._save(output_dir, state_dict)
        directory, config = Path(str(output_dir or self.args.output_dir)), cast(Any, self.model.config)
        self.pooling.save(directory, size=config.hidden_size, max_length=self.max_length)


class TowerCollator:
    """Collator that pads all texts of all rows to one length: tensors of (rows, towers, length)."""

    def __init__(self, tokenizer: Any, pad_to_multiple_of: int | None = None) -> None:
        self.collate = DataCollatorForMultipleChoice(tokenizer, pad_to_multiple_of=pad_to_multiple_of)

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        batch = self.collate([{name: value for name, value in row.items() if name != "labels"} for row in rows])
        if "labels" in rows[0]:
            batch["labels"] = torch.tensor([row["labels"] for row in rows])
        return batch
