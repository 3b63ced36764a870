"""The server as a process: limits, API keys, faults and shutdown."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import openai
import pytest

from qwink import __version__
from qwink.native import capabilities
from qwink.server.failures import Failure
from tests.server.process import PATIENCE_S, Serve, Server, ask, image, png, user

# Sampled, because a greedy answer of this model repeats itself and is stopped early.
ENDLESS: dict[str, Any] = {"max_tokens": 3500, "temperature": 1.5}
LONG: dict[str, Any] = {"messages": [user("Hi")]} | ENDLESS


def read_all(connection: Any) -> bytes:
    pieces = []
    while piece := connection.recv(1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


def test_a_full_queue_answers_429(serve: Serve) -> None:
    server = serve("--max-running", 1, "--max-waiting", 1).wait_ready()
    streams = []
    for number in (1, 2):
        streams.append(server.send(**LONG, stream=True))
        server.wait_until(lambda n=number: server.metric("qwink_active ") == n)  # type: ignore[misc]
    server.wait_until(lambda: server.metric("qwink_waiting ") == 1)
    with server.client() as client:
        with pytest.raises(openai.RateLimitError) as caught:
            ask(client, user("Hi"))
        assert 1 <= int(caught.value.response.headers["retry-after"]) <= 60
        for stream in streams:
            stream.close()
        server.wait_until(lambda: server.metric("qwink_active ") == 0)
        assert ask(client, user("Hi")).choices
    assert server.stop() == 0


def test_bodies_of_slow_answers_do_not_count(serve: Serve) -> None:
    server = serve("--max-body-mb", 1).wait_ready()
    streams = []
    for number in range(1, 12):  # bodies of 9.5 MB together; 8 are the limit
        streams.append(server.send(**LONG, stream=number % 2 == 0, user="x" * 900_000))
        server.wait_until(lambda n=number: server.metric("qwink_active ") == n)  # type: ignore[misc]
    server.wait_until(lambda: server.metric("qwink_running ") == 8)
    assert not [line for line in server.requests() if line["status"] == 429]
    for stream in streams:
        stream.close()
    server.wait_until(lambda: server.metric("qwink_active ") == 0)
    with server.client() as client:
        assert ask(client, user(image(1), "Hi")).choices
    assert server.stop() == 0


def test_keys(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "keys.txt"
    file.write_text("# ours\nfirst-key\nsecond-key\n")
    flags = ("--api-key-file", file, "--no-open-metrics", "--served-model-name", "gpt-mine")
    server = serve(*flags, QWINK_API_KEYS="third-key").wait_ready()
    for key in ("first-key", "second-key", "third-key"):
        with server.client(api_key=key) as client:
            assert [model.id for model in client.models.list()] == ["gpt-mine"]
    for key in ("first", "first-keyy", "# ours", "schlüssel"):
        headers = {b"Authorization": f"Bearer {key}".encode()}
        for method, path in (("GET", "/v1/models"), ("POST", "/v1/images"), ("GET", "/metrics")):
            response = server.http.request(method, server.address + path, headers=headers)
            assert response.status_code == 401
            assert response.json()["error"]["code"] == "invalid_api_key"
    for path in ("/health", "/ready", "/docs"):
        assert server.http.get(server.address + path).status_code == 200
    with server.client(api_key="wrong") as client, pytest.raises(openai.AuthenticationError):
        ask(client, user("Hi"))
    with server.client(api_key="first-key") as client:
        assert ask(client, user("Hi"), model="gpt-mine").model == "gpt-mine"
    assert server.stop() == 0
    assert "-key" not in server.log + "".join(server.printed)


@pytest.mark.parametrize("engine", ["onnx", "torch"])
def test_a_disconnect_frees_the_slot(serve: Serve, engine: str) -> None:
    server = serve("--engine", engine).wait_ready()
    for stream in (True, False):
        before = server.metric("qwink_generated_tokens_total")
        with server.send(**LONG, stream=stream):
            server.wait_until(lambda: server.metric("qwink_running ") == 1)
        server.wait_until(lambda: server.metric("qwink_running ") == 0)
        server.wait_until(lambda: server.metric("qwink_active ") == 0)
        assert server.metric("qwink_generated_tokens_total") - before < ENDLESS["max_tokens"]
    server.wait_until(lambda: any(line["status"] == 499 for line in server.requests()))


def test_shutdown_waits_for_running_answers(serve: Serve) -> None:
    server = serve().wait_ready()
    with server.client() as client:
        stream = ask(client, user("Hi"), max_tokens=200, temperature=1.5, stream=True)
        next(stream)
        server.process.send_signal(signal.SIGTERM)
        server.wait_until(lambda: "stopping" in "".join(server.printed))
        with pytest.raises(openai.InternalServerError, match="shutting down"):
            ask(client, user("Hi"))
        chunks = list(stream)
    assert chunks[-1].choices[0].finish_reason == "length"
    assert server.wait() == 0


def test_shutdown_ends_answers_after_the_grace(serve: Serve) -> None:
    server = serve("--grace", "0.3").wait_ready()
    whole = server.send(**LONG)
    with server.client() as client:
        stream = ask(client, user("Hi"), stream=True, **ENDLESS)
        next(stream)
        server.wait_until(lambda: server.metric("qwink_running ") == 2)
        server.process.send_signal(signal.SIGINT)
        with pytest.raises(openai.APIError, match="shutting down"):
            list(stream)
    with whole:
        assert b" 503 " in read_all(whole).split(b"\r\n")[0]
    assert server.wait() == 0
    assert all(line["status"] != 500 for line in server.requests())


BREAK = """
import os, sys
from qwink.cli import main
from qwink.engine.onnx import OnnxEngine
step = OnnxEngine.step
def breaking(self, *arguments):
    if os.path.exists(os.environ["BREAK"]):
        raise SystemExit("broken")
    return step(self, *arguments)
