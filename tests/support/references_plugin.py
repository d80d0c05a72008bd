"""What pytest has to do with recordings: says which test runs, hands them to and from processes, tells of them."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import pytest

from tests.support.recordings import Recordings, describe_environment
from tests.support.references import FIXTURE, MODES, Owner, References, activate


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "where transformers' side of a comparison comes from (record: it is run and recorded)"
    parser.addoption("--references", choices=MODES, default=MODES[0], help=text)


def pytest_configure(config: pytest.Config) -> None:
    given = getattr(config, "workerinput", {}).get("environment")
    environment = json.loads(given) if given else describe_environment()
    tests = config.rootpath / "tests"
    references = References(choose_mode(config), Recordings(tests / "recorded", environment), tests)
    config.pluginmanager.register(ReferencesPlugin(references), "references")
    activate(references)


def choose_mode(config: pytest.Config) -> str:
    """Return where transformers' side comes from: what is recorded is what it does on a CPU."""
    mode = config.getoption("references")
    if config.getoption("--device", "none") == "none":
        return mode
    if mode == "record":
        raise pytest.UsageError("--references=record: recordings are made on a CPU, without --device")
    return "live"


def pytest_unconfigure() -> None:
    activate(None)


class ReferencesPlugin:
    """The hooks of a session."""

    def __init__(self, references: References) -> None:
        self.references = references

    def pytest_report_header(self) -> str:
        return f"references: {self.references.explain()}"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        owner = Owner(item.path, item.nodeid.partition("::")[2], getattr(item, "originalname", item.name))
        with self.references.own_calls(owner):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, Any]:
        report = yield
        self.references.owners[-1].passed &= report.passed
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Generator[None, Any, Any]:
        """Let a fixture that tests share own its calls: which of them comes first is left to chance."""
        if fixturedef.scope == "function" or request.node.path.suffix != ".py":
            return (yield)
        which = f"[{request.param_index}]" if fixturedef.params else ""
        with self.references.own_calls(Owner(request.node.path, f"{fixturedef.argname}{which}{FIXTURE}")):
            return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        """Take a test that runs on transformers alone as one call: what is recorded is that it passed."""
        if not runs_transformers_alone(pyfuncitem):
            return None
        arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
        self.references.recall(lambda: pyfuncitem.obj(**arguments), pyfuncitem.obj, "the whole test")
        return True

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a process of xdist what the environment is."""
        node.workerinput["environment"] = json.dumps(self.references.recordings.environment)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        if told := getattr(node, "workeroutput", {}).get("references"):
            self.references.add(**json.loads(told))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write; a process of xdist leaves that to the one that started it."""
        told = {"counts": self.references.counts, "made": self.references.made}
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output["references"] = json.dumps(told)
        elif self.references.made:
            self.references.write()

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if (line := self.references.summarize()) is not None:
            terminalreporter.write_line(line)


def runs_transformers_alone(item: pytest.Function) -> bool:
    """Whether a test runs on transformers by the fixture `api`, and has no fixture that may have used our library."""
    if getattr(item, "callspec", None) is None or item.callspec.params.get("api") != "transformers":
        return False
    makers = {one[-1].func.__module__ for one in item._fixtureinfo.name2fixturedefs.values()}
    return all(maker == "tests.conftest" or maker.startswith("_pytest.") for maker in makers)
