-- Pleach's packets for Wireshark and tshark.
--
-- Most packets of Pleach are RoCEv2, which Wireshark decodes by itself at UDP port 4791. This script adds what is not RoCEv2:
-- parts and acknowledgements of transfers (opcodes 0xe1 and 0xe2), packets whose ICRC does not cover all of them (rules P-28 and
-- P-103 of docs/protocol.md; never at port 4791), and the aggregation messages inside RoCEv2 packets.
--
--   tshark -X lua_script:pleach.lua -r job.pcap -Y pleach
--   wireshark: copy the script into the folder of personal Lua plugins (Help, About, Folders)
--
-- Transfers and packets with a shortened ICRC are recognised at any port: the ICRC is verified, and is right by accident once in
-- 2^32. From then on all packets between these two ports belong to Pleach, also those with a wrong ICRC (-Y pleach.icrc.bad) and
-- RoCEv2. For other packets at another port than 4791: -d udp.port==PORT,pleach
--
-- A capture at the sender has several packets in one if the kernel or the adapter cuts them later (GSO); then the ICRC is wrong.

local pleach = Proto("pleach", "Pleach")
local aggregation = Proto("pleach_aggregation", "Pleach aggregation message")

local TRANSFER_BYTES = 56
local AGGREGATION_BYTES = 32
local BTH_BYTES = 12
local ICRC_BYTES = 4
local SHORT_ICRC_BYTES = 128
-- Added to the opcodes of a connection if the ICRC does not cover the whole packet.
local UNCOVERED_OPCODE_OFFSET = 0xc8

local kinds = { [0xe1] = "data", [0xe2] = "acknowledgement" }
local coverages = { [1] = "first 128 bytes", [2] = "nothing (benchmark)" }
local BAD, GOOD, UNVERIFIED, ABSENT = 0, 1, 2, 3
local statuses = { [BAD] = "Bad", [GOOD] = "Good", [UNVERIFIED] = "Unverified", [ABSENT] = "Not present" }
-- By the opcode of InfiniBand, or of Pleach.
local opcode_names = {
    [0x00] = "send first", [0x01] = "send middle", [0x02] = "send last", [0x03] = "send last with immediate",
    [0x04] = "send only", [0x05] = "send only with immediate",
    [0x06] = "write first", [0x07] = "write middle", [0x08] = "write last", [0x09] = "write last with immediate",
    [0x0a] = "write only", [0x0b] = "write only with immediate", [0x11] = "acknowledge",
    [0xc1] = "selective acknowledge", [0xc2] = "probe", [0xc3] = "probe reply", [0xc4] = "authenticated control", [0xc5] = "protected",
}
local function set(codes)
    local found = {}
    for _, code in ipairs(codes) do found[code] = true end
    return found
end
local with_reth = set { 0x06, 0x0a, 0x0b }
local with_immediate = set { 0x03, 0x05, 0x09, 0x0b }
local with_aeth = set { 0x11, 0xc1 }
local message_kinds = {
    [1] = "contribution", [2] = "result", [3] = "repair", [4] = "abort", [5] = "poll", [6] = "not entered",
}

