"""Questions to a server from several threads, and what became of them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai

from tests.server.process import Server, image, user


class Load:
    """`outcomes` counts "ok", the code of an error, or the name of an exception."""

    def __init__(self, server: Server, **options: Any) -> None:
        self._server, self._options = server, options
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.outcomes: Counter[str] = Counter()
        self.retry_after: list[str | None] = []  # of errors with status 503

    def ask_on(self, number: int) -> None:
        with self._server.client() as client:
            seed = number * 1000
            while not self._stop.is_set():
                seed += 1
                outcome = self._ask(client, seed // 2)  # each picture twice
                with self._lock:
                    self.outcomes[outcome] += 1

    def _ask(self, client: openai.OpenAI, seed: int) -> str:
        stream = seed % 2 == 0
        try:
            answer = client.chat.completions.create(
                model=self._server.model,
                messages=[user(image(seed), "Describe it in detail.")],
                max_tokens=24,
                stream=stream,
                extra_body={"min_pixels": 16_384, "max_pixels": 16_384},
                **self._options,
            )
            if stream:
                chunks: list[Any] = list(answer)
                assert chunks[-1].choices[0].finish_reason
        except openai.APIStatusError as error:
            if error.status_code == 503:
                self.retry_after.append(error.response.headers.get("retry-after"))
            return f"{error.status_code} {error.code}"
        except openai.APIConnectionError as error:
            return type(error).__name__
        except openai.APIError as error:  # in a stream that had begun
            return f"stream {error.code}"
        return "ok"

    def wait_for(self, count: int) -> None:
        """Until so many more questions are answered."""
        wanted = self.outcomes["ok"] + count
        self._server.wait_until(lambda: self.outcomes["ok"] >= wanted)


@contextmanager
def load(server: Server, num_users: int = 4) -> Iterator[Load]:
    """Users who ask until the end of the block."""
    load = Load(server)
    threads = [threading.Thread(target=load.ask_on, args=(n,)) for n in range(1, num_users + 1)]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        load._stop.set()
        for thread in threads:
            thread.join()
