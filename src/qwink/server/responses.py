"""POST /v1/responses: OpenAI's newer endpoint, for texts and pictures; nothing is stored."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from qwink.server.asked import Asked, image_options, sampling_of, template_limits, turns_of
from qwink.server.exchange import Answering, Exchange
from qwink.server.messages import ChatMessage
from qwink.server.response import ResponseFormatter
from qwink.server.response_schema import ResponseRequest
from qwink.server.shapes import response_shape
from qwink.types import SamplingParams


def response_routes(answering: Answering) -> APIRouter:
    router = APIRouter()
    schema = {"$ref": "#/components/schemas/ResponseRequest"}
    body = {"required": True, "content": {"application/json": {"schema": schema}}}

    @router.post("/v1/responses", summary="Answer an input", openapi_extra={"requestBody": body})
    async def respond(http: Request) -> Response:
        """OpenAI's responses, with pictures. `stream: true` gives server-sent events."""
        exchange = Exchange(answering, http)
        request, warnings = exchange.read(ResponseRequest)
        exchange.check_model(request.model, bool(request.stream))
        asking = [asked_of(request, warnings, exchange.vlm.sampling)]
        # What a picture or the words of the question change under task "auto" is not known yet.
        sampling = asking[0].sampling.for_task(asking[0].sizes.task)
        formatter = ResponseFormatter(request, sampling, exchange.vlm.tokenizer)
        del request  # the answer may take long, and the request is as large as its pictures
        return await exchange.answer(asking.pop(), formatter)

    return router


def asked_of(request: ResponseRequest, warnings: list[str], defaults: SamplingParams) -> Asked:
    """What the request asks. Raises Failure, naming the field, if it cannot be answered."""
    messages: list[ChatMessage] = list(request.input)
    places = [f"input[{index}].content" for index in range(len(messages))]
    if request.is_text:
        places = ["input"]
    turns = turns_of(messages, places)
    if request.instructions:
        turns = turns_of(_with_instructions(request), ["instructions", *places])
    continued = messages[-1].role == "assistant"
    if continued and not any(turns[-1].parts):
        turns, continued = turns[:-1], False  # to continue nothing is to begin
    form = request.text.format if request.text is not None else None
    shape, place = response_shape(form, "text.format") or (None, "")
    return Asked(
        model=request.model,
        turns=turns,
        stream=bool(request.stream),
        sizes=image_options(request),
        sampling=sampling_of(request, request.max_output_tokens, defaults, shape),
        shape_place=place,
        num_logprobs=(request.top_logprobs or 0) if request.include else None,
        continue_final=continued,
        warnings=(*warnings, *template_limits(messages)),
        flex=request.service_tier == "flex",
    )


def _with_instructions(request: ResponseRequest) -> list[ChatMessage]:
    system = ChatMessage.model_validate({"role": "system", "content": request.instructions})
    return [system, *request.input]
