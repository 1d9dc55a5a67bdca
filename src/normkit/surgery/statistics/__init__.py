"""The statistics that a model keeps of its batches: estimated anew, repaired, pooled, chosen by, mixed at test time."""
