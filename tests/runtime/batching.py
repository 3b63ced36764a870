"""PyTorch's engine as on a card that gains from batches."""

from qwink.engine.base import Traits
from qwink.engine.torch.engine import TorchEngine


class Batching(TorchEngine):
    """Takes three images or prompts at once."""

    traits = Traits(encode_batch=3, prefill_batch=3, spare_slots=4)
