"""Containers of videos, told by their first bytes."""

from __future__ import annotations

import os

MAX_HEAD_BYTES = 400  # of a file, enough to know its format

_PICTURE_BRANDS = (b"avif", b"avis", b"mif1", b"mif2", b"msf1")  # and those that begin with "he"
_SIGNATURES = (
    (b"\0\0\x01\xba", "mpeg"),
    (b"FLV\x01", "flv"),
    (b"OggS", "ogg"),
    (b"\x30\x26\xb2\x75\x8e\x66\xcf\x11", "asf"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
)


def video_format(head: bytes) -> str | None:
    """FFmpeg's name for the container that a file begins as; None if it is no known video."""
    if head[4:8] == b"ftyp" and not (head[8:12] in _PICTURE_BRANDS or head[8:10] == b"he"):
        return "mov"
    if head[4:8] in (b"moov", b"mdat", b"wide", b"free", b"skip"):
        return "mov"
    if head.startswith(b"\x1aE\xdf\xa3"):
        return "matroska"
    if head.startswith(b"RIFF") and head[8:12] == b"AVI ":
        return "avi"
    if len(head) > 188 and head[0] == head[188] == 0x47:
        return "mpegts"
    if len(head) > 196 and head[4] == head[196] == 0x47:  # M2TS: four bytes before each packet
        return "mpegts"
    for signature, name in _SIGNATURES:
        if head.startswith(signature):
            return name
    return None


def is_video(source: object) -> bool:
    """Whether bytes, or the file at a path, begin as a video does. A GIF counts as a picture."""
    if isinstance(source, str | os.PathLike):
        try:
            with open(source, "rb") as file:
                head = file.read(MAX_HEAD_BYTES)
        except (OSError, ValueError):
            return False
    elif isinstance(source, bytes | bytearray | memoryview):
        head = bytes(source[:MAX_HEAD_BYTES])
    else:
        return False
    return video_format(head) not in (None, "gif")
