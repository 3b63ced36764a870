"""POST /v1/responses: OpenAI's newer endpoint, for texts and pictures; nothing is stored."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from qwink.inputs.tokenizer import Tokenizer
from qwink.server.asked import Asked, image_options, sampling_of, template_limits, turns_of
from qwink.server.exchange import Answering, Exchange
from qwink.server.failures import Failure
from qwink.server.input_items import messages_of
from qwink.server.messages import ChatMessage
from qwink.server.response import ResponseFormatter
from qwink.server.response_schema import ResponseRequest
from qwink.server.shapes import response_shape
from qwink.server.tools import asked_tools, with_results_in_order
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
        vlm = exchange.vlm
        asking = [asked_of(request, warnings, vlm.sampling, vlm.tokenizer)]
        # What a picture or the words of the question change under task "auto" is not known yet.
        sampling = asking[0].sampling.for_task(asking[0].sizes.task)
        formatter = ResponseFormatter(request, sampling, vlm.tokenizer, calls=bool(asking[0].tools))
        del request  # the answer may take long, and the request is as large as its pictures
        return await exchange.answer(asking.pop(), formatter)

    return router


def asked_of(
    request: ResponseRequest, warnings: list[str], defaults: SamplingParams, tokenizer: Tokenizer
) -> Asked:
    """What the request asks. Raises Failure, naming the field, if it cannot be answered."""
    ordered = with_results_in_order(messages_of(request.input))
    messages = [one.message for one in ordered]
    places = [one.content for one in ordered]
    if request.is_text:
        places = ["input"]
    turns = turns_of(messages, places)
    if request.instructions:
        turns = turns_of([_instructions(request), *messages], ["instructions", *places])
    continued = messages[-1].role == "assistant"
    if continued and not any(turns[-1].parts):
        turns, continued = turns[:-1], False  # to continue nothing is to begin
    form = request.text.format if request.text is not None else None
    functions = request.tools or ()
    tools = asked_tools(functions, request.tool_choice, request.parallel_tool_calls, nested=False)
    if tools.usable and request.include:
        message = "include: answers that may call tools have no log-probabilities; leave one out"
        raise Failure(400, message, "unsupported_field", "include")
    shape, place = tools.shape(tokenizer, response_shape(form, "text.format")) or (None, "")
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
        tools=tools.described,
        flex=request.service_tier == "flex",
    )


def _instructions(request: ResponseRequest) -> ChatMessage:
    return ChatMessage.model_validate({"role": "system", "content": request.instructions})
