"""Choose among pruned candidates by their losses, after pooling the statistics of their batch norms.

The part is ``batchnorm-candidates``.
"""

from normkit.federated import servers
from normkit.federated.rounds import Ask, Extras, Strategy

PLAN = Strategy(
    servers.of_candidates,
    ("batchnorm-candidates",),
    needs=("candidates",),
    asks=(
        Ask("statistics", Extras(records=("statistics",), sound=servers.variances), servers.merge, servers.tell),
        Ask("losses", Extras(signed=("losses",), sound=servers.a_loss_each), servers.choose, servers.merged),
    ),
    begun=servers.pick_candidate,
)
