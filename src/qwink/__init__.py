"""qwink answers questions about images in a wink, on hardware people already own."""

__version__ = "0.1.0.dev0"
