"""What tests of several kernels take."""

import numpy as np
import pytest
import torch

from normkit.kernels import special


@pytest.fixture(params=["baseline", "avx2", "avx512"])
def widest(request):
    """Let each instruction set that runs here be the widest that the kernels of matrices take."""
    if special.library() is None:
        pytest.skip(special.absent())
    if special.library().use(wanted := ("baseline", "avx2", "avx512").index(request.param)) != wanted:
        pytest.skip(f"{request.param} does not run here")
    yield
    special.library().use(2)


@pytest.fixture
def within(monkeypatch):
    """Interpreted kernels are stopped that reach outside of what they were handed: on a GPU it may be anyone's."""
    from triton.runtime.interpreter import InterpreterBuilder

    from normkit.kernels.cuda.templates import interpreter

    spans, given = {}, interpreter.interpret

    def interpret(kernel, grid, arguments, constants):
        stores = [a.untyped_storage() for a in arguments if isinstance(a, torch.Tensor)]
        spans.clear()
        spans.update({store.data_ptr(): store.nbytes() for store in stores})
        given(kernel, grid, arguments, constants)

    def guarded(name, place):
        do = getattr(InterpreterBuilder, name)

        def guard(self, pointers, *rest, **more):
            at = pointers.data[np.broadcast_to(rest[place].data, pointers.data.shape)].astype(np.int64)
            inside = [(at >= start) & (at < start + size) for start, size in spans.items()]
            if not np.logical_or.reduce(inside).all():
                raise IndexError(f"{name} outside of what the kernel was handed")
            return do(self, pointers, *rest, **more)

        return guard

    monkeypatch.setattr(InterpreterBuilder, "create_masked_load", guarded("create_masked_load", 0))
    monkeypatch.setattr(InterpreterBuilder, "create_masked_store", guarded("create_masked_store", 1))
    monkeypatch.setattr(interpreter, "interpret", interpret)
