"""Keeps the sessions of ONNX Runtime alive in children of a fork.

Destroying a session waits for its threads. A child of a fork has none of its parent's threads, so
the wait would not end. A child therefore never destroys the sessions that it inherits. Their memory
is shared with the parent.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any

# A fork concerns the whole process, hence one set for all engines.
_SESSIONS: weakref.WeakSet[Any] = weakref.WeakSet()


def outlive_forks(session: object) -> None:
    """Let no child of a fork destroy `session`."""
    _SESSIONS.add(session)


def _keep() -> None:
    for session in list(_SESSIONS):
        # A reference that nothing holds. Python would drop any other one when the child ends.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(session))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep)
