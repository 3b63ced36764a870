"""The JSON of a chat request: fields of OpenAI, vLLM and qwink."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from qwink.inputs.budget import TOKEN_PIXELS
from qwink.inputs.strips import MOST_STRIPS
from qwink.server.fields import (
    INTEGRAL,
    Count,
    InvalidField,
    Lenient,
    Unsupported,
    all_empty,
    among,
    empty,
    without_unsupported,
)
from qwink.server.messages import ChatMessage
from qwink.server.tool_schema import FunctionTool
from qwink.types import Task


def _no_bias(value: Any) -> bool:
    return isinstance(value, dict) and not any(value.values())


def _implicit_cache(value: Any) -> bool:
    return isinstance(value, dict) and all_empty(value | {"mode": None}) and _implicit(value)


def _implicit(value: dict[str, Any]) -> bool:
    return value.get("mode") in (None, "implicit")


_ONE = "invalid_value"  # the code where a field has values that are supported
_OLD = "this is OpenAI's old form; write tools and tool_choice"
MAX_TOOLS = 128
# OpenAI's fields that both endpoints have, for features that this server lacks.
COMMON_UNSUPPORTED = {
    "moderation": Unsupported("this server does not moderate; leave it out", all_empty),
    "prompt_cache_options": Unsupported(
        'prompts are cached as long as there is room; write {"mode": "implicit"} or leave it out',
        _implicit_cache,
        _ONE,
    ),
    "prompt_cache_retention": Unsupported(
        'prompts are cached as long as there is room; write "in_memory" or leave it out',
        among("in_memory"),
        _ONE,
    ),
    "store": Unsupported(
        "this server stores no answers; write false or leave it out", among(False), _ONE
    ),
}
CHAT_UNSUPPORTED = COMMON_UNSUPPORTED | {
    "audio": Unsupported(
        'answers are text; leave it out, and write modalities ["text"] or leave it out', all_empty
    ),
    "function_call": Unsupported(_OLD, among("none", "auto")),
    "functions": Unsupported(_OLD, empty),
    "logit_bias": Unsupported("write {} or leave it out", _no_bias),
    "modalities": Unsupported(
        'answers are text; write ["text"] or leave it out', among([], ["text"]), _ONE
    ),
    "reasoning_effort": Unsupported(
        'this model answers without reasoning first; write "none" or leave it out',
        among("none", "minimal"),
    ),
    "verbosity": Unsupported(
        'say in the messages how long the answer should be; write "medium" or leave it out',
        among("medium"),
    ),
    "web_search_options": Unsupported("this server does not search the web; leave it out", among()),
}


MAX_CHOICES = 8  # answers to one request

# At least one visual token. `prepare` checks the model's limits.
Pixels = Annotated[int, Field(ge=TOKEN_PIXELS), INTEGRAL]


Strips = Literal["auto", "off"] | Annotated[int, Field(ge=2, le=MOST_STRIPS), INTEGRAL]


class StreamOptions(Lenient):
    include_usage: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, options: Any) -> Any:
        advice = "chunks are not padded; write false or leave it out"
        rule = Unsupported(advice, among(False), _ONE)
        return without_unsupported(options, {"include_obfuscation": rule})


class ProcessorOptions(Lenient):
    """vLLM's field for the size limits of pictures."""

    min_pixels: Pixels | None = None
    max_pixels: Pixels | None = None


def _as_list(stop: Any) -> Any:
    """One text or several; an empty one stops nothing."""
    texts = [stop] if isinstance(stop, str) else stop
    return [text for text in texts if text != ""] if isinstance(texts, list) else texts


StopText = Annotated[str, Field(min_length=1, max_length=1000)]


class PredictedText(Lenient):
    """A piece of a predicted answer."""

    type: Literal["text"]
    text: str


class Prediction(Lenient):
    """A text that the answer will probably resemble, such as a file to be changed a little.

    Where it is right the answer comes sooner; it never changes the answer.
    """

    type: Literal["content"]
    content: str | list[PredictedText] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content or ())


class AnswerRequest(Lenient):
    """What all requests for an answer share. What is absent or null takes the model's defaults."""

    model: str
    stream: bool | None = None

    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: Annotated[int, Field(ge=-1), INTEGRAL] | None = None
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, ge=0.01, le=100)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64), INTEGRAL] | None = None
    stop: Annotated[
        list[StopText] | None, BeforeValidator(_as_list, json_schema_input_type=Any)
    ] = Field(None, max_length=16)
    top_logprobs: Annotated[int, Field(ge=0, le=20), INTEGRAL] | None = None

    task: Task | None = Field(None, description="Kind of question; sets the pictures' size.")
    min_pixels: Pixels | None = None
    max_pixels: Pixels | None = None
    mm_processor_kwargs: ProcessorOptions | None = None
    strips: (
        Literal["auto", "off"] | Annotated[int, Field(ge=2, le=MOST_STRIPS), INTEGRAL] | None
    ) = Field(None, description="Whether a page is cut into strips that are read together.")

    stream_options: StreamOptions | None = None
    service_tier: Literal["auto", "default", "flex"] | None = Field(
        None, description="flex: other requests come first, and a slot is left to them."
    )

    # Accepted because they do not change the answer.
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    metadata: dict[str, str] | None = Field(None, max_length=16)

    @model_validator(mode="after")
    def _sizes_agree(self) -> AnswerRequest:
        nested = self.mm_processor_kwargs or ProcessorOptions()
        for name in ("min_pixels", "max_pixels"):
            one_of_both(name, getattr(self, name), getattr(nested, name))
        return self


class ChatRequest(AnswerRequest):
    """A chat request. Fields that are absent or null take the model's defaults."""

    messages: list[ChatMessage] = Field(min_length=1)
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES), INTEGRAL] | None = None
    prediction: Prediction | None = None

    tools: list[FunctionTool] | None = Field(None, max_length=MAX_TOOLS)
    tool_choice: Any = Field(None, description="none, auto, required, or a function's name.")
    parallel_tool_calls: bool | None = None

    response_format: Any = Field(None, description="Text, any JSON object, or JSON by a schema.")
    # vLLM's fields for the shape of the answer, of which `guided_...` are older.
    structured_outputs: Any = Field(
        None, description="One of json, json_object, choice, regex and grammar."
    )
    guided_json: Any = None
    guided_choice: Any = None
    guided_regex: Any = None
    guided_grammar: Any = None

    # vLLM's fields: whether the answer continues the last turn, or begins a new one.
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, request: Any) -> Any:
        if not isinstance(request, dict):
            raise InvalidField("the body must be a JSON object")
        return without_unsupported(request, CHAT_UNSUPPORTED)

    @model_validator(mode="after")
    def _is_consistent(self) -> ChatRequest:
        one_of_both("max_tokens", self.max_tokens, self.max_completion_tokens)
        if self.top_logprobs and not self.logprobs:
            raise InvalidField("top_logprobs needs logprobs: true", field="top_logprobs")
        if self.continue_final_message is not None and (
            self.continue_final_message is self.add_generation_prompt
        ):
            raise InvalidField(
                "continue_final_message and add_generation_prompt must differ; give one of them",
                field="continue_final_message",
            )
        return self


def one_of_both(name: str, one: int | None, two: int | None) -> None:
    """Refuse a value that is given twice and differs."""
    if None not in (one, two) and one != two:
        raise InvalidField(f"{name} is given twice, with different values", field=name)
