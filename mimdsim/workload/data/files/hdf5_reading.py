"""The process that opens HDF5 files, seen by its client: started, watched, killed if it hangs."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mimdsim.base.errors import DataFileError, MissingExtra
from mimdsim.base.files import open_data
from mimdsim.workload.data.files.hdf5_serving import FRAME, MAX_FRAME_BYTES

FRAME_SECONDS = 60.0  # assumed: a sample takes under a millisecond to read; longer means that HDF5 hangs


class Hdf5Process:
    """A process running `module` (see `hdf5_serving.py`), started when first needed and again after a crash.

    `purpose` names what needs h5py where that is missing; `frame_seconds` is how long one frame may take. One request
    at a time. Use it as a context manager: leaving it ends the process.
    """

    def __init__(self, module: str, purpose: str, frame_seconds: float = FRAME_SECONDS):
        self._module = module
        self._purpose = purpose
        self._frame_seconds = frame_seconds
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def answers(self, path: Path, wanted: Any, *, missing: str) -> Iterator[tuple[bytes, bytes]]:
        """The frames (kind, content) for the request [path, wanted], as they come.

        Raises DataFileError with `missing` if there is no file, with the reason if it is refused, and if HDF5 crashed
        or hung on it; MissingExtra without h5py.
        """
        if importlib.util.find_spec("h5py") is None:
            raise MissingExtra("h5py", "data", self._purpose)
        with open_data(path, missing):
            pass
        process = self._started()
        assert process.stdin is not None
        finished = False
        try:
            with contextlib.suppress(BrokenPipeError):  # a dead process is noticed when the answer is read
                process.stdin.write(json.dumps([str(path), wanted]).encode() + b"\n")
                process.stdin.flush()
            while True:
                kind, content = self._frame(path, process)
                finished = kind in b"EZ"
                if kind == b"E":
                    raise DataFileError(path, content.decode())
                if finished:
                    return
                yield kind, content
        finally:
            if not finished:  # a crash, or a caller that stopped early: the rest in the pipe belongs to no request
                self.stop()

    def stop(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        with contextlib.suppress(BrokenPipeError), process:  # closes the pipes and waits
            pass

    def _frame(self, path: Path, process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
        assert process.stdout is not None
        watch = threading.Timer(self._frame_seconds, process.kill)
        watch.start()
        try:
            header = process.stdout.read(FRAME.size)
            if len(header) == FRAME.size:
                kind, length = FRAME.unpack(header)
                if length > MAX_FRAME_BYTES:
                    raise DataFileError(path, f"has a list of {length} bytes, over {MAX_FRAME_BYTES}")
                content = process.stdout.read(length)
                if len(content) == length:
                    return kind, content
        finally:
            watch.cancel()
        status = f"status {process.wait()}"
        raise DataFileError(path, f"is damaged: the HDF5 library crashed or hung on it ({status}); fetch it again")

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            root = str(Path(__file__).resolve().parents[4])
            environment = {
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
                "HDF5_PLUGIN_PRELOAD": "::",  # HDF5's switch for "load no plug-ins"
                "OPENBLAS_NUM_THREADS": "1",  # else numpy alone could use up the process's memory limit
            }
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", self._module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
        return self._process
