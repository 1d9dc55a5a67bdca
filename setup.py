"""Builds the C kernels beside the package, or leaves them out where there is no compiler, and writes the stub."""

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

SOURCES = {  # of each library, and the file that is compiled for every instruction set
    "normkit.kernels.cpu.libnormkit": (Path("src/normkit/kernels/cpu"), "kernels.c"),
    "normkit.kernels.cpu.libspecial": (Path("src/normkit/kernels/special"), "special.c"),
}
COMMON = ["-O3", "-fPIC", "-std=gnu11", "-fno-math-errno", "-fno-trapping-math", "-fno-asynchronous-unwind-tables"]
AVX512 = ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma", "-mf16c", "-mprefer-vector-width=512"]
SETS = {"baseline": []}
MACHINE = os.environ.get("_PYTHON_HOST_PLATFORM", platform.machine()).rpartition("-")[2].lower()  # as cross builds say
if MACHINE in ("x86_64", "amd64"):
    COMMON.append("-DNORMKIT_X86")
    # The first serves processors of before 2013: at -Os it is half as large as at -O1, with the same bits; rows and
    # channels take as long within a tenth, curves twice as long.
    SETS = {"baseline": ["-Os"], "avx2": ["-mavx2", "-mfma", "-mf16c"], "avx512": AVX512}

# The short way from Python takes Python's own header and its stable interface, which a build without the GIL has not.
HEADERS = sysconfig.get_paths()["include"]
STABLE = sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")
PYTHON = "../python.c" if STABLE and platform.system() == "Linux" and Path(HEADERS, "Python.h").exists() else None


PURE = "NORMKIT_PURE" in os.environ  # a wheel for every machine, without kernels


def first_error(text):
    lines = text.strip().splitlines() or ["the compiler failed"]
    return next((line for line in lines if "error" in line), lines[0])


def compile_library(target, source, kernels, *threads):
    """Compiles every instruction set at once; renames the result into place, as others may be using the old one."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    with tempfile.TemporaryDirectory() as room:
        calls = [["-fvisibility=hidden", f"-DISA={name}", *flags, kernels] for name, flags in SETS.items()]
        calls.append(["dispatch.c"])
        if PYTHON and kernels == "kernels.c":
            calls.append([f"-I{HEADERS}", PYTHON])
        objects = [f"{room}/{i}.o" for i in range(len(calls))]
        start = [*compiler, *COMMON, *threads, "-c"]
        running = [
            subprocess.Popen([*start, *flags, source / file, "-o", out], stderr=subprocess.PIPE)
            for (*flags, file), out in zip(calls, objects, strict=True)
        ]
        errors = [process.communicate()[1].decode(errors="replace") for process in running]
        for (*_, source), process, text in zip(calls, running, errors, strict=True):
            if process.returncode and source != PYTHON:
                raise OSError(first_error(text))
        objects = [out for out in objects if os.path.exists(out)]
        beside = target.with_name(f"{target.name}.{os.getpid()}")
        subprocess.run(
            [*compiler, "-shared", "-s", *threads, *objects, "-lm", "-o", beside], check=True, capture_output=True
        )
        os.replace(beside, target)


class BuildKernels(build_ext):
    """A shared library, loaded with ctypes, found by its path; where it can be, an extension of Python as well."""

    def get_ext_filename(self, fullname):
        return str(Path(*fullname.split("."))) + ".so"

    def build_extension(self, extension):
        target = Path(self.get_ext_fullpath(extension.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        made = SOURCES[extension.name]
        try:
            try:
                compile_library(target, *made, "-fopenmp")
            except (OSError, subprocess.CalledProcessError):
                compile_library(target, *made)
        except (OSError, subprocess.CalledProcessError) as error:
            self.warn(f"normkit is built without its C kernels (all works, more slowly): {error}")

    def copy_extensions_to_source(self):
        """For an editable install; a build that was left out leaves nothing to copy."""
        for name in (extension.name for extension in self.extensions):
            library = self.get_ext_filename(name)
            built, here = Path(self.build_lib, library), Path("src", library)
            if built.exists():
                beside = here.with_name(f"{here.name}.{os.getpid()}")
                shutil.copy2(built, beside)
                os.replace(beside, here)

    def get_source_files(self):
        folder = Path("src/normkit/kernels")
        return [str(path) for path in sorted(folder.rglob("*.[ch]"))]


class BuildStub(build_py):
    """The package, and what type checkers and editors read of it: in the wheel, or beside the sources if editable."""

    def run(self):
        super().run()
        folder = Path("src" if self.editable_mode else self.build_lib, "normkit")
        subprocess.run([sys.executable, "tools/stub.py", folder / "__init__.pyi"], check=True)


class TagByPlatform(bdist_wheel):
    """One wheel a platform serves every version: the library takes the stable interface of Python, or nothing of it."""

    def get_tag(self):
        *_, platform = tag = super().get_tag()
        if PURE:
            return tag
        return *(("cp310", "abi3") if PYTHON else ("py3", "none")), platform


if __name__ == "__main__":  # the fuzz reads the flags
    libraries = [Extension(name, [str(source / file)], optional=True) for name, (source, file) in SOURCES.items()]
    setup(
        ext_modules=[] if PURE else libraries,
        cmdclass={"bdist_wheel": TagByPlatform, "build_ext": BuildKernels, "build_py": BuildStub},
    )
