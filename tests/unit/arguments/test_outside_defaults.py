"""`OSTINATO_DEFAULTS`: other defaults for our own arguments, and for no others."""

from __future__ import annotations

import pytest

from ostinato import ConfigError
from ostinato.arguments.describe import describe_arguments
from ostinato.core.notices import forget_notices
from tests.support.cpu_arguments import build_arguments


@pytest.fixture(autouse=True)
def fresh_notices():
    forget_notices()


def test_an_environment_default_is_used_and_noted(monkeypatch, capfd):
    monkeypatch.setenv("OSTINATO_DEFAULTS", "isolate_rng=false, nonfinite_patience=3")
    args = build_arguments()
    assert (args.isolate_rng, args.nonfinite_patience) == (False, 3)
    assert capfd.readouterr().err == "ostinato: OSTINATO_DEFAULTS: isolate_rng=False, nonfinite_patience=3\n"
    assert {s.name: str(s.origin) for s in describe_arguments(args)}["isolate_rng"] == "environment: OSTINATO_DEFAULTS"


def test_the_layout_of_checkpoints_can_be_set(monkeypatch):
    monkeypatch.setenv("OSTINATO_DEFAULTS", "isolate_rng=false,checkpoint_layout=transformers")
    assert build_arguments().checkpoint_layout == "transformers"
    monkeypatch.setenv("OSTINATO_DEFAULTS", "checkpoint_layout=lightning")
    with pytest.raises(ConfigError, match=r"'lightning' is not one of \['ostinato', 'transformers'\]"):
        build_arguments()


def test_given_values_override_the_environment(monkeypatch, capfd):
    monkeypatch.setenv("OSTINATO_DEFAULTS", "isolate_rng=false")
    assert build_arguments(isolate_rng=True).isolate_rng is True
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("text", ["", ",", "  "])
def test_an_empty_variable_sets_no_defaults(monkeypatch, text):
    monkeypatch.setenv("OSTINATO_DEFAULTS", text)
    assert build_arguments() == build_arguments(isolate_rng=True)


@pytest.mark.parametrize("text", ["true", "1", "YES", "on"])
def test_a_bool_has_several_spellings(monkeypatch, text):
    monkeypatch.setenv("OSTINATO_DEFAULTS", f"isolate_rng={text}")
    assert build_arguments().isolate_rng is True


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("isolate_rgn=false", "did you mean 'isolate_rng'"),
        ("learning_rate=1", "an argument that transformers has too"),
        ("isolate_rng=maybe", "isolate_rng='maybe' is not a bool"),
        ("nonfinite_patience=many", "nonfinite_patience='many' is not a int"),
        ("isolate_rng", "has no value"),
        ("nonfinite_patience=-1", "nonfinite_patience=-1 is not a whole number of at least 0"),
        ("=3", "cannot set"),
    ],
)
def test_a_wrong_name_or_value_is_an_error(monkeypatch, text, words):
    monkeypatch.setenv("OSTINATO_DEFAULTS", text)
    with pytest.raises(ConfigError, match=words.replace("(", r"\(")):
        build_arguments()


def test_environment_problems_are_reported_with_all_others(monkeypatch):
    monkeypatch.setenv("OSTINATO_DEFAULTS", "isolate_rgn=false")
    with pytest.raises(ConfigError) as refusal:
        build_arguments(learnig_rate=1.0, bf16=True, fp16=True, use_ipex=True)
    assert "4 problems" in str(refusal.value)
    for name in ("isolate_rgn", "learnig_rate", "bf16=True with fp16=True", "use_ipex"):
        assert name in str(refusal.value)
