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
if rank == 0:
    print("python:", checks, "checks")
