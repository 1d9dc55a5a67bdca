"""A module in ONNX, as a session of onnxruntime; tests that import it are skipped where that is not installed."""

import typing

import pytest
import torch

pytest.importorskip("onnx", reason="needs onnx")
pytest.importorskip("onnxscript", reason="needs onnxscript, torch's exporter")
ort = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
decompositions = pytest.importorskip("torch.onnx._internal.exporter._decomp")
ONNXRegistry = pytest.importorskip("torch.onnx._internal.exporter._registration").ONNXRegistry
utils = pytest.importorskip("torch._export.utils")


def once(function):
    """What a function gave at first, for every later call."""
    first = []

    def call(*given, **options):
        if not first:
            first.append(function(*given, **options))
        return first[0]

    return call


SAME = [  # what torch gathers anew in every export
    (ONNXRegistry, "from_torchlib", staticmethod(once(ONNXRegistry.from_torchlib))),  # how operators are translated
    (decompositions, MADE := "create_onnx_friendly_decomposition_table", once(getattr(decompositions, MADE))),  # or not
    (utils, ASKED := "_materialize_cpp_cia_ops", once(getattr(utils, ASKED))),  # which ones libraries in C++ have
    (torch._ops, "Callable", typing.Callable),  # an annotation of each of thousands; this one keeps what it was given
]


def session(module, inputs, axes):
    """Export a module, with the axis of samples of each input, None for one without, left free."""
    free = tuple({} if axis is None else {axis: torch.export.Dim.DYNAMIC} for axis in axes)
    with pytest.MonkeyPatch.context() as patch:
        for place, name, value in SAME:
            patch.setattr(place, name, value)
        program = torch.onnx.export(module, tuple(inputs), dynamo=True, dynamic_shapes=free, verbose=False)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(program.model_proto.SerializeToString(), options)
