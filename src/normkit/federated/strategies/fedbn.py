"""Average all but the norms, which each client keeps.

The part is ``fedbn-average``, arXiv 2102.07623.
"""

from normkit.federated.rounds import Strategy, average

PLAN = Strategy(average, ("fedbn-average",), keeps=True)
