"""Packed rows: what the batch holds, and that a model computes from them what it computes from each alone."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from ostinato.core.errors import ConfigError, DataError, ModelOutputError
from ostinato.core.random import RandomState
from ostinato.data.batching.packing import LIMITS, PackedBatch, PackingCollator, best_fit, build_block_mask
from ostinato.data.batching.packing_check import MAX_TOKENS, PackingError, check_packing, choose_packing
from ostinato.data.batching.split_by_length import SplitBatch
from ostinato.data.collate_errors import raise_collator_error
from ostinato.data.collators.flattening import DataCollatorWithFlattening
from ostinato.data.dataset_errors import RowNames

VOCAB = 40
EVERYTHING = ("position_ids", "seq_idx", *LIMITS)


def rows_of(*lengths: int, labels: bool = False, seed: int = 0) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    rows = [{"input_ids": [rng.randrange(3, VOCAB) for _ in range(length)]} for length in lengths]
    return [{**row, "labels": list(row["input_ids"])} for row in rows] if labels else rows


def packed(rows: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    batch = PackingCollator(**options)(rows)
    assert isinstance(batch, dict)
    return batch


# The batch -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [False, True])
def test_the_batch_is_that_of_the_flattening_collator(labels: bool) -> None:
    rows = rows_of(3, 1, 5, labels=labels)
    ours = packed(rows, separators=EVERYTHING)
    theirs = DataCollatorWithFlattening(return_flash_attn_kwargs=True, return_seq_idx=True)(rows)
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(ours[name], value) and ours[name].dtype == value.dtype, name
        else:
            assert ours[name] == value, name


def test_columns_with_a_value_for_every_token_are_joined_and_others_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [
        {"input_ids": [5, 6], "token_type_ids": [0, 1], "weight": [0.5, 1.0], "text": "five six", "group": 3},
        {
            "input_ids": [7],
            "token_type_ids": np.array([1]),
            "weight": torch.tensor([2.0]),
            "text": "seven",
            "group": 4,
        },
    ]
    batch = packed(rows)
    packed(rows)
    assert batch["token_type_ids"].tolist() == [[0, 1, 1]]
    assert batch["weight"].tolist() == [[0.5, 1.0, 2.0]] and batch["weight"].dtype == torch.float32
    assert batch.keys() == {"input_ids", "labels", "token_type_ids", "weight", "position_ids"}
    assert capsys.readouterr().err == (
        "ostinato: packing keeps columns with a number for every token; left out: text, group\n"
    )


def test_padding_inside_rows_is_left_out() -> None:
    rows = [
        {"input_ids": [0, 0, 5, 6, 7], "attention_mask": [0, 0, 1, 1, 1], "labels": [-100, -100, 5, 6, 7]},
        {"input_ids": [8, 9, 0], "attention_mask": [1, 1, 0], "labels": [8, 9, -100]},
        {"input_ids": [4], "attention_mask": [1], "labels": [4]},
    ]
    batch = packed(rows)
    assert batch["input_ids"].tolist() == [[5, 6, 7, 8, 9, 4]]
    assert batch["labels"].tolist() == [[-100, 6, 7, -100, 9, -100]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1, 0]]
    assert "attention_mask" not in batch


def test_the_first_label_stays_where_each_token_has_a_label_of_its_own() -> None:
    rows = [{"input_ids": [5, 6], "labels": [1, 0]}, {"input_ids": [7], "labels": [1]}]
    assert packed(rows, shifted=False)["labels"].tolist() == [[1, 0, 1]]


def test_rows_without_tokens_are_left_out() -> None:
    batch = packed([{"input_ids": [5, 6]}, {"input_ids": []}, {"input_ids": [7]}], separators=EVERYTHING)
    assert batch["cu_seq_lens_q"].tolist() == [0, 2, 3]
    with pytest.raises(DataError, match="no row of the batch has a token"):
        packed([{"input_ids": []}])


def test_a_mask_keeps_rows_apart() -> None:
    batch = packed(rows_of(2, 3), mask="causal", mask_dtype=torch.bfloat16)
    mask = batch["attention_mask"]
    assert mask.shape == (1, 1, 5, 5) and mask.dtype == torch.bfloat16
    allowed = mask[0, 0] == 0
    assert allowed.tolist() == torch.block_diag(torch.ones(2, 2).tril(), torch.ones(3, 3).tril()).bool().tolist()
    assert (mask[0, 0][~allowed] == torch.finfo(torch.bfloat16).min).all()
    assert build_block_mask([1, 2], "full", torch.float32)[0, 0].eq(0).sum() == 5


# Several packed rows -------------------------------------------------------------------------------------------------


def test_max_length_makes_several_batches_without_cutting_rows() -> None:
    rows = rows_of(3, 6, 4, 2, 8)
    whole = PackingCollator(max_length=8)(rows)
    assert isinstance(whole, PackedBatch) and isinstance(whole, SplitBatch)
    assert whole.places == [[0, 2], [1, 3], [4]]
    for batch, places in zip(whole, whole.places, strict=True):
        assert batch["input_ids"].tolist() == [[token for place in places for token in rows[place]["input_ids"]]]
        assert batch["input_ids"].shape[1] <= 8
        assert int((batch["position_ids"] == 0).sum()) == len(places)


@pytest.mark.parametrize("seed", range(20))
def test_best_fit_loses_nothing_and_fills_bins(seed: int) -> None:
    rng = random.Random(seed)
    lengths = [rng.randint(1, 50) for _ in range(rng.randint(1, 60))]
    bins = best_fit(lengths, 50)
    assert sorted(place for one in bins for place in one) == list(range(len(lengths)))
    assert all(sum(lengths[place] for place in one) <= 50 for one in bins)
    assert all(one == sorted(one) for one in bins) and bins == sorted(bins)
    # Known of best fit decreasing: at most 11/9 of what is possible, plus one.
    assert len(bins) <= 11 / 9 * -(-sum(lengths) // 50) + 1 + sum(length > 25 for length in lengths)


def test_best_fit_takes_the_fullest_that_has_room() -> None:
    assert best_fit([7, 5, 3], 10) == [[0, 2], [1]]
    assert best_fit([10, 11], 11) == [[0], [1]]


def test_a_packed_batch_travels() -> None:
    whole = PackingCollator(max_length=8)(rows_of(3, 6, 4, 2))
    assert isinstance(whole, PackedBatch)
    for other in (pickle.loads(pickle.dumps(whole)), copy.copy(whole)):
        assert type(other) is PackedBatch and other.places == whole.places and len(other) == len(whole)


def test_a_row_longer_than_max_length_is_refused() -> None:
    with pytest.raises(DataError, match=r"row 1 of the batch has 9 tokens, and a packed row may have 8") as caught:
        PackingCollator(max_length=8)(rows_of(3, 9))
    assert "truncation=True, max_length=8" in caught.value.fix


# Mistakes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ([{"input_ids": [5], "label": 1}], "'label' of row 0 of the batch is one value for the whole row (1)"),
        ([{"input_ids": [5], "labels": torch.tensor(1)}], "is one value for the whole row"),
        ([{"input_ids": [5, 6], "labels": [1.0, 0.0, 1.0]}], "row 0 of the batch has 2 tokens and 3 labels"),
        ([{"input_ids": [5]}, {"labels": [5]}], "row 1 of the batch has no 'input_ids'"),
        ([{"input_ids": [5], "labels": [5]}, {"input_ids": [6]}], "row 1 of the batch has no 'labels'"),
        ([{"input_ids": [5]}, {"input_ids": [6], "labels": [6]}], "row 0 of the batch has no 'labels'"),
        ([{"input_ids": "five"}], "'input_ids' of row 0 of the batch is 'five', not a list of numbers"),
        ([{"input_ids": [[5, 6]]}], "has the shape (1, 2) instead of (tokens,)"),
        ([{"input_ids": [[5, 6], [7]]}], "not a list of numbers"),
        ([5, 6], "row 0 of the batch is an int, not a dict"),
        ([], "a batch without rows cannot be collated"),
    ],
)
def test_rows_that_cannot_be_packed_are_refused_in_three_parts(rows: Any, what: str) -> None:
    with pytest.raises(DataError) as caught:
        PackingCollator()(rows)
    assert what in caught.value.what
    assert caught.value.why and caught.value.fix


@pytest.mark.parametrize("label", [{"label": 1}, {"labels": 1}, {"labels": [1.0, 0.0, 0.0]}])
def test_a_label_per_row_is_pointed_to_what_works(label: dict[str, Any]) -> None:
    with pytest.raises(DataError) as caught:
        PackingCollator()([{"input_ids": [5, 6], **label}])
    assert "split_by_length=True" in caught.value.fix


def test_rows_are_named_by_their_number_in_the_data_set() -> None:
    rows = [{"input_ids": [5], "label": 1}]
    collate = PackingCollator()
    with pytest.raises(DataError) as caught:
        collate(rows)
    with pytest.raises(DataError, match="'label' of row 40 of the training set is one value"):
        raise_collator_error(caught.value, collate, rows, RowNames("training set", [40]))


def test_what_the_model_takes_must_have_a_value_for_every_token() -> None:
    class Sees(nn.Module):
        def forward(self, input_ids: Any, pixel_values: Any = None, position_ids: Any = None) -> None: ...

    rows = [{"input_ids": [5, 6], "pixel_values": [[0.1, 0.2], [0.3, 0.4]]}]
    with pytest.raises(DataError, match=r"'pixel_values' of row 0 of the batch is .* it cannot be packed"):
        PackingCollator.for_model(Sees())(rows)
    assert "pixel_values" not in packed(rows)


def test_labels_are_needed_where_the_next_token_is_not_predicted() -> None:
    with pytest.raises(DataError, match="does not predict the next token"):
        packed(rows_of(3), shifted=False)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="max_length=0"):
        PackingCollator(max_length=0)
    with pytest.raises(ConfigError, match="separators names 'postion_ids'"):
        PackingCollator(separators=("postion_ids",))


# What a model takes --------------------------------------------------------------------------------------------------


class Pointwise(nn.Module):
    """Each token by itself: nothing can cross, and there are no positions."""

    shift = True

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(VOCAB, 16)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(16, VOCAB)
        self.register_buffer("calls", torch.zeros(()))

    def hidden(self, input_ids: torch.Tensor, **separators: Any) -> torch.Tensor:
        return self.embedding(input_ids)

    def loss(self, logits: torch.Tensor, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if self.shift:
            logits, labels = logits[:, :-1], labels[:, 1:]
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> Any:
        return self._outputs(input_ids, labels)

    def _outputs(self, input_ids: torch.Tensor, labels: torch.Tensor, **separators: Any) -> Any:
        self.calls += 1
        logits = self.head(self.drop(self.hidden(input_ids, **separators)))
        return {"loss": self.loss(logits, input_ids, labels), "logits": logits}


class Aligned(Pointwise):
    """Labels that stand where they are predicted."""

    shift = False


class Recurrent(Pointwise):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRU(16, 16, batch_first=True)

    def hidden(self, input_ids: torch.Tensor, **separators: Any) -> torch.Tensor:
        return self.cell(self.embedding(input_ids))[0]


class Positional(Pointwise):
    """Learned positions; whether it uses those it is given is up to `heeds`."""

    heeds = True

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Embedding(64, 16)

    def forward(self, input_ids: Any, labels: Any, position_ids: Any = None) -> Any:  # type: ignore[override]
        return self._outputs(input_ids, labels, position_ids=position_ids if self.heeds else None)

    def hidden(self, input_ids: torch.Tensor, position_ids: Any = None, **separators: Any) -> torch.Tensor:
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        return self.embedding(input_ids) + self.places(position_ids)


class Heedless(Positional):
    heeds = False


class OwnTargets(Pointwise):
    """Its loss takes the targets from the input, and so predicts the first token of a row from the row before."""

    def loss(self, logits: torch.Tensor, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return super().loss(logits, input_ids, input_ids)


class Silent(Recurrent):
    """No logits."""

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> Any:
        return {"loss": self._outputs(input_ids, labels)["loss"]}


class SilentPointwise(Pointwise):
    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> Any:
        return (self._outputs(input_ids, labels)["loss"],)


class BareLogits(Pointwise):
    """No loss: a function of the user's makes one."""

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> Any:
        return self._outputs(input_ids, labels)["logits"]


