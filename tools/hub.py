"""Build the package for the kernels hub: ``python tools/hub.py [FOLDER]`` (dist/hub/normkit-norms).

The layers are those of ``hub/torch-ext``; below them lie the operations and kernels of normkit as a package of their
own, whose imports are relative, as the hub asks. One variant is for processors, with the C library of this tree, which
knows nothing of torch's ABI; one is for GPUs, and is Python alone.
"""

import ast
import json
import platform
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE, NAME, VERSION = ROOT / "src/normkit", "normkit-norms", 1
OPERATIONS = "ops/row.py"
LIBRARY = "kernels/cpu/libnormkit.so"
EMPTY = {  # packages whose own names the layers do not need
    "__init__.py": '"""The operations of normkit on vectors, and their kernels."""\n',
    "ops/__init__.py": '"""The formula in PyTorch, and the choice of kernel."""\n',
}
IMPORT = re.compile(r"^(\s*)from normkit(\.[\w.]+)? import ", re.MULTILINE)


def relative(text: str, depth: int) -> str:
    """Write imports of normkit relative to a module that lies so many folders deep in it; operators get a name of ours.

    >>> relative("from normkit.ops import eager", 1)
    'from ..ops import eager'
    >>> relative("    from normkit import check", 0)
    '    from . import check'
    """
    text = IMPORT.sub(lambda found: f"{found[1]}from {'.' * (depth + 1)}{(found[2] or '.')[1:]} import ", text)
    return text.replace('"normkit::', f'"{NAME.replace("-", "_")}::')


def reached(start: str) -> set[str]:
    """Return the files of normkit that a file imports, those that they import, and the packages that they lie in."""
    files, left = set(), {start}
    while left:
        path = left.pop()
        files.add(path)
        left |= {str(folder / "__init__.py") for folder in Path(path).parents}
        tree = ast.parse(EMPTY.get(path) or (SOURCE / path).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "normkit":
                place = "/".join(node.module.split(".")[1:])
                names = [place, *(f"{place}/{name.name}".lstrip("/") for name in node.names)]
                files_of = (f"{name}{end}" for name in names if name for end in (".py", "/__init__.py"))
                left |= {name for name in files_of if (SOURCE / name).is_file()}
        left -= files
    return files


def variant(folder: Path, backend: str) -> None:
    """Write one variant: layers, what they call, and what the hub reads of it."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "hub/torch-ext/normkit_norms", folder, ignore=shutil.ignore_patterns("__pycache__"))
    for path in sorted(reached(OPERATIONS)):
        inner = folder / "normkit" / path
        inner.parent.mkdir(parents=True, exist_ok=True)
        text = EMPTY.get(path) or (SOURCE / path).read_text(encoding="utf-8")
        inner.write_text(relative(text, path.count("/")), encoding="utf-8")
    if backend == "cpu":
        library = folder / "normkit" / LIBRARY
        library.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(SOURCE / LIBRARY, library)
    shutil.copy2(ROOT / "LICENSE", folder)
    about = {
        "name": NAME,
        "id": f"_{NAME.replace('-', '_')}_{VERSION}_{backend}",
        "version": VERSION,
        "license": "Apache-2.0",
        "python-depends": [],
        "backend": {"type": backend},
    }
    (folder / "metadata.json").write_text(json.dumps(about, indent=1) + "\n")


def build(folder: Path) -> Path:
    """Write the package, and return its folder."""
    if not (SOURCE / LIBRARY).exists():
        raise FileNotFoundError(f"{LIBRARY} is not built: pip install -e . builds it where there is a compiler")
    machine = f"{platform.machine().lower()}-{platform.system().lower()}"
    variant(folder / f"build/torch-stable-abi28-cpu-{machine}", "cpu")
    variant(folder / "build/torch-cuda", "cuda")
    for name in ("README.md", "build.toml"):
        shutil.copy2(ROOT / "hub" / name, folder)
    return folder


if __name__ == "__main__":
    print(build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / f"dist/hub/{NAME}"))
