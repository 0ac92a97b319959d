"""Collectives from Python, with mpi4py: buffers, objects, communicators, requests. Ends with "python: N checks" on rank 0."""
from array import array

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
of_ranks = size * (size - 1) // 2
checks = 0


def check(is_right, what):
    global checks
    if not is_right:
        print("wrong:", what, "at rank", rank, flush=True)
        world.Abort(1)
    checks += 1


for turn in range(20):
    given, got = array("d", [rank, turn]), array("d", [-1, -1])
    world.Allreduce(given, got, op=MPI.SUM)
    check(list(got) == [of_ranks, turn * size], "Allreduce")
    world.Allreduce(MPI.IN_PLACE, given, op=MPI.MAX)
    check(list(given) == [size - 1, turn], "in place")
    word = array("i", [turn if rank == turn % size else -1])
    world.Bcast(word, root=turn % size)
    check(word[0] == turn, "Bcast")
    check(world.bcast({"turn": turn} if rank == 0 else None)["turn"] == turn, "bcast of an object")
    check(world.allreduce(rank) == of_ranks, "allreduce of objects")
    part = world.Split(rank % 2, -rank)
    ones, many = array("l", [1] * 100), array("l", [0] * 100)
    part.Allreduce(ones, many)
    check(list(many) == [part.Get_size()] * 100, "part")
    request = part.Iallreduce(ones, many, op=MPI.PROD)
    request.Wait()
    check(list(many) == [1] * 100, "Iallreduce")
    part.Barrier()
    part.Free()
    so_far = array("i", [0])
    world.Scan(array("i", [rank]), so_far)
    check(so_far[0] == rank * (rank + 1) // 2, "Scan")
    given = array("i", [100 * rank + i + turn for i in range(size)])
    everything, part = array("i", [-1] * size), array("i", [-1])
    world.Allgather(given[:1], everything)
    check(list(everything) == [100 * i + turn for i in range(size)], "Allgather")
    world.Alltoall(given, everything)
    check(list(everything) == [100 * i + rank + turn for i in range(size)], "Alltoall")
    world.Allgatherv(given[:1], [everything, [1] * size, list(range(size)), MPI.INT])
    check(list(everything) == [100 * i + turn for i in range(size)], "Allgatherv")
    world.Scatter(given if rank == turn % size else None, part, root=turn % size)
    check(part[0] == 100 * (turn % size) + rank + turn, "Scatter")
    world.Gather(part, everything if rank == 0 else None, root=0)
    check(rank > 0 or list(everything) == [100 * (turn % size) + i + turn for i in range(size)], "Gather")
    world.Reduce_scatter(given, part, [1] * size)
    check(part[0] == 100 * of_ranks + size * (rank + turn), "Reduce_scatter")
    check(world.allgather({rank: turn}) == [{i: turn} for i in range(size)], "allgather of objects")
    check(world.alltoall([(rank, i) for i in range(size)]) == [(i, rank) for i in range(size)], "alltoall of objects")
if rank == 0:
    print("python:", checks, "checks")
