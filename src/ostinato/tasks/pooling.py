"""Pooling: from the vectors of a text's tokens to one vector of the text, and the files that record the method."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ostinato import ConfigError

MODES = ("mean", "cls", "max")
# The files that sentence-transformers reads beside the encoder's own: all its versions read these names.
_MODULES, _POOLING, _LENGTH = "modules.json", "1_Pooling", "sentence_bert_config.json"
_PREFIX = "sentence_transformers.models."
_MODE_FLAGS = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens"}


@dataclass(frozen=True)
class Pooling:
    """The mean of the tokens, the first token, or the maximum in each dimension; optionally normalized to length 1."""

    mode: str = "mean"
    normalize: bool = False

    def __call__(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return one vector for each text: `tokens` (texts, length, size), `mask` (texts, length) with 0 for padding.

        >>> tokens, mask = torch.tensor([[[1.0, 0.0], [3.0, 2.0], [9.0, 9.0]]]), torch.tensor([[1, 1, 0]])
        >>> {mode: Pooling(mode)(tokens, mask).tolist() for mode in MODES}
        {'mean': [[2.0, 1.0]], 'cls': [[1.0, 0.0]], 'max': [[3.0, 2.0]]}
        """
        if self.mode == "cls":
            first = mask.long().argmax(dim=1)  # not 0 where padding is on the left
            pooled = tokens[torch.arange(len(tokens), device=tokens.device), first]
        elif self.mode == "max":
            pooled = tokens.masked_fill(mask.unsqueeze(-1) == 0, torch.finfo(tokens.dtype).min).amax(dim=1)
        else:
            weights = mask.unsqueeze(-1).to(tokens.dtype)
            pooled = (tokens * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-9)
        return torch.nn.functional.normalize(pooled, dim=-1) if self.normalize else pooled

    def __str__(self) -> str:
        names = {"mean": "the mean of its tokens", "cls": "its first token", "max": "the largest values of its tokens"}
        return names[self.mode] + (", normalized to length 1" if self.normalize else "")

    # ---- in a directory --------------------------------------------------------------------------------------

    @classmethod
    def load(cls, find: Callable[[str], Path | None]) -> Pooling | None:
        """Return the pooling of a model that Ostinato or sentence-transformers saved; None if no file records it.

        `find` finds a file of the model by its name.
        """
        listed = find(_MODULES)
        if listed is None:
            return None
        modules = json.loads(listed.read_text(encoding="utf-8"))
        places = {str(module["type"]).rpartition(".")[2]: str(module["path"]) for module in modules}
        if further := sorted(places.keys() - {"Transformer", "Pooling", "Normalize"}):
            raise ConfigError(
                what=f"{listed} names a module {further[0]}",
                why="only an encoder, a pooling and an optional normalisation are supported",
                fix="train it with sentence-transformers, or remove the module from the file",
            )
        file = find(f"{places.get('Pooling', _POOLING)}/config.json")
        mode = cls.mode if file is None else _read_mode(json.loads(file.read_text(encoding="utf-8")), file)
        return cls(mode, "Normalize" in places)

    def save(self, directory: Path, *, size: int, max_length: int) -> None:
        """Write the files from which sentence-transformers, and `load`, read how to pool."""
        kinds = ["Transformer", "Pooling", *(["Normalize"] if self.normalize else [])]
        paths = ["", _POOLING, "2_Normalize"]
        modules = [
            {"idx": number, "name": str(number), "path": paths[number], "type": _PREFIX + kind}
            for number, kind in enumerate(kinds)
        ]
        for path in filter(None, paths[: len(kinds)]):
            (directory / path).mkdir(parents=True, exist_ok=True)
        _write_json(directory / _MODULES, modules)
        flags = {flag: mode == self.mode for mode, flag in _MODE_FLAGS.items()}
        _write_json(directory / _POOLING / "config.json", {"word_embedding_dimension": size, **flags})
        _write_json(directory / _LENGTH, {"max_seq_length": max_length, "do_lower_case": False})


def _read_mode(content: Mapping[str, Any], path: Path) -> str:
    if "pooling_mode" in content:  # the current format of sentence-transformers
        chosen = [str(content["pooling_mode"])]
    else:
        chosen = [name for name, is_on in content.items() if name.startswith("pooling_mode_") and is_on]
        chosen = [mode for mode, flag in _MODE_FLAGS.items() if flag in chosen] if len(chosen) == 1 else chosen
    if len(chosen) != 1 or chosen[0] not in MODES:
        raise ConfigError(
            what=f"{path} names the pooling {', '.join(chosen) or 'none'}",
            why=f"the modes are {', '.join(MODES)}",
            fix="choose a mode with --pooling",
        )
    return chosen[0]


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
