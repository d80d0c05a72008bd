"""Closed sets of words."""

from __future__ import annotations

import json
from enum import Enum

import pytest

from ostinato.core import choices
from ostinato.core.errors import ConfigError
from tests.support.apis import guest, load_library


def test_a_word_and_its_member_are_one() -> None:
    assert choices.IntervalStrategy("steps") is choices.IntervalStrategy.STEPS
    assert choices.IntervalStrategy.STEPS == "steps"
    assert choices.SchedulerType.COSINE.value == "cosine"
    assert json.dumps(choices.SaveStrategy.BEST) == '"best"'


@pytest.mark.parametrize(
    "kind",
    [kind for kind in vars(choices).values() if isinstance(kind, type) and issubclass(kind, Enum) and len(kind)],
    ids=lambda kind: kind.__name__,
)
def test_members_are_printed_as_those_of_transformers(kind: type[Enum]) -> None:
    for member in kind:
        assert [str(member), f"{member}", "%s" % (member,)] == [f"{kind.__name__}.{member.name}"] * 3  # noqa: UP031
        assert repr(member) == f"<{kind.__name__}.{member.name}: {member.value!r}>"
        assert f"{member:>40}" == f"{kind.__name__}.{member.name}".rjust(40)


def test_wrong_word_names_the_valid_ones_and_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        choices.SchedulerType("cosin")
    text = str(caught.value)
    assert "'cosin' is not a valid SchedulerType" in text
    assert "did you mean 'cosine'?" in text
    for member in choices.SchedulerType:
        assert repr(member.value) in text


def test_word_that_resembles_nothing() -> None:
    with pytest.raises(ValueError, match="use one of the values above"):
        choices.IntervalStrategy("xyzzy")


def test_enum_of_another_library() -> None:
    class Foreign(Enum):
        A = "epoch"
        B = "nonsense"

    assert choices.IntervalStrategy(Foreign.A) is choices.IntervalStrategy.EPOCH
    with pytest.raises(ConfigError, match="'nonsense'"):
        choices.IntervalStrategy(Foreign.B)


def test_words_are_those_of_transformers() -> None:
    pytest.importorskip("transformers")
    with guest("transformers"):
        theirs = load_library("transformers")
        from transformers import trainer_utils, training_args

        pairs = [
            (choices.SchedulerType, theirs.SchedulerType),
            (choices.IntervalStrategy, trainer_utils.IntervalStrategy),
            (choices.SaveStrategy, trainer_utils.SaveStrategy),
            (choices.HubStrategy, trainer_utils.HubStrategy),
            (choices.OptimizerNames, training_args.OptimizerNames),
        ]
        for own, foreign in pairs:
            assert {m.name: m.value for m in own} == {m.name: m.value for m in foreign}
            for member in foreign:
                assert own(member).value == member.value
