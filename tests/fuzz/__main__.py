"""The command line: cases until the time is up, or one again."""

from __future__ import annotations

import argparse
import datetime
import json
import time
from collections import Counter

import torch

from normkit import doctor, kernels
from normkit.kernels import special

from . import cases, sanitized
from .judge import judge


def main(arguments: list[str] | None = None) -> int:
    """Run; 1 if anything was wrong."""
    options = _options(arguments)
    if options.sanitize:
        return sanitized.run(options)
    if kernels.cpu() is None:
        print(f"there is nothing to fuzz: {kernels.status().reason}")
        return 1
    sets = sets_here() if options.isa is None else [options.isa]
    if options.case is not None:
        return _tell(options.case, options, sets)
    torch.set_num_threads(1)
    until = time.monotonic() + 60 * options.minutes
    number, wrong, live = options.start, 0, Counter[str]()
    while number < options.start + options.cases and time.monotonic() < until:
        isa = sets[number % len(sets)]
        use(isa)
        found, by_kernel = judge(number, options.seed, options.op)
        live[isa] += by_kernel
        if found:
            wrong += 1
            print(line(number, options.seed, isa, options.op), *found, sep="\n    ", flush=True)
        number += 1
    told = ", ".join(f"{live[isa]} by the kernels of {isa}" for isa in sets)
    print(f"{number - options.start} cases, {told}; {wrong} wrong")
    if options.record and not wrong:
        record(live)
    return int(wrong > 0)


def record(live: Counter[str]) -> None:
    """Add to what was fuzzed here, of the same sources, for `normkit doctor` to tell."""
    known = json.loads(doctor.FUZZED.read_text()) if doctor.FUZZED.exists() else {}
    about = {"date": datetime.date.today().isoformat(), "sources": doctor.sources()}
    for isa, count in live.items():
        places, here = known.setdefault(isa, {}), doctor.processor()
        before = places.get(here, {"sources": None})
        if before["sources"] == about["sources"]:
            count += before["cases"]
        places[here] = {"cases": count, **about}
    beside = doctor.FUZZED.with_suffix(".part")
    beside.write_text(json.dumps(known, indent=2) + "\n")
    beside.replace(doctor.FUZZED)


def _options(arguments):
    parser = argparse.ArgumentParser("python -m tests.fuzz", description=cases.__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long (default: 1)")
    parser.add_argument("--cases", type=int, default=10**9, help="or how many")
    parser.add_argument("--start", type=int, default=0, help="the first case")
    parser.add_argument("--seed", type=int, default=0, help="what all cases are drawn from")
    parser.add_argument("--isa", choices=kernels.SETS, help="one instruction set (default: all of this machine)")
    parser.add_argument("--op", choices=list(cases.CASES), help="one op")
    parser.add_argument("--case", type=int, help="tell one case in full")
    parser.add_argument(
        "--record", action="store_true", help="where nothing is wrong, write it down for normkit doctor"
    )
    parser.add_argument("--sanitize", action="store_true", help="build and run the kernels under gcc's sanitizers")
    return parser.parse_args(arguments)


def sets_here() -> list[str]:
    """The instruction sets of this machine."""
    library = kernels.cpu()
    if library is None:
        return ["none"]
    before = library.isa()
    found = [name for name in kernels.SETS if library.use(name.encode())]
    library.use(before)
    return found


def use(name: str) -> None:
    """Let the kernels run on one of them."""
    library = kernels.cpu()
    if library is not None:
        library.use(name.encode())
        if special.library() is not None:
            special.library().use(kernels.SETS.index(name))


def line(number: int, seed: int, isa: str, only: str | None) -> str:
    """How to see a case again."""
    return f"python -m tests.fuzz --case {number} --seed {seed} --isa {isa}" + (f" --op {only}" if only else "")


def _tell(number: int, options, sets) -> int:
    case = cases.drawn(number, options.seed, options.op)
    print(case.op, case.options, "gradients of", case.wanted)
    for name, tensor in case.tensors.items():
        if tensor is not None:
            strides = f"strides {tensor.stride()} at {tensor.storage_offset()}"
            print(f"    {name}: {tensor.dtype} {tuple(tensor.shape)} {strides}")
    wrong = []
    for name in sets:
        use(name)
        found, live = judge(number, options.seed, options.op)
        print(name, "by a kernel" if live else "by the formula", *(found or ["nothing wrong"]), sep="\n    ")
        wrong += found
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
