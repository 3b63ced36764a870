"""Tests of downloads and `qwink pull`, with local servers that imitate the hubs' APIs."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import httpx
import pytest
from filelock import FileLock

from qwink.cli.pull import export_bytes, pull
from qwink.errors import CheckpointError, DownloadError, ModelNotFound
from qwink.export.recipe import RECIPES
from qwink.hub import http as hub_http
from qwink.hub.download import DownloadProgress, download, missing_bytes, staging_folder
from qwink.hub.http import client
from qwink.hub.listing import Hub, HuggingFace, Listing, ModelScope
from qwink.hub.partial import Partial
from qwink.runtime.models import checkpoint_folder, find_folder
from qwink.settings import Settings
from tests.conftest import RunQwink

NAME = "Org/Tiny-VL"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
WEIGHTS = "model.safetensors"
Folders = tuple[Path, Any]


class FakeHub:
    """A server with the APIs of both hubs, for one repository. Its attributes inject faults."""

    def __init__(self, folder: Path) -> None:
        self.files = {path.name: path.read_bytes() for path in folder.iterdir()}
        self.files |= {"README.md": b"#", "model.gguf": b"x" * 100, "pytorch_model.bin": b"x"}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.refuse: dict[
            str, tuple[int, dict[str, str]]
        ] = {}  # status and headers for paths with this prefix
        self.cuts: list[int] = []  # cut the next transfers of the weights after so many bytes
        self.damage = 0  # number of transfers of the weights to damage
        self.ranges = True
        self.busy = 0  # number of responses with status 503
        self.file_server = ""  # address that requests for the weights are redirected to
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests.append((self.path, dict(self.headers)))
                outer.answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        path, query = unquote(parts.path), parse_qs(parts.query)
        if self.busy:
            self.busy -= 1
            return self.send(handler, 503, b"", {"Retry-After": "0"})
        for start, (status, headers) in self.refuse.items():
            if path.startswith(start):
                return self.send(handler, status, b"{}", headers)
        api = f"/api/v1/models/{NAME}/repo"
        if path == f"/api/models/{NAME}/revision/main":
            return self.send_json(handler, {"id": NAME, "sha": COMMIT})
        if path == f"/api/models/{NAME}/tree/{COMMIT}":
            return self.send_tree(handler, int(query.get("cursor", ["0"])[0]))
        if path == f"{api}/files" and query["Revision"] == ["master"]:
            return self.send_json(handler, self.modelscope_files())
        if path == api and query["Revision"] == ["master"]:
            return self.send_file(handler, query["FilePath"][0])
        if path.startswith(f"/{NAME}/resolve/{COMMIT}/"):
            name = path.rsplit("/", 1)[1]
            if self.file_server and name == WEIGHTS:
                return self.send(handler, 302, b"", {"Location": f"{self.file_server}/lfs/{name}"})
            return self.send_file(handler, name)
        if path.startswith("/lfs/"):
            return self.send_file(handler, path.rsplit("/", 1)[1])
        return self.send(handler, 404, b"{}", {})

    def send(
        self, handler: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str]
    ) -> None:
        handler.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(key, value)
        handler.end_headers()
        handler.wfile.write(body)

    def send_json(self, handler: BaseHTTPRequestHandler, value: Any, **headers: str) -> None:
        self.send(handler, 200, json.dumps(value).encode(), headers)

    def send_tree(self, handler: BaseHTTPRequestHandler, start: int) -> None:
        entries: list[dict[str, Any]] = [{"type": "directory", "oid": "0", "size": 0, "path": "x"}]
        for name, content in sorted(self.files.items()):
            git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            entry = {"type": "file", "oid": git, "size": len(content), "path": name}
            if name == WEIGHTS:
                sha256 = hashlib.sha256(content).hexdigest()
                entry["lfs"] = {"oid": sha256, "size": len(content), "pointerSize": 130}
            entries.append(entry)
        more = f'<https://elsewhere.test/tree?cursor={start + 4}>; rel="next"'
        headers = {"Link": more} if start + 4 < len(entries) else {}
        self.send_json(handler, entries[start : start + 4], **headers)

    def modelscope_files(self) -> dict[str, Any]:
        files: list[dict[str, Any]] = [
            {"Name": name, "Path": name, "Type": "blob", "Size": len(content),
             "Sha256": hashlib.sha256(content).hexdigest()}
            for name, content in self.files.items()
        ]  # fmt: skip
        files.append({"Name": "x", "Path": "x", "Type": "tree", "Size": 0, "Sha256": ""})
        return {"Code": 200, "Data": {"Files": files}, "Message": "success", "Success": True}

    def send_file(self, handler: BaseHTTPRequestHandler, name: str) -> None:
        content, wanted = self.files[name], handler.headers.get("Range")
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.ranges else 0
        body = content[start:]
        if name == WEIGHTS and self.damage:
            self.damage -= 1
            body = body[:-1] + bytes([body[-1] ^ 1])
        handler.send_response(206 if start else 200)
        handler.send_header("Content-Length", str(len(body)))
        if start:
            end = f"{len(content) - 1}/{len(content)}"
            handler.send_header("Content-Range", f"bytes {start}-{end}")
        handler.end_headers()
        if name == WEIGHTS and self.cuts:
            body = body[: self.cuts.pop(0)]
        handler.wfile.write(body)

    def asked(self, ending: str) -> list[dict[str, str]]:
        """The headers of the requests for a file."""
        return [headers for path, headers in self.requests if path.endswith(ending)]


def start(folder: Path) -> FakeHub:
    hub = FakeHub(folder)
    threading.Thread(target=hub.server.serve_forever, args=(0.01,), daemon=True).start()
    return hub


def stop(hub: FakeHub) -> None:
    hub.server.shutdown()
    hub.server.server_close()


@pytest.fixture
def fake(tiny_checkpoint: Folders, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setattr(hub_http, "BACKOFF_S", 0.001)
    hub = start(tiny_checkpoint[0])
    yield hub
    stop(hub)


def get(
    hub: Hub, folder: Path, revision: str | None = None, into: list[DownloadProgress] | None = None
) -> Listing:
    with client(hub.headers) as http:
        listing = hub.find(http, NAME, revision)
        download(http, listing, folder, (into if into is not None else []).append)
    return listing


def assert_whole(folder: Path, fake: FakeHub) -> None:
    found = {path.name: path.read_bytes() for path in folder.iterdir() if path.name[0] != "."}
    others = ("README.md", "model.gguf", "pytorch_model.bin")
    assert found == {name: body for name, body in fake.files.items() if name not in others}
    assert [path for path in folder.parent.iterdir() if path.name[0] == "."] == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints" / "tiny"


def both(fake: FakeHub) -> tuple[Hub, Hub]:
    return HuggingFace(fake.url), ModelScope(fake.url)


# downloading


@pytest.mark.parametrize("which", [0, 1])
def test_download(fake: FakeHub, folder: Path, which: int) -> None:
    progress: list[DownloadProgress] = []
    listing = get(both(fake)[which], folder, into=progress)
    assert_whole(folder, fake)
    assert progress[-1].done == progress[-1].total == listing.num_bytes
    assert [step.done for step in progress] == sorted(step.done for step in progress)
    assert listing.files[-1].name == WEIGHTS  # the largest comes last
    number = len(fake.requests)
    get(both(fake)[1 - which], folder)  # the other hub has the same files: no download
    assert not any("resolve" in path or "FilePath" in path for path, _ in fake.requests[number:])


def test_damaged_or_newer_files_are_replaced_and_the_others_kept(
    fake: FakeHub, folder: Path
) -> None:
    get(HuggingFace(fake.url), folder)
    number = len(fake.requests)
    (folder / "tokenizer_config.json").write_bytes(b"{}")
    fake.files["generation_config.json"] += b"\n"
    get(HuggingFace(fake.url), folder)
    assert_whole(folder, fake)
    fetched = [path.rsplit("/", 1)[1] for path, _ in fake.requests[number:] if "resolve" in path]
    assert sorted(fetched) == ["generation_config.json", "tokenizer_config.json"]


def test_cut_connections_are_resumed(fake: FakeHub, folder: Path) -> None:
    size = len(fake.files[WEIGHTS])
    fake.cuts = [1000, 0, 50_000]
    get(HuggingFace(fake.url), folder)
    assert_whole(folder, fake)
    ranges = [headers.get("Range") for headers in fake.asked(WEIGHTS)]
    assert ranges == [None, "bytes=1000-", "bytes=1000-", "bytes=51000-"]
    assert size > 51_000


def test_a_later_run_resumes(fake: FakeHub, folder: Path) -> None:
    fake.cuts = [1000, 0, 0, 0, 0]
    with pytest.raises(
        DownloadError, match=rf"{WEIGHTS} of {NAME} stopped after .* run this again"
    ):
        get(HuggingFace(fake.url), folder)
    assert not folder.exists()
    with client({}) as http:
        listing = HuggingFace(fake.url).find(http, NAME)
    assert missing_bytes(listing, folder) == len(fake.files[WEIGHTS]) - 1000
    get(HuggingFace(fake.url), folder)
    assert_whole(folder, fake)
    assert fake.asked(WEIGHTS)[-1]["Range"] == "bytes=1000-"
    assert len(fake.asked("/config.json")) == 1


def test_a_server_without_ranges(fake: FakeHub, folder: Path) -> None:
    fake.cuts, fake.ranges = [1000], False
    get(HuggingFace(fake.url), folder)
    assert_whole(folder, fake)


def test_partial_files_of_another_revision_are_not_used(fake: FakeHub, folder: Path) -> None:
    sound = fake.files[WEIGHTS]
    fake.files[WEIGHTS] = sound[:500] + bytes(100) + sound[600:]
    fake.cuts = [1000, 0, 0, 0, 0]
    with pytest.raises(DownloadError):
        get(HuggingFace(fake.url), folder)
    fake.files[WEIGHTS] = sound
    get(HuggingFace(fake.url), folder)
    assert_whole(folder, fake)
    assert "Range" not in fake.asked(WEIGHTS)[-1]


def test_a_damaged_transfer_is_repeated(fake: FakeHub, folder: Path) -> None:
    fake.damage = 1
    get(HuggingFace(fake.url), folder)
    assert_whole(folder, fake)


@pytest.mark.parametrize("which", [0, 1])
def test_wrong_digest(fake: FakeHub, folder: Path, which: int) -> None:
    fake.damage = 99
    with pytest.raises(DownloadError, match=f"{WEIGHTS} of {NAME} does not have the digest"):
        get(both(fake)[which], folder)
    assert not folder.exists()
    assert fake.damage == 97  # it tried twice, then gave up


def test_small_files_are_checked_too(fake: FakeHub, folder: Path) -> None:
    with client({}) as http:
        listing = HuggingFace(fake.url).find(http, NAME)
        fake.files["config.json"] = fake.files["config.json"].replace(b"silu", b"gelu")
        with pytest.raises(DownloadError, match=r"config\.json of .* does not have the digest"):
            download(http, listing, folder)


def test_busy_servers_are_retried(fake: FakeHub, folder: Path) -> None:
    fake.busy = 2
    get(HuggingFace(fake.url), folder)
    assert_whole(folder, fake)


def test_the_token_is_sent_to_the_hub_only(
    fake: FakeHub, tiny_checkpoint: Folders, folder: Path
) -> None:
    storage = start(tiny_checkpoint[0])
    try:
        # httpx takes another port for another host.
        fake.file_server = storage.url
        get(HuggingFace(fake.url, "hf_secret"), folder)
    finally:
        stop(storage)
    assert_whole(folder, fake)
    assert {headers.get("Authorization") for _, headers in fake.requests} == {"Bearer hf_secret"}
    assert len(storage.requests) == 1
    assert "Authorization" not in storage.requests[0][1]


def test_other_architectures_are_refused_before_the_weights_download(
    fake: FakeHub, folder: Path
) -> None:
    config = json.loads(fake.files["config.json"])
    config["model_type"] = "llama"
    fake.files["config.json"] = json.dumps(config).encode()
    with pytest.raises(CheckpointError, match=f"qwink cannot use {NAME}: config.json"):
        get(HuggingFace(fake.url), folder)
    assert fake.asked(WEIGHTS) == []
    assert not staging_folder(folder).exists()


@pytest.mark.parametrize("which", [0, 1])
def test_repositories_without_a_checkpoint(fake: FakeHub, folder: Path, which: int) -> None:
    del fake.files[WEIGHTS]
    with pytest.raises(CheckpointError, match=rf"{NAME} has no \*\.safetensors"):
        get(both(fake)[which], folder)


def test_names_in_the_listing_cannot_leave_the_folder(fake: FakeHub, folder: Path) -> None:
    for name in ("../x.safetensors", "sub/x.safetensors", "..\\x.safetensors", ".x.safetensors"):
        fake.files[name] = b"x"
    listing = get(ModelScope(fake.url), folder)
    assert WEIGHTS in {file.name for file in listing.files}
    assert all(file.name[0].isalpha() and "/" not in file.name for file in listing.files)


def test_folders_with_other_files_are_not_replaced(fake: FakeHub, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")  # may be a model of the user's
    with pytest.raises(DownloadError, match="has other files in it"):
        get(HuggingFace(fake.url), folder)
    assert [path.name for path in folder.iterdir()] == ["config.json"]
    (folder / "config.json").unlink()
    get(HuggingFace(fake.url), folder)
    assert_whole(folder, fake)


def test_two_downloads_at_the_same_time(fake: FakeHub, folder: Path) -> None:
    staging_folder(folder).mkdir(parents=True)
    with (
        FileLock(staging_folder(folder) / ".lock"),
        pytest.raises(DownloadError, match="another process is downloading"),
    ):
        get(HuggingFace(fake.url), folder)


# refusals


def refusal(
    fake: FakeHub,
    folder: Path,
    status: int,
    hub: Hub | None = None,
    at: str = "/api",
    **headers: str,
) -> str:
    fake.refuse = {at: (status, {key.replace("_", "-"): value for key, value in headers.items()})}
    with pytest.raises(DownloadError) as caught:
        get(hub or HuggingFace(fake.url), folder)
    message = str(caught.value)
    assert "\n" not in message
    assert isinstance(caught.value, ModelNotFound)
    return message


def test_unknown_repository(fake: FakeHub, folder: Path) -> None:
    for hub in both(fake):
        assert f"{NAME} is not at {fake.url}" in refusal(fake, folder, 404, hub)
    hidden = refusal(fake, folder, 401, X_Error_Code="RepoNotFound")
    assert "is not at" in hidden
    assert "HF_TOKEN" in hidden


def test_licence_to_accept(fake: FakeHub, folder: Path) -> None:
    at = f"/{NAME}/resolve"
    message = refusal(fake, folder, 401, at=at, X_Error_Code="GatedRepo")
    assert f"accepted: log in at {fake.url}/{NAME}" in message
    assert f"{fake.url}/settings/tokens, set HF_TOKEN" in message
    known = HuggingFace(fake.url, "hf_x")
    message = refusal(fake, folder, 403, known, at, X_Error_Code="GatedRepo")
    assert "accept it, and pull again" in message


@pytest.mark.parametrize("status", [401, 403])
def test_modelscope_takes_no_token(fake: FakeHub, folder: Path, status: int) -> None:
    message = refusal(fake, folder, status, ModelScope(fake.url))
    assert "private or asks for a licence" in message
    assert "modelscope download" in message
    assert "HF_TOKEN" not in message


def test_wrong_token(fake: FakeHub, folder: Path) -> None:
    hub = HuggingFace(fake.url, "hf_old")
    assert "does not accept HF_TOKEN" in refusal(fake, folder, 401, hub)


def test_unknown_revision(fake: FakeHub, folder: Path) -> None:
    assert "has no revision" in refusal(fake, folder, 404, X_Error_Code="RevisionNotFound")
    with pytest.raises(DownloadError, match="revision 'v9'"):
        get(HuggingFace(fake.url), folder, "v9")


def test_a_hub_that_is_always_busy(fake: FakeHub, folder: Path) -> None:
    assert "cannot reach 127.0.0.1 (status 503)" in refusal(fake, folder, 503)


def test_a_server_that_is_not_a_hub(fake: FakeHub, folder: Path) -> None:
    assert "does not answer like a hub" in refusal_of(fake, b"<html>log in</html>", folder)
    assert "lacks 'sha'" in refusal_of(fake, b"[]", folder)
    no = {"Code": 10010205001, "Message": "no such model", "Success": False}
    message = refusal_of(fake, json.dumps(no).encode(), folder, ModelScope(fake.url))
    assert "ModelScope says 'no such model'" in message


def refusal_of(fake: FakeHub, body: bytes, folder: Path, hub: Hub | None = None) -> str:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        fake.send(handler, 200, body, {})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fake, "answer", answer)
        with pytest.raises(DownloadError) as caught:
            get(hub or HuggingFace(fake.url), folder)
    return str(caught.value)


@pytest.mark.parametrize("name", ["Tiny", "a/b/c", "../x", "a/..", "a b/c", "", "https://x/a/b"])
def test_names_of_repositories(name: str) -> None:
    for hub in (HuggingFace("http://127.0.0.1:9"), ModelScope("http://127.0.0.1:9")):
        with httpx.Client() as http, pytest.raises(DownloadError, match="is not a repository name"):
            hub.find(http, name)


# settings and finding


def test_endpoints_come_from_the_variables_of_the_hubs_tools() -> None:
    plain = Settings.from_environment({})
    assert plain.hf_endpoint == "https://huggingface.co"
    assert plain.modelscope_endpoint == "https://www.modelscope.cn"
    assert plain.hf_token is None
    names = {"HF_ENDPOINT": "https://hf.test/", "HF_TOKEN": "hf_secret"}
    changed = Settings.from_environment(names | {"MODELSCOPE_DOMAIN": "www.modelscope.ai"})
    assert changed.hf_endpoint == "https://hf.test"
    assert changed.modelscope_endpoint == "https://www.modelscope.ai"
    assert changed.hf_token == "hf_secret"
    assert "hf_secret" not in repr(changed)


def test_pulled_checkpoints_are_found_by_name(tmp_path: Path) -> None:
    settings = Settings(tmp_path, tmp_path / "hub")
    with pytest.raises(ModelNotFound, match=f"'qwink pull {NAME}'"):
        find_folder(NAME, settings)
    cached = tmp_path / "hub" / "models--Org--Tiny-VL"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text(COMMIT)
    (cached / "snapshots" / COMMIT).mkdir(parents=True)
    assert find_folder(NAME, settings) == cached / "snapshots" / COMMIT
    pulled = checkpoint_folder(NAME, settings)
    assert pulled == tmp_path / "checkpoints" / "Org--Tiny-VL"
    pulled.mkdir(parents=True)
    assert find_folder(NAME, settings) == pulled


# the command


def test_pull_then_ask(fake: FakeHub, qwink: RunQwink, picture: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    fake.cuts = [1000]
    ran = qwink("pull", NAME, home=home, HF_ENDPOINT=fake.url)
    assert ran.code == 0, ran.err
    assert ran.out == f"qwink ask IMAGE --model {NAME}\n"
    lines = ran.err.splitlines()
    assert lines[0].startswith(f"qwink: downloading {NAME}: ")
    assert lines[1].startswith(f"qwink: {NAME} is in {home}")
    assert lines[2] == f"qwink: exporting {NAME}"
    assert lines[3].startswith("qwink: exported to ")
    stop(fake)  # asking must work without the hub
    command = [str(picture) if word == "IMAGE" else word for word in ran.out.split()[1:]]
    asked = qwink(*command, "-q", "Hi", "--max-tokens", 4, "--seed", 1, home=home)
    assert asked.code == 0, asked.err
    assert "exporting" not in asked.err


def test_pull_from_modelscope_without_export(
    fake: FakeHub, qwink: RunQwink, tmp_path: Path
) -> None:
    out = tmp_path / "my models" / "tiny"
    options = ("--from", "modelscope", "--no-export", "--out", out)
    ran = qwink("pull", NAME, *options, home=tmp_path / "home", MODELSCOPE_DOMAIN=fake.url)
    assert ran.code == 0, ran.err
    assert ran.out == f"qwink ask IMAGE --model '{out}'\n"
    assert_whole(out, fake)
    assert not (tmp_path / "home").exists()


def test_without_a_network(qwink: RunQwink, tmp_path: Path) -> None:
    ran = qwink("pull", NAME, home=tmp_path, HF_ENDPOINT="http://127.0.0.1:9")
    assert ran.code == 1
    assert len(ran.err.splitlines()) == 1
    assert ran.err.startswith("qwink: cannot reach 127.0.0.1 ")
    assert "--model FOLDER" in ran.err
    assert list(tmp_path.iterdir()) == []


def test_no_space(fake: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QWINK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_ENDPOINT", fake.url)
    size = sum(len(body) for body in fake.files.values())

    def usage(_: Path) -> Any:
        return SimpleNamespace(free=size)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    with pytest.raises(DownloadError, match=r"download and export need .* in .* are free"):
        pull(NAME, "huggingface")
    assert not any("resolve" in path for path, _ in fake.requests)
    assert not (tmp_path / "home").exists()


def test_full_disk_during_a_download(
    fake: FakeHub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Partial, "write", full)
        with pytest.raises(DownloadError, match=r"the disk is full.*resumes the download"):
            get(HuggingFace(fake.url), folder)
    get(HuggingFace(fake.url), folder)
    assert_whole(folder, fake)


def test_killed_during_a_download(fake: FakeHub, tmp_path: Path) -> None:
    home = tmp_path / "home"
    reached = threading.Event()
    send_file = fake.send_file

    def stuck(handler: BaseHTTPRequestHandler, name: str) -> None:
        if name != WEIGHTS:
            return send_file(handler, name)
        body = fake.files[name]
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[:5000])
        reached.set()
        time.sleep(5)
        return None

    command = [sys.executable, "-m", "qwink", "pull", NAME, "--no-export"]
    environment = os.environ | {"QWINK_HOME": str(home), "HF_ENDPOINT": fake.url}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fake, "send_file", stuck)
        process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        assert reached.wait(60)
        staging = home / "checkpoints" / ".Org--Tiny-VL.download"
        deadline = time.monotonic() + 30
        while sum(path.stat().st_size for path in staging.glob(f"{WEIGHTS}.*.part")) < 5000:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.kill()
        process.wait()
    assert [path.name for path in (home / "checkpoints").iterdir()] == [staging.name]
    get(HuggingFace(fake.url), home / "checkpoints" / "Org--Tiny-VL")
    assert fake.asked(WEIGHTS)[-1]["Range"] == "bytes=5000-"
    assert_whole(home / "checkpoints" / "Org--Tiny-VL", fake)


def test_estimates_of_export_sizes() -> None:
    estimates = {name: export_bytes(100, recipe) for name, recipe in RECIPES.items()}
    # small has one copy of the text model, in 4 bits; quality has one, in 8 bits; fast and
    # balanced have two; exact has one in fp32.
    assert estimates["small"] < estimates["quality"] < estimates["fast"] < estimates["balanced"]
    assert estimates["balanced"] < estimates["exact"]
    assert 200 < estimates["exact"] < 300
    assert 40 < estimates["small"] < 70
