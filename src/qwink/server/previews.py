"""POST /v1/previews: small pictures of a file's pages or frames, to choose from before asking."""

from __future__ import annotations

import base64
import io
from collections.abc import Generator
from typing import Any

import PIL.Image
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from numpy.typing import NDArray

from qwink.errors import DeadlineExceeded
from qwink.inputs.containers import is_video
from qwink.inputs.frames import VideoOptions, choose_frames
from qwink.inputs.images import decode, open_image
from qwink.inputs.pdf import is_pdf, open_pdf, render
from qwink.inputs.video import decode_frames, open_video
from qwink.server.failures import Failure, shutting_down
from qwink.server.forms import content_of
from qwink.server.service import ModelService

_MOST = 48  # previews in one response
Steps = Generator[None, None, dict[str, Any]]


def preview_routes(service: ModelService) -> APIRouter:
    router = APIRouter()
    binary = {"schema": {"type": "string", "format": "binary"}}
    form = {"schema": {"type": "object", "properties": {"file": binary["schema"]}}}
    body = {
        "required": True,
        "content": {"application/octet-stream": binary, "multipart/form-data": form},
    }

    @router.post(
        "/v1/previews", summary="Preview pages and frames", openapi_extra={"requestBody": body}
    )
    async def previews(http: Request) -> Response:
        """Small JPEGs, as data URLs, of a picture, of pages of a PDF, or of frames of a video,
        evenly spaced over its length. The body is the file, as for /v1/images; it is not stored.
        `?first=1&count=24&side=192`: the first page of a PDF, how many pages or frames at most, and
        the longer side of a preview in pixels.

        `kind` is image, pdf or video. `width` and `height` are those of the picture, of a frame, or
        of the page at full size.
        """
        first = _number(http, "first", 1, 1, 1_000_000)
        count = _number(http, "count", 24, 1, _MOST)
        side = _number(http, "side", 192, 32, 768)
        content = await content_of(http)
        deadline = service.options.request_timeout
        try:
            async with service.preparing.limit(deadline):
                steps = _previews(content, first, count, side, service.options.max_image_pixels)
                return JSONResponse(await service.work_by_turns(steps))
        except TimeoutError:
            if service.preparing.over:
                raise shutting_down() from None
            raise DeadlineExceeded("the file took too long to read") from None

    return router


def _number(http: Request, name: str, default: int, least: int, most: int) -> int:
    text = http.query_params.get(name, str(default))
    if not (text.isdecimal() and least <= int(text) <= most):
        message = f"{name} must be a whole number from {least} to {most}"
        raise Failure(400, message, "invalid_value", name)
    return int(text)


def _previews(content: bytes, first: int, count: int, side: int, max_pixels: int) -> Steps:
    """The document, after a step for each preview. Raises ImageError."""
    if is_pdf(content):
        return (yield from _of_pdf(content, first, count, side))
    if is_video(content):
        return (yield from _of_video(content, count, side, max_pixels))
    opened = open_image(content, max_pixels)
    yield
    picture = decode(opened, (side, side))
    preview = _preview(picture.pixels, opened.size, side)
    warnings = list(picture.warnings)
    return _document("image", [preview], format=opened.format, warnings=warnings) | _size(preview)


def _of_pdf(content: bytes, first: int, count: int, side: int) -> Steps:
    pdf = open_pdf(content)
    found = []
    for page in range(first, min(first + count, pdf.num_pages + 1)):
        yield
        width, height = pdf.sizes[page - 1]
        scale = side / max(width, height)
        small = max(1, round(width * scale)), max(1, round(height * scale))
        found.append({"page": page} | _preview(render(pdf, page, small), pdf.full_size(page), side))
    return _document("pdf", found, format="PDF", num_pages=pdf.num_pages)


def _of_video(content: bytes, count: int, side: int, max_pixels: int) -> Steps:
    video = open_video(content, max_pixels)
    found = []
    numbers = choose_frames(video.num_frames, video.rate, VideoOptions(num_frames=count))
    for frame in decode_frames(video, list(dict.fromkeys(numbers))):
        found.append({"time_s": round(frame.time_s, 3)} | _preview(frame.pixels, video.size, side))
        yield
    duration = round(video.duration_s, 3)
    width, height = video.size
    return _document("video", found, format=video.format, duration_s=duration) | {
        "width": width,
        "height": height,
    }


def _document(kind: str, previews: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    return {"object": "preview", "kind": kind, **fields, "previews": previews}


def _size(preview: dict[str, Any]) -> dict[str, Any]:
    return {name: preview[name] for name in ("width", "height")}


def _preview(pixels: NDArray[Any], size: tuple[int, int], side: int) -> dict[str, Any]:
    """`size` is (width, height) of the original; the preview has its shape."""
    scale = min(1.0, side / max(size))
    small = max(1, round(size[0] * scale)), max(1, round(size[1] * scale))
    image = PIL.Image.fromarray(pixels).resize(small, PIL.Image.Resampling.BOX)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=80)
    url = "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
    return {"width": size[0], "height": size[1], "url": url}
