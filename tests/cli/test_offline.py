"""Commands need no connection: they run in a process in which every connection fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

BLOCKED = """
import socket
def refuse(*arguments, **options):
    raise AssertionError("a connection was attempted")
socket.socket.connect = socket.socket.connect_ex = socket.create_connection = socket.getaddrinfo = refuse
"""


def test_training_prediction_and_reports_need_no_connection(tmp_path: Path, book: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCKED, encoding="utf-8")
    run = tmp_path / "run"
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}

    def command(*words: str) -> str:
        arguments = [sys.executable, "-m", "seriatim", *words]
        process = subprocess.run(arguments, capture_output=True, text=True, env=environment, check=False, cwd=tmp_path)
        assert process.returncode == 0, process.stderr
        return process.stdout

    check = [sys.executable, "-c", "import socket; socket.create_connection(('127.0.0.1', 9))"]
    refused = subprocess.run(check, capture_output=True, text=True, env=environment, check=False)
    assert "a connection was attempted" in refused.stderr, "the block is not in place"

    sizes = ["--set", "model.width=8", "--set", "model.layers=1", "--context-length", "16", "--batch-size", "4"]
    command("train", "language", "--data", str(book), "--model", "gpt", "--steps", "2", *sizes, "--out", str(run))
    assert command("generate", str(run), "the", "--max-tokens", "3")
    page = (run / "report.html").read_text(encoding="utf-8")
    loads = re.findall(r"""<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=["'](?!data:|#)([^"']+)""", page)
    assert [address for address in loads if "//" in address] == [], "the report loads from elsewhere"
