"""Requests with service_tier "flex" let others pass."""

from __future__ import annotations

from tests.server.process import Serve, Server, ask, user

LONG = {
    "max_tokens": 1500,
    "messages": [user("Hi")],
    "service_tier": "flex",
    "temperature": 2,
    "seed": 1,
}


def statuses(server: Server) -> list[int]:
    """Of the requests for answers that have ended."""
    return [one["status"] for one in server.requests() if one["route"] == "/v1/chat/completions"]


def test_a_live_request_passes_those_that_wait(serve: Serve) -> None:
    server = serve("--max-running", 2, "--max-waiting", 4).wait_ready()
    flexible = [server.send(**LONG) for _ in range(4)]
    try:
        server.wait_until(lambda: server.metric("qwink_running") > 0)
        with server.client() as client:
            answer = ask(client, user("Hello"), max_tokens=2)
        assert answer.usage.completion_tokens == 2
        server.wait_until(lambda: statuses(server))  # the log follows the answer
        assert statuses(server) == [200]  # the flexible ones go on
    finally:
        for connection in flexible:
            connection.close()


def test_flexible_requests_have_room_of_their_own(serve: Serve) -> None:
    server = serve("--max-running", 1, "--max-waiting", 1).wait_ready()
    flexible = [server.send(**LONG) for _ in range(4)]
    try:
        server.wait_until(lambda: statuses(server) == [429])
        with server.client() as client:
            assert ask(client, user("Hello"), max_tokens=2).usage.completion_tokens == 2
    finally:
        for connection in flexible:
            connection.close()
