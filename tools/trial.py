"""Try an installed normkit as a stranger would, and print what happened as JSON: no file of the tree is imported.

PYTHON tools/trial.py              # imported, its doctor read, a norm's numbers and gradients compared with torch's,
                                   # and each of PACKAGES that is installed used for what normkit does with it
PYTHON tools/trial.py GOLDENS      # and every golden below a folder replayed; GOLDENS/rmsnorm is that of one method
"""

import contextlib
import importlib.metadata
import json
import pathlib
import platform
import subprocess
import sys
import tempfile

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


def llama() -> None:
    """Recognize the norms of a model of transformers, and fold their gains."""
    import torch
    import transformers

    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(vocab_size=17, use_cache=False, **sizes)
    folded(transformers.LlamaForCausalLM(config), torch.arange(12)[None], 5)


def resnet() -> None:
    """Recognize the norms of a model of timm, and fold them."""
    import timm
    import torch

    folded(timm.create_model("resnet18", num_classes=3), torch.randn(2, 3, 32, 32), 20)


def folded(model, example, norms: int) -> None:
    """Count the norms of a model, fold them, and compare its outputs."""
    import torch

    import normkit as nk

    assert len(nk.recognize(model.eval())) == norms, f"{len(nk.recognize(model))} norms in place of {norms}"
    with torch.no_grad():
        for value in [*model.parameters(), *model.buffers()]:
            if value.ndim == 1 and value.is_floating_point():
                value.add_(torch.rand(value.shape))
        before = model(example)
        assert nk.fold(model, example), "no norm was folded"
        torch.testing.assert_close(model(example), before, rtol=1e-4, atol=1e-4)


def compared() -> None:
    """Compare two norms in a few steps, which accelerate takes."""
    import normkit as nk

    sizes = {"model": "decoder:dim=16,depth=1,heads=2", "length": 16, "batch": 4}
    sizes |= {"steps": 4, "seeds": 2, "lr": 0.01, "threads": 1}
    with tempfile.TemporaryDirectory() as out:
        nk.compare(norms=["layernorm", "dyt"], engine="here", out=out, **sizes)


USES = {"transformers": llama, "timm": resnet, "accelerate": compared}


def used() -> dict[str, str]:
    """Use each installed library for what normkit does with it, and say what failed."""
    from normkit.optional import let_torchvision_load

    failed = {}
    let_torchvision_load()
    for name, use in USES.items():
        try:
            if version(name):
                with contextlib.redirect_stdout(sys.stderr):
                    use()
        except Exception as error:
            failed[name] = problem(error)
    return failed


def problem(error: Exception) -> str:
    """Return an error in one line."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:200]}"


def replay(folder: pathlib.Path) -> dict:
    """Replay goldens: how many gave the authors' numbers, what was wrong with the others, and what lacked a package."""
    from normkit.contract.goldens.replay import replay

    good, wrong, missing = 0, {}, {}
    for path in sorted(path for path in folder.rglob("*") if path.suffix in (".npz", ".json")):
        try:
            replay(path)
            good += 1
        except Exception as error:
            name = f"{path.parent.name}/{path.stem}"
            lacking = isinstance(error, ImportError) or "not installed" in str(error)
            (missing if lacking else wrong)[name] = problem(error)
    return {"good": good, "wrong": wrong, "missing": missing}


def main() -> None:
    """Try what is installed."""
    sys.path = [place for place in sys.path if pathlib.Path(place or ".").resolve() != pathlib.Path(__file__).parent]
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
        "failed": used(),
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
