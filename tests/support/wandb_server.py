"""A server that speaks as much of wandb's HTTP interface as a sweep needs, so that its real client can run one.

It takes a sweep, hands its agents one list of values after another, and keeps what the runs send: their configuration,
the rows that they log, and whether they ended well. The lists are given: how a server draws them is not its subject.
"""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ENTITY, SWEEP = "someone", "sweep1"


@dataclass
class SweepServer:
    """What the server was asked, and what it gives out."""

    draws: list[dict[str, Any]]
    address: str = ""
    sweeps: list[dict[str, Any]] = field(default_factory=list)  # variables of the request that made each
    agents: list[dict[str, Any]] = field(default_factory=list)  # variables of the request that registered each
    configs: dict[str, dict[str, Any]] = field(default_factory=dict)  # of a run, by its id
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # logged by a run
    exit_codes: dict[str, int] = field(default_factory=dict)
    stops_after_row: str | None = None  # the run that its agent has to stop when it has logged something
    given: int = 0
    _lock: Any = field(default_factory=threading.Lock)

    def answer(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the data that a GraphQL query asks for."""
        with self._lock:
            if "upsertSweep" in query:
                self.sweeps.append(variables)
                return {"upsertSweep": {"sweep": {"name": SWEEP, "project": _describe_project(variables)}}}
            if "createAgent" in query:
                self.agents.append(variables)
                return {"createAgent": {"agent": {"id": f"agent{len(self.agents)}"}}}
            if "agentHeartbeat" in query:
                running = json.loads(variables["runState"])
                return {"agentHeartbeat": {"agent": {"id": variables["id"]}, "commands": self._command(running)}}
            if "upsertBucket" in query:
                return {"upsertBucket": {"bucket": self._update_run(variables), "inserted": True}}
            if "createRunFiles" in query:
                files = [{"name": name, "uploadUrl": f"{self.address}/upload"} for name in variables["files"]]
                return {"createRunFiles": {"runID": variables["run"], "uploadHeaders": [], "files": files}}
            if "viewer" in query:
                return {"viewer": {"id": "u", "entity": ENTITY, "username": ENTITY, "flags": "{}", "email": "",
                                   "teams": {"edges": []}}}  # fmt: skip
            return {"serverInfo": {"features": []}}

    def stream(self, run: str, content: dict[str, Any]) -> None:
        """Keep what a run sends while it lasts."""
        with self._lock:
            lines = content.get("files", {}).get("wandb-history.jsonl", {}).get("content", [])
            self.rows.setdefault(run, []).extend(json.loads(line) for line in lines)
            if content.get("complete"):
                self.exit_codes[run] = content["exitcode"]

    def _command(self, running: dict[str, Any]) -> str:
        """Return what an agent does next; it asks while its run lasts, too."""
        if self.stops_after_row in running and self.rows.get(self.stops_after_row):
            return json.dumps([{"type": "stop", "run_id": self.stops_after_row}])
        if running:
            return "[]"
        if self.given == len(self.draws):
            return json.dumps([{"type": "exit"}])
        self.given += 1
        values = {name: {"value": value} for name, value in self.draws[self.given - 1].items()}
        return json.dumps([{"type": "run", "run_id": f"run{self.given - 1}", "args": values}])

    def _update_run(self, variables: dict[str, Any]) -> dict[str, Any]:
        name = variables["name"]
        config = json.loads(variables["config"] or "{}")
        self.configs.setdefault(name, {}).update({key: one["value"] for key, one in config.items()})
        return {"id": name, "name": name, "displayName": name, "sweepName": SWEEP, "config": "{}",
                "historyLineCount": 0, "project": _describe_project(variables)}  # fmt: skip


def _describe_project(variables: dict[str, Any]) -> dict[str, Any]:
    name = variables.get("projectName") or variables.get("project") or "uncategorized"
    entity = variables.get("entityName") or variables.get("entity") or ENTITY
    return {"id": name, "name": name, "entity": {"id": entity, "name": entity}}


@contextmanager
def serve_sweep(draws: Sequence[dict[str, Any]]) -> Iterator[SweepServer]:
    """Serve sweeps on a port of this machine, one list of values per run."""
    server = SweepServer(list(draws))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            answer: dict[str, Any] = {}
            if self.path == "/graphql":
                asked = json.loads(body)
                answer = {"data": server.answer(asked["query"], asked.get("variables") or {})}
            elif self.path.endswith("/file_stream"):
                server.stream(self.path.split("/")[-2], json.loads(body))
            self._reply(answer)

        do_PUT = do_GET = do_POST

        def _reply(self, answer: dict[str, Any]) -> None:
            content = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    class Listener(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Say nothing: the client's process ends without closing its connections."""

    with Listener(("127.0.0.1", 0), Handler) as listener:
        server.address = f"http://127.0.0.1:{listener.server_port}"
        thread = threading.Thread(target=listener.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown()
            thread.join()
