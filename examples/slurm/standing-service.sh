#!/bin/sh
# Nodes as a standing service, placed by Slurm's own picture of the network: run once, on a host that reaches all others as root.
# Slurm's topology.conf names the switches and the hosts at each; a node of the same name serves them.
#
#   SwitchName=rack1 Nodes=n[01-16]
#   SwitchName=rack2 Nodes=n[17-32]
#   SwitchName=core Switches=rack[1-2]
set -eu

# The manager; in its /etc/pleach/manager.toml: listen = "head1:4797" and topology = "/etc/slurm/topology.conf"
ssh root@head1 systemctl enable --now pleach-manager

# A switch cannot run a node: a host at the switch does.
for place in rack1:n01 rack2:n17 core:head1; do
    name=${place%%:*} host=${place##*:}
    # All services of a cluster have the same secret. The group pleach may read it, as the package made it.
    if [ "$host" != head1 ]; then
        ssh root@head1 cat /etc/pleach/secret | ssh "root@$host" 'cat > /etc/pleach/secret'
    fi
    printf 'manager = "head1:4797"\nname = "%s"\nsecret_file = "/etc/pleach/secret"\n' "$name" |
        ssh "root@$host" 'cat > /etc/pleach/node.toml; systemctl enable pleach-node; systemctl restart pleach-node'
done
ssh root@head1 pleach top --manager head1:4797 --secret-file /etc/pleach/secret --once
