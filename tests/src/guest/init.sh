#!/bin/busybox sh
# The guest's first and only program: makes a soft-RoCE device, then obeys the commands of its control port.
#
# The kernel hands over what its command line says of us as variables: guest_address, guest_prefix, guest_gid,
# guest_mtu. When all is up we say `ready INDEX`, the index of guest_gid in the device's table of addresses. Commands
# come as lines, `run NUMBER SECONDS COMMAND` or `kill NUMBER`; answers are `done NUMBER STATUS BYTES BYTES`, followed
# by so many bytes of standard output and of standard error. STATUS is the exit status, or `late` if the seconds did
# not suffice.

/bin/busybox mkdir -p /proc /sys /dev /run /tmp
/bin/busybox --install -s /bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tmpfs none /run

fail() {
    echo "guest: $1"
    sync
    poweroff -f
}

while read -r module; do
    insmod "/modules/$module.ko" || fail "cannot load $module"
done </modules/order

ip link set lo up
ip link set eth0 mtu "$guest_mtu" || fail "no network device"
ip address add "$guest_address/$guest_prefix" dev eth0
ip link set eth0 up
rdma link add rxe0 type rxe netdev eth0 || fail "no soft-RoCE device"

# The device takes over addresses and link state in its own time.
device=/sys/class/infiniband/rxe0/ports/1
tries=100
until grep -q ACTIVE "$device/state" && index=$(grep -l "$guest_gid" "$device"/gids/*); do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || fail "the soft-RoCE device is not active or has no address $guest_gid"
    sleep 0.05
done

for port in /sys/class/virtio-ports/*; do
    if [ "$(cat "$port/name")" = control ]; then control=/dev/${port##*/}; fi
done
[ -c "$control" ] || fail "no control port"

# A port can be opened once only, so everybody below inherits this one.
exec 3<>"$control" || fail "cannot open $control"

# Commands end when they like, but answers must not mix: one process writes them all, told by short lines in a pipe.
mkfifo /run/ended
exec 4<>/run/ended
while read -r number status <&4; do
    cd /run
    echo "done $number $status $(stat -c %s "$number.out") $(stat -c %s "$number.err")"
    cat "$number.out" "$number.err"
    rm -f "$number".*
done >&3 &

obey() {
    # A session of its own, so that whatever the command starts can be ended with it.
    setsid sh -c "$3" >"/run/$1.out" 2>"/run/$1.err" </dev/null 3<&- 4<&- &
    task=$!
    echo "$task" >"/run/$1.pid"
    setsid sh -c "sleep $2; touch /run/$1.late; kill -KILL -$task" </dev/null 3<&- 4<&- &
    watch=$!
    wait "$task"
    status=$?
    kill -KILL "-$watch" "-$task" 2>/dev/null
    if [ -e "/run/$1.late" ]; then status=late; fi
    echo "$1 $status" >&4
}

end() {
    # A command that has only just been given may not have its number or its session yet.
    tries=40
    until kill -KILL "-$(cat "/run/$1.pid")" || [ "$tries" = 0 ]; do
        tries=$((tries - 1))
        sleep 0.05
    done 2>/dev/null
}

echo "ready ${index##*/}" >&3
while read -r verb number seconds command <&3; do
    case $verb in
        run) obey "$number" "$seconds" "$command" & ;;
        kill) end "$number" & ;;
    esac
done

# The port was closed: whoever started this guest is gone.
poweroff -f
