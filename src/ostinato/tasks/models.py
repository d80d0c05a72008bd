"""Config, tokenizer and model: by path or name, or from scratch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ostinato import ConfigError
from ostinato.logging import get_logger

from .task_arguments import ModelArguments, TokenizerArguments

_SPECIAL_TOKENS = {  # the special tokens that a tokenizer's file may name, by their purpose
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
    "cls_token": ("[CLS]", "<cls>"),
    "sep_token": ("[SEP]", "<sep>"),
    "mask_token": ("[MASK]", "<mask>"),
    "bos_token": ("<s>", "<|endoftext|>"),
    "eos_token": ("</s>", "<|endoftext|>"),
}
_TOKEN_ID_FIELDS = ("pad_token_id", "bos_token_id", "eos_token_id", "sep_token_id", "cls_token_id", "mask_token_id")


def import_transformers() -> Any:
    """Return `transformers`, or raise an error that says how to install it."""
    try:
        import transformers  # noqa: PLC0415
    except ImportError:
        raise ConfigError(
            what="models cannot be loaded", why="transformers is not installed", fix="pip install 'ostinato[hf]'"
        ) from None
    return transformers


def build_hub_arguments(arguments: ModelArguments) -> dict[str, Any]:
    """Return the arguments of `from_pretrained` that say where from."""
    return {
        "cache_dir": arguments.cache_dir,
        "revision": arguments.model_revision,
        "token": arguments.token,
        "trust_remote_code": arguments.trust_remote_code,
    }


# ---- config ---------------------------------------------------------------------------------------------------------


def load_config(arguments: ModelArguments) -> Any:
    """Return the config of the named model, or of a new one of its type."""
    transformers = import_transformers()
    named = arguments.config_name or arguments.model_name_or_path
    if named is not None:
        config = load_pretrained(transformers.AutoConfig, named, "config", **build_hub_arguments(arguments))
    elif arguments.model_type is not None:
        try:
            config = transformers.AutoConfig.for_model(arguments.model_type)
        except ValueError:
            from difflib import get_close_matches  # noqa: PLC0415

            near = get_close_matches(arguments.model_type, transformers.CONFIG_MAPPING.keys())
            raise ConfigError(
                what=f"--model_type {arguments.model_type}: transformers has no such model",
                why=f"the nearest are {', '.join(near)}" if near else "no name is similar",
                fix=f"--model_type {near[0]}" if near else "--model_type bert, gpt2, t5, …",
            ) from None
    else:
        raise ConfigError(
            what="no model is given",
            why="neither a model to fine-tune nor a model type to train from scratch is given",
            fix="add --model_name_or_path PATH, or --model_type bert --train_tokenizer for a new one",
        )
    if arguments.config_overrides:
        _apply_overrides(config, arguments.config_overrides)
    return config


def _apply_overrides(config: Any, overrides: str) -> None:
    for each in overrides.split(","):
        name = each.partition("=")[0].strip()
        if not hasattr(config, name) or "=" not in each:
            raise ConfigError(
                what=f"--config_overrides {each.strip()!r}",
                why=f"{type(config).__name__} has no {name!r}" if "=" in each else "a value must follow the name",
                fix="write name=value,name=value with names of the config",
            )
    try:
        config.update_from_string(overrides)
    except ValueError as error:
        raise ConfigError(f"--config_overrides {overrides}", str(error), "write name=value,name=value") from error


def load_pretrained(kind: Any, named: str, what: str, **options: Any) -> Any:
    """Return what a class of transformers loads from a directory or a name; `what` it is stands in errors."""
    try:
        return kind.from_pretrained(named, **options)
    except (OSError, ValueError) as error:
        is_path = Path(named).exists() or named.startswith((".", "/", "~"))
        raise ConfigError(
            what=f"no {what} can be loaded from {named!r}",
            why=str(error).strip().splitlines()[0],
            fix="check the path" if is_path else "check the name; without the network, name a directory",
        ) from error


def find_file(arguments: ModelArguments, name: str) -> Path | None:
    """Return the path of a file beside a model's own, in its directory or on the hub, if it exists."""
    if arguments.model_name_or_path is None:
        return None
    found = import_transformers().utils.cached_file(
        arguments.model_name_or_path,
        name,
        cache_dir=arguments.cache_dir,
        revision=arguments.model_revision,
        token=arguments.token,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if found is None else Path(found)


# ---- tokenizer ------------------------------------------------------------------------------------------------------


def load_tokenizer(arguments: TokenizerArguments, **options: Any) -> Any:
    """Return the named tokenizer, or the one that comes with the model."""
    transformers = import_transformers()
    named = arguments.tokenizer_name or arguments.model_name_or_path
    if named is None:
        raise ConfigError(
            what="no tokenizer is given",
            why="a new model has no tokenizer",
            fix="add --train_tokenizer to train one on the training rows, or --tokenizer_name PATH",
        )
    if named.endswith(".json"):
        return _load_tokenizer_file(transformers, named)
    return load_pretrained(
        transformers.AutoTokenizer,
        named,
        "tokenizer",
        use_fast=arguments.use_fast_tokenizer,
        **build_hub_arguments(arguments),
        **options,
    )


def _load_tokenizer_file(transformers: Any, path: str) -> Any:
    """Return a tokenizer of the `tokenizers` library, which names its special tokens only by convention."""
    try:
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=path)
    except Exception as error:  # tokenizers raises Exception itself
        raise ConfigError(
            f"--tokenizer_name {path} cannot be read", str(error), "use a file saved by `tokenizers`"
        ) from error
    known = tokenizer.get_vocab()
    for purpose, tokens in _SPECIAL_TOKENS.items():
        token = next((token for token in tokens if token in known), None)
        if token is not None:
            setattr(tokenizer, purpose, token)
    return tokenizer


