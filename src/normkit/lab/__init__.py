"""The lab: train variants of a model side by side, and tell what differs.

Three parts, each a folder, and a small one that fits densities, between what they share and the commands; a line
imports from itself and those above it::

    .           files logs together notebook clock
    fit         table training
    plan        exchanges handed settings variants builtin options plan ladder growth data samples
    plan        clients models optimizers losses measures findings trends factor tasks
    plan        corruptions shift bits later
    training    watched checkpoints memory own shifted quantized single federated loop engines ahead runs speed
    report      times history health ranking words tables ladder lasting factor shift quant advice conclusion
    report      figures page drawing exports
    fit         page run
    .           rerank screen request course result api cli tiny

:mod:`.request` makes a plan of what is asked for, and :mod:`.course` carries it out. :mod:`.plan.plan` says what is
compared, :mod:`.plan.variants` in what it may differ, and :mod:`.plan.tasks` makes of it data and a model to build;
:mod:`.training.loop` trains one run, :mod:`.training.runs` says what to run next, on one of the
:mod:`.training.engines`; the report is made from the files that these leave. Their names are in :mod:`.files`, what a
log can say in :mod:`.logs`. Everything beyond torch comes with ``pip install -c constraints.txt '.[lab]'``, and a few
packages with groups of their own (:mod:`normkit.optional`).
"""
