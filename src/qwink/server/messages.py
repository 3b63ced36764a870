"""The JSON of a conversation's turns, in the spellings of chat completions and of responses."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from qwink.server.fields import (
    INTEGRAL,
    InvalidField,
    Lenient,
    Unsupported,
    empty,
    without_unsupported,
)
from qwink.server.tool_schema import MessageCall

_TEXTS = ("text", "input_text", "output_text", "refusal")
_IMAGES = ("image_url", "input_image")
_VIDEOS = ("video_url", "input_video", "video")
_FILES = ("file", "input_file")
_HOW = (
    'write {"type": "text", "text": "..."} or '
    '{"type": "image_url", "image_url": {"url": "data:image/png;base64,..."}}'
)
_HOW_PICTURE = (
    'write {"type": "image_url", "image_url": {"url": "data:image/png;base64,..."}} '
    'or {"type": "input_image", "image_url": "data:image/png;base64,..."}'
)
_HOW_VIDEO = (
    'write {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,..."}}, or '
    '{"type": "video", "video": [URLs of pictures], "fps": 2}'
)
_HOW_FILE = (
    'write {"type": "file", "file": {"file_data": "data:application/pdf;base64,..."}}, with '
    'pages such as "1-3" beside file_data'
)
# Names of qwen-vl-utils for our options of videos.
_VIDEO_NAMES = {"nframes": "num_frames", "video_start": "start", "video_end": "end"}
_UNSUPPORTED_PARTS = {
    "input_audio": "sound is not supported; write what is said as text",
    "image": f"this is not OpenAI's spelling of a picture; {_HOW_PICTURE}",
    "tool_use": "this is not OpenAI's spelling; write tool_calls beside content",
    "tool_result": 'this is not OpenAI\'s spelling; write a turn of role "tool"',
}
# OpenAI's answers have these fields, and clients send them back. They hold nothing to answer.
_OF_ANSWERS = ("annotations", "logprobs", "prompt_cache_breakpoint")
_UNSUPPORTED = {
    "annotations": Unsupported("leave it out", empty),
    "audio": Unsupported("write what was said as content", empty),
    "function_call": Unsupported("this is OpenAI's old form; write tool_calls", empty),
    "refusal": Unsupported("write it as content", empty),
}
_OF_ASSISTANT = {"tool_calls": Unsupported("only a turn of the assistant has calls", empty)}
_OF_TOOL = {"tool_call_id": Unsupported("only a turn of role tool is a result", empty)}


class ImageUrl(Lenient):
    """Where a picture is: `data:image/...;base64,...`, `qwink:sha256:...`, or http(s) if allowed.

    `detail` sets the size: `low` gives about 448×448 px (196 tokens), `high` and `original` enough
    for a page (1280 tokens), `auto` the size for the request's `task`.
    """

    url: str = Field(min_length=1)
    detail: Literal["auto", "low", "high", "original"] | None = "auto"


class VideoUrls(Lenient):
    """A video by its URL, or by those of pictures in order, `fps` of them a second.

    The other fields, and `fps` of a single URL, say which frames are shown; see `VideoOptions`.
    """

    url: str | None = Field(None, min_length=1)
    pictures: list[str] | None = Field(None, min_length=1)
    fps: float | None = None
    num_frames: Annotated[int, INTEGRAL] | None = None
    min_frames: Annotated[int, INTEGRAL] | None = None
    max_frames: Annotated[int, INTEGRAL] | None = None
    start: float | None = None
    end: float | None = None


class PdfFile(Lenient):
    """A PDF as a data URL, or its base64 alone. `pages` and `text_layer`: see `PdfOptions`."""

    file_data: str = Field(min_length=1)
    filename: str | None = None
    pages: str | None = None
    text_layer: Literal["ignore", "use"] | None = None


class Part(Lenient):
    """A piece of a message: a text, a picture, a video or a PDF. `place` is its field."""

    type: Literal["text", "image_url", "video_url", "file"]
    text: str | None = None
    image_url: ImageUrl | None = None
    video_url: VideoUrls | None = None
    file: PdfFile | None = None
    place: str = Field("image_url.url", exclude=True)

    @model_validator(mode="before")
    @classmethod
    def _in_one_spelling(cls, part: Any) -> Any:
        if isinstance(part, str):
            return {"type": "text", "text": part}
        if not isinstance(part, dict):
            raise InvalidField(f"a part must be a JSON object; {_HOW}")
        kind = part.get("type")
        rest = {k: v for k, v in part.items() if k not in ("type", "place", *_OF_ANSWERS)}
        if isinstance(kind, str) and kind in _TEXTS:
            return _text(kind, rest)
        if isinstance(kind, str) and kind in _IMAGES:
            return _image(kind, rest)
        if isinstance(kind, str) and kind in _VIDEOS:
            return _video(kind, rest)
        if isinstance(kind, str) and kind in _FILES:
            return _file(kind, rest)
        advice = _UNSUPPORTED_PARTS.get(kind) if isinstance(kind, str) else None
        if advice is not None:
            raise InvalidField(f"{kind}: {advice}", "unsupported_field", "type")
        what = "is missing" if kind is None else "is unknown"
        raise InvalidField(f"the type of this part {what}; {_HOW}", field="type")


def _text(kind: str, part: dict[str, Any]) -> dict[str, Any]:
    name = "refusal" if kind == "refusal" else "text"
    text = part.pop(name, None)
    if part.pop("image_url", None) is not None:
        raise InvalidField(f"a part of type {kind} has no image_url", field="image_url")
    if not isinstance(text, str):
        raise InvalidField(f"a part of type {kind} needs the field {name}, a string", field=name)
    return part | {"type": "text", "text": text}


def _image(kind: str, part: dict[str, Any]) -> dict[str, Any]:
    image = part.pop("image_url", None)
    if part.pop("text", None) is not None:
        raise InvalidField(f"a part of type {kind} has no text", field="text")
    if part.pop("file_id", None) is not None:
        advice = "upload the picture to /v1/images and give its id as image_url"
        raise InvalidField(f"there are no stored files: {advice}", "unsupported_field", "file_id")
    place = "image_url.url"
    if isinstance(image, str):
        image, place = {"url": image}, "image_url"
    if not isinstance(image, dict):
        raise InvalidField(f"a part of type {kind} needs image_url; {_HOW_PICTURE}", field=None)
    if "detail" in part:
        image = {"detail": part.pop("detail")} | image
    return part | {"type": "image_url", "image_url": image, "place": place}


def _video(kind: str, part: dict[str, Any]) -> dict[str, Any]:
    name = "video_url" if "video_url" in part else "video"
    video, place = part.pop(name, None), name
    if isinstance(video, str):
        video = {"url": video}
    elif isinstance(video, list) and video and all(isinstance(url, str) for url in video):
        video = {"pictures": video}
    elif isinstance(video, dict) and isinstance(video.get("url"), str):
        place = f"{name}.url"
    else:
        raise InvalidField(f"a part of type {kind} needs a video; {_HOW_VIDEO}", field=None)
    for name in (*_VIDEO_NAMES, *VideoUrls.model_fields):
        if name in part:
            video = {name: part.pop(name)} | video
    video = {_VIDEO_NAMES.get(name, name): value for name, value in video.items()}
    return part | {"type": "video_url", "video_url": video, "place": place}


def _file(kind: str, part: dict[str, Any]) -> dict[str, Any]:
    names = [name for name in PdfFile.model_fields if name in part]
    file: Any = (
        part.pop("file", None) if kind == "file" else {name: part.pop(name) for name in names}
    )
    inner = "file." if kind == "file" else ""
    for name in ("file_id", "file_url"):
        if (file or {}).get(name) or part.get(name):
            raise InvalidField(
                f"{name}: files of /v1/files are not read here; {_HOW_FILE}",
                "unsupported_field",
                name,
            )
    if not isinstance(file, dict) or not isinstance(file.get("file_data"), str):
        raise InvalidField(f"a part of type {kind} needs file_data; {_HOW_FILE}", field=None)
    file = {name: value for name, value in file.items() if value is not None}
    return part | {"type": "file", "file": file, "place": f"{inner}file_data"}


def _as_parts(content: Any) -> Any:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, list):
        return content
    raise InvalidField(f"content must be a string or a list of parts; {_HOW}")


AS_PARTS = BeforeValidator(_as_parts, json_schema_input_type=Any)


class ChatMessage(Lenient):
    """One turn. Only turns of the user may hold pictures and videos, and results of tools pictures.

    The model does not see `name`.
    """

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[list[Part], AS_PARTS]
    name: str | None = None
    tool_calls: list[MessageCall] | None = None
    tool_call_id: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _in_one_spelling(cls, message: Any) -> Any:
        if not isinstance(message, dict):
            raise InvalidField('a turn must be an object: {"role": "user", "content": "..."}')
        role = message.get("role")
        if role == "function":
            advice = "this is OpenAI's old form; write role tool with a tool_call_id"
            raise InvalidField(f"turns of role function are not supported: {advice}", field="role")
        if role == "assistant" and message.get("content") is None:
            refused = message.get("refusal")
            content = refused if isinstance(refused, str) else ""
            message = message | {"content": content, "refusal": None}
        if role != "assistant":
            message = without_unsupported(message, _OF_ASSISTANT)
        if role != "tool":
            message = without_unsupported(message, _OF_TOOL)
        elif not message.get("tool_call_id"):
            raise InvalidField("a result needs the id of its call", "missing_field", "tool_call_id")
        return without_unsupported(message, _UNSUPPORTED)