def set_pad_token(tokenizer: Any, config: Any, arguments: TokenizerArguments, *, is_needed: bool) -> None:
    """Set the requested pad token; raise for a tokenizer without one if rows are padded."""
    if arguments.pad_token is not None:
        if arguments.pad_token not in tokenizer.get_vocab():
            raise ConfigError(
                what=f"--pad_token {arguments.pad_token}: the tokenizer has no such token",
                why=f"its special tokens are {', '.join(tokenizer.all_special_tokens) or 'none'}",
                fix="name one of these",
            )
        tokenizer.pad_token = arguments.pad_token
    if tokenizer.pad_token is None and is_needed:
        end = tokenizer.eos_token
        raise ConfigError(
            what=f"the tokenizer of {arguments.tokenizer_name or arguments.source} has no pad token",
            why="the rows of a batch are padded to one length",
            fix=f"add --pad_token '{end}'" if end else "add --pad_token TOKEN with a token of its vocabulary",
        )
    if tokenizer.pad_token is not None and getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = tokenizer.pad_token_id


def fit_config_to_tokenizer(config: Any, tokenizer: Any) -> None:
    """Write the size and the special ids of a tokenizer into the config of a new model."""
    config.vocab_size = len(tokenizer)
    for name in _TOKEN_ID_FIELDS:
        if hasattr(config, name):  # None if the tokenizer has none: the config's own number is of another token
            setattr(config, name, getattr(tokenizer, name, None))
    if getattr(config, "is_encoder_decoder", False):
        starts_with_pad = tokenizer.bos_token is None
        config.decoder_start_token_id = tokenizer.pad_token_id if starts_with_pad else tokenizer.eos_token_id
        config.forced_eos_token_id = None if starts_with_pad else tokenizer.eos_token_id


# ---- model ----------------------------------------------------------------------------------------------------------


def load_model(model_class: str, arguments: ModelArguments, config: Any) -> Any:
    """Return the model, from its directory or new."""
    kind = getattr(import_transformers(), model_class)
    options: dict[str, Any] = {"attn_implementation": arguments.attn_implementation, "dtype": arguments.dtype}
    options = {name: value for name, value in options.items() if value is not None}
    if arguments.model_name_or_path is None:
        new = getattr(kind, "from_config", None) or kind._from_config
        return new(config, **options)
    try:
        return kind.from_pretrained(
            arguments.model_name_or_path,
            config=config,
            ignore_mismatched_sizes=arguments.ignore_mismatched_sizes,
            **build_hub_arguments(arguments),
            **options,
        )
    except (OSError, ValueError, RuntimeError) as error:
        has_other_size = "ignore_mismatched_sizes" in str(error) or "size mismatch" in str(error)
        raise ConfigError(
            what=f"{model_class} cannot be loaded from {arguments.model_name_or_path!r}",
            why=str(error).strip().splitlines()[0],
            fix="add --ignore_mismatched_sizes to replace weights of another size"
            if has_other_size
            else "check the directory",
        ) from error


def resize_embeddings(model: Any, tokenizer: Any) -> None:
    """Resize the embeddings for tokens that the model does not know."""
    known = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > known:
        get_logger().info(f"the tokenizer has {len(tokenizer)} tokens, the model {known}: the embeddings are resized")
        model.resize_token_embeddings(len(tokenizer))
