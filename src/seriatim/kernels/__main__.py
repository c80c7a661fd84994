"""`python -m seriatim.kernels`: builds the native kernels, or says why it cannot."""

from __future__ import annotations

from . import forget_failure, load, state

forget_failure()
load()
for name, value in state().items():
    print(f"{name:9} {value if value else '–'}")
