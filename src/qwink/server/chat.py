"""POST /v1/chat/completions: answers a conversation, as one document or as a stream."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from qwink.inputs.tokenizer import Tokenizer
from qwink.server.asked import Asked, image_options, sampling_of, template_limits, turns_of
from qwink.server.completion import CompletionFormatter
from qwink.server.exchange import Answering, Exchange
from qwink.server.failures import Failure
from qwink.server.schema import ChatRequest
from qwink.server.shapes import shape_of_chat
from qwink.server.tools import asked_tools, with_results_in_order
from qwink.types import SamplingParams

_GUIDED = ("json", "choice", "regex", "grammar")


def chat_routes(answering: Answering) -> APIRouter:
    router = APIRouter()
    schema = {"$ref": "#/components/schemas/ChatRequest"}
    body = {"required": True, "content": {"application/json": {"schema": schema}}}

    @router.post(
        "/v1/chat/completions", summary="Answer a conversation", openapi_extra={"requestBody": body}
    )
    async def complete(http: Request) -> Response:
        """OpenAI's chat completions, with pictures. `stream: true` gives server-sent events."""
        exchange = Exchange(answering, http)
        request, warnings = exchange.read(ChatRequest)
        exchange.check_model(request.model, bool(request.stream))
        vlm = exchange.vlm
        asking = [asked_of(request, warnings, vlm.sampling, vlm.tokenizer)]
        formatter = CompletionFormatter(
            request.model,
            vlm.tokenizer,
            bool(request.logprobs),
            bool(request.stream_options and request.stream_options.include_usage),
            request.n or 1,
            calls=bool(asking[0].tools),
        )
        del request  # the answer may take long, and the request is as large as its pictures
        return await exchange.answer(asking.pop(), formatter)

    return router


def asked_of(
    request: ChatRequest, warnings: list[str], defaults: SamplingParams, tokenizer: Tokenizer
) -> Asked:
    """What the request asks. Raises Failure, naming the field, if it cannot be answered."""
    places = [f"messages[{index}].content" for index in range(len(request.messages))]
    ordered = with_results_in_order(request.messages, places)
    turns = turns_of([message for message, _ in ordered], [place for _, place in ordered])
    continued = _is_continued(request)
    if turns[-1].role == "assistant" and not any(turns[-1].parts):
        turns, continued = turns[:-1], False  # to continue nothing is to begin
    guided = {name: getattr(request, f"guided_{name}") for name in _GUIDED}
    wanted = shape_of_chat(request.response_format, request.structured_outputs, guided)
    tools = asked_tools(
        [tool.function for tool in request.tools or ()],
        request.tool_choice,
        request.parallel_tool_calls,
    )
    shape, place = tools.shape(tokenizer, wanted) or (None, "")
    return Asked(
        model=request.model,
        turns=turns,
        stream=bool(request.stream),
        sizes=image_options(request),
        sampling=sampling_of(
            request, request.max_completion_tokens or request.max_tokens, defaults, shape
        ),
        shape_place=place,
        num_logprobs=(request.top_logprobs or 0) if request.logprobs else None,
        continue_final=continued,
        prediction=request.prediction.text if request.prediction else "",
        warnings=(*warnings, *template_limits(request.messages)),
        count=request.n or 1,
        tools=tools.described,
        flex=request.service_tier == "flex",
    )


def _is_continued(request: ChatRequest) -> bool:
    """Whether the answer continues the last turn: if it is the assistant's, unless told not to."""
    wanted, begun = request.continue_final_message, request.add_generation_prompt
    if request.messages[-1].role == "assistant":
        return wanted is not False and begun is not True
    name = "continue_final_message" if wanted else "add_generation_prompt"
    if wanted or begun is False:
        message = f"{name}: only a turn of the assistant can be continued; make it the last one"
        raise Failure(400, message, "invalid_value", name)
    return False
