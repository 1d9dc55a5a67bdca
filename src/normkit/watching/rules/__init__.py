"""What is wrong in a training, a rule each: ``find`` takes a history and gives findings.

A rule's thresholds are constants with a reason. It speaks only of what it was shown to find in a real training that was
made ill on purpose, is silent in healthy ones, and names what was shown to help there.
"""