class Summing(Pointwise):
    """A loss that is a sum, not a mean."""

    def loss(self, logits: torch.Tensor, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return super().loss(logits, input_ids, labels) * labels[:, 1:].ne(-100).sum()


@pytest.mark.parametrize("model", [Pointwise, Aligned, Positional, SilentPointwise, BareLogits, Summing])
@pytest.mark.parametrize("lengths", [(5, 9, 6), (7,), (2, 1), (1, 1), (1,)])
def test_a_model_that_keeps_rows_apart_passes(model: Callable[[], nn.Module], lengths: tuple[int, ...]) -> None:
    module = model()
    packing = PackingCollator.for_model(module, shifted=getattr(module, "shift", True))
    check_packing(module, rows_of(*lengths, labels=True), packing)


def test_a_first_label_that_is_predicted_from_the_row_before_is_refused() -> None:
    module = Pointwise()
    with pytest.raises(PackingError, match="predicts the first token of a row from the row before"):
        check_packing(module, rows_of(4, 5, labels=True), PackingCollator.for_model(module, shifted=False))


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (Recurrent, "a recurrent state crosses from one row into the next"),
        (Silent, "a recurrent state crosses from one row into the next"),
        (Heedless, "forward ignores position_ids that start again"),
        (OwnTargets, "its loss is not a sum over the labels"),
    ],
)
@pytest.mark.parametrize("lengths", [(5, 9, 6), (8,)])
def test_a_model_that_does_not_is_refused(model: Callable[[], nn.Module], why: str, lengths: tuple[int, ...]) -> None:
    module = model()
    names = RowNames("training set", [40, 7, 12][: len(lengths)])
    with pytest.raises(PackingError) as caught:
        check_packing(module, rows_of(*lengths), PackingCollator.for_model(module), names=names)
    error = caught.value
    assert f"{type(module).__name__} mixes up packed rows: the loss of row 40" in error.what
    assert "of the training set" in error.what and "packed" in error.what and "alone" in error.what
    assert why in error.why and "split_by_length=True" in error.fix
    assert isinstance(error, DataError)


