# Times the top-k of numpy and torch, of whichever there is: a line with a name and milliseconds for each.
import statistics
import sys
import time

dim, k, iterations = map(int, sys.argv[1:])


def numpy_argpartition():
    import numpy

    values = numpy.random.default_rng(1).standard_normal(dim, dtype=numpy.float32)
    return lambda: numpy.argpartition(numpy.abs(values), dim - k)[dim - k :]


def torch_topk():
    import torch

    torch.set_num_threads(1)
    values = torch.randn(dim)
    return lambda: torch.topk(values.abs(), k, sorted=False)


for prepare in (numpy_argpartition, torch_topk):
    try:
        run = prepare()
    except ImportError:
        continue
    except Exception as error:  # It is there, and broken.
        print(f"{prepare.__name__} is not measured: {error}", file=sys.stderr)
        continue
    laps = []
    for _ in range(iterations):
        begun = time.perf_counter()
        run()
        laps.append(1e3 * (time.perf_counter() - begun))
    print(prepare.__name__, statistics.median(laps), flush=True)
