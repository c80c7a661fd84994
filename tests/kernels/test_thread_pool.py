"""The thread pool of native generation under ThreadSanitizer, as a program of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("thread_pool.cpp")
COMPILER = shutil.which("g++") or shutil.which("clang++")


@pytest.mark.skipif(COMPILER is None, reason="no compiler")
def test_jobs_are_ordered(tmp_path: Path) -> None:
    program = tmp_path / "thread_pool"
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}  # see `make sanitize`
    command = [str(COMPILER), "-std=c++20", "-O1", "-g", "-pthread", str(SOURCE), "-o", str(program)]
    sanitized = subprocess.run(
        [*command, "-fsanitize=thread"], capture_output=True, text=True, check=False, env=environment
    )
    if sanitized.returncode != 0:  # a compiler without it
        subprocess.run(command, check=True, env=environment)
    run = [str(program)]
    if shutil.which("setarch"):  # older sanitizers do not know the addresses of newer kernels
        run = ["setarch", "-R", *run]
    result = subprocess.run(run, capture_output=True, text=True, check=False, env=environment)
    assert (result.returncode, result.stdout) == (0, "passed\n"), result.stderr
