#!/bin/sh
# Installs, uses and removes the packages. Run by `cargo xtask test --step installation` in a copy of the file system.
set -eu
cd /check
step() { echo "        $*"; }
# The lines of the blocks below a heading of docs/operations.md.
commands() { sed -n "/^## $1\$/,/^## /p" operations.md | sed -n '/^```sh$/,/^```$/p' | grep -v '^```'; }

step "install the Debian package"
before=$(mktemp)
find /usr /etc /lib /var/lib -name '*pleach*' | sort > "$before"
dpkg --install ./*.deb > dpkg.log 2>&1 || { cat dpkg.log; exit 1; }
[ "$(stat -c '%U %G %a' /etc/pleach/secret)" = "root pleach 640" ]

step "every library of the installed files is from a package in Depends"
# Prints what is not so; the argument is a list as in Depends.
foreign_libraries() {
    packages=" $(echo "$1" | sed -E 's/ *\([^)]*\)//g; s/[,|]/ /g') "
    dpkg --listfiles pleach | while read -r file; do
        [ -f "$file" ] && [ ! -L "$file" ] && [ "$(head -c 4 "$file" | tail -c 3)" = ELF ] || continue
        echo "$file" >> elf-files
        ldd "$file" > libraries
        sed -n 's/^[[:space:]]*\([^ ]*\) => not found$/\1/p' libraries | while read -r missing; do
            echo "$file: $missing is not installed"
        done
        sed -nE 's/^[^/]*(\/[^ ]+) \(0x[0-9a-f]+\)$/\1/p' libraries | while read -r library; do
            # Packages list some libraries below /lib, others below /usr/lib; one folder is a link to the other.
            real=$(readlink -f "$library")
            owner=$(dpkg --search "$real" 2> /dev/null || dpkg --search "${real#/usr}" 2> /dev/null || echo "no package: $real")
            owner=${owner%%:*}
            case $packages in *" $owner "*) ;; *) echo "$file: $library is of $owner" ;; esac
        done
    done
}
depends=$(dpkg-query --show --showformat '${Depends}' pleach)
foreign_libraries "$depends" > foreign
# The program, the libraries for C and MPI, and the provider.
[ "$(wc -l < elf-files)" -eq 4 ] || { cat elf-files; exit 1; }
if [ -s foreign ]; then cat foreign; exit 1; fi
if [ -z "$(foreign_libraries adduser)" ]; then
    echo "a missing dependency is not noticed"; exit 1
fi

step "the version has a commit"
pleach --version | tee version | grep -Eq '^pleach [0-9]+\.[0-9]+\.[0-9]+ \([0-9a-f]{10}\)$'

step "manual pages and completions"
for page in pleach pleach-exec pleach-manager pleach-bench-mpi; do
    zcat "/usr/share/man/man1/$page.1.gz" | grep -q '^\.SH NAME'
done
completions=/usr/share/bash-completion/completions/pleach
bash -n $completions
for file in $completions /usr/share/zsh/vendor-completions/_pleach /usr/share/fish/vendor_completions.d/pleach.fish; do
    [ -s "$file" ] || { echo "$file is missing or empty"; exit 1; }
done

step "units"
units="/lib/systemd/system/pleach-manager.service /lib/systemd/system/pleach-node.service"
# An unknown setting is a warning only, and no failure.
systemd-analyze verify $units > verify.log 2>&1 || { cat verify.log; exit 1; }
if grep pleach verify.log; then exit 1; fi

step "the sandbox of the services"
if systemd-analyze --help | grep -q -e --threshold; then
    # Tenths of the exposure level from 0 to 10; they have 1.7.
    exposure() { systemd-analyze security --no-pager --offline=true --threshold=20 "$1"; }
    for unit in $units; do
        exposure "$unit" > exposure.log 2>&1 || { cat exposure.log; exit 1; }
    done
    mkdir weak
    grep -v -e '^CapabilityBoundingSet=' -e '^SystemCallFilter=' /lib/systemd/system/pleach-node.service > weak/pleach-node.service
    if exposure weak/pleach-node.service > exposure.log 2>&1; then
        echo "a weaker sandbox is not noticed:"; cat exposure.log; exit 1
    fi
else
    echo "        not checked: this systemd-analyze has no --threshold"
fi

step "settings and services, as docs/operations.md has them"
ip address add 10.0.0.1/32 dev lo
# Instead of the editor, what it writes. No systemd runs here that could start the services at once.
commands Install | sed -E -n \
    -e "s/^sudo editor ([^ ]+) .*: (.*)\$/echo '\2' >> \1/p" \
    -e 's/^sudo systemctl enable --now (.*)$/systemctl --quiet enable \1/p' > install.sh
[ "$(wc -l < install.sh)" -eq 4 ]
sh -eu install.sh
for service in manager node; do
    [ -L "/etc/systemd/system/multi-user.target.wants/pleach-$service.service" ]
    grep -q '^[a-z]* = "10.0.0.1:4797"$' "/etc/pleach/$service.toml"
done

step "the services start with the settings and the user of the package, and say that they are ready"
python3 - <<'PYTHON'
import os, pwd, socket, subprocess
os.chmod("/check", 0o755)
user = pwd.getpwnam("pleach")
def start(service):
    notifications = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notifications.bind(f"/check/{service}.socket")
    os.chmod(f"/check/{service}.socket", 0o777)
    notifications.settimeout(20)
    environment = {"NOTIFY_SOCKET": f"/check/{service}.socket", "WATCHDOG_USEC": "400000", "PATH": "/usr/bin"}
    command = f"export WATCHDOG_PID=$$; exec /usr/bin/pleach {service} --config /etc/pleach/{service}.toml"
    process = subprocess.Popen(["/bin/sh", "-c", command], env=environment, user=user.pw_uid, group=user.pw_gid, extra_groups=[],
        stderr=open(f"/check/{service}.log", "wb"), stdout=subprocess.DEVNULL)
    started.append(process)
    try:
        said = [notifications.recv(100) for _ in range(2)]
    except OSError as error:
        raise SystemExit(f"{service}: {error}: {open(f'/check/{service}.log').read()}")
    assert said == [b"READY=1\n", b"WATCHDOG=1\n"], (service, said)
started = []
try:
    start("manager")
    start("node")
    shown = subprocess.run(["pleach", "top", "--once", "--manager", "10.0.0.1:4797", "--secret-file", "/etc/pleach/secret"], capture_output=True, text=True, timeout=30)
    assert shown.returncode == 0 and os.uname().nodename in shown.stdout, shown
finally:
    for process in started:
        process.terminate()
        process.wait()
PYTHON
# Open MPI would not start with it.
ip address delete 10.0.0.1/32 dev lo

step "the demo"
pleach demo > demo.log 2>&1 || { cat demo.log; exit 1; }

step "a C program"
cc -o sums /usr/share/doc/pleach/examples/sums.c $(pkg-config --cflags --libs pleach)
readelf -d sums | grep -q 'libpleach_c.so.0'
[ "$(pleach launch -n 4 -- ./sums)" = "4 ranks: 6 in all; the largest is 3, of rank 1" ]

step "the program in pleach.h, by the commands above it"
mkdir header
sed -n '/^ \* With the package installed:$/,/^ \* In a checkout of the sources:$/s/^ \*     //p' /usr/include/pleach.h > header/commands.sh
[ "$(wc -l < header/commands.sh)" -eq 2 ]
sed -n '/^ \* A program:$/,/^ \*\//p' /usr/include/pleach.h | sed -n 's/^ \*     //p' > header/program.c
(cd header && sh -eu commands.sh) > header.out
[ "$(wc -l < header.out)" -eq 8 ]
[ "$(sort header.out | tail -n 1)" = "rank 7 of 8: 8 ranks take part" ]

step "an MPI program"
cat > sum.c <<'PROGRAM'
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    int rank, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("sum %d\n", sum);
    return MPI_Finalize();
}
PROGRAM
mpicc.openmpi -o sum sum.c
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PLEACH_MPI_CHOICE=pleach
pleach exec -- mpirun.openmpi --oversubscribe -n 2 ./sum > exec.out 2> exec.log || { cat exec.log; exit 1; }
grep -q 'sum 1' exec.out
grep -q '2 of 2 calls of all ranks offloaded (100 %)' exec.log || { cat exec.log; exit 1; }

step "an upgrade, as docs/operations.md has it, keeps changed settings and the secret"
# The same package as a later version, under the name that the page installs.
commands Upgrade | sed -E -n 's/^sudo apt install (\.\/pleach_[^ ]*\.deb).*/\1/p' > later-name
[ "$(wc -l < later-name)" -eq 1 ]
later=$(cat later-name)
later_version=$(echo "$later" | sed -E 's/.*pleach_([^_]*)_.*/\1/')
dpkg-deb --raw-extract ./pleach_*.deb later-package
sed -i "s/^Version: .*/Version: $later_version/" later-package/DEBIAN/control
dpkg-deb --root-owner-group --build later-package "$later" > later.log 2>&1 || { cat later.log; exit 1; }
echo '# ours' >> /etc/pleach/node.toml
cp /etc/pleach/secret secret
apt-get install --yes "$later" > apt.log 2>&1 || { cat apt.log; exit 1; }
[ "$(dpkg-query --show --showformat '${Version}' pleach)" = "$later_version" ]
pleach --version > /dev/null
rm -r "$later" later-package
grep -q '# ours' /etc/pleach/node.toml
cmp secret /etc/pleach/secret

