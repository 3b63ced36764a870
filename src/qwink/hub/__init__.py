"""Lists and downloads checkpoints of Hugging Face and ModelScope.

hub = HuggingFace(settings.hf_endpoint, settings.hf_token)
with client(hub.headers) as http:
    listing = hub.find(http, "Qwen/Qwen3-VL-2B-Instruct")
    download(http, listing, folder)
"""

from __future__ import annotations
