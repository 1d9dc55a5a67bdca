"""Make `import torchvision`, which timm needs, work where its compiled part was built for another torch."""

import torch

LIBRARY = None  # the declarations live as long as this

try:
    import torchvision  # noqa: F401
except ImportError:
    pass  # not there, and neither is timm
except RuntimeError:  # operator torchvision::nms does not exist
    LIBRARY = torch.library.Library("torchvision", "DEF")
    for _name in ("nms", "qnms"):
        LIBRARY.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
