"""POST /v1/chat/completions: answers a conversation, as one document or as a stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import ValidationError

from qwink.errors import DeadlineExceeded, ImageError
from qwink.runtime.request import Request as Question
from qwink.runtime.sampling import AskedSampling
from qwink.runtime.stopwatch import Stopwatch
from qwink.server.budgets import TokenTimes
from qwink.server.completion import CompletionFormatter, timings_of
from qwink.server.failures import Failure, as_failure, invalid
from qwink.server.limits import ClientGone, body_of
from qwink.server.logs import Record, record_of
from qwink.server.pictures import Pictures, image_options, place_of
from qwink.server.schema import ChatRequest
from qwink.server.service import AnswerEvents, ModelService
from qwink.server.sse import EventStream, disconnected
from qwink.types import Result, SamplingParams, TokenLogprob

T = TypeVar("T")

_SAMPLING = [
    "temperature",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
]


def chat_routes(service: ModelService, token_times: TokenTimes) -> APIRouter:
    router = APIRouter()
    pictures = Pictures(service.options, service.uploads)
    schema = {"$ref": "#/components/schemas/ChatRequest"}
    body = {"required": True, "content": {"application/json": {"schema": schema}}}

    @router.post(
        "/v1/chat/completions", summary="Answer a conversation", openapi_extra={"requestBody": body}
    )
    async def complete(http: Request) -> Response:
        """OpenAI's chat completions, with pictures. `stream: true` gives server-sent events."""
        exchange = Exchange(service, pictures, token_times, http)
        return await exchange.respond()

    return router


class Exchange:
    """Handles one chat request: checks it, prepares its pictures, and responds."""

    def __init__(
        self, service: ModelService, pictures: Pictures, token_times: TokenTimes, http: Request
    ) -> None:
        self._service, self._pictures, self._http = service, pictures, http
        self._token_times = token_times
        self._record: Record = record_of(http.scope)
        self._watch = Stopwatch()
        self._deadline = time.monotonic() + service.options.request_timeout

    async def respond(self) -> Response:
        """The response. Raises Failure for every error before the response's first byte."""
        service = self._service
        vlm = service.vlm
        # This check also stops foreign pages: an HTML form cannot send this type.
        kind = self._http.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            message = "the body must be JSON; send Content-Type: application/json"
            raise Failure(415, message, "unsupported_media_type")
        body = body_of(self._http.scope)
        request = parse(body.take())
        self._record.details |= {
            "model": request.model if request.model in service.model_names else "unknown",
            "stream": bool(request.stream),
        }
        if request.model not in service.model_names:
            message = f"unknown model; this server has {', '.join(service.model_names)}"
            raise Failure(404, message, "model_not_found", "model")
        sampling = sampling_of(request, vlm.sampling)
        options = request.stream_options
        formatter = CompletionFormatter(
            request.model,
            vlm.tokenizer,
            bool(request.logprobs),
            bool(options and options.include_usage),
        )
        stream = bool(request.stream)
        service.admit()
        service.num_active += 1
        streaming = False
        try:
            question = await self._while_connected(self._prepare(request, sampling))
            # The request holds its pictures as text, as large as the body. The question does not.
            del request
            body.release()
            events = service.submit(question, self._record_result)
            if stream:
                streaming = True
                timeout = service.options.send_timeout
                return EventStream(events, formatter, self._record, timeout, self._end)
            try:
                result, logprobs = await self._while_connected(_collect(events))
            finally:
                events.close()
            return JSONResponse(formatter.completion(result, logprobs))
        finally:
            if not streaming:
                self._end()

    def _end(self) -> None:
        self._service.num_active -= 1

    async def _prepare(self, request: ChatRequest, sampling: AskedSampling) -> Question:
        work = self._service.work(self._prepare_in_thread, request, sampling)
        try:
            async with asyncio.timeout(self._deadline - time.monotonic()):
                question = await work
        except TimeoutError:
            raise DeadlineExceeded("the pictures took too long to prepare") from None
        question.deadline = self._deadline
        return question

    def _prepare_in_thread(self, request: ChatRequest, sampling: AskedSampling) -> Question:
        vlm = self._service.vlm
        messages = self._pictures.messages(request, self._watch)
        num_logprobs = (request.top_logprobs or 0) if request.logprobs else None
        options = image_options(request)
        try:
            return vlm.prepare(messages, options, sampling, num_logprobs, self._watch)
        except ImageError as error:
            failure = as_failure(error)
            if error.index is not None:
                failure.param = place_of(request, error.index)
            raise failure from None

    def _record_result(self, result: Result) -> None:
        usage = result.usage
        self._service.metrics.count_answer(result)
        self._token_times.add(result)
        self._service.record_duration(result.timings.total_ms / 1e3)
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


async def hung_up(http: Request) -> None:
    """Returns when the client is gone. `BodyLimit` has read the body."""
    while (await http.receive())["type"] != "http.disconnect":
        pass


def parse(body: bytes | bytearray) -> ChatRequest:
    """The request in `body`. Raises Failure for the first error and names the field."""
    try:
        return ChatRequest.model_validate_json(body)
    except ValidationError as error:
        raise invalid(error) from None


def sampling_of(request: ChatRequest, defaults: SamplingParams) -> AskedSampling:
    """The request's sampling parameters; the task and `defaults` fill those it leaves out."""
    given: dict[str, Any] = {name: getattr(request, name) for name in _SAMPLING}
    given["max_tokens"] = request.max_completion_tokens or request.max_tokens
    given["top_k"] = 0 if request.top_k == -1 else request.top_k  # vLLM's value for no limit
    given["stop"] = tuple(request.stop) if request.stop is not None else None
    chosen = {key: value for key, value in given.items() if value is not None}
    return AskedSampling.of(defaults, chosen)


async def _collect(events: AnswerEvents) -> tuple[Result, list[TokenLogprob]]:
    logprobs: list[TokenLogprob] = []
    while True:
        event = await events.next()
        logprobs += event.logprobs
        if event.result is not None:
            return event.result, logprobs
