"""Engines. ONNX Runtime's telemetry is turned off before it is imported.

Since 1.29 its wheels record usage by default, and write to the user's cache folder on import.
ORT_DISABLE_TELEMETRY=0 in the environment keeps it on.
"""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
