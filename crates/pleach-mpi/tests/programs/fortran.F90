! Collectives from Fortran, in each of its bindings: -DBINDING=77 (mpif.h), 90 (use mpi) or 8 (use mpi_f08).
!
! Ends with "fortran: N checks" on rank 0.
program fortran
#if BINDING == 8
  use mpi_f08
#elif BINDING == 90
  use mpi
#endif
  implicit none
#if BINDING == 77
  include 'mpif.h'
#endif
#if BINDING == 8
  type(MPI_Comm) :: half
  type(MPI_Request) :: request
  type(MPI_Status) :: status
#else
  integer :: half, request, status(MPI_STATUS_SIZE)
#endif
  integer :: error, rank, ranks, round, checks, in(4), out(4), place(2), found(2), of_ranks, half_rank, half_size
  integer :: i
  integer, allocatable :: mine(:), all_of(:), counts(:), places(:)
  double precision :: numbers(3), sums(3)
  logical :: is_so, are_all
  checks = 0
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), rank, half, error)
  call MPI_Comm_rank(half, half_rank, error)
  call MPI_Comm_size(half, half_size, error)
  of_ranks = ranks * (ranks - 1) / 2
  allocate(mine(ranks), all_of(ranks), counts(ranks), places(ranks))
  counts = 1
  places = [(ranks - i, i = 1, ranks)]
  do round = 1, 20
    in = [rank, rank + round, round, 1]
    out = -1
    call MPI_Barrier(MPI_COMM_WORLD, error)
    call MPI_Allreduce(in, out, 4, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    call check(all(out == [of_ranks, of_ranks + ranks * round, ranks * round, ranks]), 'allreduce')
    numbers = [0.5d0, dble(rank), dble(round)]
    call MPI_Allreduce(numbers, sums, 3, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD, error)
    call check(all(sums == [0.5d0, dble(ranks - 1), dble(round)]), 'double precision')
    call MPI_Allreduce(MPI_IN_PLACE, in, 4, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, error)
    call check(all(in == [ranks - 1, ranks - 1 + round, round, 1]), 'in place')
    out = merge(round, -1, rank == mod(round, ranks))
    call MPI_Bcast(out, 4, MPI_INTEGER, mod(round, ranks), MPI_COMM_WORLD, error)
    call check(all(out == round), 'broadcast')
    call MPI_Reduce(rank, out(1), 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, error)
    if (rank == 0) call check(out(1) == of_ranks, 'reduce')
    call MPI_Scan(rank, out(1), 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    call check(out(1) == rank * (rank + 1) / 2, 'scan')
    place = [mod(rank + round, ranks), rank]
    call MPI_Allreduce(place, found, 1, MPI_2INTEGER, MPI_MAXLOC, MPI_COMM_WORLD, error)
    call check(found(1) == ranks - 1 .and. mod(found(2) + round, ranks) == ranks - 1, 'maxloc')
    is_so = rank /= mod(round, ranks)
    call MPI_Allreduce(is_so, are_all, 1, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD, error)
    call check(.not. are_all, 'logical')
    call MPI_Allreduce(1, out(1), 1, MPI_INTEGER, MPI_SUM, half, error)
    call check(out(1) == half_size, 'half')
    mine = [(100 * rank + i + round, i = 0, ranks - 1)]
    all_of = -1
    call MPI_Allgather(mine, 1, MPI_INTEGER, all_of, 1, MPI_INTEGER, MPI_COMM_WORLD, error)
    call check(all(all_of == [(100 * i + round, i = 0, ranks - 1)]), 'allgather')
    call MPI_Alltoall(mine, 1, MPI_INTEGER, all_of, 1, MPI_INTEGER, MPI_COMM_WORLD, error)
    call check(all(all_of == [(100 * i + rank + round, i = 0, ranks - 1)]), 'alltoall')
    call MPI_Alltoall(MPI_IN_PLACE, 1, MPI_INTEGER, all_of, 1, MPI_INTEGER, MPI_COMM_WORLD, error)
    call check(all(all_of == mine), 'alltoall in place')
    call MPI_Allgatherv(mine, 1, MPI_INTEGER, all_of, counts, places, MPI_INTEGER, MPI_COMM_WORLD, error)
    call check(all(all_of == [(100 * (ranks - i) + round, i = 1, ranks)]), 'allgatherv')
    call MPI_Gather(mine, 1, MPI_INTEGER, all_of, 1, MPI_INTEGER, mod(round, ranks), MPI_COMM_WORLD, error)
    if (rank == mod(round, ranks)) call check(all(all_of == [(100 * i + round, i = 0, ranks - 1)]), 'gather')
    call MPI_Scatter(mine, 1, MPI_INTEGER, out(1), 1, MPI_INTEGER, mod(round, ranks), MPI_COMM_WORLD, error)
    call check(out(1) == 100 * mod(round, ranks) + rank + round, 'scatter')
    call MPI_Reduce_scatter(mine, out(1), counts, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    call check(out(1) == 100 * of_ranks + ranks * (rank + round), 'reduce_scatter')
    call MPI_Iallreduce(in, out, 4, MPI_INTEGER, MPI_MIN, MPI_COMM_WORLD, request, error)
    call MPI_Wait(request, status, error)
    call check(all(out == in), 'iallreduce')
  end do
  call MPI_Comm_free(half, error)
  if (rank == 0) print '(a,i0,a)', 'fortran: ', checks, ' checks'
  call MPI_Finalize(error)
contains
  subroutine check(is_right, what)
    logical, intent(in) :: is_right
    character(*), intent(in) :: what
    if (.not. is_right) then
      print *, 'wrong: ', what, ' at rank', rank, 'in round', round
      call MPI_Abort(MPI_COMM_WORLD, 1, error)
    end if
    checks = checks + 1
  end subroutine
end program
