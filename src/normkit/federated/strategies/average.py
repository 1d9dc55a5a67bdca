"""Average the states of clients by their numbers of samples.

FedAvg, arXiv 1602.05629.
"""

from normkit.federated.rounds import Strategy, average

PLAN = Strategy(average)
