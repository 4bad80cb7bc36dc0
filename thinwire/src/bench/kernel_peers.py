# Times the top-k of numpy and torch, of whichever there is: a line with a name and milliseconds for each.
import statistics
import sys
import time

dim, k, iterations = map(int, sys.argv[1:])


def measure(name, run):
    laps = []
    for _ in range(iterations):
        begun = time.perf_counter()
        run()
        laps.append(1e3 * (time.perf_counter() - begun))
    print(name, statistics.median(laps), flush=True)


try:
    import numpy
except ImportError:
    pass
except Exception as error:  # It is there, and broken.
    print(f"not measured: {error}", file=sys.stderr)
else:
    values = numpy.random.default_rng(1).standard_normal(dim, dtype=numpy.float32)
    measure("numpy_argpartition", lambda: numpy.argpartition(numpy.abs(values), dim - k)[dim - k :])

try:
    import torch
except ImportError:
    pass
except Exception as error:  # It is there, and broken.
    print(f"not measured: {error}", file=sys.stderr)
else:
    torch.set_num_threads(1)
    values = torch.randn(dim)
    measure("torch_topk", lambda: torch.topk(values.abs(), k, sorted=False))
