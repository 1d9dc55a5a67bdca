"""Average prototypes of classes, and send synthetic features made of them.

The parts are ``fedlog-classifier``, ``fedlog-branches``, ``fedlog-synthetic`` and ``fedlog-scaling``.
"""

from normkit.federated import servers
from normkit.federated.rounds import Extras, Strategy

PLAN = Strategy(
    servers.with_prototypes,
    ("fedlog-classifier", "fedlog-branches", "fedlog-synthetic", "fedlog-scaling"),
    wanted=Extras(records=("prototypes", "generator"), numbers=("class-rate",), sound=servers.prototypes),
    remembers=True,
    told=servers.synthetic,
)