@pytest.mark.parametrize("model", [Recurrent, Heedless])
def test_a_leak_that_hardly_moves_the_loss_is_seen(model: Callable[[], Any]) -> None:
    """Fresh weights give all tokens nearly the same loss, whatever they see."""
    module = model()
    with torch.no_grad():
        module.head.weight *= 1e-4
        module.head.bias *= 1e-4
    with pytest.raises(PackingError) as caught:
        check_packing(module, rows_of(6, 6), PackingCollator.for_model(module))
    both = [float(word.strip(",")) for word in caught.value.what.split() if word.strip(",").count(".") == 1]
    assert both[0] == pytest.approx(both[1], rel=1e-4)


def test_a_model_that_returns_neither_loss_nor_logits_cannot_be_checked() -> None:
    class Embeds(Pointwise):
        def forward(self, input_ids: Any, labels: Any) -> Any:
            return {"embedding": self.embedding(input_ids).mean(1)}

    with pytest.raises(ModelOutputError, match="packing cannot be checked: Embeds"):
        check_packing(Embeds(), rows_of(3, 4), PackingCollator())


def test_the_check_leaves_no_trace() -> None:
    class Drawing(Recurrent):
        def hidden(self, input_ids: torch.Tensor, **separators: Any) -> torch.Tensor:
            return super().hidden(input_ids) + 0 * torch.rand(())

    module = Drawing()
    module.train()
    module.drop.eval()
    buffer = module.calls
    state = {name: value.clone() for name, value in module.state_dict().items()}
    streams = RandomState.capture()
    with pytest.raises(PackingError):
        check_packing(module, rows_of(5, 6), PackingCollator.for_model(module))
    with pytest.raises(PackingError):
        choose_packing(module, rows_of(5, 6))
    assert streams.is_current()
    assert module.training and module.cell.training and not module.drop.training
    assert module.calls is buffer
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())


