#!/bin/sh
#SBATCH --job-name=pleach
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --time=00:10:00
# One command: starts a manager, a root and two leaves on the allocated hosts, then 32 ranks; everything ends with the program.
exec pleach launch --nodes 3 -- ./program
