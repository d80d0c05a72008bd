"""A hub of a few endpoints on this machine: what huggingface_hub asks of the real one to make and fill a repository.

It keeps files and commits in memory, and can misbehave: refuse, answer with errors, or not answer at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

OWNER, TOKEN = "somebody", "hf_" + "t" * 34


@dataclass
class Commit:
    message: str
    revision: str
    paths: list[str]


@dataclass
class Repo:
    private: bool = False
    branches: dict[str, dict[str, bytes]] = field(default_factory=lambda: {"main": {}})
    commits: list[Commit] = field(default_factory=list)

    @property
    def files(self) -> dict[str, bytes]:
        return self.branches["main"]

    @property
    def messages(self) -> list[str]:
        return [commit.message for commit in self.commits]


@dataclass
class Hub:
    """What the server has and has seen."""

    url: str = ""
    token: str = TOKEN
    repos: dict[str, Repo] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    # Called with "METHOD /path" of each request: a status to answer with in place of doing it, or None.
    refuse: Callable[[str], int | None] = lambda request: None
    # Called likewise: waits for as long as it likes before it is answered.
    delay: Callable[[str], Any] = lambda request: None
    stored: dict[str, bytes] = field(default_factory=dict)
    lock: Any = field(default_factory=threading.RLock)

    def seen(self, pattern: str) -> list[str]:
        return [request for request in self.requests if re.search(pattern, request)]


class _Answer(Exception):
    def __init__(self, status: int, body: Any = None, **headers: str) -> None:
        self.status, self.body, self.headers = status, body, headers


def _failure(status: int, text: str, **headers: str) -> _Answer:
    return _Answer(status, {"error": text}, **headers, **{"X-Error-Message": text})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *args: Any) -> None:
        pass

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else self._chunks()
        path = unquote(urlsplit(self.path).path)
        request = f"{self.command} {path}"
        with self.hub.lock:
            self.hub.requests.append(request)
        self.hub.delay(request)
        try:
            status = self.hub.refuse(request)
            if status is not None:
                raise _failure(status, "this hub is not well")
            with self.hub.lock:
                self._route(self.command, path, body)
            raise _failure(404, f"no such endpoint: {request}")
        except _Answer as answer:
            self._send(answer)

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _serve

    def _chunks(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return b""
        parts = []
        while size := int(self.rfile.readline().strip() or b"0", 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _send(self, answer: _Answer) -> None:
        raw = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        try:
            self.send_response(answer.status)
            for name, value in {"Content-Type": "application/json", **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(raw)
        except OSError:  # nobody waits for it any more
            self.close_connection = True

    # ---- the endpoints -----------------------------------------------------------------------------------------

    def _route(self, method: str, path: str, body: bytes) -> None:
        if path.startswith("/lfs/"):
            self.hub.stored[path.removeprefix("/lfs/")] = body
            raise _Answer(200, {})
        if path == "/api/validate-yaml":
            raise _Answer(200, {"errors": [], "warnings": []})
        if self.headers.get("Authorization") != f"Bearer {self.hub.token}":
            raise _failure(401, "Invalid credentials in Authorization header")
        if path == "/api/whoami-v2":
            raise _Answer(200, {"type": "user", "name": OWNER, "orgs": [{"name": "guild"}], "auth": {}})
        if path == "/api/repos/create":
            self._create(json.loads(body))
        if found := re.fullmatch(r"/(.+)\.git/info/lfs/objects/batch", path):
            self._batch(found[1], json.loads(body))
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/.*)?", path):
            self._of_repo(method, found[1], found[2] or "", body)
        if found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._resolve(found[1], found[2], found[3])

    def _create(self, asked: dict[str, Any]) -> None:
        name = f"{asked.get('organization') or OWNER}/{asked['name']}"
        url = f"{self.hub.url}/{name}"
        if name in self.hub.repos:
            raise _Answer(409, {"error": "You already created this model repo", "url": url})
        private = asked.get("visibility") == "private" or bool(asked.get("private"))
        self.hub.repos[name] = Repo(private=private)
        raise _Answer(200, {"url": url, "name": name, "id": name})

    def _repo(self, name: str) -> Repo:
        if name not in self.hub.repos:
            raise _failure(404, "Repository not found", **{"X-Error-Code": "RepoNotFound"})
        return self.hub.repos[name]

    def _branch(self, name: str, revision: str) -> dict[str, bytes]:
        branches = self._repo(name).branches
        if revision not in branches:
            raise _failure(404, f"Invalid rev id: {revision}", **{"X-Error-Code": "RevisionNotFound"})
        return branches[revision]

    def _of_repo(self, method: str, name: str, rest: str, body: bytes) -> None:
        repo = self._repo(name)
        what, _, revision = rest.strip("/").partition("/")
        if what == "preupload":
            self._preupload(self._branch(name, revision), json.loads(body))
        if what == "commit":
            self._commit(name, repo, revision, body)
        if what == "branch" and method == "POST":
            if revision in repo.branches:
                raise _failure(409, "Reference already exists")
            repo.branches[revision] = dict(repo.files)
            raise _Answer(200, {})
        if what in ("", "revision"):
            branch = self._branch(name, revision or "main")
            siblings = [{"rfilename": path} for path in branch]
            raise _Answer(200, {"id": name, "modelId": name, "sha": _oid(repr(sorted(branch))), "siblings": siblings})
        if what == "tree":
            raise _Answer(200, [_entry(path, raw) for path, raw in self._branch(name, revision.split("/")[0]).items()])

    def _preupload(self, branch: dict[str, bytes], asked: dict[str, Any]) -> None:
        def fate(file: dict[str, Any]) -> dict[str, Any]:
            path, is_large = file["path"], re.search(r"\.(safetensors|bin|pt|pth)$", file["path"])
            return {
                "path": path,
                "uploadMode": "lfs" if is_large else "regular",
                "shouldIgnore": False,
                "oid": _entry(path, branch[path])["oid"] if path in branch and not is_large else None,
            }

        raise _Answer(200, {"files": [fate(file) for file in asked["files"]]})

    def _batch(self, name: str, asked: dict[str, Any]) -> None:
        self._repo(name)
        objects = [
            {**each, "actions": {"upload": {"href": f"{self.hub.url}/lfs/{each['oid']}"}}} for each in asked["objects"]
        ]
        raise _Answer(200, {"transfer": "basic", "objects": objects})

    def _commit(self, name: str, repo: Repo, revision: str, body: bytes) -> None:
        branch, paths, message = self._branch(name, revision), [], ""
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "header":
                message = value["summary"]
                continue
            paths.append(value["path"])
            if entry["key"] == "file":
                branch[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                branch[value["path"]] = self.hub.stored[value["oid"]]
            elif entry["key"] == "deletedFile":
                branch.pop(value["path"], None)
            elif entry["key"] == "deletedFolder":
                for path in [each for each in branch if each.startswith(value["path"])]:
                    del branch[path]
        repo.commits.append(Commit(message, revision, sorted(paths)))
        oid = _oid(f"{len(repo.commits)} {message}")
        raise _Answer(200, {"success": True, "commitOid": oid, "commitUrl": f"{self.hub.url}/{name}/commit/{oid}"})

    def _resolve(self, name: str, revision: str, path: str) -> None:
        branch = self._branch(name, revision)
        if path not in branch:
            raise _failure(404, "Entry not found", **{"X-Error-Code": "EntryNotFound"})
        raw = branch[path]
        raise _Answer(200, raw, **{"ETag": f'"{_oid(raw.hex())}"', "X-Repo-Commit": _oid(name)})


def _oid(text: str) -> str:
    return hashlib.sha1(text.encode()).hexdigest()


def _entry(path: str, raw: bytes) -> dict[str, Any]:
    oid = hashlib.sha1(b"blob %d\0" % len(raw) + raw).hexdigest()  # as git names a file
    return {"type": "file", "path": path, "size": len(raw), "oid": oid}


@contextmanager
def serving(token: str = TOKEN) -> Iterator[Hub]:
    """A hub for as long as the block lasts; what still waits for an answer then gets none."""
    hub = Hub(token=token)
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
