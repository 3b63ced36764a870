"""Several replicas of one server: which of them gets a request, and `qwink serve --ray`."""