local f = {
    kind = ProtoField.uint8("pleach.kind", "Kind", base.HEX, kinds),
    probe = ProtoField.uint8("pleach.probe", "Probe", base.DEC, nil, 0x0e),
    acknowledge = ProtoField.bool("pleach.acknowledge_now", "Acknowledge now", 8, nil, 0x01),
    round = ProtoField.uint16("pleach.round", "Round"),
    destination = ProtoField.uint32("pleach.destination", "Queue pair of the receiver", base.HEX),
    group = ProtoField.uint32("pleach.group", "Group"),
    epoch = ProtoField.uint32("pleach.epoch", "Epoch"),
    operation = ProtoField.uint32("pleach.operation", "Operation"),
    fingerprint = ProtoField.uint32("pleach.fingerprint", "Fingerprint of the operation", base.HEX),
    length = ProtoField.uint32("pleach.length", "Bytes of the whole transfer"),
    unfinished = ProtoField.uint32("pleach.unfinished", "First operation unfinished at the sender"),
    offset = ProtoField.uint32("pleach.offset", "Offset of the payload"),
    received = ProtoField.uint32("pleach.received", "Bytes received without a gap"),
    limit = ProtoField.uint32("pleach.limit", "Bytes that may be sent"),
    payload_mac = ProtoField.uint64("pleach.payload_mac", "MAC of the payload", base.HEX),
    mac = ProtoField.bytes("pleach.mac", "MAC of the header"),
    missing_offset = ProtoField.uint32("pleach.missing.offset", "Missing from"),
    missing_length = ProtoField.uint32("pleach.missing.length", "Missing bytes"),
    payload = ProtoField.bytes("pleach.payload", "Payload"),
    opcode = ProtoField.uint8("pleach.bth.opcode", "Opcode", base.HEX, opcode_names),
    pad_count = ProtoField.uint8("pleach.bth.padcnt", "Pad count", base.DEC, nil, 0x30),
    destination_qp = ProtoField.uint24("pleach.bth.destqp", "Destination queue pair", base.HEX),
    sequence = ProtoField.uint24("pleach.bth.psn", "Packet sequence number"),
    coverage = ProtoField.uint8("pleach.icrc.coverage", "Covered by the ICRC", base.DEC, coverages, 0x0f),
    migration = ProtoField.bool("pleach.bth.m", "Migration bit", 8, nil, 0x40),
    partition = ProtoField.uint16("pleach.bth.p_key", "Partition key", base.HEX),
    acknowledge_request = ProtoField.bool("pleach.bth.a", "Acknowledge", 8, nil, 0x80),
    address = ProtoField.uint64("pleach.reth.va", "Remote address", base.HEX),
    key = ProtoField.uint32("pleach.reth.r_key", "Remote key", base.HEX),
    write_length = ProtoField.uint32("pleach.reth.dmalen", "Bytes to write"),
    syndrome = ProtoField.uint8("pleach.aeth.syndrome", "Syndrome", base.HEX),
    message_sequence = ProtoField.uint24("pleach.aeth.msn", "Message sequence number"),
    immediate = ProtoField.uint32("pleach.immdt", "Immediate data", base.HEX),
    sack = ProtoField.uint64("pleach.sack", "Received beyond the missing packet", base.HEX),
    token = ProtoField.uint64("pleach.probe_token", "Token of the probe", base.HEX),
    icrc = ProtoField.uint32("pleach.icrc", "ICRC", base.HEX),
    icrc_status = ProtoField.uint8("pleach.icrc.status", "ICRC status", base.DEC, statuses),
}
pleach.fields = f
local icrc_bad = ProtoExpert.new("pleach.icrc.bad", "Wrong ICRC", expert.group.CHECKSUM, expert.severity.ERROR)
pleach.experts = { icrc_bad }

local g = {
    version = ProtoField.uint8("pleach_aggregation.version", "Version", base.DEC, nil, 0xf0),
    kind = ProtoField.uint8("pleach_aggregation.kind", "Kind", base.DEC, message_kinds, 0x0f),
    element = ProtoField.uint8("pleach_aggregation.element", "Element type"),
    operator = ProtoField.uint8("pleach_aggregation.operator", "Operator"),
    flags = ProtoField.uint8("pleach_aggregation.flags", "Flags", base.HEX),
    group = ProtoField.uint32("pleach_aggregation.group", "Group"),
    epoch = ProtoField.uint32("pleach_aggregation.epoch", "Epoch"),
    operation = ProtoField.uint32("pleach_aggregation.operation", "Operation"),
    segment = ProtoField.uint32("pleach_aggregation.segment", "Segment"),
    child = ProtoField.uint16("pleach_aggregation.child", "Child"),
    count = ProtoField.uint16("pleach_aggregation.count", "Elements"),
    detail = ProtoField.uint32("pleach_aggregation.detail", "Detail", base.HEX),
    crc = ProtoField.uint32("pleach_aggregation.crc", "CRC-32C", base.HEX),
    payload = ProtoField.bytes("pleach_aggregation.payload", "Elements"),
}
aggregation.fields = g

local function is_transfer(buffer)
    return buffer:len() >= TRANSFER_BYTES and kinds[buffer(0, 1):uint()] ~= nil
end

-- The opcode of InfiniBand or of Pleach, if the packet has a shortened ICRC or none.
local function opcode_of_uncovered(buffer)
    if buffer:len() < BTH_BYTES + ICRC_BYTES or coverages[buffer(1, 1):bitfield(4, 4)] == nil then return nil end
    local code = buffer(0, 1):uint()
    local opcode = code >= UNCOVERED_OPCODE_OFFSET and code - UNCOVERED_OPCODE_OFFSET or code
    if code < 0xc0 or opcode_names[opcode] == nil then return nil end
    return opcode
end

local crc_table = {}
for byte = 0, 255 do
    local crc = byte
    for _ = 1, 8 do
        local carry = bit.band(crc, 1) == 1
        crc = bit.rshift(crc, 1)
        if carry then crc = bit.bxor(crc, 0xedb88320) end
    end
    crc_table[byte] = crc
end

local function crc32(bytes)
    local crc = bit.bnot(0)
    for at = 0, bytes:len() - 1 do
        local byte = bytes:get_index(at)
        crc = bit.bxor(bit.rshift(crc, 8), crc_table[bit.band(bit.bxor(crc, byte), 0xff)])
    end
    return bit.bnot(crc) % 0x100000000
