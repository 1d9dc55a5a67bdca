"""Goldens: numbers of the authors' code, recorded once and replayed, those of other packages beside their methods.

    from normkit.contract.goldens import Golden

    golden = Golden("rmsnorm", "plain", source="authors' code (bzhangGo/rmsnorm, rmsnorm_torch.py)", args=[8])
    golden.state(weight=theirs.scale)            # our names, their tensors
    golden.step(theirs, {"x": x})                # forward and backward, in the order that `forward` takes
    golden.step(theirs, {"x": x}, mode="eval")
    golden.write()                               # goldens/rmsnorm/plain.npz, beside the method's module

:class:`Optimizer` records steps of an optimizer, :class:`Text` calls with strings, :class:`Rule` what a rule of the
watch finds. ``python -m normkit.contract.goldens FILE ...`` prints what a golden holds; tests/goldens/README.md of the
repository describes the format.
"""

from normkit.contract.goldens.record import Golden as Golden
from normkit.contract.goldens.record import Optimizer as Optimizer
from normkit.contract.goldens.record import Rule as Rule
from normkit.contract.goldens.record import Text as Text
from normkit.contract.goldens.replay import Call as Call