def test_the_check_reads_the_beginnings_of_a_few_rows_only() -> None:
    seen = []

    class Watched(Pointwise):
        def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> Any:
            seen.append(input_ids.shape)
            return super().forward(input_ids, labels)

    rows = rows_of(*[500] * 9)
    for row in rows:  # prompts, of which nothing is to be predicted, behind padding
        row.update(attention_mask=[0] * 200 + [1] * 300, labels=[-100] * 499 + [5])
    module = Watched()
    check_packing(module, rows, PackingCollator.for_model(module, max_length=1000))
    assert max(shape[1] for shape in seen) == 4 * MAX_TOKENS
    assert len(seen) == 4 + 2


def test_a_row_alone_may_be_collated_by_another_collator() -> None:
    def collate(rows: list[Mapping[str, Any]]) -> dict[str, Any]:
        ids = torch.tensor([row["input_ids"] for row in rows])
        labels = torch.where(ids == ids[0, -1], -100, ids)  # takes what looks like padding out of the labels
        return {"input_ids": ids, "labels": labels}

    def padded(rows: list[Mapping[str, Any]]) -> dict[str, Any]:
        return {name: nn.functional.pad(value, (3, 0)) for name, value in collate(rows).items()}

    module = Positional()
    check_packing(module, rows_of(5, 6), PackingCollator.for_model(module), collate)
    check_packing(module, rows_of(5, 6), PackingCollator.for_model(module), padded)