end

local function fill(bytes, from, to)
    for at = from, to do bytes:set_index(at, 0xff) end
end

local ip_field, ipv6_field = Field.new("ip"), Field.new("ipv6")

-- The IP header around the datagram with ones where routers may change it; nil if it has options.
local function masked_ip_header()
    local headers = { ip_field() }
    if #headers > 0 then
        local header = headers[#headers].range:bytes()
        if header:len() ~= 20 then return nil end
        fill(header, 1, 1)
        fill(header, 8, 8)
        fill(header, 10, 11)
        return header
    end
    headers = { ipv6_field() }
    if #headers == 0 or headers[#headers].range:len() < 40 then return nil end
    local header = headers[#headers].range(0, 40):bytes()
    header:set_index(0, 0x6f)
    fill(header, 1, 3)
    fill(header, 7, 7)
    return header
end

-- Whether the ICRC over the first bytes of a packet is right.
local function icrc_status(buffer, pinfo)
    if buffer(1, 1):bitfield(4, 4) == 2 then return ABSENT end
    local ip = masked_ip_header()
    if buffer:len() < buffer:reported_len() or ip == nil then return UNVERIFIED end
    local covered = ByteArray.new("ffffffffffffffff")
    covered:append(ip)
    covered:append(ByteArray.new(string.format("%04x%04x%04xffff", pinfo.src_port, pinfo.dst_port, buffer:len() + 8)))
    local start = covered:len()
    covered:append(buffer(0, math.min(buffer:len() - ICRC_BYTES, SHORT_ICRC_BYTES)):bytes())
    fill(covered, start + 4, start + 4)
    return crc32(covered) == buffer(buffer:len() - ICRC_BYTES, ICRC_BYTES):le_uint() and GOOD or BAD
end

local function dissect_transfer(buffer, pinfo, tree)
    local is_data = buffer(0, 1):uint() == 0xe1
    local top = tree:add(pleach, buffer(), "Pleach transfer, " .. kinds[buffer(0, 1):uint()])
    top:add(f.kind, buffer(0, 1))
    top:add(f.probe, buffer(1, 1))
    top:add(f.acknowledge, buffer(1, 1))
    top:add(f.round, buffer(2, 2))
    top:add(f.destination, buffer(4, 4))
    top:add(f.group, buffer(8, 4))
    top:add(f.epoch, buffer(12, 4))
    top:add(f.operation, buffer(16, 4))
    top:add(f.fingerprint, buffer(20, 4))
    top:add(f.length, buffer(24, 4))
    top:add(f.unfinished, buffer(28, 4))
    local what
    if is_data then
        top:add(f.offset, buffer(32, 4))
        what = string.format("%d bytes at %d of %d", buffer:len() - TRANSFER_BYTES, buffer(32, 4):uint(), buffer(24, 4):uint())
    else
        top:add(f.received, buffer(32, 4))
        top:add(f.limit, buffer(36, 4))
        what = string.format("received %d, may send %d", buffer(32, 4):uint(), buffer(36, 4):uint())
    end
    top:add(f.payload_mac, buffer(40, 8))
    top:add(f.mac, buffer(48, 8))
    if is_data and buffer:len() > TRANSFER_BYTES then
        top:add(f.payload, buffer(TRANSFER_BYTES))
    elseif not is_data then
        for at = TRANSFER_BYTES, buffer:len() - 8, 8 do
            top:add(f.missing_offset, buffer(at, 4))
            top:add(f.missing_length, buffer(at + 4, 4))
        end
    end
    pinfo.cols.protocol = "Pleach"
    pinfo.cols.info = string.format("group %d operation %d round %d: %s",
        buffer(8, 4):uint(), buffer(16, 4):uint(), buffer(2, 2):uint(), what)
end

-- Adds the headers between the base transport header and the payload; returns where the payload begins.
local function add_extended_headers(top, buffer, opcode)
    local at = BTH_BYTES
    local function add(field, bytes)
        top:add(field, buffer(at, bytes))
        at = at + bytes
    end
    if with_reth[opcode] then
        add(f.address, 8)
        add(f.key, 4)
        add(f.write_length, 4)
    end
    if with_aeth[opcode] then
        add(f.syndrome, 1)
        add(f.message_sequence, 3)
    end
    if with_immediate[opcode] then add(f.immediate, 4) end
    if opcode == 0xc1 then add(f.sack, 8) end
    if opcode == 0xc2 or opcode == 0xc3 then add(f.token, 8) end
    return at
end

local function dissect_uncovered(buffer, pinfo, tree, opcode, status)
    local coverage = coverages[buffer(1, 1):bitfield(4, 4)]
    local top = tree:add(pleach, buffer(), "Pleach, not RoCEv2: the ICRC covers " .. coverage)
    top:add(f.opcode, buffer(0, 1), opcode)
    top:add(f.migration, buffer(1, 1))
    top:add(f.pad_count, buffer(1, 1))
    top:add(f.coverage, buffer(1, 1))
    top:add(f.partition, buffer(2, 2))
    top:add(f.destination_qp, buffer(5, 3))
    top:add(f.acknowledge_request, buffer(8, 1))
    top:add(f.sequence, buffer(9, 3))
    pinfo.cols.protocol = "Pleach"
    pinfo.cols.info = string.format("%s, queue pair 0x%06x, sequence number %d, ICRC of %s: %s",
        opcode_names[opcode], buffer(5, 3):uint(), buffer(9, 3):uint(), coverage, statuses[status])
    local start = add_extended_headers(top, buffer, opcode)
    local length = buffer:reported_len() - start - buffer(1, 1):bitfield(2, 2) - ICRC_BYTES
    length = math.min(length, buffer:len() - start)
    if length > 0 then top:add(f.payload, buffer(start, length)) end
    local item
    if buffer:len() == buffer:reported_len() then
        item = top:add_le(f.icrc, buffer(buffer:len() - ICRC_BYTES, ICRC_BYTES))
    end
    top:add(f.icrc_status, status):set_generated()
    if status == BAD then (item or top):add_proto_expert_info(icrc_bad) end
end

-- What Wireshark itself does with port 4791.
local udp_ports = DissectorTable.get("udp.port")
local roce = udp_ports:get_dissector(4791)

function pleach.dissector(buffer, pinfo, tree)
    local opcode = opcode_of_uncovered(buffer)
    if is_transfer(buffer) then
        dissect_transfer(buffer, pinfo, tree)
    elseif opcode then
        dissect_uncovered(buffer, pinfo, tree, opcode, icrc_status(buffer, pinfo))
    elseif roce then
        return roce:call(buffer:range():tvb(), pinfo, tree)
    else
        return 0
    end
    return buffer:len()
end
udp_ports:add(4791, pleach)

-- At other ports only what cannot well be anything else.
local function is_sound_transfer(buffer)
    if not is_transfer(buffer) then return false end
    local length, position = buffer(24, 4):uint(), buffer(32, 4):uint()
    local rest = buffer:len() - TRANSFER_BYTES
    if buffer(0, 1):uint() == 0xe1 then
        return position + rest <= length and buffer(36, 4):uint() == 0
    end
    return rest % 8 == 0
end

pleach:register_heuristic("udp", function(buffer, pinfo, tree)
    if is_sound_transfer(buffer) then
        dissect_transfer(buffer, pinfo, tree)
        return true
    end
    local opcode = opcode_of_uncovered(buffer)
    if not opcode then return false end
    local status = icrc_status(buffer, pinfo)
    -- Without an ICRC there are zeros in its place, and reserved bits.
    local last = buffer(buffer:len() - ICRC_BYTES, ICRC_BYTES):uint()
    local has_zeros = last == 0 and buffer(8, 1):bitfield(1, 7) == 0 and buffer:len() % 4 == 0
    if status ~= GOOD and not (status == ABSENT and has_zeros) then return false end
    dissect_uncovered(buffer, pinfo, tree, opcode, status)
    pinfo.conversation = pleach
    return true
end)

aggregation:register_heuristic("infiniband.payload", function(buffer, _, tree)
    if buffer:len() < AGGREGATION_BYTES then return false end
    if buffer(0, 1):bitfield(0, 4) ~= 1 or message_kinds[buffer(0, 1):bitfield(4, 4)] == nil then return false end
    local top = tree:add(aggregation, buffer(),
        "Pleach aggregation, " .. message_kinds[buffer(0, 1):bitfield(4, 4)])
    top:add(g.version, buffer(0, 1))
    top:add(g.kind, buffer(0, 1))
    top:add(g.element, buffer(1, 1))
    top:add(g.operator, buffer(2, 1))
    top:add(g.flags, buffer(3, 1))
    top:add(g.group, buffer(4, 4))
    top:add(g.epoch, buffer(8, 4))
    top:add(g.operation, buffer(12, 4))
    top:add(g.segment, buffer(16, 4))
    top:add(g.child, buffer(20, 2))
    top:add(g.count, buffer(22, 2))
    top:add(g.detail, buffer(24, 4))
    top:add(g.crc, buffer(28, 4))
    if buffer:len() > AGGREGATION_BYTES then
        top:add(g.payload, buffer(AGGREGATION_BYTES))
    end
    return true
end)
