"""A driver that stands for a GPU, and writes launches down."""

LAUNCHED: list = []  # one for all: Triton keeps what was compiled with an earlier driver


class Device:
    """What Triton asks of a driver; a binary is loaded and started by being written down."""

    def __init__(self):
        LAUNCHED.clear()
        self.launched = LAUNCHED
        self.utils = self

    def get_current_target(self):
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 7

    def get_device_properties(self, device):
        return {"max_shared_mem": 232448}

    def load_binary(self, name, binary, shared, device):
        return name, name, 32, 0, 1024

    def launcher_cls(self, source, metadata):
        def start(x, y, z, stream, function, packed, about, enter, leave, *arguments):
            self.launched.append((function, (x, y, z), stream, metadata.num_warps, arguments))

        return start
