"""Try an installed normkit as a stranger would, and print what happened as JSON: no file of the tree is imported.

PYTHON tools/trial.py              # imported, its doctor read, a norm's numbers and gradients compared with torch's
PYTHON tools/trial.py GOLDENS      # and every golden below a folder replayed; GOLDENS/rmsnorm is that of one method
"""

import importlib.metadata
import json
import pathlib
import platform
import subprocess
import sys

sys.path = [place for place in sys.path if pathlib.Path(place or ".").resolve() != pathlib.Path(__file__).parent]
PACKAGES = ("torch", "numpy", "transformers", "timm", "accelerate")


def compute() -> float:
    """Return the largest difference of a layer norm and its gradient from torch's."""
    import torch

    import normkit as nk

    x = torch.randn(64, 768, requires_grad=True)
    ours, theirs = nk.LayerNorm(768), torch.nn.LayerNorm(768)
    pairs = [(ours(x), theirs(x))]
    pairs.append(tuple(torch.autograd.grad(y.square().sum(), x)[0] for y in pairs[0]))
    for a, b in pairs:
        torch.testing.assert_close(a, b)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


def replay(folder: pathlib.Path) -> dict:
    """Replay goldens: how many gave the authors' numbers, what was wrong with the others, and what lacked a package."""
    from normkit.contract.goldens.replay import replay

    good, wrong, missing = 0, {}, {}
    for path in sorted(path for path in folder.rglob("*") if path.suffix in (".npz", ".json")):
        try:
            replay(path)
            good += 1
        except Exception as error:
            name, lines = f"{path.parent.name}/{path.stem}", str(error).strip().splitlines() or [""]
            lacking = isinstance(error, ImportError) or "not installed" in str(error)
            (missing if lacking else wrong)[name] = f"{type(error).__name__}: {lines[0][:200]}"
    return {"good": good, "wrong": wrong, "missing": missing}


def main() -> None:
    """Try what is installed."""
    import normkit as nk

    result = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "normkit": nk.__version__,
        "place": nk.__file__,
        **{name: version(name) for name in PACKAGES},
        "methods": len(nk.methods()),
        "doctor": {key: str(value) for key, value in nk.doctor.examine().items()},
        "difference": compute(),
        "live": nk.kernels.status().live,
        "reason": nk.kernels.status().reason,
        "short way": nk.ops.eager.short_row is not None,
        "import": loaded_by_import(),
    }
    if len(sys.argv) > 1:
        result["goldens"] = replay(pathlib.Path(sys.argv[1]))
    print(json.dumps(result))


def version(name: str) -> str | None:
    """Return an installed version, None where there is none."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def loaded_by_import() -> list[str]:
    """Return what `import normkit` loads beside Python's own modules; an emulated Python starts no other."""
    if platform.machine() != getattr(__import__("os").uname(), "machine", None):
        return []
    code = "import sys, normkit; print(*{name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names)"
    try:
        names = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    except OSError:
        return []
    return sorted(name for name in names if not name.startswith(("_", "sitecustomize", "distutils")))


if __name__ == "__main__":
    main()
