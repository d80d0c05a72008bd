"""How much is said: `ostinato.logging`, `log_level`, `log_level_replica` and the environment."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

import ostinato
from ostinato import TrainingArguments
from ostinato.core import notices


@pytest.fixture(autouse=True)
def same_logger_after() -> Iterator[None]:
    logger, handler = notices.logger, notices.handler
    before = (logger.level, list(logger.handlers), logger.propagate, list(handler.filters), handler.formatter)
    yield
    logger.level, logger.handlers, logger.propagate, handler.filters, handler.formatter = before
    logger.setLevel(before[0])  # also forgets what was worked out from the level in between


def speak() -> None:
    notices.note("a note")
    notices.warn("a warning")
    notices.logger.error("an error")


@pytest.mark.parametrize(
    ("level", "heard"),
    [
        ("debug", ["a note", "a warning", "an error"]),
        ("info", ["a note", "a warning", "an error"]),
        ("warning", ["a warning", "an error"]),
        ("error", ["an error"]),
    ],
)
def test_the_four_verbosities(level, heard, capfd):
    getattr(ostinato.logging, f"set_verbosity_{level}")()
    speak()
    assert capfd.readouterr().err == "".join(f"ostinato: {text}\n" for text in heard)
    assert ostinato.logging.get_verbosity() == ostinato.logging.get_log_levels_dict()[level]


@pytest.mark.parametrize(
    ("level", "heard"), [("passive", 3), ("info", 3), ("warning", 2), ("error", 1), ("critical", 0)]
)
def test_log_level_of_the_main_process(level, heard, capfd):
    TrainingArguments("out", log_level=level, use_cpu=True).apply_log_level()
    speak()
    assert len(capfd.readouterr().err.splitlines()) == heard


@pytest.mark.parametrize(
    ("given", "heard"),
    [({}, 1), ({"log_level": "debug"}, 1), ({"log_level_replica": "info"}, 3), ({"log_level_replica": "warning"}, 2)],
)
def test_log_level_of_another_process(given, heard, capfd, monkeypatch):
    for name, value in {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    TrainingArguments("out", use_cpu=True, **given).apply_log_level()
    speak()
    assert len(capfd.readouterr().err.splitlines()) == heard


def test_another_handler_replaces_standard_error(capfd):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    ostinato.logging.disable_default_handler()
    ostinato.logging.add_handler(handler)
    speak()
    assert stream.getvalue() == "a note\na warning\nan error\n"
    ostinato.logging.remove_handler(handler)
    ostinato.logging.enable_default_handler()
    ostinato.logging.enable_default_handler()  # a second time changes nothing
    speak()
    captured = capfd.readouterr().err
    assert captured.count("a note") == 1 and "ostinato: a note" in captured


def test_propagation(caplog):
    ostinato.logging.enable_propagation()
    notices.warn("upwards")
    assert "upwards" in caplog.text
    ostinato.logging.disable_propagation()


def test_an_explicit_format_and_back(capfd):
    ostinato.logging.enable_explicit_format()
    notices.warn("loud")
    assert capfd.readouterr().err.startswith("[WARNING|notices.py:")
    ostinato.logging.reset_format()
    notices.warn("plain")
    assert capfd.readouterr().err == "ostinato: plain\n"


def test_get_logger():
    assert ostinato.logging.get_logger() is notices.logger
    assert ostinato.logging.get_logger("mine").name == "mine"


@pytest.mark.parametrize(
    ("word", "level"), [("error", logging.ERROR), ("DEBUG", logging.DEBUG), ("loud", logging.INFO)]
)
def test_the_environment_sets_the_initial_level(word, level):
    code = "import ostinato; print(ostinato.logging.get_verbosity())"
    environment = {**os.environ, "OSTINATO_VERBOSITY": word}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert int(done.stdout) == level
    assert ("has no effect" in done.stderr) == (word == "loud")


@pytest.mark.parametrize(("own", "level"), [("", logging.ERROR), ("debug", logging.DEBUG)])
def test_the_variable_of_transformers_counts_if_there_is_none_of_ours(own, level):
    code = "import ostinato; print(ostinato.logging.get_verbosity())"
    environment = {**os.environ, "TRANSFORMERS_VERBOSITY": "error", "OSTINATO_VERBOSITY": own}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert int(done.stdout) == level


def test_all_of_the_public_names_exist():
    assert all(getattr(ostinato.logging, name) is not None for name in ostinato.logging.__all__)
