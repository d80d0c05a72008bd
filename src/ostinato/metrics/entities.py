"""Entities in tagged tokens: precision, recall and F1 of whole entities, as seqeval and conlleval count them.

An entity is right if its type, its first and its last token are. Without a `scheme` tags are read leniently, as
seqeval does by default: an entity begins at B or S, or wherever the type changes, so that IOB1, IOB2, IOE1, IOE2,
IOBES and BILOU all read well and an I without a B still counts. With a scheme only entities written exactly so count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from torch import Tensor

from ..core.errors import MetricError
from ..core.notices import note_once
from .base import Arrays, Measured, Metric
from .classification import check_average, compute_average, divide
from .inputs import find_counted, get_first_output, read_class_ids, read_class_labels

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .base import Options

PREFIXES = "BIESLU"
SCHEMES = {"IOB2": "BI", "IOE2": "IE", "IOBES": "BIES", "BILOU": "BILU"}


class Entity(NamedTuple):
    """A type and the first and last token of what it names.

    >>> Entity("PER", 0, 1).type
    'PER'
    """

    type: str
    first: int
    last: int


class Seqeval(Metric):
    """Precision, recall and F1 of entities, and the share of single tags that are right.

    Predictions are logits `(rows, tokens, classes)` or class ids `(rows, tokens)` with labels `(rows, tokens)` and
    `label_names`; or lists of lists of tags such as "B-PER". Tokens labelled -100 are left out before entities are
    read. Keeps three counts per entity type.

    Args:
        label_names: the tag of every class: a list, or `model.config.id2label`.
        scheme: None reads leniently; "IOB2", "IOE2", "IOBES" or "BILOU" accept only what is written exactly so.
        average: "micro" (entities pooled), "macro" (types alike) or "weighted" (by how often a type is present).
        by_type: also give `{type}_precision`, `{type}_recall` and `{type}_f1`.

    >>> tags = [["B-PER", "I-PER", "O", "B-LOC"]]
    >>> Seqeval()(([["B-PER", "I-PER", "O", "O"]], tags))
    {'precision': 1.0, 'recall': 0.5, 'f1': 0.6666666666666666, 'accuracy': 0.75}
    """

    default_name = "seqeval"
    grows = True

    def _list_names(self) -> tuple[str, ...]:
        return ("precision", "recall", "f1", "accuracy")

    def __init__(
        self,
        *,
        label_names: Sequence[str] | Mapping[Any, str] | None = None,
        scheme: str | None = None,
        average: str = "micro",
        by_type: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(**options)
        self.label_names = _check_label_names(label_names, self.name)
        self.entities = build_reader(scheme, self.name)
        self.average = check_average(self.name, average, ("micro", "macro", "weighted"))
        self.by_type = by_type

    def _set_option(self, option: str, value: Any) -> None:
        super()._set_option(option, _check_label_names(value, self.name) if option == "label_names" else value)

    @property
    def names_more(self) -> bool:
        """Whether results have further names, those of the types of entities that are found."""
        return self.by_type

    def reset(self) -> None:
        """Forget all batches."""
        super().reset()
        self._types: list[str] = []  # the counts' second dimension is 1 + types; 0 is for single tags

    def _measure(self, predictions: Any, references: Any) -> Measured:
        guesses, truths, num_rows = self._read_tags(predictions, references)
        found: list[tuple[int, int, int, int, int]] = []
        for row, (guess, truth) in enumerate(zip(guesses, truths, strict=True)):
            if truth:
                right = sum(one == other for one, other in zip(guess, truth, strict=True))
                found.append((row, 0, right, len(truth), len(truth)))
                found += [(row, *counts) for counts in self._count_by_type(guess, truth)]
        table = np.array(found, dtype=np.int32).reshape(-1, 5)
        return Measured(num_rows, table[:, 0], {"type": table[:, 1], "counts": table[:, 2:]})

    def _count_by_type(self, guess: list[str], truth: list[str]) -> Iterable[tuple[int, int, int, int]]:
        predicted, present = set(self.entities(guess)), set(self.entities(truth))
        for kind in sorted({entity.type for entity in predicted | present}):
            of_kind = [{entity for entity in side if entity.type == kind} for side in (predicted, present)]
            yield self._get_type_number(kind), len(of_kind[0] & of_kind[1]), len(of_kind[0]), len(of_kind[1])

    def _get_type_number(self, kind: str) -> int:
        if kind not in self._types:
            self._types.append(kind)
        return 1 + self._types.index(kind)

    def _total(self, values: Arrays, weights: np.ndarray | None) -> Arrays:
        counts = values["counts"] if weights is None else values["counts"] * weights[:, None]
        columns = [np.bincount(values["type"], column, 1 + len(self._types)) for column in counts.T]
        return {"counts": np.stack(columns, axis=1)}

    def _score(self, totals: Arrays) -> dict[str, float]:
        tags, (found, predicted, present) = totals["counts"][0], totals["counts"][1:].T
        result = {
            "precision": compute_average(_precision, found, predicted, present, self.average),
            "recall": compute_average(_recall, found, predicted, present, self.average),
            "f1": compute_average(_f1, found, predicted, present, self.average),
            "accuracy": float(tags[0] / tags[1]),
        }
        if self.by_type:
            for number, kind in sorted(enumerate(self._types), key=lambda item: item[1]):
                counts = found[number], predicted[number], present[number]
                for name, ratio in (("precision", _precision), ("recall", _recall), ("f1", _f1)):
                    result[f"{kind}_{name}"] = float(ratio(*counts))
        return result

    def state(self) -> dict[str, Any]:
        """Return what was seen, as numbers and numeric arrays; the names of types as UTF-8 bytes."""
        names = np.array(list("\n".join(self._types).encode()), dtype=np.uint8)
        return {**super().state(), "types": names}

    def merge(self, state: Mapping[str, Any]) -> None:
        """Add what another copy of this metric has seen, whatever order its types came in."""
        state = dict(state)
        names = bytes(np.asarray(state.pop("types", ()), dtype=np.uint8)).decode()
        number = np.array([0, *(self._get_type_number(kind) for kind in (names.split("\n") if names else ()))])
        if "total.counts" in state:
            counts = np.zeros((1 + len(self._types), 3))
            counts[number[: len(state["total.counts"])]] = state["total.counts"]
            state["total.counts"] = counts
        if "kept.type" in state:
            state["kept.type"] = number[state["kept.type"]]
        super().merge(state)

    def _read_tags(self, predictions: Any, references: Any) -> tuple[list[list[str]], list[list[str]], int]:
        predictions = get_first_output(predictions, self.name)
        if _is_tag_list(references):
            return _pair_tags([list(row) for row in predictions], [list(row) for row in references], self.name)
        labels = read_class_labels(references, self.name)
        if not isinstance(predictions, Tensor):
            predictions = np.asarray(predictions)
        if labels.ndim == 1:
            labels, predictions = labels[None], predictions[None]
        ids, labels, _ = read_class_ids(predictions, labels, self.name)
        mask = find_counted(labels, self.ignore_index)
        pairs = [
            (self._name_tags(guess[there]), self._name_tags(truth[there]))
            for guess, truth, there in zip(ids, labels, mask, strict=True)
        ]
        return [guess for guess, _ in pairs], [truth for _, truth in pairs], len(labels)

    def _name_tags(self, ids: np.ndarray) -> list[str]:
        if not self.label_names:
            raise MetricError(
                what=f"{self.name} got class ids and no tags",
                why="entities are read from tags such as 'B-PER'",
                fix=f"metric({self.name!r}, label_names=model.config.id2label)",
            )
        try:
            return [self.label_names[int(label)] for label in ids]
        except KeyError as missing:
            raise MetricError(
                what=f"{self.name}: class {missing.args[0]} has no tag",
                why=f"label_names knows {len(self.label_names)} classes",
                fix="give label_names a tag for every class of the model",
            ) from None


def _precision(found: np.ndarray, predicted: np.ndarray, present: np.ndarray) -> np.ndarray:
    return divide(found, predicted)


def _recall(found: np.ndarray, predicted: np.ndarray, present: np.ndarray) -> np.ndarray:
    return divide(found, present)


def _f1(found: np.ndarray, predicted: np.ndarray, present: np.ndarray) -> np.ndarray:
    return divide(2 * found, predicted + present)


def _is_tag_list(rows: Any) -> bool:
    if isinstance(rows, (np.ndarray, Tensor)):
        return False
    first = (
        next((row[0] for row in rows if len(row)), None) if all(isinstance(row, (list, tuple)) for row in rows) else 0
    )
    return first is None or isinstance(first, str)


def _pair_tags(
    guesses: list[list[str]], truths: list[list[str]], name: str
) -> tuple[list[list[str]], list[list[str]], int]:
    lengths = [[len(row) for row in side] for side in (guesses, truths)]
    if lengths[0] != lengths[1]:
        raise MetricError(
            what=f"{name}: predictions and labels have different numbers of tags",
            why=f"rows have {lengths[0][:5]} and {lengths[1][:5]} tags",
            fix="give one predicted tag per true tag",
        )
    return guesses, truths, len(truths)


def _check_label_names(names: Sequence[str] | Mapping[Any, str] | None, name: str) -> dict[int, str]:
    if names is None:
        return {}
    pairs = names.items() if isinstance(names, Mapping) else enumerate(names)
    known = {int(number): tag for number, tag in pairs}  # a config read from JSON has ids as text
    if not any(_split_tag(tag)[0] != "O" for tag in known.values()):
        raise MetricError(
            what=f"{name}: none of the tags {', '.join(map(repr, list(known.values())[:4]))} names an entity",
            why="tags are 'O', or a prefix and a type: 'B-PER', 'I-PER'",
            fix="pass label_names=model.config.id2label with IOB tags; for plain classes use 'accuracy' and 'f1'",
        )
    return known


# --------------------------------------------------------------------------------------------------- reading entities


def build_reader(scheme: str | None, name: str = "seqeval") -> Callable[[Sequence[str]], list[Entity]]:
    """Return the function that finds entities in one row of tags.

    >>> build_reader(None)(["I-PER", "I-PER", "B-PER", "O"])
    [Entity(type='PER', first=0, last=1), Entity(type='PER', first=2, last=2)]
    >>> build_reader("IOB2")(["I-PER", "I-PER", "B-PER", "O"])
    [Entity(type='PER', first=2, last=2)]
    """
    if scheme is None:
        return lenient_entities
    if scheme.upper() not in SCHEMES:
        raise MetricError(
            what=f"{name}: scheme={scheme!r} cannot be read strictly",
            why=f"there are {', '.join(map(repr, SCHEMES))}; the lenient reading takes IOB1 and IOE1 too",
            fix="leave out scheme=",
        )
    return partial(strict_entities, scheme=scheme.upper())


def lenient_entities(tags: Sequence[str]) -> list[Entity]:
    """Find entities by the rules of conlleval: each begins at B or S, after E or S, or where the type changes.

    Args:
        tags: The tags of one sentence, such as `["B-PER", "I-PER", "O"]`.

    Returns:
        The entities with the places of their first and last words.

    >>> lenient_entities(["I-PER", "I-LOC"])
    [Entity(type='PER', first=0, last=0), Entity(type='LOC', first=1, last=1)]
    """
    found: list[Entity] = []
    start, before, kind_before = 0, "O", ""
    for place, (prefix, kind) in enumerate([*map(_split_tag, tags), ("O", "")]):
        prefix = {"L": "E", "U": "S"}.get(prefix, prefix)  # BILOU's words for the same
        if before != "O" and _is_end(before, prefix, same=kind == kind_before):
            found.append(Entity(kind_before, start, place - 1))
        if prefix != "O" and _is_begin(before, prefix, same=kind == kind_before):
            start = place
        before, kind_before = prefix, kind
    return found


def _is_end(before: str, prefix: str, *, same: bool) -> bool:
    return before in "ES" or prefix in "BSO" or not same


def _is_begin(before: str, prefix: str, *, same: bool) -> bool:
    return prefix in "BS" or before in "ESO" or not same


def strict_entities(tags: Sequence[str], scheme: str) -> list[Entity]:
    """Return only entities that are written exactly as the scheme says.

    >>> strict_entities(["B-PER", "E-PER", "B-LOC"], "IOBES")
    [Entity(type='PER', first=0, last=1)]
    """
    split = [_split_tag(tag) for tag in tags]
    unknown = [tag for tag, (prefix, _) in zip(tags, split, strict=True) if prefix not in SCHEMES[scheme] + "O"]
    if unknown:
        raise MetricError(
            what=f"seqeval: tag {unknown[0]!r} is not of the scheme {scheme}",
            why=f"its prefixes are {', '.join(SCHEMES[scheme] + 'O')}",
            fix="leave out scheme= to read tags leniently",
        )
    found: list[Entity] = []
    start: int | None = None
    for place, (prefix, kind) in enumerate(split):
        continues = start is not None and prefix in "IEL" and split[place - 1][1] == kind
        if prefix in "BSU" or (scheme == "IOE2" and prefix in "IE" and not continues):
            start = place
        elif not continues:
            start = None
        if start is not None and _is_complete(split, place, scheme):
            found.append(Entity(kind, start, place))
            start = None
    return found


def _is_complete(split: list[tuple[str, str]], place: int, scheme: str) -> bool:
    """Return whether an open entity ends here."""
    if scheme != "IOB2":
        return split[place][0] in "ESLU"
    following = split[place + 1] if place + 1 < len(split) else ("O", "")
    return following != ("I", split[place][1])


def _split_tag(tag: str) -> tuple[str, str]:
    """Return prefix and type; a bare prefix names the type "_"."""
    if tag == "O":
        return "O", ""
    prefix, _, kind = tag.partition("-")
    if prefix not in PREFIXES or not prefix:
        note_once(f"seqeval: the tag {tag!r} has none of the prefixes B, I, E, S, L, U and is read as 'O'")
        return "O", ""
    return prefix, kind or "_"
