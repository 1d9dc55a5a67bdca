"""A module in ONNX, as a session of onnxruntime; tests that import it are skipped where that is not installed."""

import functools

import pytest
import torch

pytest.importorskip("onnx", reason="needs onnx")
pytest.importorskip("onnxscript", reason="needs onnxscript, torch's exporter")
ort = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
ONNXRegistry = pytest.importorskip("torch.onnx._internal.exporter._registration").ONNXRegistry
# what torch translates an operator to: read from a thousand sources, which it does anew in every export
TABLE = functools.cache(ONNXRegistry.from_torchlib)


def session(module, inputs, axes):
    """Export a module, with the axis of samples of each input, None for one without, left free."""
    free = tuple({} if axis is None else {axis: torch.export.Dim.DYNAMIC} for axis in axes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ONNXRegistry, "from_torchlib", staticmethod(TABLE))
        program = torch.onnx.export(module, tuple(inputs), dynamo=True, dynamic_shapes=free, verbose=False)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(program.model_proto.SerializeToString(), options)
