"""The HTTP server. Its web framework comes with `pip install qwink[serve]`."""
