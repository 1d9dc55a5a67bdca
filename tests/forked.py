"""Processes of Python that begin with torch, its compiler and pytest imported, forked from one that did nothing else.

Starting Python takes a hundredth of a second, and importing these four seconds: torch's optimizers need its compiler.
What is run has variables, a folder, a path and streams of its own, and nothing of this library is imported before.
"""

import contextlib
import functools
import gc
import json
import os
import runpy
import subprocess
import sys
import tempfile
from multiprocessing import util
from pathlib import Path


def run(*words, cwd=None, env=None):
    """As ``subprocess.run([sys.executable, *words], capture_output=True, text=True)``, of code, a module or a file."""
    with tempfile.TemporaryDirectory() as folder:
        streams = [os.path.join(folder, name) for name in ("out", "err")]
        task = [str(word) for word in words], str(cwd or Path.cwd()), dict(env or os.environ), streams
        print(json.dumps(task), file=server().stdin, flush=True)
        status = os.waitstatus_to_exitcode(int(server().stdout.readline()))
        return subprocess.CompletedProcess(words, status, *(Path(stream).read_text() for stream in streams))


@functools.cache
def server():
    """It leaves when its input ends, which is when this process does."""
    return subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def serve():
    gc.disable()  # what is imported is not garbage
    import pytest  # noqa: F401
    import torch._dynamo  # noqa: F401

    gc.freeze()  # nor looked through by those that are forked, which would copy the memory that it is in
    gc.enable()
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    usual = [place for place in sys.path[1:] if place not in own]
    for line in sys.stdin:
        child = os.fork()
        if not child:
            return become(*json.loads(line), usual)
        print(os.waitpid(child, 0)[1], flush=True)


def become(words, cwd, env, streams, usual):
    """Run what is asked in this process, which then ends as Python does."""
    for number, stream in enumerate([os.devnull, *streams]):
        os.dup2(os.open(stream, os.O_CREAT | os.O_RDWR, 0o600), number)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    if threads := env.get("OMP_NUM_THREADS"):  # which is read where torch is imported
        sys.modules["torch"].set_num_threads(int(threads))
    util.spawnv_passfds = forked_server
    kind, *sys.argv = words if words[0].startswith("-") else ["", *words]
    first = "" if kind else str(Path(words[0]).resolve().parent)
    sys.path[:] = [first, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep)), *usual]
    if kind == "-m":
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        code, sys.argv[0] = sys.argv[0], "-c"
        exec(code, {"__name__": "__main__"})
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")


def forked_server(path, words, kept, start=util.spawnv_passfds):
    """Begin what multiprocessing asks for; its fork server comes from this process, while that has but one thread."""
    words = [os.fsdecode(word) for word in words]
    if "multiprocessing.forkserver" not in words[-1] or len(os.listdir("/proc/self/task")) > 1:
        return start(path, words, kept)
    child = os.fork()
    if not child:
        for number in {*map(int, os.listdir("/proc/self/fd"))} - {0, 1, 2, *kept}:
            with contextlib.suppress(OSError):  # it listed them itself
                os.close(number)
        exec(words[-1], {})
        os._exit(0)
    return child


if __name__ == "__main__":
    serve()
