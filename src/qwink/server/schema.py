"""The JSON of a chat request: fields of OpenAI, vLLM and qwink. Unknown fields are refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from qwink.inputs.budget import TOKEN_PIXELS
from qwink.server.failures import Failure
from qwink.types import Task

# OpenAI's fields for features that this server lacks. They are accepted only as null.
_UNSUPPORTED = frozenset(
    {
        "audio",
        "function_call",
        "functions",
        "logit_bias",
        "moderation",
        "parallel_tool_calls",
        "prediction",
        "reasoning_effort",
        "tool_choice",
        "tools",
        "verbosity",
        "web_search_options",
    }
)
# OpenAI's answers have these fields in messages, so clients send them back. Accepted if empty.
_EMPTY_IN_MESSAGES = ("annotations", "audio", "function_call", "refusal", "tool_calls")


# At least one visual token. `prepare` checks the model's limits.
Pixels = Annotated[int | None, Field(ge=TOKEN_PIXELS)]


class InvalidField(ValueError, Failure):
    """A field has an invalid value. A ValueError, so that pydantic reports it with its field."""

    def __init__(self, message: str, code: str = "invalid_value") -> None:
        Failure.__init__(self, 400, message, code)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class ImageUrl(_Strict):
    """Where a picture is: `data:image/...;base64,...`, `qwink:sha256:...`, or http(s) if allowed.

    `detail` sets the size: `low` gives about 448×448 px (196 tokens), `high` enough for a page
    (1280 tokens), `auto` the size for the request's `task`.
    """

    url: str = Field(min_length=1)
    detail: Literal["auto", "low", "high"] | None = "auto"


class Part(_Strict):
    """A piece of a message: a text or a picture."""

    type: Literal["text", "image_url"]
    text: str | None = None
    image_url: ImageUrl | None = None

    @model_validator(mode="after")
    def _matches_its_type(self) -> Part:
        other = "image_url" if self.type == "text" else "text"
        if getattr(self, self.type) is None:
            raise InvalidField(f"a part of type {self.type} needs the field {self.type}")
        if getattr(self, other) is not None:
            raise InvalidField(f"a part of type {self.type} has no field {other}")
        return self


def _as_parts(content: Any) -> Any:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, list):
        return content
    raise InvalidField("content must be a string or a list of parts")


class ChatMessage(_Strict):
    """One turn. Only turns of the user may hold pictures."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[list[Part], BeforeValidator(_as_parts, json_schema_input_type=Any)]

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, message: Any) -> Any:
        if not isinstance(message, dict):
            return message
        for name in _EMPTY_IN_MESSAGES:
            if message.get(name):
                raise InvalidField(f"{name} is not supported in messages", "unsupported_field")
        return {key: value for key, value in message.items() if key not in _EMPTY_IN_MESSAGES}


class StreamOptions(_Strict):
    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None


class ResponseFormat(_Strict):
    type: Literal["text"]


class ProcessorOptions(_Strict):
    """vLLM's field for the size limits of pictures."""

    min_pixels: Pixels = None
    max_pixels: Pixels = None


def _as_list(stop: Any) -> Any:
    return [stop] if isinstance(stop, str) else stop


StopText = Annotated[str, Field(min_length=1, max_length=1000)]


class ChatRequest(_Strict):
    """A chat request. Fields that are absent or null take the model's defaults."""

    model: str
    messages: list[ChatMessage] = Field(min_length=1)

    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Literal[1] | None = None

    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1)
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, ge=0.01, le=100)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    seed: int | None = Field(None, ge=-(2**63), lt=2**64)
    stop: Annotated[
        list[StopText] | None, BeforeValidator(_as_list, json_schema_input_type=Any)
    ] = Field(None, max_length=16)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)

    task: Task | None = Field(None, description="Kind of question; sets the pictures' size.")
    min_pixels: Pixels = None
    max_pixels: Pixels = None
    mm_processor_kwargs: ProcessorOptions | None = None

    # Accepted because they do not change the answer.
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    metadata: dict[str, str] | None = Field(None, max_length=16)
    store: Literal[False] | None = None
    service_tier: Literal["auto", "default"] | None = None
    modalities: list[Literal["text"]] | None = None
    response_format: ResponseFormat | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, request: Any) -> Any:
        if not isinstance(request, dict):
            raise InvalidField("the body must be a JSON object")
        for name in sorted(_UNSUPPORTED & request.keys()):
            if request[name] is not None:
                error = InvalidField(f"{name} is not supported; leave it out", "unsupported_field")
                error.param = name
                raise error
        return {key: value for key, value in request.items() if key not in _UNSUPPORTED}

    @field_validator("n", "store", "response_format", "modalities", mode="wrap")
    @classmethod
    def _explain_allowed_values(cls, value: Any, check: Any) -> Any:
        try:
            return check(value)
        except ValueError:
            allowed = "only one plain-text answer, not stored (n=1, store=false)"
            raise InvalidField(f"this value is not supported; {allowed}") from None

    @model_validator(mode="after")
    def _is_consistent(self) -> ChatRequest:
        nested = self.mm_processor_kwargs or ProcessorOptions()
        pairs = [
            ("max_tokens", self.max_tokens, self.max_completion_tokens),
            ("min_pixels", self.min_pixels, nested.min_pixels),
            ("max_pixels", self.max_pixels, nested.max_pixels),
        ]
        wrong = [name for name, one, two in pairs if None not in (one, two) and one != two]
        if wrong:
            raise _about(wrong[0], "is given twice, with different values")
        if self.top_logprobs is not None and not self.logprobs:
            raise _about("top_logprobs", "needs logprobs: true")
        if self.stream_options is not None and not self.stream:
            raise _about("stream_options", "needs stream: true")
        return self


def _about(param: str, message: str) -> InvalidField:
    error = InvalidField(f"{param} {message}")
    error.param = param
    return error
