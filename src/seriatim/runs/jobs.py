"""Trainings in processes of their own, several at a time, on one thread each.

A worker (`python -m seriatim.runs.jobs`) reads one job from its standard input, trains, and writes a line of JSON for
each event, note or error to its standard output. It is in a session of its own, so that Ctrl-C reaches the first
process only, which passes it on: every training saves and stops. A worker whose first process is gone ends at its next
event, and can be resumed from its last checkpoint.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import asdict
from pathlib import Path

from ..core.errors import SeriatimError
from ..core.files import Json, WriteError
from ..training.config import Config, make_config
from ..training.events import Callback, Evaluated, Evaluating, Event, Saved, Started, Stepped, Stopped
from ..training.loop import stop_signals
from .configure import add_plugins
from .evaluate import Data, Notify
from .run import Run
from .tuning import InterruptedTuningError

KINDS = (Started, Stepped, Evaluated, Evaluating, Saved, Stopped)
EVENTS: dict[str, type[Event]] = {kind.__name__: kind for kind in KINDS}
STEP_SECONDS = 0.2  # between two events of steps that a worker reports
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


class WorkerWriteError(WriteError):
    """A file could not be written by a worker."""

    def __init__(self, code: str, cause: str, remedy: str, exit_code: int) -> None:
        SeriatimError.__init__(self, code, cause, remedy, exit_code=exit_code)


class Workers:
    """Runs trainings in worker processes.

    Args:
        path: The folder of the comparison.
        jobs: How many at a time.
        data_dir: The folder of catalogue data sets.
        plugins: The user's own files.
        callbacks: Returns the callbacks of a training, by the name of its folder.
        notify: Called with each note.
        reported: The folders of runs that have a report of their own.
    """

    def __init__(
        self,
        path: Path,
        jobs: int,
        data_dir: str | None,
        plugins: Sequence[str],
        callbacks: Callable[[str], Iterable[Callback]],
        notify: Notify | None,
        reported: Collection[str] = (),
    ) -> None:
        self.path, self.jobs, self.data_dir, self.plugins = path, jobs, data_dir, list(plugins)
        self.callbacks, self.notify, self.reported = callbacks, notify, reported
        self.lock = threading.Lock()
        self.processes: set[subprocess.Popen[str]] = set()
        self.signal = ""  # that ended the trainings

    def train(self, folder: str, config: Config, trial: bool) -> Run:
        """Trains in a worker, or continues what the folder holds, and returns the run; errors are those of the worker.

        Args:
            folder: The name of the run folder within that of the comparison.
            config: The settings.
            trial: See `Session`.
        """
        settings = config.model_dump(mode="json", exclude_unset=True)  # what is set may matter
        task = config.task.model_dump(mode="json")  # a trial has other minutes: they must not change what was decided
        settings["task"] = {k: v for k, v in task.items() if not isinstance(v, dict)} | settings["task"]
        report = folder in self.reported
        job = {"settings": settings, "folder": str(self.path / folder), "trial": trial, "report": report}
        job |= {"data_dir": self.data_dir, "plugins": self.plugins}
        command = [sys.executable, "-m", "seriatim.runs.jobs"]
        environment = os.environ | dict.fromkeys(THREADS, "1")
        pipe = subprocess.PIPE
        with self.lock:
            if self.signal:  # between two trials of a search
                raise InterruptedTuningError(self.signal)
            process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, text=True, env=environment, start_new_session=True
            )
            self.processes.add(process)
        try:
            error = self._follow(process, job, list(self.callbacks(folder)))
        finally:
            process.kill()  # if it has not ended by itself
            process.wait()
            with self.lock:
                self.processes.discard(process)
        if error is not None:
            raise error
        return Run(self.path / folder)

    def _follow(self, process: subprocess.Popen[str], job: Json, callbacks: Sequence[Callback]) -> SeriatimError | None:
        """Hands the job over, passes events and notes on, and returns the error, if there is one."""
        assert process.stdin is not None
        assert process.stdout is not None
        error: SeriatimError | None = None
        with process.stdin:
            json.dump(job, process.stdin)
        for line in process.stdout:
            values: Json = json.loads(line)
            match values:
                case {"event": str(name)}:
                    event = EVENTS[name](**{key: value for key, value in values.items() if key != "event"})
                    with self.lock:  # callbacks are called one at a time
                        for callback in callbacks:
                            callback(event)
                case {"note": text}:
                    if self.notify is not None:
                        with self.lock:
                            self.notify(text)
                case {"error": [code, cause, remedy, exit_code], "fatal": fatal}:
                    kind = WorkerWriteError if fatal else SeriatimError
                    error = kind(code, cause, remedy, exit_code=exit_code)
        status = process.wait()
        if error is None and status:
            if self.signal:  # it arrived before the training began
                raise InterruptedTuningError(self.signal)
            cause = f"the process of {job['folder']} ended with exit code {status}"
            error = SeriatimError("compare.process", cause, "see its message above", exit_code=1)
        return error

    def run_all(self, functions: Sequence[Callable[[], None]]) -> list[Callable[[], None]]:
        """Calls functions that train in workers, several at a time; what it returns raises the error of each.

        A signal is passed on to the workers; what has not started then does not start.
        """
        if self.signal:
            return [lambda: None for _ in functions]
        with stop_signals() as received, ThreadPoolExecutor(self.jobs) as pool:
            futures = [pool.submit(function) for function in functions]
            try:
                waiting = set(futures)
                while waiting:
                    waiting = wait(waiting, 0.2, FIRST_COMPLETED).not_done
                    if received() and not self.signal:
                        self._stop(received(), signal.SIGINT)
                        for future in futures:
                            future.cancel()
            except BaseException:  # a second Ctrl-C
                self._stop("SIGINT", signal.SIGKILL)
                raise
        return [(lambda: None) if future.cancelled() else future.result for future in futures]

    def _stop(self, name: str, number: signal.Signals) -> None:
        with self.lock:
            self.signal = name
            for process in self.processes:
                process.send_signal(number)


def main() -> None:
    """Runs the job on standard input in this process."""
    from .session import Session, train_or_resume

    job = json.load(sys.stdin)
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever else prints goes to standard error
    last_step = 0.0

    def send(values: Json) -> None:
        try:
            lines.write(json.dumps(values) + "\n")
        except BrokenPipeError:
            os._exit(1)

    def send_event(event: Event) -> None:
        nonlocal last_step
        if isinstance(event, Stepped):
            if time.monotonic() - last_step < STEP_SECONDS:
                return
            last_step = time.monotonic()
        send({"event": type(event).__name__, **asdict(event)})

    try:
        add_plugins(job["plugins"])
        config = make_config(job["settings"])
        notify: Notify = lambda text: send({"note": text})  # noqa: E731
        session = Session(
            config,
            Path(job["folder"]),
            Data(),
            job["data_dir"],
            [send_event],
            notify,
            job["report"],
            trial=job["trial"],
        )
        train_or_resume(session)
    except SeriatimError as error:
        problem = [error.code, error.cause, error.remedy, error.exit_code]
        send({"error": problem, "fatal": isinstance(error, WriteError)})
        raise SystemExit(error.exit_code) from None


if __name__ == "__main__":
    main()
