"""What stands before a release is found, and the version has one place."""

import hashlib
import importlib.metadata
import io
import os
import pathlib
import re
import subprocess
import sys
import tarfile

import pytest
import tomllib
from setuptools.config.pyprojecttoml import read_configuration

import normkit as nk
import release

ROOT = pathlib.Path(__file__).parents[2]
READY = "# Changelog\n\n## 1.2.0, 2027-01-31\n\n- It is there.\n"


def test_the_version_is_written_once():
    assert release.version() == nk.__version__ == importlib.metadata.version("normkit")
    assert read_configuration(ROOT / "pyproject.toml", expand=True)["project"]["version"] == nk.__version__
    places = [*ROOT.glob("*.*"), *(ROOT / "src").rglob("*.py")]
    written = re.compile(rf"""version[_'"\s:=]+{re.escape(nk.__version__)}\b""")
    assert [p.name for p in places if p.is_file() and written.search(p.read_text())] == ["__init__.py"]
    assert nk.__version__ in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize(
    "given, problem",
    [
        ({}, None),
        ({"status": " M setup.py\n?? new.py\n"}, "not committed: setup.py, new.py"),
        ({"changelog": "## 1.2.0, unreleased\n"}, "CHANGELOG.md has no section '## 1.2.0, YYYY-MM-DD'"),
        ({"changelog": READY.replace("1.2.0", "1x2.0")}, "CHANGELOG.md has no section"),
        ({"tags": ["v1.1.0", "v1.2.0"]}, "v1.2.0 is released"),
    ],
)
def test_what_stands_before_a_release_is_named(given, problem):
    found = release.problems("1.2.0", **{"changelog": READY, "status": "", "tags": ["v1.1.0"], **given})
    assert found == [] if problem is None else [one for one in found if problem in one] == found != []


def test_the_tools_of_a_release_have_exact_versions():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert {line.partition("==")[0] for line in lines} >= set(release.TOOLS)


def test_the_citation_names_title_and_licence_of_the_project():
    text = (ROOT / "CITATION.cff").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"license: {project['license']}\n" in text
    assert f'title: "{project["name"]}: ' in text


def wheel_of(tag, pure=False):
    """What a build with these variables calls its wheel."""
    environment = {**os.environ, "_PYTHON_HOST_PLATFORM": tag} | ({"NORMKIT_PURE": "yes"} if pure else {})
    code = "import sys; sys.argv = ['setup.py']; from setuptools import Distribution; from setup import *; "
    code += "d = Distribution({'name': 'normkit', 'ext_modules': [] if PURE else [Extension('a', ['a.c'])]}); "
    code += "c = TagByPlatform(d); c.ensure_finalized(); print('-'.join(c.get_tag()), *SETS)"
    return subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT, env=environment).split()


def test_a_wheel_is_named_for_the_processor_that_it_is_built_for():
    assert wheel_of("linux-x86_64") == ["cp310-abi3-linux_x86_64", "baseline", "avx2", "avx512"]
    assert wheel_of("linux-aarch64") == ["cp310-abi3-linux_aarch64", "baseline"]
    assert wheel_of("linux-x86_64", pure=True)[0] == "py3-none-any"


def test_an_sdist_has_the_same_bytes_whenever_and_by_whomever_it_was_packed(tmp_path):
    packed = []
    for time, owner in ((1, "one"), (2, "two")):
        path = tmp_path / f"{owner}.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            for name in sorted(("a/x.py", "a/y.py"), reverse=owner == "two"):
                member = tarfile.TarInfo(name)
                member.size, member.mtime, member.uname, member.uid = 3, time, owner, time
                archive.addfile(member, io.BytesIO(b"abc"))
        packed.append(release.plain(path, 1_700_000_000))
    assert packed[0].read_bytes() == packed[1].read_bytes()
    with tarfile.open(packed[0]) as archive:
        assert [(member.name, member.mtime) for member in archive] == [("a/x.py", 1.7e9), ("a/y.py", 1.7e9)]
        assert archive.extractfile("a/y.py").read() == b"abc"
    other = tmp_path / "more/one.tar.gz"
    other.parent.mkdir()
    other.write_bytes(b"other")
    assert release.different([packed[0]], [packed[0]]) == []
    assert release.different([packed[0]], [other]) == ["one.tar.gz"]


def test_what_an_earlier_run_built_is_tried_in_the_order_of_a_new_one(tmp_path, monkeypatch):
    monkeypatch.setattr(release.platform, "machine", lambda: "x86_64")
    start = f"normkit-{release.version()}"
    ends = [".tar.gz", "-cp310-abi3-manylinux_2_17_x86_64.whl", "-py3-none-any.whl", "-cp310-abi3-linux_aarch64.whl"]
    for end in [*reversed(ends[:3]), ".cdx.json"]:
        (tmp_path / f"{start}{end}").touch()
    (tmp_path / "normkit-0.0.9-py3-none-any.whl").touch()
    assert [path.name for path in release.earlier(tmp_path)] == [start + end for end in ends[:3]]
    (tmp_path / f"{start}{ends[3]}").touch()
    assert [path.name for path in release.earlier(tmp_path)] == [start + end for end in ends]
    (tmp_path / f"{start}{ends[0]}").unlink()
    with pytest.raises(SystemExit, match="has no sdist"):
        release.earlier(tmp_path)


GOOD = {
    "normkit": "1.2.0",
    "place": "/empty/lib/normkit/__init__.py",
    "live": True,
    "reason": None,
    "short way": True,
    "methods": 400,
    "import": ["normkit"],
    "failed": {},
    "goldens": {"good": 3, "wrong": {}, "missing": {}},
}


@pytest.mark.parametrize(
    "given, problem",
    [
        ({}, None),
        ({"normkit": "1.1.0"}, "version 1.1.0 in place of 1.2.0"),
        ({"place": "/tree/src/normkit/__init__.py"}, "outside of /empty"),
        ({"live": False, "short way": True, "reason": "no library"}, "kernels: no library"),
        ({"import": ["normkit", "scipy"]}, "import normkit loads scipy"),
        ({"failed": {"timm": "ValueError: no"}}, "other libraries: {'timm': 'ValueError: no'}"),
        ({"goldens": {"good": 2, "wrong": {"rmsnorm/plain": "0.1"}}}, "other numbers than the goldens"),
        ({"goldens": {"good": 2, "missing": {"x/y": "scipy"}}}, "goldens that lack a package"),
    ],
)
def test_what_an_installed_package_does_wrong_is_named(given, problem):
    found = release.amiss({**GOOD, **given}, "1.2.0", pathlib.Path("/empty"), True)
    assert found == [] if problem is None else [one for one in found if problem in one] == found != []


def test_the_bill_of_materials_names_files_by_their_hash_and_packages_by_version(tmp_path):
    wheel = tmp_path / "normkit-1.whl"
    wheel.write_bytes(b"wheel")
    made = release.bill([wheel], [["torch", "2.13.0", "BSD-3-Clause"], ["pip", "26", None], ["A.b_c", "1", None]], 0)
    file, first, second = made["components"]
    assert file["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(b"wheel").hexdigest()}]
    assert (first["purl"], second["purl"]) == ("pkg:pypi/a-b-c@1", "pkg:pypi/torch@2.13.0")
    assert second["licenses"] == [{"expression": "BSD-3-Clause"}]
    assert "licenses" not in first
    assert made["dependencies"] == [
        {"ref": f"pkg:pypi/normkit@{nk.__version__}", "dependsOn": ["pkg:pypi/torch@2.13.0"]}
    ]
    assert made["metadata"]["timestamp"] == "1970-01-01T00:00:00Z"
