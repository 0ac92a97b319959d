#!/bin/sh
#PBS -N pleach
#PBS -l select=4:ncpus=8:mpiprocs=8
#PBS -l walltime=00:10:00
# One command: starts a manager, a root and two leaves on the allocated hosts, then 32 ranks; everything ends with the program.
# The hosts are those of PBS_NODEFILE, reached by ssh without a password. PBS starts a script in the home folder.
cd "$PBS_O_WORKDIR" || exit
exec pleach launch --nodes 3 -- ./program
