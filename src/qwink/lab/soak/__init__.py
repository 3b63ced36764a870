"""Long, mixed load on a server that is killed and restarted: no wrong answer, nothing leaks."""
