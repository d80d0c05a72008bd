"""Limits on the length of rows, and notices about rows that are longer."""

from __future__ import annotations

from typing import Any

from ostinato import ConfigError
from ostinato.logging import get_logger

CUT = "cut"  # the column of features with how much of a row was cut off; `tell_cut` removes it
_LOOKED_AT, _WORTH_TELLING = 1000, 0.25  # rows; the share of padding
_UNKNOWN = 1_000_000  # a tokenizer without a limit has 10**30
_BEHIND_PADDING = {"roberta", "xlm-roberta", "camembert", "longformer", "mpnet"}  # count positions from the pad token


def known_length(tokenizer: Any) -> int | None:
    """Return how many tokens the model takes according to its tokenizer; None if unknown."""
    length = tokenizer.model_max_length
    return None if length is None or length > _UNKNOWN else length


def longest_row(asked: int | None, length: int | None, config: Any) -> int | None:
    """Return how many tokens a row may have: `asked`, else `length`, but at most the positions of the model."""
    places = getattr(config, "max_position_embeddings", None)
    if not isinstance(places, int) or places <= 0:  # relative positions have no limit
        return asked or length
    if config.model_type in _BEHIND_PADDING and config.pad_token_id is not None:
        places -= config.pad_token_id + 1
    if asked is not None and asked > places:
        get_logger().info(f"--max_seq_length {asked}: the model has places for {places} tokens, rows get no more")
    return min(asked or length or places, places)


def padding_to(limit: int | None, *, is_wanted: bool) -> str | bool:
    """Return the tokenizer's `padding`: every row to the limit, or none yet."""
    if is_wanted and limit is None:
        raise ConfigError(
            what="--pad_to_max_length without a length",
            why="neither the tokenizer nor the model says how long a row may be",
            fix="add --max_seq_length 128, or leave out --pad_to_max_length",
        )
    return "max_length" if is_wanted else False


def tell_cut(features: Any, split: str, limit: int | None, unit: str = "") -> Any:
    """Log in one line how many rows were longer than allowed; return the features without that column."""
    if CUT not in features.column_names:
        return features
    cut = [number for number in features[CUT] if number]
    if cut:
        lost = f", and lose {sum(cut):,} {unit}" if unit else ""
        get_logger().info(
            f"{split}: {len(cut):,} of {len(features):,} rows are longer than {limit} tokens{lost} (--max_seq_length)"
        )
    return features.remove_columns(CUT)


def tell_padding(features: Any, split: str) -> None:
    """Log in one line how much of the features is padding, if rows are padded further than their batch needs."""
    if "attention_mask" not in features.column_names:
        return
    masks = features[:_LOOKED_AT]["attention_mask"]
    share = 1 - sum(map(sum, masks)) / max(sum(map(len, masks)), 1)
    if share >= _WORTH_TELLING:
        get_logger().info(
            f"{split}: {share:.0%} of the tokens are padding; --pad_to_max_length false pads less, and is faster"
        )
