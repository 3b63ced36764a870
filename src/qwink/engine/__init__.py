"""Engines. What ONNX Runtime reads from the environment is set before it is imported.

It is set here, once, because a change of the environment while other threads run is a race. What
the user has set is left alone.

- ORT_DISABLE_TELEMETRY: since 1.29 its wheels record usage by default, and write to the user's
  cache folder on import.
- ORT_GQA_DISABLE_FLASH_ATTENTION: in chunks of up to 512 tokens, the plain path of
  GroupQueryAttention is 1.4x faster than its flash path.
"""

import os

for _name in ("ORT_DISABLE_TELEMETRY", "ORT_GQA_DISABLE_FLASH_ATTENTION"):
    os.environ.setdefault(_name, "1")
