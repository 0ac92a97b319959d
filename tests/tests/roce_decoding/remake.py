"""Reads IP packets, one a line in hexadecimal digits, and prints what scapy makes of their fields.

Lengths, checksums and the ICRC are forgotten in between, so that scapy computes them.
"""

import sys
from zlib import crc32

from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw


def forget(packet):
    """Leaves to scapy what follows from the rest."""
    del packet[UDP].len, packet[UDP].chksum
    packet[BTH].icrc = None
    return packet


def remade_v4(octets):
    packet = forget(IP(octets))
    del packet.len, packet.chksum
    return bytes(packet)


def remade_v6(octets):
    # scapy 2.5 computes no ICRC over IPv6. Its layers mask the headers here as its own code does for IPv4.
    packet = forget(IPv6(octets))
    del packet.plen
    packet[BTH].icrc = 0
    masked = IPv6(bytes(packet))
    masked.tc, masked.fl, masked.hlim = 0xFF, 0xFFFFF, 0xFF
    masked[UDP].chksum = 0xFFFF
    masked[BTH].fecn, masked[BTH].becn, masked[BTH].resv6 = 1, 1, 0x3F
    covered = bytes(Raw(b"\xff" * 8) / masked)[:-4]
    packet[BTH].icrc = int.from_bytes(crc32(covered).to_bytes(4, "little"), "big")
    return bytes(packet)


for line in sys.stdin.read().split():
    octets = bytes.fromhex(line)
    remade = remade_v4(octets) if octets[0] >> 4 == 4 else remade_v6(octets)
    print(remade.hex())
