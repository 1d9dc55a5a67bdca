"""The kernels themselves, in Triton: one file a family. Imported by `normkit.kernels.cuda` alone, at a first use."""
