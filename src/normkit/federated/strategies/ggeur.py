"""Pool the covariances of features once, from which clients draw further samples.

The parts are ``pooled-covariance`` and ``geometric-samples``.
"""

from normkit.federated import servers
from normkit.federated.rounds import Ask, Extras, Strategy

PLAN = Strategy(
    servers.answer,
    ("pooled-covariance", "geometric-samples"),
    remembers=True,
    told=servers.shape_of_all,
    asks=(Ask("statistics", Extras(records=("statistics",), sound=servers.moments), servers.pool),),
)
