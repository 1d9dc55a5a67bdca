"""The lab: train variants of a model side by side, and tell what differs.

Three parts between what they share and the command; each imports from its own line and those above it::

    shared      files logs
    plan        plan data samples swap models optimizers measures findings tasks
    training    probe checkpoints loop engines runs speed
    report      history ranking words advice figures tables report
    command     screen cli

:mod:`.plan` says what is compared, and :mod:`.tasks` makes of it data and a model to build; :mod:`.loop` trains one
run, :mod:`.runs` says what to run next, on one of the :mod:`.engines`; the report is made from the files that these
leave. Their names are in :mod:`.files`, what a log can say in :mod:`.logs`. Everything beyond torch comes with
``pip install -c constraints.txt '.[lab]'``, and a few packages with groups of their own (:mod:`normkit.optional`).
"""
