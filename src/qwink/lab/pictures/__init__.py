"""Pictures to measure with, drawn on demand; the same pixels each time."""
