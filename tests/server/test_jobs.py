"""OpenAI's files and batches, through the real client."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.server.process import SMALL, Serve, Server, ask, image, user

ENDED = ("completed", "failed", "expired", "cancelled")


def line(custom_id: str, *parts: Any, **fields: Any) -> dict[str, Any]:
    body = {"model": Server.model, "messages": [user(*parts)], "temperature": 0, "max_tokens": 6}
    return {
        "custom_id": custom_id,
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": body | SMALL | fields,
    }


def upload(client: openai.OpenAI, lines: list[Any]) -> str:
    content = "\n".join(text if isinstance(text, str) else json.dumps(text) for text in lines)
    return client.files.create(file=("in.jsonl", content.encode()), purpose="batch").id


def create(client: openai.OpenAI, lines: list[Any], **options: Any) -> Any:
    defaults: dict[str, Any] = {"endpoint": "/v1/chat/completions", "completion_window": "24h"}
    return client.batches.create(input_file_id=upload(client, lines), **defaults | options)


def wait(client: openai.OpenAI, batch: Any, *states: str) -> Any:
    while (batch := client.batches.retrieve(batch.id)).status not in (states or ENDED):
        time.sleep(0.05)
    return batch


def completed(client: openai.OpenAI, batch: Any) -> int:
    counts = client.batches.retrieve(batch.id).request_counts
    return 0 if counts is None else counts.completed


def read(client: openai.OpenAI, file_id: str | None) -> dict[str, Any]:
    """The lines of an output file by their custom_id, each of which occurs once."""
    assert file_id is not None
    lines = [json.loads(text) for text in client.files.content(file_id).text.splitlines()]
    found = {entry["custom_id"]: entry for entry in lines}
    assert len(found) == len(lines)
    return found


@pytest.fixture
def keeping(serve: Serve, tmp_path: Path) -> Server:
    """A server with a folder for files."""
    return serve("--files-dir", tmp_path / "files").wait_ready()


def test_a_batch_answers_as_single_requests_do(keeping: Server) -> None:
    with keeping.client() as client:
        questions = {f"q{n}": (image(n), "What is it?") for n in range(3)}
        lines = [line(name, *parts) for name, parts in questions.items()]
        batch = create(client, [*lines, "", line("bad", "Hi", temperature=-1)], metadata={"a": "b"})
        assert batch.object == "batch"
        batch = wait(client, batch)
        assert batch.status == "completed"
        assert batch.metadata == {"a": "b"}
        counts = batch.request_counts
        assert (counts.total, counts.completed, counts.failed) == (4, 3, 1)
        assert batch.created_at <= batch.in_progress_at <= batch.completed_at
        answers = read(client, batch.output_file_id)
        assert list(answers) == list(questions)  # in the order of the input
        for name, parts in questions.items():
            response = answers[name]["response"]
            alone = ask(client, user(*parts))
            assert response["status_code"] == 200
            assert response["request_id"]
            content = response["body"]["choices"][0]["message"]["content"]
            assert content == alone.choices[0].message.content
            assert response["body"]["usage"]["completion_tokens"] == 6
        (bad,) = read(client, batch.error_file_id).values()
        assert bad["custom_id"] == "bad"
        assert bad["response"]["status_code"] == 400
        assert bad["response"]["body"]["error"]["param"] == "temperature"


def test_responses_in_a_batch(keeping: Server) -> None:
    request = {"model": Server.model, "input": "Hi", "max_output_tokens": 6, "temperature": 0}
    lines = [{"custom_id": "a", "method": "POST", "url": "/v1/responses", "body": request}]
    with keeping.client() as client:
        batch = wait(client, create(client, lines, endpoint="/v1/responses"))
        body = read(client, batch.output_file_id)["a"]["response"]["body"]
        alone = client.responses.create(
            model=Server.model, input="Hi", max_output_tokens=6, temperature=0
        )
        assert body["output"][0]["content"][0]["text"] == alone.output_text


@pytest.mark.parametrize(
    ("lines", "code", "number"),
    [
        (["nonsense"], "invalid_json_line", 1),
        (["[1]"], "invalid_json_line", 1),
        ([line("a", "Hi"), line("a", "Hi")], "duplicate_custom_id", 2),
        ([line("", "Hi")], "missing_custom_id", 1),
        ([line("a", "Hi") | {"method": "GET"}], "invalid_method", 1),
        ([line("a", "Hi") | {"url": "/v1/responses"}], "invalid_url", 1),
        ([line("a", "Hi") | {"body": []}], "missing_body", 1),
        ([line("a", "Hi", stream=True)], "invalid_body", 1),
        ([""], "empty_file", None),
    ],
)
def test_a_wrong_file_fails_as_a_whole(
    shared: Server, lines: list[Any], code: str, number: int | None
) -> None:
    with shared.client() as client:
        batch = wait(client, create(client, lines))
        assert batch.status == "failed"
        assert [(error.code, error.line) for error in batch.errors.data] == [(code, number)]
        assert batch.output_file_id is None


@pytest.fixture(scope="module")
def shared(
    tiny_checkpoint: tuple[Path, Any], tiny_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """One server for the tests that leave nothing running."""
    from tests.server.process import starter

    folder = tmp_path_factory.mktemp("jobs")
    servers = starter(tiny_checkpoint[0], tiny_home, folder)
    serve = next(servers)
    yield serve("--files-dir", folder / "files", "--files-mb", 1).wait_ready()
    next(servers, None)


def test_files(shared: Server) -> None:
    with shared.client() as client:
        first, second = upload(client, ["1"]), upload(client, ["22"])
        file = client.files.retrieve(first)
        assert (file.bytes, file.filename, file.purpose) == (1, "in.jsonl", "batch")
        assert client.files.content(second).read() == b"22"
        found = [file.id for file in client.files.list(purpose="batch")]
        assert found[:2] == [second, first]
        assert [file.id for file in client.files.list(limit=1)][:2] == [second, first]  # by pages
        assert [file.id for file in client.files.list(order="asc")][-1] == second
        assert client.files.delete(first).deleted
        with pytest.raises(openai.NotFoundError):
            client.files.retrieve(first)
        with pytest.raises(openai.NotFoundError):
            client.files.content("file-../jobs.sqlite3")


def test_bad_uploads(shared: Server) -> None:
    with shared.client() as client:
        with pytest.raises(openai.BadRequestError, match="purpose"):
            client.files.create(file=("a.jsonl", b"x"), purpose="fine-tune")
        with pytest.raises(openai.BadRequestError, match="seconds"):
            client.files.create(
                file=("a.jsonl", b"x"),
                purpose="batch",
                expires_after={"anchor": "created_at", "seconds": 1},
            )
        kept = client.files.create(
            file=("a.jsonl", b"x"),
            purpose="batch",
            expires_after={"anchor": "created_at", "seconds": 3600},
        )
        assert kept.expires_at == kept.created_at + 3600
        with pytest.raises(openai.APIStatusError) as caught:
            client.files.create(file=("big.jsonl", bytes(1 << 20)), purpose="batch")
        assert caught.value.status_code == 413
        assert caught.value.code == "file_quota_exceeded"


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"endpoint": "/v1/embeddings"}, "endpoint"),
        ({"completion_window": "soon"}, "completion_window"),
        ({"input_file_id": "file-none"}, "input_file_id"),
        ({"metadata": {"a": "x" * 513}}, "metadata"),
        ({"output_expires_after": {"anchor": "now", "seconds": 3600}}, None),
    ],
)
def test_bad_batches(shared: Server, changed: dict[str, Any], param: str | None) -> None:
    with shared.client() as client:
        given = {"input_file_id": upload(client, [line("a", "Hi")]), "completion_window": "24h"}
        fields: Any = given | {"endpoint": "/v1/chat/completions"} | changed
        with pytest.raises(openai.BadRequestError) as caught:
            client.batches.create(**fields)
        assert param is None or caught.value.param == param
        with pytest.raises(openai.NotFoundError):
            client.batches.retrieve("batch_none")


def test_a_finished_batch_cannot_be_cancelled(shared: Server) -> None:
    with shared.client() as client:
        batch = wait(client, create(client, [line("a", "Hi")]))
        with pytest.raises(openai.ConflictError):
            client.batches.cancel(batch.id)
        assert batch.id in [found.id for found in client.batches.list(limit=2)]


def test_cancelling_keeps_what_there_is(serve: Serve, tmp_path: Path) -> None:
    server = serve("--files-dir", tmp_path / "files", "--max-running", 2).wait_ready()
    with server.client() as client:
        quick = [line(f"q{n}", f"Hi {n}") for n in range(4)]
        slow = [line(f"s{n}", f"Ho {n}", max_tokens=3500, temperature=1.5) for n in range(6)]
        batch = create(client, [*quick, *slow])
        while completed(client, batch) < 4:
            time.sleep(0.05)
        with pytest.raises(openai.ConflictError, match="cancel"):
            client.files.delete(batch.input_file_id)
        client.batches.cancel(batch.id)
        batch = wait(client, batch)
        assert batch.status == "cancelled"
        assert batch.cancelled_at >= batch.cancelling_at
        assert set(read(client, batch.output_file_id)) >= {f"q{n}" for n in range(4)}
        left = read(client, batch.error_file_id)
        assert {entry["error"]["code"] for entry in left.values()} == {"batch_cancelled"}
        assert "s5" in left
        server.wait_until(lambda: server.metric("qwink_running ") == 0)
        assert client.files.delete(batch.input_file_id).deleted


@pytest.mark.parametrize("kill", [False, True])
def test_a_restart_in_the_middle_answers_each_once(
    serve: Serve, tmp_path: Path, *, kill: bool
) -> None:
    flags = ("--files-dir", tmp_path / "files", "--max-running", 2, "--grace", 0)
    server = serve(*flags).wait_ready()
    with server.client() as client:
        batch = create(client, [line(f"q{n}", f"Hi {n}", max_tokens=40) for n in range(24)])
        while completed(client, batch) < 3:
            time.sleep(0.02)
    if kill:
        server.process.kill()
        server.wait()
    else:
        assert server.stop() == 0
    server = serve(*flags).wait_ready()
    with server.client() as client:
        batch = wait(client, batch)
        assert batch.status == "completed"
        assert batch.request_counts.completed == 24
        answers = read(client, batch.output_file_id)
        assert list(answers) == [f"q{n}" for n in range(24)]
        # The answers of the first process were not computed again.
        again = [entry for entry in server.requests() if entry["route"] == "/v1/chat/completions"]
        assert len(again) <= 21


def test_keys_see_their_own_only(serve: Serve, tmp_path: Path) -> None:
    server = serve("--files-dir", tmp_path / "files", QWINK_API_KEYS="one,two")
    server.wait_until(lambda: server.http.get(f"{server.address}/ready").status_code == 200)
    with server.client(api_key="one") as one, server.client(api_key="two") as two:
        batch = wait(one, create(one, [line("a", "Hi")]))
        assert batch.status == "completed"  # the batch's own requests need no key
        for call in (
            lambda: two.batches.retrieve(batch.id),
            lambda: two.batches.cancel(batch.id),
            lambda: two.files.retrieve(batch.input_file_id),
            lambda: two.files.content(batch.output_file_id),
            lambda: two.files.delete(batch.input_file_id),
        ):
            with pytest.raises(openai.NotFoundError):
                call()
        with pytest.raises(openai.BadRequestError, match="input file"):
            two.batches.create(
                input_file_id=batch.input_file_id,
                endpoint="/v1/chat/completions",
                completion_window="24h",
            )
        assert not list(two.files.list())
        assert not list(two.batches.list())
        with server.client(api_key="three") as other, pytest.raises(openai.AuthenticationError):
            other.files.list()