def test_whether_the_first_label_counts_is_found_out() -> None:
    assert choose_packing(Pointwise(), rows_of(4, 5)).shifted
    assert not choose_packing(Aligned(), rows_of(4, 5, labels=True)).shifted


def test_marks_are_those_that_forward_takes() -> None:
    class Anything(nn.Module):
        def forward(self, input_ids: Any, labels: Any = None, **kwargs: Any) -> None: ...

    class Caching(nn.Module):
        def forward(
            self, input_ids: Any, position_ids: Any = None, use_cache: Any = None, seq_idx: Any = None
        ) -> None: ...

    assert PackingCollator.for_model(Pointwise()).separators == ()
    assert PackingCollator.for_model(Positional()).separators == ("position_ids",)
    assert PackingCollator.for_model(Anything()).separators == EVERYTHING
    assert PackingCollator.for_model(Caching()).separators == ("position_ids", "seq_idx", "use_cache")


# Models of transformers ----------------------------------------------------------------------------------------------

SIZES = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=64,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
SHARED = dict(SIZES, num_key_value_heads=2)
EXPERTS = dict(SHARED, num_local_experts=3, output_router_logits=True, router_aux_loss_coef=0.5)
UNDROPPED = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", SHARED),
    "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", SHARED),
    "mistral": ("MistralConfig", "MistralForCausalLM", dict(SHARED, sliding_window=4)),
    "gpt2": (
        "GPT2Config",
        "GPT2LMHeadModel",
        dict(SIZES, n_inner=48, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
    ),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM", EXPERTS),
    "opt": ("OPTConfig", "OPTForCausalLM", dict(SIZES, ffn_dim=48, word_embed_proj_dim=32, dropout=0.0)),
    "bert": ("BertConfig", "BertForMaskedLM", dict(SIZES, **UNDROPPED)),
    "tagger": ("BertConfig", "BertForTokenClassification", dict(SIZES, num_labels=VOCAB, **UNDROPPED)),
    "roberta": ("RobertaConfig", "RobertaForTokenClassification", dict(SIZES, num_labels=VOCAB, **UNDROPPED)),
    "mamba": ("MambaConfig", "MambaForCausalLM", dict(vocab_size=VOCAB, hidden_size=16, num_hidden_layers=1)),
}
WITH_POSITIONS = ["llama", "qwen2", "mistral", "gpt2", "mixtral"]
WITH_A_MASK = {"opt": "causal", "bert": "full", "tagger": "full", "roberta": "full"}


