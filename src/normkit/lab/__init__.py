"""The lab: train variants of a model side by side, and tell what differs.

Four parts, each read by itself: :mod:`.tasks` is data and a model to build, :mod:`.loop` trains one run, :mod:`.runs`
says what to run next, and the report is made from the logs alone. Everything beyond torch comes with
``pip install -c constraints.txt '.[lab]'``, and a few packages with groups of their own (:mod:`normkit.optional`).
"""