step "remove it, and nothing is left"
apt-get remove --yes pleach > apt.log 2>&1 || { cat apt.log; exit 1; }
[ -e /etc/pleach/node.toml ]
[ ! -e /usr/bin/pleach ]
apt-get purge --yes pleach > apt.log 2>&1 || { cat apt.log; exit 1; }
find /usr /etc /lib /var/lib -name '*pleach*' | sort > after
diff "$before" after
if getent passwd pleach; then exit 1; fi

step "the first job, as docs/operations.md has it, in at most ten commands"
commands "The first job" > first-job.sh
[ "$(wc -l < first-job.sh)" -ge 5 ] && [ "$(wc -l < first-job.sh)" -le 10 ]
# Its services end with it.
echo 'kill $(jobs -p)' >> first-job.sh
bash -eum first-job.sh > first-job.out 2> first-job.log || { cat first-job.out first-job.log; exit 1; }
grep -q 'sum 1' first-job.out
grep -q "$(uname -n)" first-job.out
dpkg --purge pleach > dpkg.log 2>&1 || { cat dpkg.log; exit 1; }

step "the tarball, below a folder of its own"
mkdir tarball
tar -C tarball --strip-components=1 -xzf ./pleach-*-linux-*.tar.gz
[ "$(tarball/bin/pleach --version)" = "$(cat version)" ]
cc -o sums-tarball tarball/share/doc/pleach/examples/sums.c $(PKG_CONFIG_PATH=/check/tarball/lib/pkgconfig pkg-config --cflags --libs pleach)
[ "$(LD_LIBRARY_PATH=/check/tarball/lib tarball/bin/pleach launch -n 2 -- ./sums-tarball)" = "2 ranks: 1 in all; the largest is 1, of rank 1" ]
