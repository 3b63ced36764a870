"""Images on their way through the encoder, a part at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from qwink.engine.base import Engine
from qwink.runtime.together import log_failure
from qwink.types import EncodedImage, Patches

Finished = list[tuple[str, EncodedImage | Exception]]


class Encoding:
    """Runs images together; if that raises, retries them one by one."""

    def __init__(self, engine: Engine, images: Mapping[str, Patches]) -> None:
        """`images` by key."""
        self._engine = engine
        self._batches = deque([list(images.items())])
        self._parts: Iterator[Sequence[EncodedImage] | None] | None = None

    @property
    def keys(self) -> set[str]:
        """Keys of the images that are not through."""
        return {key for batch in self._batches for key, _ in batch}

    def advance(self) -> Finished:
        """Run a part. Returns the images that are through, each with its result or exception."""
        batch = self._batches[0]
        try:
            if self._parts is None:
                self._parts = self._engine.encode_parts([patches for _, patches in batch])
            encoded = next(self._parts)
        except Exception as error:
            self._next_batch()
            log_failure(len(batch), "images", error)
            if len(batch) == 1:
                return [(batch[0][0], error)]
            self._batches.extendleft([item] for item in reversed(batch))
            return []
        if encoded is None:
            return []
        self._next_batch()
        return [(key, image) for (key, _), image in zip(batch, encoded, strict=True)]

    def _next_batch(self) -> None:
        self._batches.popleft()
        self._parts = None
