"""Limits on the length of rows, and notices about rows that are longer."""

from __future__ import annotations

from typing import Any

from ostinato import ConfigError
from ostinato.logging import get_logger

CUT_COLUMN = "cut"  # the column of features with how much of a row was cut off; `report_truncation` removes it
_INSPECTED_ROWS, _REPORTED_SHARE = 1000, 0.25  # rows; the share of padding
_NO_LIMIT = 1_000_000  # a tokenizer without a limit has 10**30
_POSITIONS_AFTER_PADDING = {
    "roberta",
    "xlm-roberta",
    "camembert",
    "longformer",
    "mpnet",
}  # count positions from the pad token


def get_tokenizer_limit(tokenizer: Any) -> int | None:
    """Return how many tokens the model takes according to its tokenizer; None if unknown."""
    length = tokenizer.model_max_length
    return None if length is None or length > _NO_LIMIT else length


def compute_row_limit(requested: int | None, length: int | None, config: Any) -> int | None:
    """Return how many tokens a row may have: `requested`, else `length`, but at most the positions of the model."""
    positions = getattr(config, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions <= 0:  # relative positions have no limit
        return requested or length
    if config.model_type in _POSITIONS_AFTER_PADDING and config.pad_token_id is not None:
        positions -= config.pad_token_id + 1
    if requested is not None and requested > positions:
        get_logger().info(
            f"--max_seq_length {requested}: the model has {positions} positions, to which rows are truncated"
        )
    return min(requested or length or positions, positions)


def choose_padding(limit: int | None, *, is_wanted: bool) -> str | bool:
    """Return the tokenizer's `padding`: every row to the limit, or none yet."""
    if is_wanted and limit is None:
        raise ConfigError(
            what="--pad_to_max_length without a length",
            why="neither the tokenizer nor the model limits the length of a row",
            fix="add --max_seq_length 128, or remove --pad_to_max_length",
        )
    return "max_length" if is_wanted else False


def report_truncation(features: Any, split: str, limit: int | None, unit: str = "") -> Any:
    """Log in one line how many rows were longer than allowed; return the features without that column."""
    if CUT_COLUMN not in features.column_names:
        return features
    cut = [number for number in features[CUT_COLUMN] if number]
    if cut:
        lost = f" by {sum(cut):,} {unit}" if unit else ""
        get_logger().info(
            f"{split}: {len(cut):,} of {len(features):,} rows are longer than {limit} tokens (--max_seq_length) "
            f"and were truncated{lost}"
        )
    return features.remove_columns(CUT_COLUMN)


def report_padding(features: Any, split: str) -> None:
    """Log in one line how much of the features is padding, if rows are padded further than their batch needs."""
    if "attention_mask" not in features.column_names:
        return
    masks = features[:_INSPECTED_ROWS]["attention_mask"]
    share = 1 - sum(map(sum, masks)) / max(sum(map(len, masks)), 1)
    if share >= _REPORTED_SHARE:
        get_logger().info(
            f"{split}: {share:.0%} of the tokens are padding; --pad_to_max_length false pads less and is faster"
        )
