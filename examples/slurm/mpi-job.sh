#!/bin/sh
#SBATCH --job-name=pleach-mpi
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --time=00:10:00
# An MPI program through the nodes of a standing service (see standing-service.sh); the credential lets this job use the manager.
# Who submits it must be able to read the secret (group pleach), or replaces the credential by one that an operator has issued.
set -eu
PLEACH_MANAGER=head1:4797
PLEACH_JOB_CREDENTIAL=$(pleach credential --hours 2 --secret-file /etc/pleach/secret)
export PLEACH_MANAGER PLEACH_JOB_CREDENTIAL
exec pleach exec -- srun --mpi=pmix ./program
