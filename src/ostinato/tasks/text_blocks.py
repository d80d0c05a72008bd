"""Blocks of tokens of one length: their length, joining and cutting rows, and the remainder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

from torch import nn

from ostinato import ConfigError, DataError
from ostinato.logging import get_logger

LONGEST = 1024  # tokens of a block by default
ROWS_AT_ONCE = 1000  # joined together; their remainder is dropped, as in transformers' scripts

# Names of position tables in models whose positions are learned.
_TABLES = ("wpe", "position_embeddings", "position_embedding", "embed_positions", "positions_embed")

Table = Mapping[str, list[Any]]


# ---- length ---------------------------------------------------------------------------------------------------------


def block_length(asked: int | None, flag: str, tokenizer: Any, model: Any, *, extra: int = 0) -> int:
    """Return the requested number of tokens, or what tokenizer and model allow; `extra` ones are added to a block."""
    table, made_for = positions_of(model), getattr(model.config, "max_position_embeddings", None)
    most = table or (made_for if isinstance(made_for, int) and made_for > 0 else LONGEST)
    if asked is None:
        return min(LONGEST, tokenizer.model_max_length, most - extra)
    if asked < 2:
        raise ConfigError(f"--{flag} {asked}", "a token is predicted from others", f"--{flag} 2 or more")
    if asked > tokenizer.model_max_length:
        asked, was = int(tokenizer.model_max_length), asked
        get_logger().info(f"--{flag} {was}: blocks have {asked} tokens, the most that the tokenizer is for")
    if table is not None and asked + extra > table:
        added = f" and {extra} that are added" if extra else ""
        raise ConfigError(
            what=f"--{flag} {asked}: the model has {table} positions",
            why=f"a block of {asked} tokens{added} has no place in it",
            fix=f"--{flag} {table - extra} or less; a new model may have more of them: --config_overrides",
        )
    return asked


def positions_of(model: nn.Module) -> int | None:
    """Return how many positions a model has; None if they are computed, and so have no limit.

    >>> positions_of(nn.ModuleDict({"wpe": nn.Embedding(64, 8)}))
    64
    """
    for name, part in model.named_modules():
        if name.rpartition(".")[2] in _TABLES and isinstance(part, nn.Embedding):
            first = int(getattr(part, "offset", 0)) if part.padding_idx is None else part.padding_idx + 1
            return part.num_embeddings - first
    return None


# ---- rows to blocks -------------------------------------------------------------------------------------------------


class Grouping:
    """Join rows and cut them into blocks of one length; the remainder is dropped.

    >>> Grouping(2)({"input_ids": [[1, 2, 3], [4, 5]]})
    {'input_ids': [[1, 2], [3, 4]]}
    """

    def __init__(self, length: int, *, labelled: bool = False) -> None:
        self.length, self.labelled = length, labelled

    def __call__(self, rows: Table) -> dict[str, list[Any]]:
        joined = {name: list(chain.from_iterable(column)) for name, column in rows.items()}
        whole = len(joined["input_ids"]) // self.length * self.length
        blocks = {
            name: [values[start : start + self.length] for start in range(0, whole, self.length)]
            for name, values in joined.items()
        }
        if self.labelled:
            blocks["labels"] = [list(block) for block in blocks["input_ids"]]
        return blocks


class Cutting:
    """Keep rows separate and cut long ones into pieces; a piece of one token predicts nothing, and is dropped.

    >>> Cutting(2)({"input_ids": [[1, 2, 3], [4, 5]]})
    {'input_ids': [[1, 2], [4, 5]]}
    """

    def __init__(self, length: int) -> None:
        self.length = length

    def __call__(self, rows: Table) -> dict[str, list[Any]]:
        return {
            name: [
                piece
                for values in column
                for start in range(0, len(values), self.length)
                if len(piece := values[start : start + self.length]) > 1
            ]
            for name, column in rows.items()
        }


def in_blocks(features: Any, encode: Callable[..., Any], cut: Grouping | Cutting, source: str, flag: str) -> Any:
    """Return the features as blocks; log how many tokens fill none, and raise if there is no block at all."""
    blocks = encode(features, cut, batch_size=ROWS_AT_ONCE)
    before = number_of_tokens(features)
    if len(blocks) == 0:
        raise _no_block(source, len(features), before, cut.length, flag)
    dropped = before - number_of_tokens(blocks)
    size = f"of {cut.length:,}" if isinstance(cut, Grouping) else f"of at most {cut.length:,}"
    rest = f"; {dropped:,} of {before:,} tokens fill none and are dropped" if dropped else ""
    get_logger().info(f"{source}: {len(blocks):,} blocks {size} tokens{rest}")
    return blocks


def number_of_tokens(features: Any) -> int:
    """Return the number of tokens of all rows, from their lengths alone."""
    from pyarrow import compute  # noqa: PLC0415  (comes with datasets)

    if "input_ids" not in features.column_names:  # no row, and so no column
        return 0
    return compute.sum(compute.list_value_length(features.data.column("input_ids"))).as_py() or 0  # type: ignore[attr-defined]


def no_text(source: str) -> DataError:
    """Return the error about a file all rows of which are blank."""
    return DataError(f"{source} holds no text", "all of its rows are blank", "name a file with text")


def _no_block(source: str, rows: int, tokens: int, length: int, flag: str) -> DataError:
    if tokens == 0:
        return no_text(source)
    return DataError(
        what=f"{source} fills no block of {length:,} tokens",
        why=f"it has {tokens:,} tokens in {rows:,} rows, which are laid end to end {ROWS_AT_ONCE:,} at a time",
        fix=f"lower --{flag}, or add text",
    )