OnnxEngine.step = breaking
main()
"""


def test_a_dead_engine_ends_the_process(serve: Serve, tmp_path: Path) -> None:
    server = serve(code=BREAK, BREAK=str(tmp_path / "now")).wait_ready()
    with server.client() as client:
        stream = ask(client, user("Hi"), stream=True, **ENDLESS)
        next(stream)
        (tmp_path / "now").touch()
        with pytest.raises(openai.APIError, match="engine has stopped"):
            list(stream)
    assert server.http.get(f"{server.address}/health").status_code == 503
    assert server.wait() == 1
    assert "the engine failed: broken" in server.log


def test_requests_before_the_model_is_loaded_get_503(serve: Serve, tmp_path: Path) -> None:
    slow = "import time; from qwink.runtime import models; from qwink.server import run\n"
    slow += "load = run.load\n"
    slow += "run.load = lambda *a, **k: (time.sleep(2), load(*a, **k))[1]\n"
    server = serve(code=f"{slow}from qwink.cli import main; main()")
    assert server.http.get(f"{server.address}/health").status_code == 200
    ready = server.http.get(f"{server.address}/ready")
    assert (ready.status_code, ready.json()["error"]["code"]) == (503, "not_ready")
    with server.client() as client, pytest.raises(openai.InternalServerError, match="loading"):
        ask(client, user("Hi"))
    server.wait_ready()
    assert server.stop() == 0


def test_a_model_that_does_not_load_ends_the_process(serve: Serve) -> None:
    server = serve("--model", "/nowhere")
    assert server.wait() == 1
    assert "no model '/nowhere'" in server.log.splitlines()[-1]


def test_a_taken_port(server: Server, serve: Serve) -> None:
    port = server.address.rsplit(":", 1)[1]
    second = serve("--port", port)
    assert second.wait() == 2
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in second.log


def head(path: str, *lines: str) -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode()


def test_large_bodies_are_refused(server: Server) -> None:
    chat = "/v1/chat/completions"
    for size in (1_500_000, 20_000_000):
        response = server.http.post(server.address + chat, content=b"x" * size)
        assert (response.status_code, response.json()["error"]["code"]) == (413, "body_too_large")
    with server.connect() as connection:  # without Content-Length
        connection.sendall(head(chat, "Transfer-Encoding: chunked"))
        chunk = b"%x\r\n%s\r\n" % (1 << 16, b"x" * (1 << 16))
        try:
            for _ in range(1000):
                connection.sendall(chunk)
            raise AssertionError("the server accepted 64 MB")
        except ConnectionError:
            pass
    with server.connect() as connection:  # Expect: 100-continue
        lines = ("Content-Length: 1500000", "Expect: 100-continue")
        connection.sendall(head(chat, *lines))
        assert b" 413 " in read_all(connection).split(b"\r\n")[0]


def test_slow_clients_time_out(server: Server) -> None:
    started = time.monotonic()
    with server.connect() as connection:
        connection.sendall(head("/v1/images", "Content-Length: 1000") + b"x")
        assert b" 408 " in read_all(connection).split(b"\r\n")[0]
    assert 1.5 < time.monotonic() - started < PATIENCE_S
    with server.connect() as gone:
        gone.sendall(head("/v1/images", "Content-Length: 1000") + b"x")
    assert server.http.get(f"{server.address}/health").status_code == 200


def test_foreign_pages_are_refused(server: Server) -> None:
    url = f"{server.address}/v1/images"
    foreign = server.http.post(url, content=png(1), headers={"Origin": "http://evil.example"})
    assert foreign.json()["error"]["code"] == "origin_not_allowed"
    rebound = server.http.get(f"{server.address}/v1/models", headers={"Host": "evil.example"})
    assert rebound.json()["error"]["code"] == "host_not_allowed"
    assert "access-control-allow-origin" not in foreign.headers
    same = server.http.post(url, content=png(1), headers={"Origin": server.address})
    assert same.status_code == 200


def test_origins_can_be_allowed(serve: Serve) -> None:
    flags = ("--allow-origin", "https://page.example", "--allow-url-host", "pictures.example")
    server = serve(*flags).wait_ready()
    headers = {"Origin": "https://page.example", "Access-Control-Request-Method": "POST"}
    asked = server.http.options(f"{server.address}/v1/chat/completions", headers=headers)
    assert asked.headers["access-control-allow-origin"] == "https://page.example"
    sent = server.http.post(f"{server.address}/v1/images", content=png(1), headers=headers)
    assert sent.status_code == 200
    there = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:9/a.png"}}
    with server.client() as client, pytest.raises(openai.BadRequestError) as caught:
        ask(client, user(there))  # a host that is not allowed
    assert caught.value.code == "image_not_fetched"
    assert server.stop() == 0


def test_a_restart_finds_encoded_images_on_disk(serve: Serve, tmp_path: Path) -> None:
    flags = ("--disk-cache", "--cache-dir", tmp_path / "images")
    texts = []
    for origin in ("computed", "reused"):
        server = serve(*flags).wait_ready()
        with server.client() as client:
            answer = ask(client, user(image(1), "What is it?"))
        assert answer.timings["origins"]["encode"] == origin
        texts.append(answer.choices[0].message.content)
        found = server.metric('qwink_cache_hits_total{cache="embeddings_on_disk"}')
        assert found == (origin == "reused")
        assert server.stop() == 0
    assert texts[0] == texts[1]


def test_requests_time_out(serve: Serve) -> None:
    server = serve("--request-timeout", "0.7").wait_ready()
    with server.client(max_retries=2) as client:
        with pytest.raises(openai.InternalServerError) as caught:
            ask(client, user("Hi"), **ENDLESS)
        assert caught.value.status_code == 504
        with pytest.raises(openai.APIError, match="longer than"):
            list(ask(client, user("Hi"), stream=True, **ENDLESS))
    assert server.stop() == 0  # a stream's log line follows its last byte
    chats = [line for line in server.requests() if line["route"] == "/v1/chat/completions"]
    assert len(chats) == 2  # the client did not try again


def test_two_signals_hurry(serve: Serve) -> None:
    server = serve("--grace", "60").wait_ready()
    with server.send(**LONG, stream=True):
        server.wait_until(lambda: server.metric("qwink_running ") == 1)
        started = time.monotonic()
        for _ in range(2):
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
        assert server.wait() == 0
        assert time.monotonic() - started < 30


def test_first_lines_and_metrics_say_what_computes(serve: Serve) -> None:
    server = serve().wait_ready()
    here = capabilities()
    lines = server.printed
    assert f"qwink: kernels on this processor: {here.kernels}" in lines[1]
    assert lines[1].strip().endswith(here.advice)
    server.wait_until(lambda: any("ready with" in line for line in lines))
    ready = next(line for line in lines if "ready with" in line)
    assert f"(engine onnx, recipe balanced, kernels {here.kernels})" in ready
    labels = f'engine="onnx",kernels="{here.kernels}",recipe="balanced",version="{__version__}"'
    assert f"qwink_info{{{labels}}} 1.0" in server.http.get(f"{server.address}/metrics").text
    assert server.stop() == 0


WITHOUT_LIBRARY = """
from pathlib import Path
from qwink import native
native.LIBRARY = Path("/nowhere")
from qwink.cli import main
main()
"""


def test_slow_kernels_come_with_the_way_out(serve: Serve, tmp_path: Path) -> None:
    server = serve(code=WITHOUT_LIBRARY, QWINK_HOME=str(tmp_path / "home")).wait_ready()
    assert "kernels on this processor: onnxruntime; " in server.printed[1]
    assert "install its wheel" in server.printed[1] or "this processor lacks" in server.printed[1]
    assert server.stop() == 0


def test_every_429_and_503_says_when_to_try_again() -> None:
    for status in (429, 503):
        assert int(Failure(status, "", "").headers["Retry-After"]) > 0
    assert Failure(429, "", "", headers={"Retry-After": "9"}).headers == {"Retry-After": "9"}
    assert "Retry-After" not in Failure(500, "", "").headers


def test_shutting_down_says_when_to_try_again(serve: Serve) -> None:
    server = serve().wait_ready()
    with server.send(**LONG, stream=True):
        server.wait_until(lambda: server.metric("qwink_running ") == 1)
        server.process.send_signal(signal.SIGTERM)
        server.wait_until(lambda: "stopping" in "".join(server.printed))
        refused = server.http.get(f"{server.address}/ready")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    assert server.wait() == 0
