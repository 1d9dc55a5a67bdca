"""Pool the covariances of features once, from which clients draw further samples.

The parts are ``pooled-covariance`` and ``geometric-samples``.
"""

from normkit.federated import servers
from normkit.federated.rounds import Ask, Extras, Strategy

MOMENTS = Extras(records=("statistics",), sound=servers.moments, read=servers.of_own_classes)
PLAN = Strategy(
    servers.answer,
    ("pooled-covariance", "geometric-samples"),
    remembers=True,
    told=servers.shape_of_all,
    asks=(Ask("statistics", MOMENTS, servers.pool),),
)
