"""POST /v1/responses: OpenAI's newer endpoint, with pictures and tools; nothing is stored."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from qwink.inputs.tokenizer import Tokenizer
from qwink.server.asked import Asked, image_options, sampling_of, template_limits, turns_of
from qwink.server.exchange import Answering, Exchange
from qwink.server.messages import ChatMessage
from qwink.server.response import ResponseFormatter
from qwink.server.response_schema import ResponseRequest
from qwink.server.shapes import response_shape
from qwink.server.tools import RESPONSES, asked_tools, with_results_in_order
from qwink.types import SamplingParams


def response_routes(answering: Answering) -> APIRouter:
    router = APIRouter()
    schema = {"$ref": "#/components/schemas/ResponseRequest"}
    body = {"required": True, "content": {"application/json": {"schema": schema}}}

    @router.post("/v1/responses", summary="Answer an input", openapi_extra={"requestBody": body})
    async def respond(http: Request) -> Response:
        """OpenAI's responses, with pictures and tools. `stream: true` gives server-sent events."""
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
    placed = _turns(request)
    messages, places = [message for message, _ in placed], [place for _, place in placed]
    turns = turns_of(messages, places)
    if request.instructions:
        system = ChatMessage.model_validate({"role": "system", "content": request.instructions})
        turns = turns_of([system, *messages], ["instructions", *places])
    continued = messages[-1].role == "assistant"
    if continued and not any(turns[-1].parts):
        turns, continued = turns[:-1], False  # to continue nothing is to begin
    form = request.text.format if request.text is not None else None
    tools = asked_tools(
        request.tools or (), request.tool_choice, request.parallel_tool_calls, RESPONSES
    )
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


def _turns(request: ResponseRequest) -> list[tuple[ChatMessage, str]]:
    """The turns with their places. Calls belong to the assistant's turn in front of them."""
    if request.is_text:
        return [(request.input[0], "input")]
    turns: list[tuple[ChatMessage, str]] = []
    for index, item in enumerate(request.input):
        field = "output" if item.role == "tool" else "content"
        last = turns[-1][0] if turns else None
        if item.tool_calls and last is not None and last.role == "assistant":
            calls = [*(last.tool_calls or ()), *item.tool_calls]
            turns[-1] = last.model_copy(update={"tool_calls": calls}), turns[-1][1]
        else:
            turns.append((item, f"input[{index}].{field}"))
    messages, places = [message for message, _ in turns], [place for _, place in turns]
    return with_results_in_order(messages, places, RESPONSES)
