"""Blocks of tokens of one length: their length, joining and cutting rows, and the remainder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

from torch import nn

from ostinato import ConfigError, DataError
from ostinato.logging import get_logger

DEFAULT_MAX_LENGTH = 1024  # tokens of a block by default
ROWS_PER_BATCH = 1000  # joined together; their remainder is dropped, as in transformers' scripts

# Names of position tables in models whose positions are learned.
_POSITION_TABLES = ("wpe", "position_embeddings", "position_embedding", "embed_positions", "positions_embed")

Table = Mapping[str, list[Any]]


# ---- length ---------------------------------------------------------------------------------------------------------


def choose_block_length(requested: int | None, flag: str, tokenizer: Any, model: Any, *, extra: int = 0) -> int:
    """Return the requested number of tokens, or what tokenizer and model allow; `extra` ones are added to a block."""
    table, max_positions = count_positions(model), getattr(model.config, "max_position_embeddings", None)
    most = table or (max_positions if isinstance(max_positions, int) and max_positions > 0 else DEFAULT_MAX_LENGTH)
    if requested is None:
        return min(DEFAULT_MAX_LENGTH, tokenizer.model_max_length, most - extra)
    if requested < 2:
        raise ConfigError(f"--{flag} {requested}", "a token is predicted from others", f"--{flag} 2 or more")
    if requested > tokenizer.model_max_length:
        requested, was = int(tokenizer.model_max_length), requested
        get_logger().info(f"--{flag} {was}: blocks have {requested} tokens, the maximum of the tokenizer")
    if table is not None and requested + extra > table:
        added = f" and {extra} that are added" if extra else ""
        raise ConfigError(
            what=f"--{flag} {requested}: the model has {table} positions",
            why=f"a block of {requested} tokens{added} does not fit",
            fix=f"--{flag} {table - extra} or less; a new model can have more positions: --config_overrides",
        )
    return requested


def count_positions(model: nn.Module) -> int | None:
    """Return how many positions a model has; None if they are computed, and so have no limit.

    >>> count_positions(nn.ModuleDict({"wpe": nn.Embedding(64, 8)}))
    64
    """
    for name, part in model.named_modules():
        if name.rpartition(".")[2] in _POSITION_TABLES and isinstance(part, nn.Embedding):
            first = int(getattr(part, "offset", 0)) if part.padding_idx is None else part.padding_idx + 1
            return part.num_embeddings - first
    return None


# ---- rows to blocks -------------------------------------------------------------------------------------------------


class RowJoiner:
    """Join rows and cut them into blocks of one length; the remainder is dropped.

    >>> RowJoiner(2)({"input_ids": [[1, 2, 3], [4, 5]]})
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


class RowCutter:
    """Keep rows separate and cut long ones into pieces; a piece of one token predicts nothing, and is dropped.

    >>> RowCutter(2)({"input_ids": [[1, 2, 3], [4, 5]]})
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


def split_into_blocks(
    features: Any, encode: Callable[..., Any], cut: RowJoiner | RowCutter, source: str, flag: str
) -> Any:
    """Return the features as blocks; log how many tokens fill none, and raise if there is no block at all."""
    blocks = encode(features, cut, batch_size=ROWS_PER_BATCH)
    before = count_tokens(features)
    if len(blocks) == 0:
        raise _build_no_block_error(source, len(features), before, cut.length, flag)
    dropped = before - count_tokens(blocks)
    size = f"of {cut.length:,}" if isinstance(cut, RowJoiner) else f"of at most {cut.length:,}"
    rest = f"; {dropped:,} of {before:,} tokens fill no block and are dropped" if dropped else ""
    get_logger().info(f"{source}: {len(blocks):,} blocks {size} tokens{rest}")
    return blocks


def count_tokens(features: Any) -> int:
    """Return the number of tokens of all rows, from their lengths alone."""
    from pyarrow import compute  # noqa: PLC0415  (comes with datasets)

    if "input_ids" not in features.column_names:  # no row, and so no column
        return 0
    return compute.sum(compute.list_value_length(features.data.column("input_ids"))).as_py() or 0  # type: ignore[attr-defined]


def build_no_text_error(source: str) -> DataError:
    """Return the error about a file all rows of which are blank."""
    return DataError(f"{source} holds no text", "all of its rows are blank", "use a file with text")


def _build_no_block_error(source: str, rows: int, tokens: int, length: int, flag: str) -> DataError:
    if tokens == 0:
        return build_no_text_error(source)
    return DataError(
        what=f"{source} fills no block of {length:,} tokens",
        why=f"it has {tokens:,} tokens in {rows:,} rows, which are joined {ROWS_PER_BATCH:,} at a time",
        fix=f"lower --{flag}, or add text",
    )
