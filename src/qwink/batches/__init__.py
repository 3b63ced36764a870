"""Many pictures, one question: items in, rows out, resumable."""
