"""The counterpart of rank.rs with torch.distributed and gloo: allreduces of doubles, with the same warm-up, batches and checks, and
the same output format.

Arguments: where the ranks meet (tcp://ADDRESS:PORT), rank, number of ranks, batches, seconds of a batch, measures such as
allreduce:1048576. GLOO_SOCKET_IFNAME names the network device.
"""
import json
import resource
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

# Operations before anything is timed, twice, as in rank.rs.
WARM_UP = 50
TIMEOUT = timedelta(seconds=60)


def processor_micros():
    """Processor time of this process with all its threads, in user and kernel mode."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return (usage.ru_utime + usage.ru_stime) * 1e6


def batch(vector, iterations):
    """Runs so many operations. Returns the microseconds of one."""
    dist.barrier()
    began = time.perf_counter()
    for _ in range(iterations):
        dist.all_reduce(vector, op=dist.ReduceOp.SUM)
    return (time.perf_counter() - began) * 1e6 / iterations


def check(name, vector, rank, ranks):
    """Runs the operation once with values whose result is known, and compares every element."""
    pattern = torch.arange(vector.numel(), dtype=torch.float64) % 1009
    vector.copy_(pattern + rank + 1)
    dist.all_reduce(vector, op=dist.ReduceOp.SUM)
    expected = pattern * ranks + ranks * (ranks + 1) / 2
    if not torch.equal(vector, expected):
        sys.exit(f"{name}: wrong result at rank {rank}")
    vector.zero_()


def report(rank, line):
    """Prints a line of rank 0."""
    if rank == 0:
        print(line, flush=True)


def measure(name, rank, ranks, batches, seconds):
    """Measures one operation, which rank 0 reports."""
    operation, size = name.split(":")
    if operation != "allreduce":
        sys.exit(f"{name}: only allreduce is known")
    vector = torch.zeros(int(size) // 8, dtype=torch.float64)
    check(name, vector, rank, ranks)
    batch(vector, WARM_UP)
    micros = batch(vector, WARM_UP)
    # The clock of rank 0 decides for all.
    decided = torch.tensor([int(min(max(seconds * 1e6 / micros, 10), 1e6))])
    dist.broadcast(decided, 0)
    iterations = int(decided[0])
    report(rank, f"begin {name}")
    dist.barrier()
    before = processor_micros()
    times = [batch(vector, iterations) for _ in range(batches)]
    cpu = torch.tensor([processor_micros() - before], dtype=torch.float64)
    dist.all_reduce(cpu)
    result = {
        "measure": name,
        "iterations": iterations,
        "micros": times,
        "cpu_micros": float(cpu[0]) / batches / iterations,
    }
    report(rank, "end " + json.dumps(result))
    check(name, vector, rank, ranks)


def main():
    meeting, rank, ranks, batches, seconds = sys.argv[1:6]
    rank, ranks = int(rank), int(ranks)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks, timeout=TIMEOUT)
    for name in sys.argv[6:]:
        measure(name, rank, ranks, int(batches), float(seconds))
    dist.barrier()
    dist.destroy_process_group()


main()