def model_of(name: str, attention: str = "eager", **changes: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    config, model, options = MODELS[name]
    torch.manual_seed(0)
    settings = getattr(transformers, config)(**{**options, **changes})
    settings._attn_implementation = attention
    return getattr(transformers, model)(settings)


def padded(rows: list[dict[str, Any]], *, shifted: bool) -> dict[str, torch.Tensor]:
    """The same rows as a rectangle."""
    longest = max(len(row["input_ids"]) for row in rows)
    batch: dict[str, list[list[int]]] = {"input_ids": [], "attention_mask": [], "labels": []}
    for row in rows:
        ids, gap = row["input_ids"], longest - len(row["input_ids"])
        batch["input_ids"].append(ids + [0] * gap)
        batch["attention_mask"].append([1] * len(ids) + [0] * gap)
        batch["labels"].append(([-100, *ids[1:]] if shifted else ids) + [-100] * gap)
    return {name: torch.tensor(values) for name, values in batch.items()}


def gradients(model: nn.Module, batch: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    model.zero_grad()
    model(**batch).loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


def assert_same_gradients(model: nn.Module, rows: list[dict[str, Any]], packing: PackingCollator) -> None:
    model.train()
    batch = packing(rows)
    assert isinstance(batch, dict)
    ours, theirs = gradients(model, batch), gradients(model, padded(rows, shifted=packing.shifted))
    assert ours.keys() == theirs.keys()
    # Relative to the whole gradient: keys have no bias worth speaking of, and what they get is rounding.
    size = torch.stack([each.norm() for each in theirs.values()]).norm()
    for name, gradient in theirs.items():
        assert float((ours[name] - gradient).norm() / size) < 1e-5, name


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", WITH_POSITIONS)
def test_models_with_positions_compute_packed_rows_as_padded_ones(name: str, attention: str) -> None:
    model, rows = model_of(name, attention), rows_of(5, 9, 6)
    packing = choose_packing(model, rows)
    assert packing.mask is None and packing.shifted and packing.first_position == 0
    if name != "mixtral":  # the loss of its router depends on which tokens are together
        assert_same_gradients(model, rows, packing)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", WITH_A_MASK)
def test_models_that_need_a_mask_get_one(name: str, attention: str) -> None:
    model, rows = model_of(name, attention), rows_of(5, 9, 6, labels=True)
    plain = PackingCollator.for_model(model)
    with pytest.raises(PackingError, match="attention crosses from one row into the next") as caught:
        check_packing(model, rows, plain)
    assert "split_by_length=True" in caught.value.fix and "'flash_attention_2'" in caught.value.fix
    packing = choose_packing(model, rows)
    assert packing.mask == WITH_A_MASK[name] and packing.shifted == (name == "opt")
    assert packing.first_position == (1 if name == "roberta" else 0)
    assert_same_gradients(model, rows, packing)


@pytest.mark.parametrize("name", ["llama", "bert", "roberta"])
def test_half_precision_finds_the_same(name: str) -> None:
    exact, rows = choose_packing(model_of(name), rows_of(5, 9, 6, labels=True)), rows_of(5, 9, 6, labels=True)
    coarse = choose_packing(model_of(name).to(torch.bfloat16), rows)
    assert (coarse.mask, coarse.first_position, coarse.shifted) == (exact.mask, exact.first_position, exact.shifted)
    assert coarse.mask_dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        assert choose_packing(model_of(name, "sdpa"), rows) == exact


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_cache_makes_rows_leak_and_is_named(name: str, attention: str) -> None:
    """Positions that begin anew are heeded without a cache only, and models have one by default."""
    model, rows = model_of(name, attention), rows_of(5, 9)
    flatten = DataCollatorWithFlattening()
    with pytest.raises(PackingError, match="attention crosses") as caught:
        check_packing(model, rows, flatten)
    assert "model.config.use_cache = False" in caught.value.fix
    model.config.use_cache = False
    check_packing(model, rows, flatten)


def test_a_window_of_attention_is_not_replaced_by_a_mask() -> None:
    pytest.importorskip("transformers")
    model = model_of("mistral", use_cache=True)
    with pytest.raises(PackingError):
        check_packing(model, rows_of(9, 9), PackingCollator(mask="causal"))


def test_a_state_space_model_is_refused() -> None:
    with pytest.raises(PackingError, match="crosses from one row into the next") as caught:
        choose_packing(model_of("mamba"), rows_of(5, 6))
    assert caught.value.fix.startswith("use split_by_length=True")


def test_an_adapter_is_looked_through() -> None:
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(model_of("llama"), peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"]))
    assert "use_cache" in choose_packing(model, rows_of(5, 6)).separators
