"""Engines. ONNX Runtime's own reports to its makers are turned off before it is imported.

Since 1.29 its wheels record usage by default, and write to the user's cache folder on import. Who
wants that sets ORT_DISABLE_TELEMETRY=0.
"""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
