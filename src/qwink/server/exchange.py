"""One request for an answer: read, admit, prepare, run. Endpoints add their parser and format."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ValidationError

from qwink.errors import DeadlineExceeded, ImageError, ShapeError
from qwink.runtime.drafting import DraftHints
from qwink.runtime.request import Request as Question
from qwink.runtime.stopwatch import Stopwatch
from qwink.server.asked import Asked
from qwink.server.auth import client_of
from qwink.server.background import BACKGROUND
from qwink.server.budgets import TokenTimes
from qwink.server.completion import timings_of, total_usage
from qwink.server.failures import Failure, as_failure, invalid, shutting_down
from qwink.server.fields import ignored_fields
from qwink.server.limits import ClientGone, body_of
from qwink.server.logs import Record, record_of
from qwink.server.pictures import Pictures
from qwink.server.service import AnswerEvents, ModelService
from qwink.server.shapes import failed_shape
from qwink.server.sse import Answer, EventStream, Formatter, disconnected
from qwink.types import Result, TokenLogprob

_EQUAL = ("the answers are greedy, so all choices are equal; set temperature above 0",)

T = TypeVar("T")
AnyRequest = TypeVar("AnyRequest", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Answering:
    """What all endpoints that answer share."""

    service: ModelService
    pictures: Pictures
    token_times: TokenTimes


class Exchange:
    """Handles one request. Its time, and the deadline, begin when it is created."""

    def __init__(self, answering: Answering, http: Request) -> None:
        self._service, self._pictures = answering.service, answering.pictures
        self._token_times, self._http = answering.token_times, http
        self._record: Record = record_of(http.scope)
        self._client = client_of(http.scope)
        self._watch = Stopwatch()
        self._record.answer_began = time.perf_counter()
        self._results: list[Result] = []
        # A request of a batch has until the batch expires.
        background: float | None = http.scope.get(BACKGROUND)
        self._of_batch = background is not None
        self._flex = False
        timeout = self._service.options.request_timeout
        self._deadline = time.monotonic() + timeout if background is None else background
        self.vlm = self._service.vlm

    def read(self, kind: type[AnyRequest]) -> tuple[AnyRequest, list[str]]:
        """The request in the body, and warnings about its unknown fields.

        Raises Failure for the first error and names the field.
        """
        # This check also stops foreign pages: an HTML form cannot send this type.
        media_type = self._http.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            message = "the body must be JSON; send Content-Type: application/json"
            raise Failure(415, message, "unsupported_media_type")
        request = parse(kind, body_of(self._http.scope).take())
        names, warnings = ignored_fields(request, self._service.options.strict)
        if names:
            self._record.details["ignored"] = names
        return request, warnings

    def check_model(self, model: str, stream: bool) -> None:
        """Raises Failure unless this server has the model."""
        names = self._service.model_names
        known = model in names
        self._record.details |= {"model": model if known else "unknown", "stream": stream}
        if not known:
            message = f"unknown model; this server has {', '.join(names)}"
            raise Failure(404, message, "model_not_found", "model")

    async def answer(self, asked: Asked, formatter: Formatter) -> Response:
        """The response. Raises Failure for every error before the response's first byte."""
        service = self._service
        body, stream = body_of(self._http.scope), asked.stream
        count = asked.count
        self._flex = asked.flex
        if not self._of_batch:
            service.admit(count, asked.flex)
            self._count_active(count)
        end = partial(self._end, count)
        streaming = False
        try:
            question = await self._while_connected(self._prepare(asked))
            # The request holds its pictures as text, as large as the body. The question does not.
            del asked
            body.release()
            events = service.submit(question.answers(count), self._record_result)
            if stream:
                streaming = True
                timeout = service.options.send_timeout
                return EventStream(events, formatter, self._record, timeout, end)
            try:
                answers = await self._while_connected(_collect(events))
            finally:
                events.close()
            return JSONResponse(formatter.document(answers))
        finally:
            if not streaming:
                end()

    def _end(self, count: int) -> None:
        if not self._of_batch:
            self._count_active(-count)

    def _count_active(self, count: int) -> None:
        if self._flex:
            self._service.num_flex += count
        else:
            self._service.num_active += count

    async def _prepare(self, asked: Asked) -> Question:
        """Raises DeadlineExceeded. Nothing goes on once it is cancelled or late."""
        stopped = threading.Event()
        try:
            async with self._service.preparing.limit(self._deadline - time.monotonic()):
                fetched = {
                    url: await self._service.fetch(
                        self._pictures.fetch, url, place, self._client, self._watch
                    )
                    for url, place in self._pictures.elsewhere(asked, self._client).items()
                }
                steps = self._prepare_steps(asked, fetched, stopped.is_set)
                question = await self._service.work_by_turns(steps)
        except TimeoutError:
            if self._service.preparing.over:
                raise shutting_down() from None
            raise DeadlineExceeded("the pictures took too long to prepare") from None
        finally:
            stopped.set()
        question.deadline = self._deadline
        question.background = self._of_batch or self._flex
        return question

    def _prepare_steps(
        self, asked: Asked, fetched: Mapping[str, bytes], stopped: Callable[[], bool]
    ) -> Generator[None, None, Question]:
        messages = self._pictures.messages(asked, fetched, self._client)
        try:
            question = yield from self.vlm.prepare_steps(
                messages,
                asked.sizes,
                asked.sampling,
                asked.num_logprobs,
                self._watch,
                asked.continue_final,
                stopped,
                asked.tools,
                DraftHints(self._client, asked.prediction),
            )
        except ShapeError as error:
            raise failed_shape(error, asked.shape_place) from None
        except ImageError as error:
            failure = as_failure(error)
            if error.index is not None:
                failure.param = asked.place_of(error.index)
            raise failure from None
        equal = asked.count > 1 and asked.sampling.for_task(question.task).temperature == 0
        question.warnings = (*asked.warnings, *(_EQUAL if equal else ()), *question.warnings)
        if "max_tokens" in asked.sampling.given:
            question.cut_reason = None  # the client chose the length; the finish reason tells it
        return question

    def _record_result(self, result: Result) -> None:
        self._results.append(result)
        self._service.metrics.count_answer(result)
        self._token_times.add(result)
        if not (self._of_batch or self._flex):
            self._service.record_duration(result.timings.total_ms / 1e3)
        usage = total_usage(self._results)
        self._record.details |= {
            "finish_reason": result.finish_reason,
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens,
            "image_tokens": usage.image_tokens,
            "completion_tokens": usage.completion_tokens,
            "timings": timings_of(result),
        }

    async def _while_connected(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`. Cancels it and raises ClientGone if the client disconnects."""
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(disconnected(self._http.receive))
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ClientGone
            return task.result()
        finally:
            gone.cancel()
            task.cancel()
            await asyncio.gather(task, gone, return_exceptions=True)


def parse(kind: type[AnyRequest], body: bytes | bytearray) -> AnyRequest:
    """The request in `body`. Raises Failure for the first error and names the field."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise invalid(error) from None


async def _collect(events: AnswerEvents) -> list[Answer]:
    """All answers, in the order of their numbers."""
    logprobs: list[list[TokenLogprob]] = [[] for _ in range(events.count)]
    results: dict[int, Result] = {}
    while len(results) < events.count:
        number, event = await events.next()
        logprobs[number] += event.logprobs
        if event.result is not None:
            results[number] = event.result
    return [Answer(results[number], tuple(found)) for number, found in enumerate(logprobs)]
